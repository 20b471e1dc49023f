"""The steps of a run: plan, generate, verify, publish, prune and withdraw."""
