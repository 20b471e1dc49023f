"""Steering: the choice and the order of manifest entries for one client.

A client takes the first entry of the manifest that it supports and no other, so the order is the
server's only lever, and an entry with a dead URL is a failed clone. The decision is pure:
`order.steer` takes the entries, the endpoints with their health, and the region of the client.
`networks` finds that region, in tables that `ranges` reads. The `prober` measures the health.
"""
