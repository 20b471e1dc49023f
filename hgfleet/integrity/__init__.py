"""Integrity of the repositories on a host's disk: `hg verify` of each on schedule, and repairs."""
