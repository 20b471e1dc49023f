"""The probes: clones and pushes as clients make them, their history, and the public status page."""
