"""Restores: of a repository, of a whole host, into a running repository, and as a drill."""
