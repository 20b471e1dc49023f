"""Commands of Mercurial's wire protocol over HTTPS, and the check of their arguments.

hgweb trusts the shape of its input: a missing argument or a node that is not hexadecimal ends in an
exception. Arguments are therefore checked first, and a refusal names the wrong argument.
`hgfleet.hg.wire_commands` lists the commands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, unquote_to_bytes

from hgfleet.hg import wire_commands

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Arguments = dict[bytes, list[bytes]]

_NODE = re.compile(rb"[0-9a-f]{40}")
_NODES_ARGUMENT: Final = {
    "known": (b"nodes", b" "),
}
_REQUIRED: Final = {
    "batch": (b"cmds",),
    "between": (b"pairs",),
    "known": (b"nodes",),
    "listkeys": (b"namespace",),
    "lookup": (b"key",),
    "protocaps": (b"caps",),
}
ARGUMENTS: Final[Mapping[str, frozenset[bytes]]] = {
    name: frozenset(arguments.encode("ascii").split())
    for name, arguments in {
        "batch": "cmds",
        "between": "pairs",
        "branchmap": "",
        "capabilities": "",
        "heads": "",
        "hello": "",
        "known": "nodes",
        "listkeys": "namespace",
        "lookup": "key",
        "protocaps": "caps",
    }.items()
}
"""The arguments of each command whose answers are stored; a test compares these with core.

Core ignores other arguments, so a client could make any number of requests with the same answer.
Other commands take any: clients send optional arguments, such as `store_fingerprint`, to every
server.
"""
_ANYWHERE: Final = frozenset({b"cmd", b"access-hidden"})
"""Parameters of the query that are no arguments of a command."""
_BATCHABLE: Final = frozenset({"branchmap", "capabilities", "heads", "known", "listkeys", "lookup"})
MOST_BATCHED: Final = 10_000
"""Commands of a batch. hg sends two to four, and a `lookup` for each `--rev` of its user, of whom
scripts have thousands. A renderer answers more than a few (`request.is_cheap`), in its budget."""


class BadRequestError(ValueError):
    """The request's arguments make no sense; the message is for the client."""


@dataclass(frozen=True, slots=True)
class Call:
    """A wire command that may be run, with its details for the log."""

    command: str
    batch: tuple[str, ...] = ()
    details: Mapping[str, int | bool] = field(default_factory=dict)
    nodes: int = 0
    """Nodes that `known` looks up, for all commands of a batch together."""
    namespaces: tuple[bytes, ...] = ()
    """Namespaces that `listkeys` lists, once for each command of a batch."""


def header_arguments(headers: Mapping[str, str]) -> str:
    """Join the arguments that a client spread over X-HgArg-1, X-HgArg-2, ... as hgweb does."""
    chunks = []
    number = 1
    while (chunk := headers.get(f"HTTP_X_HGARG_{number}")) is not None:
        chunks.append(chunk)
        number += 1
    return "".join(chunks)


def parse(query: str, header: str) -> Arguments:
    """Merge the arguments of the query string and of the headers; the later win.

    Raises BadRequestError for text that is not URL-encoded ASCII.
    """
    try:
        arguments = parse_qs(query.encode("ascii"), keep_blank_values=True)
        arguments.update(parse_qs(header.encode("ascii"), keep_blank_values=True))
    except (UnicodeError, ValueError) as error:
        raise BadRequestError("the arguments are not URL-encoded ASCII") from error
    return arguments


def check(command: str, arguments: Arguments) -> Call:
    """Check the arguments of a reading command; raises BadRequestError."""
    _check_names(command, arguments.keys() - _ANYWHERE)
    for name, values in arguments.items():
        if len(values) > 1 and name != b"cmd":
            raise BadRequestError(f"{command} has the argument {_shown(name)} more than once")
    for name in _REQUIRED.get(command, ()):
        if name not in arguments:
            raise BadRequestError(f"{command} needs the argument {name.decode()}")
    first = {name: values[0] for name, values in arguments.items()}
    if command == "batch":
        return _check_batch(first[b"cmds"])
    if command == "getbundle":
        return Call(command, details=_check_getbundle(first))
    nodes = _check_nodes(command, first)
    return Call(command, nodes=nodes, namespaces=_listed(command, first))


def _check_names(command: str, names: Iterable[bytes]) -> None:
    for name in names:
        if name not in ARGUMENTS.get(command, (name,)):
            raise BadRequestError(f"{command} has no argument {_shown(name)}")


def _shown(name: bytes) -> str:
    return ascii(name[:40].decode("latin-1"))


def _check_nodes(command: str, arguments: Mapping[bytes, bytes]) -> int:
    """Check the nodes of a command, and return their number."""
    if command in _NODES_ARGUMENT:
        name, separator = _NODES_ARGUMENT[command]
        return len(_nodes(command, name, arguments[name], separator))
    if command == "between" and arguments[b"pairs"] != wire_commands.HANDSHAKE_PAIRS:
        raise BadRequestError("between: this server compares histories with bundle2 only")
    return 0


def _listed(command: str, arguments: Mapping[bytes, bytes]) -> tuple[bytes, ...]:
    return (arguments[b"namespace"],) if command == "listkeys" else ()


def _nodes(command: str, name: bytes, value: bytes, separator: bytes = b" ") -> list[bytes]:
    nodes = value.split(separator) if value else []
    if not all(_NODE.fullmatch(node) for node in nodes):
        raise BadRequestError(f"{command}: {name.decode()} has something that is not a full node")
    return nodes


def _check_batch(commands: bytes) -> Call:
    """Check `heads ;known nodes=...`; a batch may hold only commands with short answers."""
    names: list[str] = []
    nodes = 0
    namespaces: tuple[bytes, ...] = ()
    items = commands.split(b";")
    if len(items) > MOST_BATCHED:
        raise BadRequestError(f"batch: got {len(items)} commands, expected at most {MOST_BATCHED}")
    for item in items:
        operation, space, rest = item.partition(b" ")
        name = operation.decode("ascii", "replace")
        if not space or name not in _BATCHABLE | wire_commands.PUSHING:
            raise BadRequestError("batch: a command in it is unknown or cannot be part of a batch")
        arguments: dict[bytes, bytes] = {}
        for pair in rest.split(b","):
            if pair:
                key, equals, value = pair.partition(b"=")
                if not equals or b"=" in value:
                    raise BadRequestError("batch: an argument in it is not of the form name=value")
                arguments[_unescape(key)] = _unescape(value)
        if name not in wire_commands.PUSHING:
            _check_names(name, arguments)
            for required in _REQUIRED.get(name, ()):
                if required not in arguments:
                    raise BadRequestError(f"batch: {name} needs the argument {required.decode()}")
            nodes += _check_nodes(name, arguments)
            namespaces += _listed(name, arguments)
        names.append(name)
    return Call("batch", tuple(names), nodes=nodes, namespaces=namespaces)


def _unescape(value: bytes) -> bytes:
    """Undo `wireprototypes.escapebatcharg`."""
    return value.replace(b":e", b"=").replace(b":s", b";").replace(b":o", b",").replace(b":c", b":")


def _check_getbundle(arguments: Mapping[bytes, bytes]) -> dict[str, int | bool]:
    """Check a getbundle, and describe it for the log.

    `full` says that the client has nothing and wants changesets: the request that clone bundles are
    there to avoid.
    """
    heads = _nodes("getbundle", b"heads", arguments.get(b"heads", b""))
    common = [
        node
        for node in _nodes("getbundle", b"common", arguments.get(b"common", b""))
        if node.strip(b"0")
    ]
    changesets = arguments.get(b"cg", b"1") not in (b"0", b"")
    capabilities = arguments.get(b"bundlecaps", b"")
    if not re.fullmatch(rb"[!-~]*", unquote_to_bytes(capabilities).replace(b"\n", b"")):
        raise BadRequestError("getbundle: bundlecaps has something that is not printable ASCII")
    return {
        "heads": len(heads),
        "common": len(common),
        "changesets": changesets,
        "full": changesets and not common,
    }
