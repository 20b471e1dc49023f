"""Tests of the roles, by testinfra: on a throw-away host, on the cluster's, or on a site's."""

from __future__ import annotations

from testinfra import backend

backend.BACKENDS["docker"] = "testing.roles.connection.EnteringBackend"
