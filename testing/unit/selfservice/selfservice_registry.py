"""A registry with namespaces of every kind, for the tests of the self-service."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hgfleet.core.principal import Principal
from hgfleet.registry.dynamic import user_repositories
from hgfleet.registry.model.registry import Namespace, Settings, build

if TYPE_CHECKING:
    from hgfleet.registry.dynamic.entry import Entry
    from hgfleet.registry.dynamic.user_repositories import Dynamic

BOB = Principal("bob", frozenset({"sandbox"}))
ALICE = Principal("alice", frozenset({"maintainers", "staff", "team"}))
NOBODY = Principal("mallory", frozenset())
MADE = "2026-11-21T00:00:00Z"

STATIC = build(
    {
        "hgfleet": ("The service", Settings()),
        "staff/plans": ("Secret plans", Settings(read=("staff",), push=("staff",))),
        "team/tool": ("A tool", Settings()),
    },
    {
        "people": Namespace(
            "people",
            "People's own",
            Settings(push=(), bundles=()),
            create=("sandbox", "maintainers"),
            personal=True,
            quota=2,
        ),
        "team": Namespace("team", "The team's", Settings(read=("team",)), create=("team",)),
        "team/closed": Namespace("team/closed"),
        "open": Namespace("open", create=("sandbox", "team")),
    },
    Settings(push=("maintainers",)),
)


def entries(**given: Entry) -> Dynamic:
    """The paths have slashes, so they are given with a double underscore."""
    raw = {path.replace("__", "/"): entry.to_json() for path, entry in given.items()}
    return user_repositories.parse(json.dumps({"format": 1, "repositories": raw}).encode(), "test")


NONE = entries()
