"""Sentences for errors of the broker: the cause, and the way out. Pure."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

import nats.errors
import nats.js.errors

from hgfleet.core.errors import HgfleetError

if TYPE_CHECKING:
    from collections.abc import Sequence

FULL: Final = frozenset({10023, 10026, 10047, 10052, 10054, 10077, 10110})
"""Codes of the broker for a stream or a disk without room (nats-server's errors.json)."""


def sentence(error: BaseException, brokers: Sequence[str]) -> str:
    """Return the sentence for an error of nats-py, TLS or the network."""
    where = ", ".join(brokers)
    text = str(error)
    if isinstance(error, HgfleetError):
        return text
    if isinstance(error, nats.js.errors.APIError):
        return _refused(error)
    if isinstance(error, nats.js.errors.NoStreamResponseError):
        return (
            f"no stream of {where} takes this message: the stream is missing, or the broker runs "
            "without JetStream; a restart of hgfleet-relay makes the stream again"
        )
    lower = text.lower()
    if isinstance(error, nats.errors.AuthorizationError) or "authorization" in lower:
        return (
            f"the broker {where} refuses this host: the DNS name in its certificate has to be a "
            "user of the broker; the role `replication` writes the users"
        )
    if "permissions violation" in lower:
        return (
            f"the broker {where} does not permit this host to use a subject ({text}); the role "
            "`replication` writes the permissions"
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the certificate of the broker {where} is not accepted ({error.verify_message}); the "
            "role `base` issues and renews certificates"
        )
    if isinstance(error, ssl.SSLError | nats.errors.UnexpectedEOF) and "tls://" in where:
        reason = getattr(error, "reason", None) or "the broker ended the connection"
        return (
            f"TLS with the broker {where} failed ({reason}): this host's certificate may have "
            "expired or be of another CA; the role `base` issues and renews certificates"
        )
    reason = text.removeprefix("nats: ") or type(error).__name__
    way_out = "`systemctl status hgfleet-broker` there says why"
    return f"no broker answers at {where} ({reason}); {way_out}"


def _refused(error: nats.js.errors.APIError) -> str:
    said = f"{error.description or type(error).__name__}, code {error.err_code or error.code}"
    if error.err_code in FULL:
        return (
            f"the stream takes no more messages ({said}): the broker's disk, or its limit, is "
            "full; give it more room, or remove limits of the stream that the role does not set"
        )
    return f"the broker refuses ({said})"
