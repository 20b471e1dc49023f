"""A mirror: its applier copies every push and document of the primary to this host."""
