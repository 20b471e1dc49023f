"""The source: what mirrors fetch from the primary beside the messages of pushes, both sides."""
