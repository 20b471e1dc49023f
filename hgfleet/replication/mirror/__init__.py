"""A mirror: its applier brings every push and document of the primary to this host."""
