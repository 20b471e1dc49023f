"""Name, network and ports of a checkout's cluster, and the next choice when they are taken."""

from __future__ import annotations

import json
import re
import socket
from typing import TYPE_CHECKING

import pytest

from controller import bootstrap
from controller.cluster import cluster, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NONE: frozenset[str] = frozenset()


def any_block(_first_port: int) -> bool:
    return True


def test_a_host_of_the_cluster_is_told_from_one_of_a_role_test() -> None:
    mine = settings.Settings("hgfleet-ab12cd", "10.213.7", 21000, "")
    assert settings.is_container_of(mine, "hgfleet-ab12cd-hg1")
    for other in ("hgfleet-ab12cd-roles-hg1", "hgfleet-ab12ce-hg1", ""):
        assert not settings.is_container_of(mine, other)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that takes the place of .cluster; the engine has no networks."""
    monkeypatch.setattr(settings, "STATE", tmp_path)
    monkeypatch.setattr(settings, "_networks_in_use", lambda: NONE)
    return tmp_path


def test_the_order_begins_where_the_seed_says_and_visits_all() -> None:
    order = settings.candidate_order("/home/a/hgfleet", 900)

    assert order == settings.candidate_order("/home/a/hgfleet", 900)
    assert sorted(order) == list(range(900))
    assert order[0] != settings.candidate_order("/home/b/hgfleet", 900)[0]


def test_a_checkout_gets_the_same_settings_each_time() -> None:
    first = settings.choose("/home/a/hgfleet", NONE, any_block)

    assert first == settings.choose("/home/a/hgfleet", NONE, any_block)
    assert re.fullmatch(r"hgfleet-[0-9a-f]{6}", first.name)
    assert re.fullmatch(r"10\.213\.\d+", first.network)
    assert first.first_port % settings.BLOCK_SIZE == 0


def test_two_checkouts_get_different_ones() -> None:
    a = settings.choose("/home/a/hgfleet", NONE, any_block)
    b = settings.choose("/home/b/hgfleet", frozenset({a.network}), lambda p: p != a.first_port)

    assert len({a.name, b.name}) == len({a.network, b.network}) == 2
    assert a.first_port != b.first_port


def test_a_taken_network_and_a_busy_block_are_passed_over() -> None:
    wanted = settings.choose("/x", NONE, any_block)

    got = settings.choose("/x", frozenset({wanted.network}), lambda p: p != wanted.first_port)

    assert got.name == wanted.name
    assert got.network != wanted.network
    assert got.first_port != wanted.first_port


@pytest.mark.parametrize("exhausted", ["networks", "ports"])
def test_when_all_are_taken_the_error_says_what_to_do(exhausted: str) -> None:
    every = frozenset(f"10.213.{number}" for number in range(256))
    networks = every if exhausted == "networks" else NONE

    with pytest.raises(bootstrap.SetupError, match=r"taken.\n.*\./cluster down"):
        settings.choose("/x", networks, lambda _: exhausted != "ports")


def test_all_ports_of_a_block_are_below_the_ephemeral_ones() -> None:
    last = settings.FIRST_PORT + (settings.BLOCKS - 1) * settings.BLOCK_SIZE

    assert len(settings.PORT_NAMES) <= settings.BLOCK_SIZE
    assert settings.FIRST_PORT > 1024
    assert last + settings.BLOCK_SIZE <= 32768


def test_a_port_is_found_by_its_name() -> None:
    own = settings.Settings("hgfleet-x", "10.213.20", 21000, "")

    assert [own.port(name) for name in ("https", "http", "ssh")] == [21000, 21001, 21002]


@pytest.fixture
def busy() -> Iterator[int]:
    """Return a port on which a server listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_port_with_a_listener_is_not_free(busy: int) -> None:
    assert not settings.is_free(busy)


def test_one_busy_port_makes_its_block_unfit(busy: int) -> None:
    assert not settings.block_is_free(busy - len(settings.PORT_NAMES) + 1)


@pytest.mark.usefixtures("state")
def test_settings_are_made_once_and_kept() -> None:
    first = settings.ensure(running=False)

    assert settings.load() == first
    assert settings.ensure(running=False) == first
    assert first.identity


def test_before_the_first_up_there_are_none(state: Path) -> None:
    assert not list(state.iterdir())
    assert settings.load() is None


@pytest.mark.usefixtures("state")
def test_ports_that_others_took_are_exchanged_while_nothing_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = settings.ensure(running=False)
    monkeypatch.setattr(settings, "block_is_free", lambda port: port != first.first_port)

    second = settings.ensure(running=False)

    assert second.first_port != first.first_port
    assert (second.name, second.network, second.identity) == (
        first.name,
        first.network,
        first.identity,
    )
    assert f"{first.first_port} and up are in use" in capsys.readouterr().err
    assert settings.load() == second


@pytest.mark.usefixtures("state")
def test_ports_of_a_running_cluster_stay_although_they_are_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = settings.ensure(running=False)
    monkeypatch.setattr(settings, "block_is_free", lambda _: False)

    assert settings.ensure(running=True) == first


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", '"x"', "{}", '{"name": "x"}', '{"surprise": 1}', "\x00\x01"],
)
def test_damaged_settings_are_named_with_the_way_out(state: Path, text: str) -> None:
    (state / "settings.json").write_text(text)

    with pytest.raises(bootstrap.SetupError, match=r"settings\.json is damaged") as error:
        settings.load()
    assert "Remove that file" in str(error.value)


def test_an_interrupted_write_leaves_the_old_settings(state: Path) -> None:
    first = settings.ensure(running=False)
    (state / "settings.json.new").write_text('{"name": "hal')

    assert settings.load() == first
    assert json.loads((state / "settings.json").read_text())["name"] == first.name


def test_state_folders_are_private(state: Path) -> None:
    folder = settings.state_folder("secrets")

    assert folder == state / "secrets"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert settings.state_folder("secrets") == folder


MINE = settings.Settings("hgfleet-abc", "10.213.7", 21000, "mine")


@pytest.mark.parametrize(
    ("known", "hosts", "foreign"),
    [
        # A checkout without state made none of the containers that have its name.
        (None, {}, []),
        (None, {"hg1": "theirs", "ldap1": ""}, ["hg1", "ldap1"]),
        (MINE, {"hg1": "mine", "ldap1": "mine"}, []),
        (MINE, {"hg1": "mine", "ldap1": "theirs"}, ["ldap1"]),
        # A container without the label was made before there was a label, perhaps by this checkout.
        (MINE, {"hg1": "", "ldap1": "theirs"}, ["ldap1"]),
    ],
)
def test_containers_of_another_checkout_at_this_path_are_told_apart(
    known: settings.Settings | None, hosts: dict[str, str], foreign: list[str]
) -> None:
    assert settings.foreign_hosts(hosts, known) == foreign


def test_the_name_is_known_before_there_are_settings() -> None:
    assert settings.name_of("/x") == settings.choose("/x", NONE, any_block).name
    assert settings.name_of("/x") != settings.name_of("/y")


class Engine:
    """The Docker engine as `cluster` uses it: containers by name with their labels, networks."""

    def __init__(self, name: str, **identities: str) -> None:
        self.containers = {f"{name}-{host}": identity for host, identity in identities.items()}
        self.name = name
        self.networks = {name}
        self.asked: list[str] = []

    def run(self, command: list[str], **_: object) -> str:
        if command[1] == "ps":
            if f"label=hgfleet.cluster={self.name}" not in command:
                return ""
            is_state = "State" in command[-1]
            return "".join(
                f"{container.rpartition('-')[2]} {'running' if is_state else identity}\n"
                for container, identity in self.containers.items()
            )
        assert command[:2] == ["docker", "rm"]
        for container in command[4:]:
            del self.containers[container]
        return ""

    def remove_network(self, command: list[str], **_: object) -> None:
        assert command[:3] == ["docker", "network", "rm"]
        self.networks.discard(command[3])


@pytest.mark.parametrize("known", [None, MINE])
def test_hosts_of_a_deleted_checkout_at_this_path_are_removed_with_a_message(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    known: settings.Settings | None,
) -> None:
    name = known.name if known else settings.name_of(str(bootstrap.ROOT))
    engine = Engine(name, hg1="theirs", ldap1="mine" if known else "")
    monkeypatch.setattr(cluster, "run", engine.run)
    monkeypatch.setattr("controller.cluster.cluster.subprocess.run", engine.remove_network)
    monkeypatch.setattr("controller.cluster.cluster.snapshots.remove", lambda _: None)

    cluster.remove_foreign(known)

    # The network stays while a host of this checkout is in it.
    assert engine.containers == ({f"{name}-ldap1": "mine"} if known else {})
    assert engine.networks == ({name} if known else set())
    assert "another checkout at this path" in capsys.readouterr().err


def test_a_first_start_on_a_clean_engine_removes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = Engine("hgfleet-other", hg1="theirs")
    monkeypatch.setattr(cluster, "run", engine.run)
    monkeypatch.setattr("controller.cluster.cluster.subprocess.run", engine.remove_network)

    cluster.remove_foreign(None)

    assert engine.containers == {"hgfleet-other-hg1": "theirs"}
    assert engine.networks == {"hgfleet-other"}
    assert capsys.readouterr().err == ""
