"""Promotion of a mirror, its losses, and the repositories that are fenced after it."""
