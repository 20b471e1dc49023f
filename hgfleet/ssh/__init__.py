"""The ssh part: key lookup for sshd, and the access shell that a key may run."""
