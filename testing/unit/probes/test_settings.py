"""The settings of the probes: accepted values, and errors that name their way out."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from hgfleet.core.errors import ConfigurationError
from hgfleet.probes import settings
from hgfleet.probes.page import Incident

WHOLE = """
clone_url = "https://hg.example/canary"
title = "hg.example"
[push]
url = "ssh://hg@hgssh.example:2022/team/canary"
host = "monitor1.example"
known_hosts = "/etc/hgfleet/probes.known_hosts"
[store]
endpoint = "https://s3.example:7443"
bucket = "status"
[[incident]]
begun = "2026-11-25T10:00+01:00"
ended = "2026-11-25T10:30:00Z"
title = "A disk"
[[incident]]
begun = "2026-11-26 09:00:00+00:00"
title = "Work"
text = "Pushes wait."
"""


def load(tmp_path: Path, text: str) -> settings.Settings:
    file = tmp_path / "probes.toml"
    file.write_text(text)
    return settings.load(file)


def test_settings_are_taken(tmp_path: Path) -> None:
    probe_settings = load(tmp_path, WHOLE)
    assert (probe_settings.clone_url, probe_settings.title) == (
        "https://hg.example/canary",
        "hg.example",
    )
    assert probe_settings.push == settings.Push(
        "ssh://hg@hgssh.example:2022/team/canary",
        "monitor1.example",
        Path("/etc/hgfleet/probes.known_hosts"),
    )
    assert probe_settings.has("push")
    assert probe_settings.has("clone")
    assert probe_settings.store is not None
    assert probe_settings.store.public_url == "https://s3.example:7443/status"
    assert probe_settings.incidents == (
        Incident(
            datetime(2026, 11, 25, 9, tzinfo=UTC),
            datetime(2026, 11, 25, 10, 30, tzinfo=UTC),
            "A disk",
        ),
        Incident(datetime(2026, 11, 26, 9, tzinfo=UTC), None, "Work", "Pushes wait."),
    )


def test_a_host_without_probes_and_without_a_store_has_settings_too(tmp_path: Path) -> None:
    probe_settings = load(tmp_path, 'clone_url = ""\n')
    assert (probe_settings.clone_url, probe_settings.store, probe_settings.incidents) == (
        "",
        None,
        (),
    )
    assert not probe_settings.has("push")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("https://hg.example", "file:///etc", "clone_url: got 'file:///etc/canary'"),
        ("ssh://hg@", "ssh://hg@-oProxyCommand=", "push.url: got .*, expected a URL like ssh:"),
        ("ssh://hg@hgssh.example:2022/team/canary", "ssh://hg@hgssh", "push.url"),
        ("ssh://hg@hgssh.example:2022/team", "https://hgssh.example", "push.url"),
        ("/team/canary", "/team/--debugger", "push.url"),
        ('"monitor1.example"', '"re:.*"', "push.host: got 're:"),
        ('known_hosts = "/etc', 'known_hosts = "etc', "push.known_hosts"),
        ("https://s3.example:7443", "s3.example", "store.endpoint: got 's3.example'"),
        ('bucket = "status"\n', "", "store.bucket: got nothing"),
        ("2026-11-25T10:00+01:00", "2026-11-25T10:00", "incident.begun: got .*, expected a time"),
        ("2026-11-25T10:00+01:00", "today", "incident.begun: got 'today'"),
        ("2026-11-25T10:30:00Z", "2026-11-25T08:30:00Z", "incident.ended: .*after `begun`"),
        ('title = "Work"', 'title = ""', "incident.title"),
        ("title", "titel", "title|titel"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in WHOLE
    with pytest.raises(ConfigurationError, match=words):
        load(tmp_path, WHOLE.replace(old, new))
