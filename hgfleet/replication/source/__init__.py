"""The source: data that mirrors fetch from the primary besides messages; server and client."""
