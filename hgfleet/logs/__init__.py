"""Log lines of this host: their fields, and those of one session or one request by its id."""
