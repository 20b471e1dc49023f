"""Repositories of this host: where each is by the registry, the end of its log, errors."""
