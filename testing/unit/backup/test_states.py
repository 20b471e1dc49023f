from __future__ import annotations

import pytest

from hgfleet.backup import states
from hgfleet.core.errors import ConfigurationError
from hgfleet.core.settings_file import parse_table

ROW = {"name": "x", "where": "y", "writer": "z", "rebuilt": "-", "backup": "files"}


def test_a_host_backs_up_the_files_of_its_parts() -> None:
    declared = states.declared()
    assert "/etc/hgfleet/ssh" in states.paths(declared, {"ssh", "web"})
    assert states.has_repositories(declared, {"ssh"})
    assert states.paths(declared, {"directory"}) == ["/var/lib/hgfleet-backup/directory"]
    assert not states.has_repositories(declared, {"directory"})


def test_a_restored_file_has_the_group_that_reads_it() -> None:
    (registry,) = (
        state for state in states.declared() if "/var/lib/hgfleet/registry.json" in state.paths
    )
    assert (registry.owner, registry.group) == ("root", "hg")
    (keys,) = (state for state in states.declared() if "/etc/hgfleet/ssh" in state.paths)
    assert (keys.owner, keys.group) == ("root", "-")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backup": "some"}, "backup: got 'some', expected one of repositories, files"),
        (
            {"backup": "export"},
            "exported: got nothing, expected the folder that the export of x is in",
        ),
        ({"backup": "none"}, "reason: got nothing, expected why the state x needs no backup"),
    ],
)
def test_a_state_says_how_it_is_backed_up_or_why_not(change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_table("states.toml", {"state": [ROW | change]}, states.parse)


def test_a_state_without_a_word_about_its_backup_is_refused() -> None:
    row = {name: value for name, value in ROW.items() if name != "backup"}
    with pytest.raises(ConfigurationError, match="backup: got nothing"):
        parse_table("states.toml", {"state": [row]}, states.parse)
