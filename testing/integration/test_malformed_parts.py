"""Pushes that core cannot decode are refused in a sentence, as invalid, and the session goes on."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import pytest

from testing.integration.test_unknown_changesets import Served, bundle

if TYPE_CHECKING:
    from pathlib import Path

NODE: Final = b"\x11" * 20
WORKING_DIRECTORY: Final = b"\xff" * 20
MALFORMED: Final = b"is malformed: got data that cannot be decoded, expected what hg sends"
NOT_HERE: Final = b"names a revision that is not here"


def old_marker(node: bytes, metadata: bytes) -> bytes:
    """Write an obsolescence marker of version 0, without a successor."""
    return b"\x00" + struct.pack(">BIB20s", 0, len(metadata), 0, node) + metadata


def raw(body: bytes) -> bytes:
    """Write a push of these bytes."""
    return b"unbundle\nheads 10\n666f726365%d\n%s0\n" % (len(body), body)


def headed(header: bytes) -> bytes:
    """Write a push of a part with this header and no data."""
    return raw(b"HG20\0\0\0\0" + struct.pack(">I", len(header)) + header + bytes(8))


PUSHES: Final = {
    "heads that are no list": (bundle(b"check:heads", b"xx"), MALFORMED),
    "updated heads that are no list": (bundle(b"check:updated-heads", b"xx"), MALFORMED),
    "a phase of the working directory": (
        bundle(b"check:phases", struct.pack(">i", 0) + WORKING_DIRECTORY),
        NOT_HERE,
    ),
    "a phase of an unknown changeset": (
        bundle(b"check:phases", struct.pack(">i", 0) + NODE),
        NOT_HERE,
    ),
    "a number of changesets in letters": (bundle(b"changegroup", b"", nbchanges=b"abc"), MALFORMED),
    "no markers": (bundle(b"obsmarkers", b""), MALFORMED),
    "markers that are cut off": (bundle(b"obsmarkers", b"\x01xxxx"), MALFORMED),
    "a marker with a zone of years": (
        bundle(b"obsmarkers", old_marker(NODE, b"date:0 99999999")),
        MALFORMED,
    ),
    "a key without a namespace": (bundle(b"pushkey", b"", key=b"b", old=b"", new=b""), MALFORMED),
    "a parameter of the stream that begins with a digit": (
        raw(b"HG20" + struct.pack(">I", 2) + b"1x" + bytes(4)),
        MALFORMED,
    ),
    "a parameter of the stream without a value": (
        raw(b"HG20" + struct.pack(">I", 11) + b"Compression" + bytes(4)),
        MALFORMED,
    ),
    "a header that is too short": (headed(b"\xff"), MALFORMED),
    "a header that ends in its parameters": (headed(b"\x01x" + bytes(4) + b"\1\0"), MALFORMED),
}


@pytest.mark.parametrize(("request_", "said"), PUSHES.values(), ids=PUSHES)
def test_a_push_that_cannot_be_decoded_is_refused_as_invalid(
    tmp_path: Path, request_: bytes, said: bytes
) -> None:
    served = Served(tmp_path)
    store = served.path / ".hg/store"
    before = {path.name: path.read_bytes() for path in store.iterdir() if path.is_file()}

    done = served.send(request_ + b"heads\n")

    answered = done.stdout + done.stderr
    assert done.returncode == 0, answered
    assert said in answered
    assert b"defect" not in answered
    assert done.stdout.endswith(b"41\n%s\n" % served.tip)
    assert served.pushes() == {"invalid": 1}
    assert {path.name: path.read_bytes() for path in store.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    ("delta", "said"),
    [
        (b"\0\0\0", MALFORMED),
        (struct.pack(">lll", 10**6, 10**6, 0), MALFORMED),
        (struct.pack(">lll", 0, 0, 4) + b"abcd", b"has a changeset whose text does not fit its"),
    ],
    ids=["cut off", "outside of its base", "another text"],
)
def test_a_changeset_that_is_not_what_its_hash_says_is_refused_as_invalid(
    tmp_path: Path, delta: bytes, said: bytes
) -> None:
    served = Served(tmp_path)
    tip = bytes.fromhex(served.tip.decode())
    chunk = NODE + tip + bytes(20) + tip + NODE + delta
    # The lists of changesets, manifests and files each end with a chunk without a length.
    data = struct.pack(">l", len(chunk) + 4) + chunk + bytes(4) * 3

    done = served.send(bundle(b"changegroup", data, version=b"02") + b"heads\n")

    answered = done.stdout + done.stderr
    assert done.returncode == 0, answered
    assert said in answered
    assert done.stdout.endswith(b"41\n%s\n" % served.tip)
    assert served.pushes() == {"invalid": 1}


LONG: Final = b"b" * 300


@pytest.mark.parametrize(
    ("request_", "said", "reason"),
    [
        (
            bundle(b"check:bookmarks", NODE + struct.pack(">H", 300) + LONG),
            b'remote repository changed while pushing - please try again (bookmark "bbb',
            "raced",
        ),
        (
            bundle(b"bookmarks", NODE + struct.pack(">H", 302) + b"x@" + LONG),
            b"cannot accept divergent bookmark x@bbb",
            "invalid",
        ),
        (raw(b"HG20" + struct.pack(">I", 300) + b"B" * 300 + bytes(4)), b"BBB", "invalid"),
    ],
    ids=["race", "sentence", "unknown"],
)
def test_an_answer_has_room_for_a_long_name(
    tmp_path: Path, request_: bytes, said: bytes, reason: str
) -> None:
    served = Served(tmp_path)

    done = served.send(request_ + b"heads\n")

    answered = done.stdout + done.stderr
    assert done.returncode == 0, answered
    assert said in answered
    assert b"..." in answered
    assert done.stdout.endswith(b"41\n%s\n" % served.tip)
    assert served.pushes() == {reason: 1}


def test_a_phase_that_does_not_exist_is_refused_as_invalid(tmp_path: Path) -> None:
    served = Served(tmp_path)
    data = struct.pack(">i", 77) + bytes.fromhex(served.tip.decode())

    done = served.send(bundle(b"phase-heads", data) + bundle(b"check:phases", data) + b"heads\n")

    assert done.returncode == 0, done.stderr
    assert (done.stdout + done.stderr).count(MALFORMED) == 2
    assert served.pushes() == {"invalid": 2}


def test_a_push_after_a_malformed_one_is_taken(tmp_path: Path) -> None:
    served = Served(tmp_path)
    data = struct.pack(">i", 0) + bytes.fromhex(served.tip.decode())

    done = served.send(bundle(b"check:heads", b"xx") + bundle(b"phase-heads", data))

    assert done.returncode == 0, done.stderr
    assert served.pushes() == {"invalid": 1, "accepted": 1}
    assert served.hg("-R", str(served.path), "log", "-r", "tip", "-T", "{phase}") == b"public"
