"""When a certificate is due for renewal, and how lego is called for it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.core import stored_time

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.acme.settings import Settings

DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate of the CA with its request; times are in seconds since 1970."""

    directory: str
    names: frozenset[str]
    not_before: float
    not_after: float


def reason(settings: Settings, issued: Issued | None, now: float) -> str:
    """Return why a certificate is due, "" if it is not.

    A certificate of 90 days is renewed when `renew_days` are left, a certificate of shorter
    validity at half of its time. So a certificate of 45 days is renewed before the alert, which
    fires 21 days before the end.
    """
    if issued is None:
        return "none is there"
    if issued.directory != settings.directory:
        return f"the certificate in use is from {issued.directory}"
    if issued.names != frozenset(settings.names):
        return f"the certificate in use has the names {', '.join(sorted(issued.names))}"
    if stored_time.is_future(issued.not_before, now):
        return "the certificate in use is not valid yet by the clock of this host"
    left = issued.not_after - now
    validity = issued.not_after - issued.not_before
    if left < min(settings.renew_days * DAY_SECONDS, validity / 2):
        return f"the certificate in use has {left / DAY_SECONDS:.1f} days left"
    return ""


def arguments(settings: Settings, folder: Path) -> list[str]:
    """Return lego's arguments for a new certificate with a new key; accounts are in the folder.

    `lego renew` would keep names that are no longer in the settings.
    """
    return [
        "--accept-tos",
        f"--server={settings.directory}",
        f"--email={settings.email}",
        f"--path={folder}",
        "--key-type=ec256",
        "--http",
        f"--http.port=127.0.0.1:{settings.challenge_port}",
        *(f"--domains={name}" for name in settings.names),
        "run",
    ]
