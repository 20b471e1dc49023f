"""SSH sessions of hg: their slots, bounds of what a client sends, checks and ends."""
