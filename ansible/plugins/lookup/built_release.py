"""The release that hosts are to have: ./deploy's choice, else the last built release.

    release_version: "{{ lookup('built_release', 'version') }}"

`./deploy` and `./cluster` name theirs in the environment; a playbook that is run by hand finds the
release of the last build in .cache/release.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DOCUMENTATION: Final = """
    name: built_release
    short_description: The release that hosts are to have
    description:
      - The release that ./deploy or ./cluster chose, else the last built release.
    options:
      _terms:
        description: version, archive (a file of the controller) or versitygw (its S3 server).
        required: true
"""

VARIABLES: Final = {
    "version": "HGFLEET_RELEASE_VERSION",
    "archive": "HGFLEET_RELEASE_ARCHIVE",
    "versitygw": "HGFLEET_VERSITYGW",
}
LAST: Final = Path(__file__).resolve().parents[3] / ".cache/release/last.json"


def find(part: str, environment: Mapping[str, str], last: Path) -> str:
    """Return a part of the release; empty if the release that was chosen does not have it.

    `last` is the file that a build leaves. Raises AnsibleError if no release was chosen or built.
    """
    if part not in VARIABLES:
        raise AnsibleError(f"got {part!r}, expected one of {', '.join(VARIABLES)}")
    # A release that is chosen without its archive is on the hosts already; no other archive fits.
    if any(environment.get(name) for name in VARIABLES.values()):
        return environment.get(VARIABLES[part], "")
    try:
        return str(json.loads(last.read_text("utf-8"))[part])
    except (OSError, ValueError, KeyError, TypeError):
        raise AnsibleError("No release was built here yet. Build it: ./cluster build") from None


class LookupModule(LookupBase):  # type: ignore[misc]
    """What Ansible looks for."""

    def run(self, terms: Sequence[str], _variables: object = None, **_options: Any) -> list[str]:
        """Return the named parts."""
        return [find(str(term), os.environ, LAST) for term in terms]
