"""Goldens: the configuration that `ansible/site.yml` writes on each host, rendered without a host.

    python -m controller.checks.goldens [--update]

| module | contents |
| --- | --- |
| `site` | plays, roles and tasks of `site.yml` for each host, by Ansible's own templar |
| `results` | results of modules that read a host, for tasks that use them |
| `report` | texts of a host, secrets masked; pure |
| `once` | pages with each text once and the hosts that have it; pure |
| `inventory` | the texts of an inventory |
| `__main__` | files of `testing/goldens/`, differences |
"""
