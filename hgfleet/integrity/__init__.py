"""Integrity of the repositories on a host's disk: scheduled `hg verify` of each, and repairs."""
