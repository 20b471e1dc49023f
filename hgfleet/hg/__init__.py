"""Mercurial on this host: hooks, wire commands, fingerprints, command server, push spool."""
