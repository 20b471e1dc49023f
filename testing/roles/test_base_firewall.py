"""A controller changes the firewall's rules over SSH, as on any host.

Only on the throw-away host of the role, since a change locks the controller out.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from controller.bootstrap import ROOT, controller_environment

if TYPE_CHECKING:
    from pathlib import Path

    from testinfra.host import Host

    from testing.conftest import WaitFor

PLAYBOOK: Final = "testing/roles/playbooks/firewall.yml"
KEPT: Final = "/etc/hgfleet/firewall.nft"
IN_FORCE: Final = "nft --stateless --terse list table inet hgfleet"
JOURNAL: Final = (
    "journalctl --sync; journalctl --output=cat"
    " -u ssh -u hgfleet-firewall.service -u hgfleet-firewall-undo.timer"
)
UNDO_SECONDS: Final = 20

FURTHER: Final = {"base_firewall_open": [{"ports": [9100], "from": ["192.0.2.60"]}]}
LOCKS_OUT: Final = {"base_firewall_administrators": ["192.0.2.2"]}


@dataclass(frozen=True)
class Controller:
    """A controller that reaches the host only over SSH."""

    inventory: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Ansible on the host."""
        return subprocess.run(
            [command[0], "-i", str(self.inventory), *command[1:]],
            env=controller_environment(),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

    def change(self, variables: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        """Apply the firewall with variables of the site."""
        given = {"base_firewall_undo_seconds": UNDO_SECONDS, **variables}
        return self.run("ansible-playbook", PLAYBOOK, "--extra-vars", json.dumps(given))

    def is_let_in(self) -> bool:
        """Tell whether the host accepts a new connection."""
        return self.run("ansible", "all", "-m", "ansible.builtin.ping").returncode == 0


@pytest.fixture(scope="module")
def controller(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Controller:
    """Return a controller that can log in to the host over SSH."""
    folder = tmp_path_factory.mktemp("controller")
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")]
    subprocess.run(make, check=True)
    host.check_output(
        "apt-get -qq install --yes --no-install-recommends openssh-server >/dev/null"
        " && install -d -m 700 /root/.ssh && printf '%%s\\n' %s > /root/.ssh/authorized_keys",
        (folder / "key.pub").read_text().strip(),
    )
    address = host.check_output("hostname --ip-address").split()[0]
    host_key = host.check_output("cat /etc/ssh/ssh_host_ed25519_key.pub")
    (folder / "known_hosts").write_text(f"{address} {host_key}\n")
    variables = {
        "base_address": address,
        "ansible_host": address,
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(folder / "key"),
        "ansible_ssh_common_args": "-F none -o IdentityAgent=none -o IdentitiesOnly=yes"
        f" -o ConnectTimeout=3 -o UserKnownHostsFile={folder}/known_hosts",
    }
    inventory = folder / "hosts.yml"
    inventory.write_text(json.dumps({"all": {"hosts": {"role-base": variables}}}))
    made = Controller(inventory)
    settled = made.change({})
    assert settled.returncode == 0, settled.stdout + settled.stderr
    return made


def order(text: str, *wanted: str) -> list[str]:
    """Return the wanted words that are in the lines of a text, in the text's order."""
    return [word for line in text.splitlines() for word in wanted if word in line]


def test_changed_rules_are_kept_after_a_new_connection_came_through_them(
    host: Host, controller: Controller
) -> None:
    before = host.check_output(JOURNAL)
    done = controller.change(FURTHER)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9100" in host.check_output(IN_FORCE)
    assert "9100" in host.file(KEPT).content_string

    armed = "Started hgfleet-firewall-undo.timer"
    kept = "Reloaded hgfleet-firewall.service"
    disarmed = "Stopped hgfleet-firewall-undo.timer"
    said = host.check_output(JOURNAL).removeprefix(before)
    steps = order(said, armed, "Accepted publickey", kept, disarmed)
    assert steps[0] == "Accepted publickey", said
    assert [step for step in steps if step != "Accepted publickey"] == [armed, kept, disarmed], said
    assert "Accepted publickey" in steps[steps.index(armed) : steps.index(kept)], said

    again = controller.change(FURTHER)
    assert "changed=0" in again.stdout, again.stdout


def test_rules_that_lock_the_controller_out_are_undone(
    host: Host, controller: Controller, wait_for: WaitFor
) -> None:
    before = host.check_output(IN_FORCE), host.file(KEPT).content_string
    done = controller.change(LOCKS_OUT)
    assert done.returncode != 0, done.stdout
    assert "New connection passes the new rules" in done.stdout
    assert host.file(KEPT).content_string == before[1]
    wait_for("the host lets its controller in", controller.is_let_in, UNDO_SECONDS + 10)
    assert host.check_output(IN_FORCE) == before[0]


def test_the_unit_that_undoes_a_change_is_sandboxed(host: Host) -> None:
    report = host.check_output("systemd-analyze security --no-pager hgfleet-firewall-undo.service")
    assert float(report.splitlines()[-1].split()[-3]) < 3, report
