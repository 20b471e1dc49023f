"""The registry that the inventory declares: types, schema, permissions, compiled form."""
