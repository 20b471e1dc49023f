"""Requests into a repository, checked before hgweb sees them: inputs, commands, arguments."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from hgfleet.hg import wire_commands
from hgfleet.web.engine import hgweb
from hgfleet.web.http.exchange import RefusedError, bad, method_not_allowed, not_found
from hgfleet.web.pushlog import query
from hgfleet.web.rendering.budgets import Kind, kind
from hgfleet.web.requests import wire

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hgfleet.web.http.exchange import Environ, Exchange
    from hgfleet.web.http.routing import InRepository

LARGEST_BODY: Final = 4 * 1024 * 1024
"""Arguments in a POST body (bytes): 100,000 nodes."""

CHEAP: Final = frozenset({"capabilities", "heads", "hello", "known", "listkeys", "protocaps"})
MOST_CHEAP_COMMANDS: Final = 8
"""Of a batch that the worker answers itself; hg sends two to four."""
MOST_CHEAP_NODES: Final = 2000
"""Of `known` where the worker answers itself; a round of hg's discovery asks for some hundreds."""
MOST_CHEAP_LISTINGS: Final = 2
"""Of `listkeys` where the worker answers itself: phases and bookmarks."""
MARKERS: Final = b"obsolete"
"""The namespace whose listing encodes every obsolescence marker."""

_NUMBERED = re.compile(r"HTTP_X_HG(ARG|PROTO)_[1-9][0-9]{0,3}")
_WEB_COMMAND = re.compile(r"[a-z0-9_-]{0,64}")
STYLES: Final = frozenset({"", "atom", "json", "paper", "raw", "rss"})
"""Styles of hgweb that are served: the only template set whose values are escaped, and formats for
programs. `gitweb` and `monoblue` write a repository's description into the page as it is."""


class Inputs(NamedTuple):
    """Everything that an answer of hgweb may depend on besides the repository's state.

    hgweb's environment is made only of these inputs, and they are the key of the stored answer.
    """

    path: str
    rest: str
    query: str
    base_url: str
    is_mercurial: bool
    headers: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, exchange: Exchange, route: InRepository, base_url: str) -> Inputs:
        """Pick the inputs out of a request."""
        given = exchange.environ
        return cls(
            path=route.repository.path,
            rest=route.rest,
            query=exchange.query,
            base_url=base_url,
            # hgweb shows a changeset as plain text to Mercurial itself.
            is_mercurial="mercurial" in given.get("HTTP_USER_AGENT", ""),
            headers=tuple(sorted(_headers(exchange))),
        )

    def environ(self) -> Environ:
        """Make the environment in which hgweb answers."""
        base = urlsplit(self.base_url)
        return {
            # A HEAD is answered from the same GET, and so is a POST with its arguments.
            "REQUEST_METHOD": "GET",
            "SCRIPT_NAME": "/" + self.path,
            "PATH_INFO": self.rest,
            "QUERY_STRING": self.query,
            "SERVER_NAME": base.hostname or "localhost",
            "SERVER_PORT": str(base.port or (443 if base.scheme == "https" else 80)),
            "SERVER_PROTOCOL": "HTTP/1.1",
            "HTTP_HOST": base.netloc,
            "HTTP_USER_AGENT": "mercurial" if self.is_mercurial else "browser",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": base.scheme,
            "wsgi.input": io.BytesIO(),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": True,
            "wsgi.run_once": False,
            **dict(self.headers),
        }


def _headers(exchange: Exchange) -> Iterator[tuple[str, str]]:
    """The headers of Mercurial; arguments out of a body are put into a single header of any length.

    As in core, they replace those that the client has put into headers.
    """
    for name, value in exchange.environ.items():
        numbered = _NUMBERED.fullmatch(name) if name.startswith("HTTP_X_HG") else None
        if numbered is not None and (exchange.arguments is None or numbered[1] != "ARG"):
            yield name, value
    if exchange.arguments is not None:
        yield "HTTP_X_HGARG_1", exchange.arguments


@dataclass(frozen=True, slots=True)
class Request:
    """The kind of a request into a repository: how it is answered, and whether it is stored."""

    is_push: bool = False
    is_storable: bool = False
    is_stream: bool = False
    is_archive: bool = False
    kind: Kind | None = None
    """The class of an answer that a renderer computes; None: the worker itself answers."""


def is_wire(query: str) -> bool:
    """Whether a query has a command of the wire protocol."""
    try:
        parameters = dict(parse_qsl(query.encode("ascii"), keep_blank_values=True))
    except (UnicodeError, ValueError):
        return False
    command = parameters.get(b"cmd", b"").decode("latin-1")
    return bool(command) and hgweb.permission(command) is not None


def is_command(query: str) -> bool:
    """Whether a query has a command of the wire protocol, open here or closed."""
    command = dict(parse_qsl(query, keep_blank_values=True)).get("cmd", "")
    return command in wire_commands.CLOSED or is_wire(query)


def understand(exchange: Exchange, route: InRepository, environ: Environ) -> Request:
    """Check a request into a repository before hgweb sees it; raises RefusedError.

    Adds the command to the log entry.
    """
    parameters = _parameters(exchange)
    command = parameters.get(b"cmd", b"").decode("latin-1")
    # First, since core no longer knows the command once `hgext/hardening.py` is loaded.
    if command in wire_commands.CLOSED:
        raise RefusedError(
            HTTPStatus.FORBIDDEN, "This command of the wire protocol is closed on this server."
        )
    permission = hgweb.permission(command) if command else None
    if permission is None:
        return _understand_page(exchange, route, parameters)
    exchange.entry["command"] = command
    if command in wire_commands.PUSHING or permission != "pull":
        return Request(is_push=True)
    if route.rest.strip("/"):
        raise not_found()
    is_stream = command not in wire_commands.REPLAYABLE and command not in (
        "clonebundles",
        "clonebundles_manifest",
    )
    if exchange.is_head and is_stream:
        raise method_not_allowed()
    try:
        arguments = wire.parse(exchange.query, wire.header_arguments(environ))
        for name, value in environ.items():
            if name.startswith("HTTP_X_HG") and not value.isascii():
                raise wire.BadRequestError("a header is not ASCII")
        call = wire.check(command, arguments)
    except wire.BadRequestError as problem:
        raise bad(f"This server does not understand the request: {problem}.") from problem
    if call.batch:
        exchange.entry["batch"] = list(call.batch)
        if any(name in wire_commands.PUSHING for name in call.batch):
            return Request(is_push=True)
    exchange.entry.update(call.details)
    return Request(
        is_storable=command in wire_commands.REPLAYABLE,
        is_stream=is_stream,
        kind=Kind.STREAM if is_stream else None if is_cheap(call) else Kind.WIRE,
    )


def is_cheap(call: wire.Call) -> bool:
    """Whether the worker answers a wire command itself, without a deadline.

    Manifests of clone bundles are small files; the others are small functions of the heads and of
    few arguments, and clients send them all the time.
    """
    if call.command in wire_commands.STREAMING:
        return True
    commands = call.batch if call.command == "batch" else (call.command,)
    return (
        len(commands) <= MOST_CHEAP_COMMANDS
        and CHEAP.issuperset(commands)
        and call.nodes <= MOST_CHEAP_NODES
        and len(call.namespaces) <= MOST_CHEAP_LISTINGS
        and MARKERS not in call.namespaces
    )


def _understand_page(
    exchange: Exchange, route: InRepository, parameters: Mapping[bytes, bytes]
) -> Request:
    """Check the address of a page; raises RefusedError.

    hgweb takes the command, the style and the changeset from the query (`cmd`, `style`, `node`) or
    from the path (`STYLE-COMMAND/NODE/FILE`). So both forms are read here, in the same way, before
    the command and the style are checked. The last lines decide whether the answer may be stored,
    and in which class a renderer computes it.
    """
    if "\0" in route.rest or any(b"\0" in value for value in parameters.values()):
        raise not_found()
    named_file = parameters.get(b"file", b"").decode("latin-1")
    if ".." in route.rest.split("/") or ".." in named_file.split("/"):
        raise not_found()
    segments = route.rest.strip("/").split("/", 2)
    if b"cmd" in parameters:
        named = command = parameters[b"cmd"].decode("latin-1")
        style = parameters.get(b"style", b"").decode("latin-1")
    else:
        named = segments[0]
        style, dash, command = named.rpartition("-")
        if not dash:
            style = parameters.get(b"style", b"").decode("latin-1")
    if not _WEB_COMMAND.fullmatch(named):
        raise not_found()
    exchange.entry["command"] = named or "default"
    if command in query.STYLES:
        if b"cmd" in parameters:
            raise not_found()
        return _understand_pushlog(exchange, command, style, segments[1:])
    if style not in STYLES:
        raise bad("There is no such style.")
    node = parameters.get(b"node", b"")
    if b"cmd" not in parameters and len(segments) > 1:
        node = segments[1].encode("latin-1") or node
    # nginx serves the style sheets; hgweb would serve any file of a configured folder.
    if command == "static" or (command == "archive" and not node):
        raise not_found()
    is_storable = not (
        command == "archive"
        # A search may say "the last three days"; pages of the graph may show ages in words.
        or b"rev" in parameters
        or (command == "graph" and style != "json")
    )
    is_archive = command == "archive"
    is_search = b"rev" in parameters
    return Request(
        is_storable=is_storable,
        is_archive=is_archive,
        kind=kind(command, is_wire=False, is_archive=is_archive, is_search=is_search),
    )


def _understand_pushlog(
    exchange: Exchange, command: str, style: str, rest: Sequence[str]
) -> Request:
    """Check the address of a request for pushes; its query is checked where it is answered."""
    # The page for people takes the number of a page.
    most = 1 if command == query.HTML else 0
    if style not in query.STYLES[command] or any(rest[most:]):
        raise not_found()
    if query.is_cheap(command, exchange.query):
        return Request(is_storable=True)
    return Request(is_storable=True, kind=Kind.DEAR if "full" in exchange.query else Kind.PAGE)


def take_arguments(exchange: Exchange) -> None:
    """Read the body of a POST if it has the arguments of a reading command.

    The body of a push is not read. Raises RefusedError, also for a POST that is no wire command.
    """
    command = _parameters(exchange).get(b"cmd", b"").decode("latin-1")
    if command not in wire_commands.READING:
        is_known = command in wire_commands.CLOSED or hgweb.permission(command) is not None
        if not command or not is_known:
            raise method_not_allowed()
        return
    stated = str(exchange.environ.get("HTTP_X_HGARGS_POST", "0"))
    if not re.fullmatch(r"[0-9]{1,9}", stated):
        raise bad("X-HgArgs-Post is not a number.")
    length = int(stated)
    if length > LARGEST_BODY:
        raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The arguments are too long.")
    body: bytes = exchange.environ["wsgi.input"].read(LARGEST_BODY + 1)
    if len(body) > LARGEST_BODY:
        raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too long.")
    if len(body) < length:
        raise bad("X-HgArgs-Post announces more than the body has.")
    # Without a length the arguments are in headers, as core reads them.
    if length:
        try:
            exchange.arguments = body[:length].decode("ascii")
        except UnicodeDecodeError:
            raise bad("The arguments in the body are not URL-encoded ASCII.") from None


def _parameters(exchange: Exchange) -> dict[bytes, bytes]:
    try:
        return dict(parse_qsl(exchange.query.encode("ascii"), keep_blank_values=True))
    except (UnicodeError, ValueError):
        raise bad("The part of the address after '?' is not URL-encoded ASCII.") from None
