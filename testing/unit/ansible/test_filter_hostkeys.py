"""The filters that publish host keys, compared with OpenSSH's own tools for the same keys."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from ansible.errors import AnsibleFilterError

from testing.support import loading

if TYPE_CHECKING:
    from pathlib import Path

hostkeys = loading.module("ansible/plugins/filter/hostkeys.py")

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Public keys of both types that the role makes."""
    folder = tmp_path_factory.mktemp("keys")
    for kind in ("ed25519", "rsa"):
        words = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "hg1", "-f", str(folder / kind)]
        subprocess.run(words, check=True)
    return [folder / "ed25519.pub", folder / "rsa.pub"]


def run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def test_records_are_those_of_ssh_keygen_without_sha1(files: list[Path]) -> None:
    expected = [
        # `hg.example.org IN SSHFP 4 2 ...`; a zone file wants the dot, or adds its own name.
        line.replace("hg.example.org ", "hg.example.org. ")
        for file in files
        for line in run("ssh-keygen", "-r", "hg.example.org", "-f", str(file)).splitlines()
        if line.split()[4] == "2"
    ]

    keys = [file.read_text() for file in files]

    assert len(expected) == 2
    assert hostkeys.sshfp(keys, ["hg.example.org"]) == expected


def test_an_address_has_no_records_but_a_place_in_known_hosts() -> None:
    names = ["hg1", "192.0.2.40", "2001:db8::1"]

    assert [line.split()[0] for line in hostkeys.sshfp([KEY], names)] == ["hg1."]
    assert hostkeys.known_hosts([KEY], names) == [f"hg1,192.0.2.40,2001:db8::1 {KEY}"]


@pytest.mark.parametrize(("port", "asked"), [(22, "hg1"), ("22", "hg1"), (2022, "[hg1]:2022")])
def test_ssh_finds_each_key_under_its_name_and_port(
    files: list[Path], tmp_path: Path, port: int | str, asked: str
) -> None:
    keys = [file.read_text() for file in files]
    place = tmp_path / "known_hosts"
    place.write_text("\n".join(hostkeys.known_hosts(keys, ["hg1", "192.0.2.40"], port)) + "\n")

    printed = run("ssh-keygen", "-F", asked, "-f", str(place))

    assert [line.split()[1:3] for line in printed.splitlines() if not line.startswith("#")] == [
        key.split()[:2] for key in keys
    ]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("", "hg1"),
        ("ssh-ed25519", "hg1"),
        ("ecdsa-sha2-nistp256 AAAA", "hg1"),
        (KEY, "hg1 evil"),
        (KEY, "hg1\nevil"),
        (KEY, "*"),
        (KEY, ""),
    ],
)
def test_what_is_no_host_key_or_no_name_is_refused(key: str, name: str) -> None:
    for make in (hostkeys.sshfp, hostkeys.known_hosts):
        with pytest.raises(AnsibleFilterError, match=r"^got .*expected"):
            make([key], [name])


def test_a_damaged_key_has_no_record() -> None:
    with pytest.raises(AnsibleFilterError, match="not base64"):
        hostkeys.sshfp(["ssh-ed25519 AAA"], ["hg1"])


DAY = 86400.0


@pytest.mark.parametrize(
    ("files", "step", "days_left"),
    [
        ({"known_hosts": 0.0}, "begin", 0),
        ({}, "begin", 0),
        # The new key was made and not published: the run broke off.
        ({"next_rsa": 5.0, "known_hosts": 4.0}, "begin", 0),
        ({"next_rsa": 5.0}, "begin", 0),
        # The new key was published at 10 days.
        ({"next_rsa": 9 * DAY, "known_hosts": 10 * DAY}, "wait", 4),
        ({"next_rsa": 9 * DAY, "known_hosts": 6.5 * DAY + 9 * DAY}, "wait", 10),
        ({"next_rsa": DAY, "known_hosts": 6 * DAY}, "finish", 0),
        # The run broke off before it moved the public half.
        ({"next_rsa.pub": DAY, "known_hosts": 19 * DAY}, "finish", 0),
        # Only a key of the other type is there.
        ({"next_ed25519": DAY, "known_hosts": 2 * DAY}, "begin", 0),
    ],
)
def test_the_next_host_key_is_used_when_clients_had_time_to_learn_it(
    files: dict[str, float], step: str, days_left: int
) -> None:
    rotation = hostkeys.rotation_step(files, "rsa", 20 * DAY, "14")

    assert rotation == {"step": step, "days_left": days_left}


def test_without_a_wait_the_second_run_finishes() -> None:
    files = {"next_ed25519": 100.0, "known_hosts": 100.0}
    assert hostkeys.rotation_step(files, "ed25519", 100.5, 0)["step"] == "finish"
