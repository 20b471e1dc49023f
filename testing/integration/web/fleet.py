"""A site whose workers ask the real sign-in daemon about a directory of two people."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from hgfleet.auth import token_file, tokens
from hgfleet.auth.authenticator import Entry
from hgfleet.core.errors import UnavailableError
from hgfleet.core.principal import Principal
from hgfleet.web.app import Application
from testing.integration.web.support import Reply, Site, ask


@dataclass
class Directory:
    """alice is staff and may read the secret; bob is not."""

    passwords: dict[str, str] = field(default_factory=lambda: {"alice": "wonder", "bob": "builder"})
    groups: dict[str, frozenset[str]] = field(
        default_factory=lambda: {"alice": frozenset({"staff"}), "bob": frozenset({"sandbox"})}
    )
    person_ids: dict[str, str] = field(default_factory=dict)
    is_down: bool = False
    asked: int = 0

    def person(self, name: str) -> Entry | None:
        self.asked += 1
        if self.is_down:
            raise UnavailableError("ldaps://ldap1 (search: Can't contact LDAP server)")
        if name not in self.passwords:
            return None
        return Entry(name, f"uid={name}", self.groups[name], self.person_ids.get(name, ""))

    def is_password(self, entry: Entry | None, password: str) -> bool:
        return entry is not None and self.passwords[entry.name] == password


@dataclass
class Fleet:
    """A site whose workers ask a daemon."""

    site: Site
    directory: Directory
    lines: list[str]

    def __post_init__(self) -> None:
        self.tokens = str(self.site.folder / "tokens.json")
        self.web = Application(
            replace(self.site.settings, auth_socket=self.site.folder / "auth.socket")
        )

    def ask(
        self,
        path: str,
        query: str = "",
        who: tuple[str, str] | str | None = None,
        *,
        scheme: str = "https",
        method: str = "GET",
        headers: dict[str, str] | None = None,
    ) -> Reply:
        given = dict(headers or {})
        if isinstance(who, tuple):
            encoded = base64.b64encode(":".join(who).encode()).decode()
            given["Authorization"] = f"Basic {encoded}"
        elif who is not None:
            given["Authorization"] = who
        return ask(self.web, path, query, method=method, headers=given, scheme=scheme)

    def token(self, person: str) -> str:
        owner = Principal(person, person_id=self.directory.person_ids.get(person, ""))
        with token_file.update(self.tokens) as kept:
            new, _, secret = tokens.create(kept, owner, "tests", tokens.DAYS, datetime.now(UTC))
            kept.update(new)
        return secret
