"""The feed of push events for clients over HTTPS."""
