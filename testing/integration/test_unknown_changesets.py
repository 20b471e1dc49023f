"""Pushes that name a changeset which the server does not have end in a sentence, as invalid."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from mercurial import bundle2
from mercurial import ui as ui_module

from hgfleet.core import counters
from testing.integration.support.site import environment, server

if TYPE_CHECKING:
    import subprocess

TOP: Final = Path(__file__).resolve().parents[2]
TEMPLATE: Final = TOP / "ansible/roles/mercurial/templates/hgrc.j2"
UNKNOWN: Final = b"1" * 40
DRAFT: Final = b"1"
PUBLIC: Final = b"0"
SENTENCE: Final = b"the changeset 111111111111 is not here: "


class Served:
    """A repository with a draft and a hidden changeset, and sessions of its pusher."""

    def __init__(self, root: Path) -> None:
        self.root, self.path = root, root / "repository"
        (root / "sessions").mkdir(mode=0o700)
        (root / "counters").mkdir()
        names = re.findall(
            r"^(\w+) = /opt/hgfleet/current/hgext/", TEMPLATE.read_text(), re.MULTILINE
        )
        lines = [f"{name} = {TOP}/hgext/{name}.py\n{name}:required = yes" for name in names]
        hgrc = root / "hgrc"
        hgrc.write_text(
            "[extensions]\nclonebundles =\n" + "\n".join(lines) + "\n[phases]\npublish = no\n"
            "[experimental]\nevolution = all\n[server]\nbundle1 = false\nvalidate = true\n"
            f"[hgfleet]\nsessions = {root}/sessions\ncounters = {root}/counters\n"
            "push-disk-free = 0\n"
        )
        self.environment = environment(hgrc) | {"HGFLEET_USER": "alice", "HGFLEET_GROUPS": "staff"}
        self.hg("init", str(self.path))
        (self.path / ".hg/hgrc").write_text(
            "[hgfleet]\npath = team/tool\nread = public\npush = staff\n"
        )
        for text in ("one", "two"):
            (self.path / "file").write_text(text)
            self.hg("-R", str(self.path), "commit", "-A", "-q", "-m", text, "-u", "alice")
        self.hidden = self.log("tip")
        self.hg("-R", str(self.path), "update", "-q", "0")
        self.hg("-R", str(self.path), "debugobsolete", self.hidden.decode())
        self.tip = self.log("tip")

    def hg(self, *arguments: str) -> bytes:
        own = {**self.environment, "HGFLEET_USER": "operator:test"}
        done = server(own).hg([*arguments, "--cwd", self._folder()], own, self.root)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _folder(self) -> Path:
        return self.path if self.path.exists() else self.root

    def log(self, revision: str) -> bytes:
        return self.hg("-R", str(self.path), "log", "-r", revision, "-T", "{node}")

    def send(self, request: bytes) -> subprocess.CompletedProcess[bytes]:
        words = ["-R", self.path, "serve", "--stdio"]
        return server(self.environment).hg(words, self.environment, self.root, request)

    def pushes(self) -> dict[str, float]:
        file = self.root / "counters/pushes"
        values = counters.parse(file.read_bytes()) if file.exists() else {}
        return {name: value for name, value in values.items() if " " not in name}


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


def pushkey(namespace: bytes, key: bytes, old: bytes, new: bytes) -> bytes:
    """Write the command."""
    names = ((b"namespace", namespace), (b"key", key), (b"old", old), (b"new", new))
    return b"pushkey\n" + b"".join(b"%s %d\n%s" % (n, len(value), value) for n, value in names)


def bundle(kind: bytes, data: bytes, **parameters: bytes) -> bytes:
    """Write a push of a mandatory part."""
    bundler = bundle2.bundle20(ui_module.ui())
    part = bundler.newpart(b"replycaps", data=b"HG20\nerror=abort,unsupportedcontent,pushraced")
    part.mandatory = False
    bundler.newpart(kind, sorted((k.encode(), v) for k, v in parameters.items()), data=data)
    body = b"".join(bundler.getchunks())
    return b"unbundle\nheads 10\n666f726365%d\n%s0\n" % (len(body), body)


@pytest.mark.parametrize(
    ("namespace", "key", "old", "new"),
    [(b"phases", UNKNOWN, DRAFT, PUBLIC), (b"bookmarks", b"stable", b"", UNKNOWN)],
)
def test_the_command_pushkey_answers_false_with_a_sentence(
    served: Served, namespace: bytes, key: bytes, old: bytes, new: bytes
) -> None:
    done = served.send(pushkey(namespace, key, old, new) + b"heads\n")

    # The session goes on.
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"2\n0\n41\n%s\n" % served.tip
    assert done.stderr.startswith(SENTENCE)
    assert b"pull, then push again" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_hidden_changeset_is_not_here_either(served: Served) -> None:
    for request in (
        pushkey(b"bookmarks", b"stable", b"", served.hidden),
        bundle(b"pushkey", b"", namespace=b"bookmarks", key=b"b", old=b"", new=served.hidden),
    ):
        done = served.send(request)
        assert b"the changeset %s is not here: " % served.hidden[:12] in done.stdout + done.stderr
    assert served.hg("-R", str(served.path), "bookmarks", "-T", "{bookmark}") == b""


def test_changesets_that_are_here_are_pushed_as_ever(served: Served) -> None:
    done = served.send(
        pushkey(b"bookmarks", b"stable", b"", served.tip)
        + pushkey(b"bookmarks", b"stable", served.tip, b"")
        + pushkey(b"phases", served.tip, DRAFT, PUBLIC)
    )
    assert (done.stdout, done.stderr) == (b"2\n1\n" * 3, b"")
    assert served.hg("-R", str(served.path), "log", "-r", "tip", "-T", "{phase}") == b"public"


@pytest.mark.parametrize("part", [False, True], ids=["command", "part"])
def test_no_key_is_pushed_to_the_working_directory(served: Served, part: bool) -> None:
    name = b"fF" * 20
    served.hg("-R", str(served.path), "bookmark", "-r", served.tip.decode(), "mark")
    for namespace, key, old, new in (
        (b"bookmarks", b"mark", served.tip, name),
        (b"phases", name, DRAFT, PUBLIC),
    ):
        values = (namespace, key, old, new)
        names = ("namespace", "key", "old", "new")
        by_name = dict(zip(names, values, strict=True))
        request = bundle(b"pushkey", b"", **by_name) if part else pushkey(*values)
        done = served.send(request + b"heads\n")
        assert done.returncode == 0, done.stderr
        assert b"the changeset fFfFfFfFfFfF is not here: " in done.stdout + done.stderr
    assert served.pushes() == ({"invalid": 2} if part else {})
    assert served.hg("-R", str(served.path), "bookmarks", "-T", "{bookmark}") == b"mark"


def test_the_name_of_the_working_directory_is_of_no_changeset(served: Served) -> None:
    data = struct.pack(">i", 0) + b"\xff" * 20
    done = served.send(bundle(b"phase-heads", data) + b"heads\n")

    assert done.returncode == 0, done.stderr
    assert b"the changeset ffffffffffff is not here: " in done.stdout + done.stderr
    assert served.pushes() == {"invalid": 1}


@pytest.mark.parametrize(
    ("kind", "data", "parameters"),
    [
        (b"pushkey", b"", (b"phases", UNKNOWN, DRAFT, PUBLIC)),
        (b"pushkey", b"", (b"bookmarks", b"stable", b"", UNKNOWN)),
        (b"bookmarks", bytes.fromhex(UNKNOWN.decode()) + struct.pack(">H", 6) + b"stable", ()),
        (b"phase-heads", struct.pack(">i", 0) + bytes.fromhex(UNKNOWN.decode()), ()),
    ],
    ids=["pushkey of a phase", "pushkey of a bookmark", "bookmarks", "phase-heads"],
)
def test_a_push_of_bundle2_is_refused_with_a_sentence_as_invalid(
    served: Served, kind: bytes, data: bytes, parameters: tuple[bytes, ...]
) -> None:
    names = ("namespace", "key", "old", "new")
    done = served.send(
        bundle(kind, data, **dict(zip(names, parameters, strict=False))) + b"heads\n"
    )

    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert SENTENCE in said
    assert b"defect" not in said
    assert done.stdout.endswith(b"41\n%s\n" % served.tip)
    assert served.pushes() == {"invalid": 1}
    assert served.hg("-R", str(served.path), "bookmarks", "-T", "{bookmark}") == b""
    assert served.hg("-R", str(served.path), "verify", "-q") == b""
