"""Core: errors, structured events, settings, names and files that every part uses."""
