"""Effective configuration of the cluster's hosts, as the programs themselves tell it.

The goldens of `testing/goldens` have the files that `site.yml` writes. These have the result of
those files in the programs: defaults of each program too, rules in the kernel, entries of the
directory's own database. A page is `PART.txt`, with each text once and the hosts that have it.

    .venv/bin/python -m testing.effective     writes them anew from the running cluster

`testing/e2e/test_effective.py` compares them. nginx, HAProxy and NATS print their files again and
no defaults, so the goldens have theirs already.

| module | holds |
| --- | --- |
| `parts` | the command that tells each part, and which hosts have it |
| `clean` | values that differ by run, time and machine replaced; pure |
| `reading` | pages of the running cluster, by their name |
"""
