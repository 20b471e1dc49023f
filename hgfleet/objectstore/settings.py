"""Settings of an object store, and the credentials that may write to it.

The credentials come from systemd (`LoadCredential=`), or for an operator at a terminal from the
environment.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.core import systemd
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
    """An S3 bucket: where to write to it, and where clients read from it.

    `name` is ours, for messages and credentials. `location` says where the store is, in the words
    of the site's table of networks; clients there will be sent to it first. `region` is what
    requests are signed for.

    A `private` bucket is open to nobody: bundles of private repositories go there and nowhere else,
    and clients get signed URLs.
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
    """Who writes to the bucket."""

    access_key_id: str
    secret_access_key: str

    def __repr__(self) -> str:
        return f"Credentials({self.access_key_id!r}, ...)"


def credentials(store: str, environment: Mapping[str, str] = os.environ) -> Credentials:
    """Find the credentials of a store; a person's environment has the same ones for all stores.

    Raises ConfigurationError that says where they were looked for.
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
                "`systemctl start hgfleet-bundles.service`"
            )
        values.append(value)
    return Credentials(*values)
