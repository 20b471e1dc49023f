"""Parts of the reasons of plans, as operators read them."""

from __future__ import annotations


def newer_than(thing: str, count: int) -> str:
    """Say how many changesets are newer than a thing."""
    return f"{count:,} {'changeset is' if count == 1 else 'changesets are'} newer than the {thing}"
