"""Senseless requests over SSH end in a sentence or an answer, and never in a traceback."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from testing.integration.support.site import environment, server

if TYPE_CHECKING:
    from collections.abc import Iterator

TOP: Final = Path(__file__).resolve().parents[2]
TEMPLATE: Final = TOP / "ansible/roles/mercurial/templates/hgrc.j2"
NULL: Final = b"0" * 40
OTHER: Final = b"1" * 40


def call(command: bytes, *arguments: tuple[bytes, bytes], stars: int | None = None) -> bytes:
    """Write a command of the wire protocol; with `stars` a count of further arguments first."""
    text = command + b"\n"
    if stars is not None:
        text += b"* %d\n" % stars
    return text + b"".join(b"%s %d\n%s" % (name, len(value), value) for name, value in arguments)


def push(body: bytes, heads: bytes = b"666f726365") -> bytes:
    """Write a push of this data."""
    return call(b"unbundle", (b"heads", heads)) + b"%d\n%s0\n" % (len(body), body)


def requests() -> Iterator[bytes]:
    """Return requests that no client of hg sends."""
    yield from (
        *(b"\0", b"\0\n", b"\xff\xfe\n", b" \n", b"\t\n", b"x" * 100_000, b"x" * 100_000 + b"\n"),
        *(b"lookup", b"rm -rf /\n", b"__class__\n", b"hello hello\n", b"HELLO\n", b"heads\nheads"),
    )
    for length in (
        *(b"", b" ", b"abc", b"-1", b"-5", b"+3", b"1.5", b"1e3", b"0x10", b"1_0", b" 3 3"),
        *(b"9" * 20, b"9" * 5000, b"\xd9\xa3", b"8000000000", b"inf", b"None", b"\0"),
    ):
        yield b"lookup\nkey " + length + b"\nabc"
        yield b"known\n* " + length + b"\nnodes 0\n"
        yield call(b"unbundle", (b"heads", b"666f726365")) + length + b"\n"
    for name in (b"yek", b"*", b"", b"key key", b"\xff", b"heads"):
        yield b"lookup\n" + name + b" 1\nx"
        yield b"listkeys\n" + name + b" 1\nx"
    for nodes in (b"xyz", b"zz" * 20, b"0", b"00", NULL[:39], NULL + b"0", b"../..", b"\0" * 40):
        yield call(b"known", (b"nodes", nodes), stars=0)
        yield call(b"getbundle", (b"heads", nodes), (b"bundlecaps", b"HG20"), stars=2)
        yield call(b"getbundle", (b"common", nodes), (b"bundlecaps", b"HG20"), stars=2)
        yield call(b"getbundle", (b"heads", nodes), stars=1)
        yield push(b"HG20\0\0\0\0\0\0\0\0", nodes)
        yield call(b"between", (b"pairs", nodes))
        yield call(b"branches", (b"nodes", nodes))
    for commands in (
        *(b"", b";", b";;;", b"heads", b"heads ;", b"nothing ", b"batch cmds=heads :", b"known "),
        *(b"lookup key", b"lookup key=a=b", b"eval x=:e,:c,:q", b"unbundle heads=", b"=,= ="),
        *(b"getbundle ", b"lookup yek=1", b"pushkey namespace=x", b"stream_out ", b"\xff \xff"),
    ):
        yield call(b"batch", (b"cmds", commands)) + b"* 0\n"
    for key in (b"\n", b"\0", b"x\ny", b"x" * 500, b"@", b"default", NULL, OTHER, b"\xff", b""):
        for old, new in (
            (b"", b""),
            (b"", b"zz"),
            (b"zz", NULL),
            (NULL, OTHER),
            (b"", b"\xff" * 20),
        ):
            for namespace in (b"bookmarks", b"phases", b"obsolete", b"none"):
                yield call(
                    b"pushkey",
                    (b"namespace", namespace),
                    (b"key", key),
                    (b"old", old),
                    (b"new", new),
                )
    for body in (
        *(
            b"",
            b"\x7fELF",
            b"HG10UN",
            b"HG10GZxx",
            b"HG10BZxx",
            b"HG20",
            b"HG20\0",
            b"HG21\0\0\0\0",
        ),
        *(b"HG20\xff\xff\xff\xff", b"HG20\0\0\0\0\xff\xff\xff\xff", b"HG20\0\0\0\0\0\0\0\1x"),
        *(b"HG20\0\0\0\3x=y\0\0\0\0", b"HG20\0\0\0\x0eCompression=XX\0\0\0\0", b"HG20\x7f\0\0\0"),
        *(b"HG20\0\0\0\0\0\0\0\7\xff\0\0\0\0\0\0", b"HG20\0\0\0\0\0\0\0\7\0\0\0\0\0\xff\xff"),
        *(b"HG20\0\0\0\0\0\0\0\x12\x0bCHANGEGROUP\0\0\0\0\0\0\0\0\0\4abcd\0\0\0\0\0\0\0\0",),
        *(
            b"HG20\0\0\0\0\0\0\0\x10\x09PUSHKEY\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            b"HG2Y",
            b"HG20" * 99,
        ),
    ):
        yield push(body)
    yield from (
        *(call(b"stream_out"), call(b"clonebundles_manifest", stars=0), call(b"debugwireargs")),
        *(call(b"getbundle", (b"cg", b"\xff"), stars=1), call(b"getbundle", stars=65)),
        *(call(b"getbundle", (b"listkeys", b"\0,"), (b"bundlecaps", b"HG20"), stars=2),),
        *(call(b"getbundle", (b"bundlecaps", b"HG20,bundle2=%zz"), stars=1),),
        *(call(b"getbundle", (b"evil", b"1"), stars=1), call(b"protocaps", (b"caps", b"\0\n"))),
        *(call(b"lookup", (b"key", b"x" * 100_000)), call(b"listkeys", (b"namespace", b"\n\0"))),
        *(call(b"upgrade x proto=exp-ssh-v2-0003") + b"hello\nbetween\n", b"between\npairs 3\nx-y"),
    )


REQUESTS: Final = list(requests())
NAMES: Final = [f"{number}-{request[:30]!r}" for number, request in enumerate(REQUESTS)]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Return a repository with a changeset, and the environment of a session of its pusher."""
    root = tmp_path_factory.mktemp("served")
    (root / "sessions").mkdir(mode=0o700)
    names = re.findall(r"^(\w+) = /opt/hgfleet/current/hgext/", TEMPLATE.read_text(), re.MULTILINE)
    assert "hardening" in names
    hgrc = root / "hgrc"
    lines = [f"{name} = {TOP}/hgext/{name}.py\n{name}:required = yes" for name in names]
    hgrc.write_text(
        "[extensions]\nclonebundles =\n" + "\n".join(lines) + "\n"
        "[server]\nbundle1 = false\nvalidate = true\n"
        f"[hgfleet]\nsessions = {root}/sessions\n"
    )
    own = environment(hgrc) | {"HGFLEET_USER": "alice", "HGFLEET_GROUPS": "staff"}
    repository = root / "repository"
    for arguments in (
        ["init", repository],
        ["-R", repository, "--cwd", repository, "commit", "-qAm", "one", "-u", "alice"],
    ):
        if arguments[0] != "init":
            (repository / "file").write_text("one")
            (repository / ".hg/hgrc").write_text(
                "[hgfleet]\npath = team/tool\nread = public\npush = staff\n"
            )
        assert server(own).hg(arguments, own, root).returncode == 0
    return repository, own


def test_there_are_more_than_a_hundred_requests() -> None:
    assert len(REQUESTS) > 100


@pytest.mark.parametrize("request_", REQUESTS, ids=NAMES)
def test_a_senseless_request_ends_cleanly(
    served: tuple[Path, dict[str, str]], request_: bytes
) -> None:
    repository, own = served

    words = ["-R", repository, "serve", "--stdio"]
    done = server(own).hg(words, own, repository.parent, request_)

    said = done.stderr.decode("utf-8", "replace")
    assert done.returncode in (0, 255), said
    for sign in ("Traceback", "Error", "Exception", os.fspath(TOP), "object at 0x", "ProgrammingE"):
        assert sign not in said
    assert sys.prefix not in said
    assert len(said.splitlines()) <= 3, said
    assert not list((repository.parent / "sessions").glob("*.push"))
    assert not list((repository / ".hg").glob("store/journal*"))
