"""restic and its store: the address, the accounts, locks, prunes and checks."""
