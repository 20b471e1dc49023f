"""Replication: every mirror gets every push of the primary, in order."""
