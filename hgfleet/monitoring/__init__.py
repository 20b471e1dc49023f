"""The monitoring part: metrics of this host, out of what its parts record."""
