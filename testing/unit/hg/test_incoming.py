"""Bounds of requests over SSH: arguments, pieces of a pushed bundle, room on the disk."""

from __future__ import annotations

import pytest

from hgfleet.hg.sessions import incoming
from hgfleet.hg.sessions.incoming import SessionEndError, SpoolLimits

LIMITS = SpoolLimits(push=1000, person=2000, free=500)


class Client:
    """The bytes that a client sends; the bytes that were taken are counted."""

    def __init__(self, data: bytes) -> None:
        self.data, self.taken = data, 0

    def line(self) -> bytes:
        line, _, self.data = self.data.partition(b"\n")
        return line

    def take(self, size: int) -> bytes:
        self.taken += size
        part, self.data = self.data[:size], self.data[size:]
        return part


def read(spec: bytes, data: bytes) -> tuple[dict[bytes, bytes | dict[bytes, bytes]], Client]:
    client = Client(data)
    return incoming.read_arguments(spec.split(), client.line, client.take), client


def test_arguments_are_read_as_clients_write_them() -> None:
    arguments, client = read(b"key *", b"* 2\na 1\nxbb 2\nyzkey 3\nabcheads\n")

    assert arguments == {b"*": {b"a": b"x", b"bb": b"yz"}, b"key": b"abc"}
    assert client.data == b"heads\n"


def test_a_command_without_arguments_reads_nothing() -> None:
    assert read(b"", b"heads\n")[1].data == b"heads\n"


@pytest.mark.parametrize(
    ("spec", "data"),
    [
        (b"key", b""),
        (b"key", b"key\n"),
        (b"key", b"key 1 1\nx"),
        (b"key", b"key -1\n"),
        (b"key", b"key +1\nx"),
        (b"key", b"key 1_0\n"),
        (b"key", "key ٣\n".encode()),
        (b"key", b"key " + b"9" * 5000 + b"\n"),
        (b"key", b"yek 1\nx"),
        (b"key", b"* 1\nkey 1\nx"),
        (b"key old", b"key 1\nxkey 1\ny"),
        (b"*", b"* 65\n"),
        (b"*", b"* -1\n"),
        (b"*", b"* 2\na 1\nxa 1\ny"),
    ],
)
def test_what_is_no_argument_is_malformed(spec: bytes, data: bytes) -> None:
    with pytest.raises(SessionEndError, match="cannot be read: ") as raised:
        read(spec, data)
    assert raised.value.reason == "malformed"
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("spec", "name", "most"),
    [
        (b"key", b"key", 1024),
        (b"namespace", b"namespace", 256),
        (b"nodes", b"nodes", 8 * 2**20),
        (b"cmds", b"cmds", 8 * 2**20),
    ],
)
def test_an_argument_that_is_too_long_is_not_read(spec: bytes, name: bytes, most: int) -> None:
    assert read(spec, b"%s %d\n" % (name, most))[1].taken == most
    client = Client(b"%s %d\n" % (name, most + 1))
    with pytest.raises(SessionEndError, match=f"{most + 1} bytes, and {most} are allowed"):
        incoming.read_arguments(spec.split(), client.line, client.take)
    assert client.taken == 0


def test_all_arguments_of_a_request_share_one_bound() -> None:
    half = incoming.MAX_ARGUMENTS // 2 + 1
    data = b"* 2\na %d\n%sb %d\n" % (half, b"x" * half, half)
    with pytest.raises(SessionEndError) as raised:
        read(b"*", data)
    assert raised.value.reason == "too-long"


def test_ten_thousand_heads_are_an_ordinary_request() -> None:
    heads = b" ".join([b"0" * 40] * 10_000)
    data = b"* 2\nheads %d\n%scommon %d\n%s" % (len(heads), heads, len(heads), heads)
    assert read(b"*", data)[0] == {b"*": {b"heads": heads, b"common": heads}}


NODE = b"0123456789abcdefABCDEF00" + b"0" * 16


@pytest.mark.parametrize("name", [b"nodes", b"heads", b"common"])
@pytest.mark.parametrize(
    "nodes", [b"x", b"0", b"00", NODE[:39], NODE + b"0", NODE + b"  " + NODE, NODE + b"\n", b" "]
)
def test_a_list_of_changesets_has_whole_names(name: bytes, nodes: bytes) -> None:
    for spec, data in ((name, b""), (b"*", b"* 1\n")):
        with pytest.raises(SessionEndError, match="expected the full names of changesets"):
            read(spec, data + b"%s %d\n%s" % (name, len(nodes), nodes))


@pytest.mark.parametrize("nodes", [b"", NODE, NODE + b" " + NODE, b"force".hex().encode()])
def test_lists_that_clients_write_are_read(nodes: bytes) -> None:
    assert read(b"heads", b"heads %d\n%s" % (len(nodes), nodes))[0] == {b"heads": nodes}
    hashed = b"hashed".hex().encode() + b" " + NODE
    assert read(b"heads", b"heads %d\n%s" % (len(hashed), hashed))[0] == {b"heads": hashed}


def pushkey(namespace: bytes, key: bytes, old: bytes, new: bytes) -> dict[bytes, bytes]:
    values = zip((b"namespace", b"key", b"old", b"new"), (namespace, key, old, new), strict=True)
    text = b"".join(b"%s %d\n%s" % (name, len(value), value) for name, value in values)
    return read(b"namespace key old new", text)[0]  # type: ignore[return-value]


@pytest.mark.parametrize(
    "values",
    [
        (b"phases", NODE, b"1", b"0"),
        (b"bookmarks", b"@", b"", NODE),
        (b"bookmarks", b"a name", NODE, b""),
        (b"obsolete", b"dump0", b"", b"00000text"),
        (b"none", b"x", b"", b""),
    ],
)
def test_keys_that_clients_push_are_read(values: tuple[bytes, bytes, bytes, bytes]) -> None:
    assert pushkey(*values)[b"new"] == values[3]


@pytest.mark.parametrize(
    "values",
    [
        (b"phases", b"x", b"1", b"0"),
        (b"phases", NODE, b"", b"0"),
        (b"phases", NODE, b"1", b"-1"),
        (b"phases", NODE, b"1", b"1" * 50),
        (b"bookmarks", b"@", b"zz", NODE),
        (b"bookmarks", b"@", b"", b"\xff" * 20),
        (b"bookmarks", b"@", b"", b"tip"),
    ],
)
def test_a_malformed_key_is_refused_with_what_is_expected(
    values: tuple[bytes, bytes, bytes, bytes],
) -> None:
    with pytest.raises(SessionEndError, match=r"for a (phase|bookmark)") as raised:
        pushkey(*values)
    assert raised.value.reason == "malformed"


def test_pieces_of_a_bundle_end_with_an_empty_one() -> None:
    lines = iter([b"4096", b"8000000000", b"0", b"never read"])
    assert list(incoming.chunks(lambda: next(lines))) == [4096, 8000000000]
    assert next(lines) == b"never read"


@pytest.mark.parametrize("size", [b"", b"-1", b"x", b" 1", b"1e9", b"9" * 20])
def test_a_piece_needs_a_size(size: bytes) -> None:
    with pytest.raises(SessionEndError, match="piece of the pushed bundle"):
        list(incoming.chunks(lambda: size))


def test_a_push_within_its_limits_goes_on() -> None:
    assert incoming.spool_refusal(1000, 2000, 500, LIMITS) is None


@pytest.mark.parametrize(
    ("sent", "person", "free", "words"),
    [
        (1001, 1001, 10_000, "1000 bytes that a single push may have (1001 bytes were sent)"),
        (900, 2001, 10_000, "2000 bytes that they may have together"),
        (0, 0, 499, "499 bytes left, less than the 500 bytes that stay free"),
    ],
)
def test_a_refused_push_reads_what_was_sent_and_what_is_allowed(
    sent: int, person: int, free: int, words: str
) -> None:
    sentence = incoming.spool_refusal(sent, person, free, LIMITS)
    assert sentence is not None
    assert words in sentence
    assert "; " in sentence


def test_sizes_are_written_for_people() -> None:
    texts = [incoming.size_text(size) for size in (0, 2**20 - 1, 2**20, 4 * 2**30, 50 * 2**30)]
    assert texts == ["0 bytes", "1048575 bytes", "1 MiB", "4096 MiB", "50 GiB"]


def test_data_of_a_client_is_shown_short_and_printable() -> None:
    assert incoming.shown(b"\x1b[31m\n\xff") == "'?[31m??'"
    assert incoming.shown(b"x" * 100) == f"'{'x' * 40}'..."
