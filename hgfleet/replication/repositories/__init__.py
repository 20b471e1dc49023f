"""Repositories of this host: their paths by the registry, the ends of their logs, errors."""
