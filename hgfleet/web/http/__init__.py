"""HTTP: an exchange with its headers, its place in the service, its sign-in and its log lines."""
