"""What runs on the controller: the local cluster, deploys, tests and their choice, checks."""
