"""Requests into a repository: their check, their answer, and how it is sent."""
