"""Processes that compute answers: their fork server, their budgets, and their slots."""
