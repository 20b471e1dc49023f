"""Webhooks: push events of the broker, posted to the receivers that the operators have set."""
