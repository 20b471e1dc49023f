"""What the hosts of replication tell each other, and how they are connected."""
