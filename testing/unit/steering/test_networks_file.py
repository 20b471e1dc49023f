"""The table of networks in a file: the same answers as the table in memory."""

from __future__ import annotations

import ipaddress
import json
import random
from typing import TYPE_CHECKING

import pytest

from hgfleet.steering import networks, networks_file, settings

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.steering.settings import Config

NETWORKS = 'us = ["192.0.2.0/24", "2001:db8::/32", "255.0.0.0/8"]\neu = ["0.0.0.0/5", "ffff::/16"]'
ADDRESSES = (
    *("192.0.2.0", "192.0.1.255", "192.0.3.0", "0.0.0.1", "7.255.255.255", "8.0.0.0"),
    *(
        "255.255.255.255",
        "254.255.255.255",
        "2001:db8::1",
        "2001:db9::",
        "::",
        "ffff:" * 7 + "ffff",
    ),
    *("::ffff:192.0.2.1", "", "x", "192.0.2.1%eth0"),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file of settings; state and table are next to it."""
    path = tmp_path / "steering.toml"
    path.write_text(
        f'health = "{tmp_path}/health.json"\nstate = "{tmp_path}"\n[networks]\n{NETWORKS}\n'
        '[[endpoint]]\nname = "eu"\nurl = "https://eu.example"\n'
        '[[provider]]\nname = "aws"\nurl = "https://aws.example"\nregions = {"eu-west-1" = "eu"}\n'
    )
    return path


def opened(file: Path) -> tuple[Config, networks_file.Table | None]:
    config = settings.load(file)
    return config, networks_file.read(file, config)


def test_the_file_answers_as_the_table_in_memory(file: Path) -> None:
    config = settings.load(file)
    networks_file.write(file, config)
    table = networks_file.read(file, config)
    assert table is not None
    built = networks_file.build(config)
    assert built.region("192.0.2.0") == "us"
    assert {address: table.region(address) for address in ADDRESSES} == {
        address: built.region(address) for address in ADDRESSES
    }


def test_many_nested_networks_are_found_by_few_reads() -> None:
    dice = random.Random(7)
    nets = [
        (
            ipaddress.ip_network((dice.getrandbits(32), dice.randint(8, 32)), strict=False),
            f"r{dice.randint(0, 4)}",
        )
        for _ in range(3000)
    ]
    built = networks.Networks(nets)
    content = networks_file.dump(built.intervals, [])
    table = networks_file.Table(content, json.loads(content.partition(b"\n")[0]))
    for _ in range(500):
        address = str(ipaddress.ip_address(dice.getrandbits(32)))
        assert table.region(address) == built.region(address)


def test_a_table_without_networks_knows_no_region() -> None:
    content = networks_file.dump(networks.Networks([]).intervals, [])
    table = networks_file.Table(content, json.loads(content.partition(b"\n")[0]))
    assert table.region("192.0.2.1") is None


def test_a_table_of_other_settings_or_networks_is_not_used(file: Path) -> None:
    assert opened(file)[1] is None
    networks_file.write(file, settings.load(file))
    assert opened(file)[1] is not None
    (file.parent / "ranges-aws.json").write_text("{}")
    assert opened(file)[1] is None
    networks_file.write(file, settings.load(file))
    assert opened(file)[1] is not None
    file.write_text(file.read_text() + "\n")
    assert opened(file)[1] is None


@pytest.mark.parametrize("content", [b"", b"\n", b"{}\n", b"[]\n", b"\xff\n", b'{"format": 1}\n'])
def test_a_damaged_table_is_not_used(file: Path, content: bytes) -> None:
    networks_file.write(file, settings.load(file))
    table = file.with_name(networks_file.NAME)
    whole = table.read_bytes()
    for damaged in (content, whole[:-1], whole + b"x", whole[:50]):
        table.write_bytes(damaged)
        assert opened(file)[1] is None
