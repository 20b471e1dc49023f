"""The registry: repositories, namespaces, permissions, and their provisioning on a host."""
