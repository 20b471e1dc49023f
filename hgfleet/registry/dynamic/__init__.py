"""The dynamic registry: repositories that people make, their changes, former paths and sizes."""
