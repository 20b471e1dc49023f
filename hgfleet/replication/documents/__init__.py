"""Documents: files beside the repositories that mirrors have copies of."""
