"""Webhooks: push events of the broker, posted to the endpoints that the operators have set."""
