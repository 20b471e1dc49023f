"""Settings of ACME: `/etc/hgfleet/acme.toml`, written by the role `acme`.

directory = "https://acme-v02.api.letsencrypt.org/directory"
directory_ca = "/etc/ssl/certs/ca-certificates.crt"   # that the directory is verified with
email = "hostmaster@example.org"
accept_terms = true                                   # of the CA
names = ["hg.example.org"]
renew_days = 30                                       # before the end
challenge_port = 402                                  # of lego, on 127.0.0.1
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.core import paths
from hgfleet.core.settings_file import read

if TYPE_CHECKING:
    from hgfleet.core.settings_file import Table

DEFAULT_PATH: Final = Path("/etc/hgfleet/acme.toml")

MOST_NAMES: Final = 100
"""Most names of a certificate, the limit of Let's Encrypt."""

# No wildcard: the challenge HTTP-01 proves single names. lego names a file after it, too.
_NAME: Final = re.compile(r"(?=.{4,253}\Z)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]*")
_EMAIL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}@[A-Za-z0-9][A-Za-z0-9.-]{0,251}")
_URL: Final = re.compile(r"https://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*")


@dataclass(frozen=True, slots=True)
class Settings:
    """The CA, the account there, the names, and when a certificate is due."""

    directory: str
    email: str
    names: tuple[str, ...]
    renew_days: int = 30
    challenge_port: int = 402
    directory_ca: Path = Path(paths.CA_CERTIFICATES)


def load(path: Path = DEFAULT_PATH) -> Settings:
    """Read the settings. Raises ConfigurationError that names a wrong setting."""
    return read(path, parse, "the settings of ACME", "the role `acme` writes them")


def parse(table: Table) -> Settings:
    """Take the settings out of a table."""
    names = table.texts("names")
    for name in names:
        if not _NAME.fullmatch(name):
            raise table.error("names", name, "DNS names in lower case, without a wildcard")
    if len(names) > MOST_NAMES:
        raise table.error("names", len(names), f"at most {MOST_NAMES} names")
    directory = table.text("directory")
    if not _URL.fullmatch(directory):
        raise table.error("directory", directory, "a URL like https://host/directory")
    email = table.text("email")
    if not _EMAIL.fullmatch(email):
        raise table.error("email", email, "an address like hostmaster@example.org")
    if not table.flag("accept_terms"):
        raise table.error("accept_terms", False, "true, which accepts the terms of the CA")
    return Settings(
        directory,
        email,
        names,
        renew_days=table.integer("renew_days", 30, least=1, most=3650, unit="days"),
        # From 1024 on, any program of the host could answer a challenge in place of lego.
        challenge_port=table.integer("challenge_port", 402, least=1, most=1023, unit="a port"),
        directory_ca=table.file("directory_ca", paths.CA_CERTIFICATES),
    )
