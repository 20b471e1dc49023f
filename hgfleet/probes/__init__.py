"""Probes: clones and pushes as a client makes them, their history, and the public status page."""
