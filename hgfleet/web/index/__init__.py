"""The index: the repositories of the registry in their order, as pages and as JSON."""
