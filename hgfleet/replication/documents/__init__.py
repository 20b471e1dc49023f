"""Documents: files other than repositories that mirrors have copies of."""
