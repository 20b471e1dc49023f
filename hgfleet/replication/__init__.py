"""Replication: every push of the primary, in order, on every mirror."""
