"""Errors of work on a repository, below all code that raises or handles them."""

from __future__ import annotations

from hgfleet.core.errors import HgfleetError, TemporaryError


class MissingError(HgfleetError):
    """The repository is not at its place on this mirror, or the registry does not name it."""


class StaleReadersError(TemporaryError):
    """The registry of this mirror is older than a push: its readers may have changed since."""


class DivergedError(HgfleetError):
    """The mirror's repository has another history than the primary's repository."""


class RemovalError(HgfleetError):
    """A record of the primary removes changesets."""


class CorruptionError(HgfleetError):
    """Data of the mirror's repository is damaged."""
