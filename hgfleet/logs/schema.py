"""Fields of the log lines about pushes, clones and requests; docs/logs.md has them as a table.

A name means the same in every part. Durations are in seconds and sizes in bytes, unless the name
ends in another unit. `testing/unit/logs/test_schema.py` compares the names with the code and with
the templates of the proxy and nginx.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

FIELDS: Final[Mapping[str, str]] = {
    "event": "the event; events of the relay begin with `relay.`",
    "id": "the session (SSH) or the request (HTTPS), 16 hexadecimal digits, the same on all hosts",
    "push": "the push: identity of the push log of its repository, a dot, its number there",
    "repository": "path of the repository in the registry",
    "user": "the user of a session; `operator:NAME` at a shell of the host",
    "client": "address of the client",
    "port": "port of the client, as sshd logs it",
    "decision": "what was decided: `serve`, `refuse`, `allow`, `bypass`, `wait`, `end`, `fail`",
    "reason": "why, in a word or a sentence",
    "detail": "more for operators: a sentence, or where a program failed",
    "command": "the command of a refused session, or of the wire protocol; the kind of a page",
    "arguments": "arguments of a command of the self-service; of `hgfleet-shell` where that failed",
    "status": "exit status of a session; status of an answer over HTTPS",
    "seconds": "duration of the event",
    "bytes": "bytes that a session has written, or of the body of an answer",
    "changesets": "number of changesets; whether a request asked for changesets (web worker)",
    "pushes": "number of pushes that terms of a release before gave up",
    "problems": "number of problems that policies found",
    "policies": "each policy and how long it took, in seconds",
    "protocol": "`ssh` or `https`",
    "before": "clones that come first in the queue",
    "links": "links of a pull bundle chain that were sent",
    "from_disk": "changesets of a pull that came from pull bundles",
    "live": "changesets of a pull that were computed",
    "size": "bytes of the pull bundles that were sent",
    "file": "name of a corrupt pull bundle",
    "sha256": "its sha256, as it was read",
    "left_out": "clone bundles that were left out of an answer",
    "kind": "kind of a failure on a mirror",
    "mirror": "name of a mirror",
    "subject": "subject of a message of the broker",
    "repositories": "number of repositories, or the folder that has them",
    "identity": "identity of a push log",
    "is_new": "whether the stream is another one than before",
    "broker": "address of a broker",
    "stream": "name of a stream",
    "settings": "settings of a stream that were changed",
    "document": "name of a document that mirrors bring",
    "primary": "name of the primary of an epoch",
    "epoch": "number of the primary's term",
    "text": "a sentence about documents or a repair",
    "time": "end of a request (file of requests)",
    "ended": "the same, in seconds since 1970",
    "method": "method of a request",
    "uri": "path and query of a request",
    "path": "path of a request, as the web worker sees it",
    "frontend": "frontend of the proxy",
    "server": "web host that answered",
    "duration": "duration of a request",
    "duration_ms": "duration of a request in milliseconds",
    "queue_ms": "of these, in the queue of the proxy",
    "first_byte_ms": "until the web host began to answer",
    "retries": "how often the proxy sent a request again",
    "state": "which side ended a connection, and in which phase (HAProxy)",
    "tls": "version of TLS",
    "upstream": "status that nginx got from the worker",
    "agent": "the program that the client says it is",
    "answer": "`clone` or `pull`, for an answer with changesets (web worker)",
    "source": "where they come from: `clone-bundle`, `pull-bundle` or `live`",
    "cache": "`hit`, `miss` or `off`: whether the worker had the answer stored",
    "batch": "commands of a batch",
    "heads": "number of heads that a client asked for",
    "common": "number of heads that the client has already",
    "full": "whether a request is for a clone",
    "cpu": "processor time of a renderer, in seconds",
    "refused": "why a worker refused a request: `busy`, `push`, `signin` and others",
    "aborted": "whether the client disconnected before the end",
    "via": "how a user signed in: `password` or `token`",
    "message": "a sentence or a traceback of a web worker",
}
"""Name: meaning."""


def table() -> str:
    """Return the fields as a table in Markdown."""
    rows = [f"| `{name}` | {meaning} |" for name, meaning in FIELDS.items()]
    return "\n".join(["| field | meaning |", "| --- | --- |", *rows]) + "\n"
