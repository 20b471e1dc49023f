"""Checks and generators that the tier `lint` runs; each is also a command of its own."""
