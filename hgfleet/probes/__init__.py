"""The probes: clones as clients make them, their history, and the public status page."""
