"""Terms: which host is the primary, and the pushes that a change of primary leaves behind."""
