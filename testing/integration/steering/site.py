"""A repository behind SSH, whose manifest of bundles the extensions steer and sign."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hgfleet.core import identity
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.model.registry import Registry, Repository
from hgfleet.steering import probe
from hgfleet.steering.health import Condition, Findings, Health
from testing.integration.support import site

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from hgfleet.bundles.decide.manifest import Entry
    from hgfleet.registry.model.registry import Read
    from hgfleet.steering.order import Endpoint

REPOSITORY: Final = "team/project"
IDENTITY: Final = "5f" * 16


def own(entry: Entry) -> Entry:
    """Return an entry with the identity of the repository, unless it has another."""
    return replace(entry, identity=entry.identity or IDENTITY)


class SteeredSite(site.Site):
    """A host with a repository, a manifest, and the last state of the prober."""

    def __init__(self, root: Path, *extensions: str) -> None:
        super().__init__(root)
        self.health = root / "health.json"
        self.load(*extensions)
        self.create(REPOSITORY)
        self.control = self.path(REPOSITORY) / ".hg"
        (self.control / "hgrc").write_text(f"[hgfleet]\npath = {REPOSITORY}\n")
        (self.control / "store/identity").write_text(identity.text(IDENTITY))
        self.dynamic.parent.mkdir()
        self.readers("public")

    def readers(self, read: Read, known_as: str = IDENTITY) -> None:
        """Have the registry say who may read the repository, and which identity it has."""
        repository = Repository(REPOSITORY, "", read, (), True, ("zstd",))
        self.register(Registry({REPOSITORY: repository}))
        with dynamic_update.update(self.dynamic) as entries:
            entries.note_identity(REPOSITORY, known_as)

    def load(self, *extensions: str) -> None:
        """Load these extensions, in this order."""
        loaded = "".join(f"{name} = {site.HGEXT}/{name}.py\n" for name in extensions)
        self.hgrc.write_text(
            "[trusted]\nusers = *\n[ui]\nusername = t\nallowemptycommit = yes\n"
            f"[extensions]\nclonebundles =\nblackbox =\n{loaded}"
            f"[hgfleet]\nsteering = {self.root / 'steering.toml'}\n"
            f"signing = {self.root / 'signing.toml'}\n"
            f"compiled = {self.registry}\ndynamic = {self.dynamic}\n"
        )

    def steer(self, endpoints: Iterable[Endpoint], *, networks: str = "") -> None:
        """Write the settings of steering."""
        text = f'health = "{self.health}"\nstate = "{self.root}"\n'
        for endpoint in endpoints:
            text += f'[[endpoint]]\nname = "{endpoint.name}"\nurl = "{endpoint.url}"\n'
            text += f'region = "{endpoint.region}"\n' if endpoint.region else ""
            text += f'cdn = {str(endpoint.is_cdn).lower()}\norigin = "{endpoint.origin}"\n'
        (self.root / "steering.toml").write_text(f"{text}[networks]\n{networks}\n")

    def probed(
        self, *up: str, dead: Mapping[str, str] | None = None, read: str = "", age: float = 0
    ) -> None:
        """Write the state of a prober: these endpoints are up, these objects are dead."""
        conditions = {name: Condition().after(None) for name in up}
        probe.write_findings(self.health, Findings(dict(dead or {}), {read} if read else set()))
        probe.write(self.health, Health(time.time() - age, conditions))

    def publish(self, *lines: Entry | bytes) -> None:
        """Replace the manifest; each entry is of this repository unless it says otherwise."""
        written = (
            entry if isinstance(entry, bytes) else own(entry).line().encode() for entry in lines
        )
        (self.control / "clonebundles.manifest").write_bytes(b"".join(b"%s\n" % w for w in written))

    def lines(
        self, address: str = "192.0.2.1", command: bytes = b"clonebundles_manifest"
    ) -> list[bytes]:
        """Ask for the manifest as a client of the wire protocol does."""
        return [line for line in self.answer(REPOSITORY, command, address).split(b"\n") if line]

    def told(
        self, address: str = "192.0.2.1", command: bytes = b"clonebundles_manifest"
    ) -> list[str]:
        """Return the URLs that a client is told of, in their order, without signatures."""
        told = self.lines(address, command)
        return [line.split(b" ")[0].split(b"?")[0].decode() for line in told]

    def clone(self, name: str) -> str:
        """Clone as a client does; return its output."""
        return self.hg("clone", "-U", *self.ssh(), self.url(REPOSITORY), self.root / name)
