"""Log lines of this host: their fields, and the search for a session or a request by its id."""
