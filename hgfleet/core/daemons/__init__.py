"""Daemons: systemd, services that repeat their work, and answers of one line over a socket."""
