"""The test runner of ./run-tests: tiers of steps, each step a command with a log and a count.

Standard library only, because it runs before the controller environment exists; the tools it starts
come from that environment.
"""
