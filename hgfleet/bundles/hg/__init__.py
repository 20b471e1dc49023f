"""hg for the bundle jobs: its processes and their limits, snapshots, changegroups."""
