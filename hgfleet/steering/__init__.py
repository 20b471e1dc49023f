"""Steering: the choice and the order of manifest entries for a client.

A client takes the first entry of the manifest that it supports and tries no other. So the order is
the server's only influence, and a dead URL fails the clone. The decision is pure: `order.steer`
takes the entries, the endpoints with their health, and the region of the client. `networks` finds
that region, in tables that `ranges` reads. The `prober` measures the health.
"""
