"""Decisions about bundles: their kinds and names, and which to make, advertise or delete."""
