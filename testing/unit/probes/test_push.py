"""The command of ssh with which the push probe reaches the server."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from hgfleet.core.errors import ConfigurationError
from hgfleet.probes import push
from hgfleet.probes.settings import Push, Settings

PUSH = Push("ssh://hg@hg1/canary", "monitor1", Path("/etc/hgfleet/known hosts"))


def test_ssh_trusts_the_known_hosts_alone_and_reads_no_configuration() -> None:
    words = shlex.split(push.command(PUSH, Path("/run/credentials/key")))
    assert words[:5] == ["/usr/bin/ssh", "-F", "none", "-i", "/run/credentials/key"]
    options = dict(word.split("=", 1) for word in words[6::2])
    assert set(words[5::2]) == {"-o"}
    assert options["StrictHostKeyChecking"] == "yes"
    assert options["UserKnownHostsFile"] == "/etc/hgfleet/known hosts"
    assert options["GlobalKnownHostsFile"] == "/dev/null"
    assert options["UpdateHostKeys"] == "no"
    assert options["IdentitiesOnly"] == "yes"
    assert options["IdentityAgent"] == "none"
    assert options["BatchMode"] == "yes"


def test_a_run_without_the_key_of_the_unit_says_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings("https://hg.example/canary", push=PUSH, state=tmp_path)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    with pytest.raises(ConfigurationError, match="systemctl reload hgfleet-probes"):
        push.attempt(settings, PUSH)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    with pytest.raises(ConfigurationError, match="probe-push-key is missing"):
        push.attempt(settings, PUSH)
    assert not list(tmp_path.iterdir())
