"""Shared by unit tests: properties are judged by their examples, and not by a clock."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A busy machine takes seconds for an example that takes milliseconds: speed has benchmarks.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
