"""What Mercurial is asked and told: hooks, fingerprints, command server, spool of pushes."""
