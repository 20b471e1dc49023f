"""Whether a host takes changes of user repositories and tokens: refusals of mirrors and of fences.

On a mirror, the primary would overwrite the change. On a former primary, the change would be lost.
"""

from __future__ import annotations

from hgfleet.core import hgrc
from hgfleet.core.errors import TemporaryError
from hgfleet.pushlog import term
from hgfleet.selfservice import service_address


def check(configuration: str) -> None:
    """Raise TemporaryError where the host takes no changes, by the text of its hgrc (I/O)."""
    fences = hgrc.setting(configuration, "fence").replace(",", " ").split()
    unconfirmed = hgrc.setting(configuration, "unconfirmed")
    if sentence := term.refusal([*fences, *([unconfirmed] if unconfirmed else [])]):
        raise TemporaryError(f"Nothing was changed: {sentence}")
    if primary := hgrc.setting(configuration, "replica-of"):
        raise TemporaryError(
            f"Nothing was changed: this host has copies, and its primary is {primary}; expected "
            f"a command to {service_address.configured(configuration)}."
        )
