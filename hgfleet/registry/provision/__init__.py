"""Provisioning: repositories of a host follow the registry, with identity, files and push log."""
