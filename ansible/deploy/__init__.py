"""./deploy: bring the hosts of an inventory to a release, with a plan first and a way back.

| module     | contents                                                               |
| ---------- | ---------------------------------------------------------------------- |
| `decide`   | every decision and every text that needs no host: pure, unit tested    |
| `validate` | what is wrong with an inventory, and how problems are told; pure       |
| `survey`   | states of the hosts and all problems, before anything else             |
| `gate`     | whether a tree may be deployed: it passed the tests; pure              |
| `attested` | the attestation of this checkout, for the gate: files and git          |
| `lease`    | the lock of the site while it is changed                               |
| `history`  | the deploy log; pure                                                   |
| `site_lock` | lock and log as files of a host, where it runs                        |
| `batches`  | the order of a roll; pure                                              |
| `roll`     | a batch: drained, changed, checked, put back, taken back               |
| `books`    | the playbooks of the roll as processes                                 |
| `check`    | whether a host may be put back; pure                                   |
| `ways`     | the way back of a host, from its record; pure                          |
| `trees`    | trees and inventories that are kept for rollbacks                      |
| `formats`  | whether releases read each other's state; pure                         |
| `look`, `probe`, `truth`, `haproxy`, `record`, `packages` | programs that run on hosts          |
| `upgrade_os` | packages of Debian instead of a release                              |
| `verify`   | the tests of a deployed site, after a deploy                           |
| `questions` | questions to the person at the terminal                               |
| `run`      | Ansible as a process: state of the hosts, preflight, plan, the real run |
| `cli`      | the command line, and the steps in their order                         |
"""
