"""./deploy: bring the hosts of an inventory to a release, with a plan first and a way back.

`cli` has the command line, and the steps in their order. Decisions are pure modules that read no
host, file or clock; they say so in their first line.
"""
