"""Admission: how many clones are served at the same time."""
