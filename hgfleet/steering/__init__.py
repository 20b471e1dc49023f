"""Steering: which published bundles a client is told about, and in which order.

A client takes the first line of the manifest that it supports and no other, so the order is the
server's only lever, and a line that leads nowhere is a clone that fails. What is decided here is
pure: `order.steer` from the manifest's entries, the endpoints with their health, and where the
client is; `networks` says where that is; `ranges` reads the tables that it is known from.
"""
