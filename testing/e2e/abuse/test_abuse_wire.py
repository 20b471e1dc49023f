"""Requests inside a session of hg: no write without permission, no view of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e.abuse.support import NAME_OF_64_KIB

if TYPE_CHECKING:
    from testing.e2e.abuse.support import Connection, Said
    from testing.e2e.abuse.witness import Line, Witness
    from testing.e2e.cluster import Cluster

pytestmark = pytest.mark.alone


def call(command: str, /, **arguments: bytes) -> bytes:
    """Write a command of the wire protocol as an hg client does over SSH."""
    text = f"{command}\n".encode()
    for name, value in arguments.items():
        text += f"{name.replace('star', '*')} {len(value)}\n".encode() + value
    return text


NULL: Final = b"0" * 40

UNBUNDLE: Final = call("unbundle", heads=b"force".hex().encode())


def part(name: bytes) -> bytes:
    """Write a bundle2 with a single part, which has neither parameters nor data."""
    header = bytes([len(name)]) + name + bytes(6)
    return b"HG20" + bytes(4) + len(header).to_bytes(4, "big") + header + bytes(8)


def writes(tip: bytes) -> dict[str, bytes]:
    """Return requests to write; `tip` is a changeset that the repository has."""
    return {
        "a bookmark": call("pushkey", namespace=b"bookmarks", key=b"x", old=b"", new=tip),
        "a bookmark in a batch": call(
            "batch",
            star=b"",
            cmds=b"heads ;pushkey namespace=bookmarks,key=x,old=,new=" + tip,
        ),
        "a marker": call("pushkey", namespace=b"obsolete", key=b"dump0", old=b"", new=b"AA=="),
        "an empty bundle": UNBUNDLE + b"12\nHG20" + b"\0" * 8 + b"0\n",
    }


def test_the_wire_protocol_writes_nothing_without_the_right(
    bobs: Connection, witness: Witness, cluster: Cluster
) -> None:
    def send(request: bytes) -> None:
        said = bobs.run("hg -R e2e/push serve --stdio", stdin=request).clean()
        answer = said.stderr + said.stdout.decode("utf-8", "replace")
        assert "bob may not push to e2e/push" in answer

    def check(_: None, lines: list[Line]) -> None:
        events = [line.text.split()[0] for line in lines]
        assert events == ["event=session", "event=session-end"], lines

    tip = min(cluster.remote_heads("e2e/push")).encode()
    witness.try_each(writes(tip), send, check)


NONSENSE: Final = {
    "an unknown command": b"rm -rf /\n",
    "a command of Python": b"__class__\n",
    "a private command": b"_capabilities\n",
    "64 KiB without an end": NAME_OF_64_KIB.encode(),
    "NUL": b"\0\0\0\0\n\0",
    "no length": b"lookup\nkey\n",
    "a word for a length": b"lookup\nkey abc\n",
    "a negative length": b"lookup\nkey -5\n",
    "a length beyond memory": b"lookup\nkey 99999999999999\n",
    "a length beyond numbers": b"lookup\nkey " + b"9" * 5000 + b"\n",
    "a piece of a bundle beyond memory": UNBUNDLE + b"8000000000\nHG20",
    "a piece of a bundle below zero": UNBUNDLE + b"-1\nHG20",
    "a count beyond memory": b"getbundle\n* 8000000000\n",
    "another argument": b"lookup\nyek 1\nx",
    "a path to look up": call("lookup", key=b"../../../etc/passwd"),
    "a revset to look up": call("lookup", key=b"file('set:size(\">0\")')"),
    "an escape to look up": call("lookup", key=b"\x1b[31m\0\n\xff"),
    "64 KiB to look up": call("lookup", key=NAME_OF_64_KIB.encode()),
    "keys of nothing": call("listkeys", namespace=b"../../hgrc"),
    "a namespace of control characters": call("listkeys", namespace=b"\0\n\x1b[31m"),
    "nodes that are none": call("known", star=b"", nodes=b"xyz ../.. " + NULL),
    "roots that are none": call("getbundle", star=b"", common=b"zz", heads=b"--debugger"),
    "an unknown argument": call("getbundle", star=b"", evil=b"1"),
    "a batch of nothing": call("batch", star=b"", cmds=b";;;"),
    "a batch of a batch": call("batch", star=b"", cmds=b"batch cmds=heads :"),
    "a batch of nonsense": call("batch", star=b"", cmds=b"eval x=:e,:c,:q"),
    "a bundle of the old kind": UNBUNDLE + b"6\nHG10UN0\n",
    "a bundle that is none": UNBUNDLE + b"4\n\x7fELF0\n",
    "a bundle without an end": UNBUNDLE + b"99\nHG20",
    "raw files of a store": UNBUNDLE + b"34\n" + part(b"STREAM2") + b"0\n",
    "a cache of tags": UNBUNDLE + b"39\n" + part(b"hgtagsfnodes") + b"0\n",
    "a phase that goes back": call("pushkey", namespace=b"phases", key=NULL, old=b"0", new=b"1"),
    "capabilities": call("protocaps", caps=b"comp=" + b"x," * 10000 + b"\n\0"),
    "an upgrade": b"upgrade x proto=exp-ssh-v2-0003\nhello\nbetween\n",
    "branches": call("branches", nodes=b"x" * 40),
    "a range": call("between", pairs=b"x-y"),
    "a big stream": call("stream_out"),
    "debug arguments": call("debugwireargs", star=b"", one=b"$(id)", two=b"`id`"),
}


def test_nonsense_on_the_wire_ends_the_session_and_shows_nothing(
    bobs: Connection, witness: Witness
) -> None:
    def send(words: bytes) -> Said:
        return bobs.run("hg -R e2e/push serve --stdio", stdin=words).clean()

    def check(_: Said, lines: list[Line]) -> None:
        begins = "event=session decision=serve user=bob repository=e2e/push "
        assert lines[0].text.startswith(begins), lines
        assert all(line.text.isprintable() for line in lines), lines
        assert len(lines) == 2, lines

    witness.try_each(NONSENSE, send, check)
