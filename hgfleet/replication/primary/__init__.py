"""The primary: its relay publishes every push, and answers sessions that wait for mirrors."""
