"""Goldens: the configuration that `ansible/site.yml` writes on each host, rendered without one.

    python -m testing.tools.goldens [--update] INVENTORY...

| module | contents |
| --- | --- |
| `site` | plays, roles and tasks of `site.yml` for each host, by Ansible's own templar |
| `results` | results of modules that read a host, for tasks that use them |
| `report` | pages of a host, secrets masked; hosts of a kind share pages; pure |
| `__main__` | inventories, files of `testing/goldens/`, differences |
"""
