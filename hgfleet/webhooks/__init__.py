"""Webhooks: push events of the broker, posted to the receivers in the operators' settings."""
