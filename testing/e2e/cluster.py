"""The running cluster: the service, and the people who use it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from testing.e2e.people import Directory, Person
from testing.e2e.service import Service


@dataclass(frozen=True)
class Cluster(Service):
    """The running cluster, by the variables of `./cluster env`."""

    def person(self, name: str, key: str | None = None) -> Person:
        """Return a person with a key of the cluster; `key` is for a key of another name."""
        return Person(name, Path(self.env["HGFLEET_KEYS"]) / (key or name), self)

    def directory(self, person: str) -> Directory:
        """Return the entry of a person, for the directory's administrator."""
        dn = f"uid={person},ou=people,{self.env['HGFLEET_LDAP_BASE']}"
        return Directory(self.first("directory"), dn)
