"""Keys: the lookup for sshd, and the state of a person for sessions that are open."""
