"""Hosts of replication in tests: a CA, certificates of hosts, and a primary with its source."""

from __future__ import annotations

import contextlib
import datetime
import errno
import ipaddress
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hgfleet.core import identity as identities
from hgfleet.pushlog import log_file
from hgfleet.pushlog.record import Heads, Record
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.model.registry import Registry, Repository
from hgfleet.replication import daemons
from hgfleet.replication.protocol.settings import Role, Settings
from hgfleet.replication.source.client import SourceClient
from testing.integration.support.site import HG, Site

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import pytest

IDENTITY = "7d" * 16

HGRC = """\
[ui]
username = test
[extensions]
strip =
rebase =
[experimental]
evolution = all
"""


class Authority:
    """A CA, and the certificates that it signed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, folder.name)])
        self.file = folder / "ca.pem"
        made = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self._write(self.file, made.sign(self._key, hashes.SHA256()))

    def host(self, name: str, **names: Any) -> tuple[Path, Path]:
        """Make the certificate and key of a host; `localhost=True` names 127.0.0.1 as well."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives: list[x509.GeneralName] = [x509.DNSName(name)]
        if names.get("localhost"):
            alternatives.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        made = self._builder(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key
        ).add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        certificate, file = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        self._write(certificate, made.sign(self._key, hashes.SHA256()))
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return certificate, file

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> Any:
        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
        )

    @staticmethod
    def _write(file: Path, certificate: x509.Certificate) -> None:
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


class Host(Site):
    """A host with repositories, in the layout of `Settings`."""

    def __init__(self, root: Path, name: str, authority: Authority, source: str = "") -> None:
        root.mkdir()
        super().__init__(root, HGRC)
        self.authority = authority
        certificate, key = authority.host(name, localhost=True)
        for folder in (
            *("repos", "dynamic/tokens", "manifests", "pullbundles", "state", "terms", "fence"),
        ):
            (root / folder).mkdir(parents=True)
            (root / folder).chmod(0o2750)
        self.settings = Settings(
            role=Role.MIRROR if source else Role.PRIMARY,
            host=name,
            primary="hg1",
            source=source or "https://127.0.0.1:1",
            brokers=("nats://127.0.0.1:1",),
            mirrors=("hgweb1", "hgweb2"),
            repositories=self.repos,
            compiled=self.registry,
            dynamic=self.dynamic,
            manifests=root / "manifests",
            pull_bundles=root / "pullbundles",
            hg=HG,
            hgrc=self.hgrc,
            certificate=certificate,
            key=key,
            ca=authority.file,
            state=root / "state",
            terms=root / "terms",
            fence=root / "fence",
        )
        self.declare()

    def declare(self, *paths: str) -> None:
        """Have the inventory declare these repositories."""
        self.register(Registry(repositories={path: _public(path) for path in paths}))

    def identify(self, repository: str, identity: str = IDENTITY) -> None:
        """Give a repository of the inventory an identity, on the disk and in the registry."""
        self.identify_all({repository: identity})

    def identify_all(self, named: Mapping[str, str]) -> None:
        """Give repositories of the inventory their identities, by path."""
        for path, identity in named.items():
            (self.path(path) / identities.FILE).write_text(identities.text(identity))
        with dynamic_update.update(self.dynamic) as change:
            for path, identity in named.items():
                change.note_identity(path, identity)

    def record(self, repository: str, *nodes: str, **fields: Any) -> bytes:
        """Append a record to the push log of a repository; return its line."""
        log = self.log(repository)
        tip, given = log_file.tip(log), fields.pop("identity", "")
        heads = self.hg_in(repository, "log", "--hidden", "-r", "heads(all())", "-T", "{node}\n")
        line = Record(
            id=tip.id + 1,
            repository=tip.repository or given or identities.of(self.path(repository)) or IDENTITY,
            kind="push",
            user="alice",
            time=1_795_440_000_000 + tip.id,
            previous=tip.hash,
            changesets=nodes,
            heads=Heads(digest=Heads.digest_of(heads.split())),
            **fields,
        ).line()
        with log.open("ab") as file:
            file.write(line + b"\n")
        return line

    def push(
        self, repository: str, name: str, content: str = "", *options: str, **fields: Any
    ) -> str:
        """Commit a file and record it; return the new node."""
        node = self.commit(repository, name, content or name, *options)
        self.record(repository, node, **fields)
        return node

    def log(self, repository: str) -> Path:
        """Return the file of a push log."""
        return self.path(repository) / ".hg/store" / log_file.NAME


class Primary(Host):
    """A primary that serves its mirrors."""

    def __init__(self, root: Path, authority: Authority) -> None:
        super().__init__(root, "hg1", authority)
        self.said: list[str] = []

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        """Run the source; yields its URL."""
        server = daemons.source_server(self.settings, ("127.0.0.1", 0), self.said.append)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        with server:
            thread.start()
            try:
                yield f"https://127.0.0.1:{server.server_address[1]}"
            finally:
                server.shutdown()
                thread.join()


def _public(path: str) -> Repository:
    return Repository(path, description="", read="public", push=(), publishing=False, bundles=())


def restrict_modes(patch: pytest.MonkeyPatch) -> None:
    """Refuse to set setgid bits, as a unit with RestrictSUIDSGID= and UMask=0027 does."""
    # Mercurial asks for the umask when it is imported.
    patch.setattr("mercurial.util.umask", 0o027)
    original = os.chmod

    def chmod(path: Any, mode: int, **named: Any) -> None:
        if mode & 0o6000:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
        original(path, mode, **named)

    patch.setattr(os, "chmod", chmod)


def client(host: Host, source: str) -> SourceClient:
    """Return the client of a host for a source."""
    return SourceClient(replace(host.settings, source=source))
