"""Messages between the hosts of replication, and their connections."""
