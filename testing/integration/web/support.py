"""A site in a folder with real repositories, and a way to ask it as a WSGI server does."""

from __future__ import annotations

import io
import json
import shutil
import sys
import time
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hgfleet.hg.fingerprint import SETTLED_NS
from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.registry.model.registry import Registry, Repository
from hgfleet.web.app import Application
from hgfleet.web.http.settings import Settings
from testing.support import prefork

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROJECT = "/team/project"
HGRC = """
[extensions]
clonebundles =
[ui]
username = test <test@example.org>
[web]
allow-archive = zip, gz
encoding = UTF-8
guessmime = false
[server]
bundle1 = no
validate = true
[phases]
publish = no
"""


@dataclass
class Reply:
    """An answer of the application."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class Site:
    """Repositories in a folder and the application that serves them."""

    folder: Path
    environment: dict[str, str]
    public: list[str] = field(default_factory=list)
    private: list[str] = field(default_factory=list)
    descriptions: dict[str, str] = field(default_factory=dict)
    publishing: list[str] = field(default_factory=list)
    """Repositories that publish; the configuration of these tests says that none does."""

    @property
    def settings(self) -> Settings:
        return Settings(
            registry=self.folder / "registry.json",
            dynamic=self.folder / "dynamic/registry.json",
            root=self.folder / "repos",
            access_log=self.folder / "access.log",
            public_url="https://hg.example.org",
            ssh_url="ssh://hg@hg.example.org",
            drain=self.folder / "web.drain",
        )

    def application(self) -> Application:
        return Application(self.settings)

    def hg(self, repository: str, *arguments: str) -> str:
        """Run hg in a repository and return its output."""
        place, server = self.path(repository), prefork.shared(self.environment)
        done = server.hg(arguments, self.environment, place)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def path(self, repository: str) -> Path:
        return self.folder / "repos" / repository

    def create(self, repository: str, *, public: bool = True) -> None:
        """Make an empty repository and put it into the registry."""
        path = self.path(repository)
        path.parent.mkdir(parents=True, exist_ok=True)
        done = prefork.shared(self.environment).hg(["init", path], self.environment, self.folder)
        assert done.returncode == 0, done.stderr.decode()
        (self.public if public else self.private).append(repository)
        self.write_registry()

    def commit(self, repository: str, name: str, content: str = "content\n") -> str:
        """Commit a file and return the new node."""
        (self.path(repository) / name).write_text(content)
        said = self.hg(repository, "commit", "--debug", "-A", "-m", f"add {name}", name)
        return said.rpartition(":")[2].strip()

    def write_registry(self) -> None:
        entries = [
            Repository(
                *(path, self.descriptions.get(path, f"About {path}"), "public", ()),
                publishing=path in self.publishing,
                bundles=(),
            )
            for path in self.public
        ]
        entries += [
            Repository(path, "Secret", ("staff",), (), publishing=False, bundles=())
            for path in self.private
        ]
        registry = Registry({entry.path: entry for entry in entries}, {})
        new = self.folder / "registry.json.new"
        new.write_text(dump_compiled(registry))
        new.rename(self.folder / "registry.json")

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "access.log").read_text().splitlines()]


def copied(template: Site, folder: Path) -> Site:
    """Return a copy of a site in another folder."""
    shutil.copytree(template.folder, folder, dirs_exist_ok=True)
    return replace(
        template,
        folder=folder,
        public=list(template.public),
        private=list(template.private),
        descriptions=dict(template.descriptions),
    )


def environ_of(
    path: str,
    query: str = "",
    method: str = "GET",
    headers: Mapping[str, str] = MappingProxyType({}),
    body: bytes = b"",
    raw: str | None = None,
    scheme: str = "http",
) -> dict[str, Any]:
    """Return the environment of a request, as a WSGI server makes it."""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "RAW_URI": path if raw is None else raw,
        "QUERY_STRING": query,
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "localhost",
        "REMOTE_ADDR": "192.0.2.7",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scheme,
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    if body:
        environ["CONTENT_LENGTH"] = str(len(body))
    for name, value in headers.items():
        environ["HTTP_" + name.upper().replace("-", "_")] = value
    return environ


def ask(
    application: Application,
    path: str,
    query: str = "",
    *,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    raw: str | None = None,
    scheme: str = "http",
) -> Reply:
    """Send a request the way a WSGI server does."""
    environ = environ_of(path, query, method, headers or {}, body, raw, scheme)
    started: list[tuple[str, list[tuple[str, str]]]] = []
    written: list[bytes] = []

    def start_response(
        status: str, response_headers: list[tuple[str, str]], exc_info: object = None
    ) -> Any:
        assert exc_info is None
        assert not started, "the response was started twice"
        for name, value in response_headers:
            assert name.isascii()
            assert value.isascii()
            assert value.isprintable(), (name, value)
        started.append((status, response_headers))
        return written.append

    pieces = application(environ, start_response)
    try:
        data = b"".join(pieces)
    finally:
        close = getattr(pieces, "close", None)
        if close is not None:
            close()
    status, response_headers = started[0]
    names = [name for name, _ in response_headers]
    assert len(names) == len(set(names)), f"a header twice: {names}"
    return Reply(int(status[:3]), dict(response_headers), b"".join(written) + data)


def settle() -> None:
    """Let the state of every repository become old enough to be trusted."""
    time.sleep(SETTLED_NS / 1e9 + 0.02)  # the state is a property of time itself


def last(site: Site) -> dict[str, object]:
    """Return the newest line of the access log."""
    return site.log()[-1]
