"""Admission: the limit on clones that a host computes at the same time."""
