"""A promotion takes the newest registry and tokens, from whichever host has them."""

from __future__ import annotations

import getpass
import json
import sys
from typing import TYPE_CHECKING, Final

import pytest

from testing.integration.deploy.plays import inventory, play

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

GROUPS: Final = {
    "ssh": ["hg1", "hg2"],
    "web": ["hg1", "hg2", "hgweb1", "hgweb2"],
    "broker": ["broker1"],
}

HGFLEET: Final = """#!{python}
import pathlib, sys
asked = sys.argv[1:]
if "--positions" in asked:
    place = pathlib.Path(r"{tokens}")
    (place.parent / "judged").write_text(place.read_text())
    sys.exit("the promotion ends here")
"""
"""Passes the check before the fence, and refuses the check after it."""


class Site:
    """Hosts that are this machine, each with a folder for its documents."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "hgfleet"
        text = HGFLEET.format(python=sys.executable, tokens=self.tokens("hg2"))
        self.program.write_text(text)
        self.program.chmod(0o755)

    def tokens(self, host: str) -> Path:
        return self.folder / host / "tokens/tokens.json"

    def write(self, host: str, generation: tuple[int, int] | None, said: str) -> str:
        file = self.tokens(host)
        file.parent.mkdir(parents=True, exist_ok=True)
        data: dict[str, object] = {"tokens": {said: {}}}
        if generation is not None:
            data["generation"] = {"term": generation[0], "number": generation[1]}
        file.write_text(json.dumps(data))
        return file.read_text()

    def promote(self, *, away: Sequence[str], **given: str) -> str:
        """Promote hg2 up to the check after the fence, which fails; return the output."""
        variables = {
            "promote_to": "hg2",
            "__promote_hgfleet": str(self.program),
            "__lock_folder": {"folder": str(self.folder)},
            "__documents_place": f"{self.folder}/{{{{ inventory_hostname }}}}",
            "__documents_owner": getpass.getuser(),
            **given,
        }
        code, told = play(inventory(self.folder, GROUPS, away), "promote.yml", variables)
        assert code != 0
        return told

    def judged(self) -> str:
        """Return the tokens that the last check of pushes saw."""
        return (self.folder / "hg2/tokens/judged").read_text()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_the_new_primary_has_the_newest_tokens_of_any_mirror(site: Site) -> None:
    """The former primary is lost, and another mirror has seen a later revocation."""
    site.write("hg2", (1, 58), "revoked-in-1.59")
    newest = site.write("hgweb1", (1, 60), "kept")
    told = site.promote(away=["hg1", "hgweb2"])
    assert "the promotion ends here" in told
    assert site.judged() == newest
    assert "These hosts gave no document: " in told
    assert "hg1 (registry: " in told
    assert "hgweb2 (tokens: " in told
    assert "hgweb1 (" not in told


def test_a_mirrors_own_document_without_a_generation_is_no_backup(site: Site) -> None:
    own = site.write("hg2", None, "kept")
    site.write("hgweb1", None, "older")
    told = site.promote(away=["hg1"])
    assert "hg2, hgweb1 have different versions of it with no generation" in told
    assert "-e promote_documents_from=HOST" in told
    assert site.tokens("hg2").read_text() == own
    site.promote(away=["hg1"], promote_documents_from="hg2")
    assert site.judged() == own
