"""Settings of an object store, and the credentials that may write to it.

The credentials come from systemd (`LoadCredential=`), or for an operator at a terminal from the
environment.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.core.daemons import systemd
from hgfleet.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

# credential file of systemd, environment variable (the names every S3 tool knows)
CREDENTIALS: Final = (
    ("access-key-id", "AWS_ACCESS_KEY_ID"),
    ("secret-access-key", "AWS_SECRET_ACCESS_KEY"),
)


@dataclass(frozen=True)
class Store:
    """An S3 bucket: the endpoint for uploads, and the public URL for clients.

    `name` is the site's own name of the store, for messages and credentials. `location` is a region
    of the site's table of networks; clients in that region are sent to this store first. `region`
    is the region in S3's signatures.

    A `private` bucket refuses requests without a signature. Bundles of private repositories go only
    there, and clients get presigned URLs.
    """

    name: str
    endpoint: str
    bucket: str
    public_url: str
    region: str = "us-east-1"
    location: str = ""
    private: bool = False


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials that may write to a bucket."""

    access_key_id: str
    secret_access_key: str

    def __repr__(self) -> str:
        return f"Credentials({self.access_key_id!r}, ...)"


def credentials(
    store: str,
    environment: Mapping[str, str] = os.environ,
    *,
    unit: str = "hgfleet-bundles.service",
) -> Credentials:
    """Find the credentials of a store; an operator's environment variables hold for all stores.

    `unit` is named in the error as the unit that has the credentials.

    Raises ConfigurationError that names both places.
    """
    values = []
    for suffix, variable in CREDENTIALS:
        name = f"{store}-{suffix}"
        value = environment.get(variable, "")
        file = systemd.credential(name, environment)
        if file is not None and file.exists():
            value = file.read_text("utf-8").strip()
        if not value:
            raise ConfigurationError(
                f"no credentials for the object store {store}: neither the systemd credential "
                f"{name} nor the variable {variable} is there. The unit has them: "
                f"`systemctl start {unit}`"
            )
        values.append(value)
    return Credentials(*values)
