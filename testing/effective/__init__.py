"""Effective configuration of the cluster's hosts, as the programs themselves print it.

The goldens of `testing/goldens` have the files that `site.yml` writes. The pages of this folder
have the effect of those files: the settings of each program with its defaults, rules in the kernel,
entries of the directory's own database. A page is `PART.txt`, with each text once and the hosts
that have it.

    .venv/bin/python -m testing.effective     writes the pages from the running cluster

`testing/e2e/test_effective.py` compares them. nginx, HAProxy and NATS print their files again and
no defaults, so the goldens have theirs already.

| module | holds |
| --- | --- |
| `parts` | the command that prints each part, and which hosts have it |
| `clean` | replaces values that differ by run, time and machine; pure |
| `reading` | pages of the running cluster, by their name |
"""
