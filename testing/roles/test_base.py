"""The promises of the role base, on any host of the service."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from testinfra.host import Host

    from testing.conftest import WaitFor

IN_FORCE: Final = "nft --stateless --terse list table inet hgfleet"
"""The rules of the firewall, without the values of its counter and the elements of its sets."""


def test_systemd_has_booted_without_a_failed_unit(host: Host) -> None:
    state = host.run("systemctl is-system-running")
    failed = host.run("systemctl --failed --plain --no-legend").stdout
    assert state.stdout.strip() == "running", failed


def test_a_run_that_came_to_its_end_left_the_groups_of_the_host(host: Host) -> None:
    kept = host.file("/etc/hgfleet/groups.json")
    assert kept.mode == 0o644
    groups = json.loads(kept.content_string)["groups"]
    assert groups
    assert groups == sorted(groups)


def test_certificate_names_this_host_and_is_signed_by_the_trusted_ca(host: Host) -> None:
    name = host.run("hostname").stdout.strip()
    checked = host.run(
        "openssl verify -x509_strict -purpose sslserver -verify_hostname %s"
        " -CAfile /etc/ssl/certs/ca-certificates.crt /etc/hgfleet/tls/cert.pem",
        name,
    )
    assert checked.rc == 0, checked.stderr


def test_a_certificate_is_not_trusted_for_another_name(host: Host) -> None:
    checked = host.run(
        "openssl verify -verify_hostname other.example"
        " -CAfile /etc/hgfleet/tls/ca.pem /etc/hgfleet/tls/cert.pem"
    )
    assert checked.rc != 0


def test_key_belongs_to_the_certificate_and_is_closed_to_others(host: Host) -> None:
    key = host.file("/etc/hgfleet/tls/key.pem")
    assert (key.user, key.group, key.mode) == ("root", "ssl-cert", 0o640)
    of_key = host.check_output("openssl pkey -in /etc/hgfleet/tls/key.pem -pubout")
    of_cert = host.check_output("openssl x509 -in /etc/hgfleet/tls/cert.pem -noout -pubkey")
    assert of_key == of_cert
    assert host.run("runuser -u nobody -- cat /etc/hgfleet/tls/key.pem").rc != 0


def test_the_ca_cannot_sign_further_cas_and_its_key_is_not_here(host: Host) -> None:
    text = host.check_output("openssl x509 -in /etc/hgfleet/tls/ca.pem -noout -text")
    assert "CA:TRUE, pathlen:0" in text
    assert host.run("find /etc /opt /var /srv -name ca.key | grep .").rc == 1


def test_secrets_cannot_be_listed(host: Host) -> None:
    folder = host.file("/etc/hgfleet/secrets")
    assert (folder.user, folder.mode) == ("root", 0o711)
    assert host.run("runuser -u nobody -- ls /etc/hgfleet/secrets").rc != 0


def test_journal_is_on_disk_and_bounded(host: Host) -> None:
    assert host.run("journalctl --flush && ls /var/log/journal/*/system.journal").rc == 0
    effective = host.check_output("systemd-analyze cat-config systemd/journald.conf")
    assert "SystemMaxUse=" in effective.split("hgfleet.conf")[1]


def test_firewall_is_in_force_and_comes_back_with_the_host(host: Host) -> None:
    assert host.run("systemctl is-enabled hgfleet-firewall.service").stdout.strip() == "enabled"
    assert host.run("systemctl is-active hgfleet-firewall.service").stdout.strip() == "active"
    rules = host.check_output("nft list chain inet hgfleet input")
    assert "policy drop" in rules
    assert "udp dport" not in rules.replace("udp dport 68", "").replace("udp dport 546", "")


@pytest.mark.changes
def test_a_change_of_the_firewall_is_undone_by_the_host_itself(host: Host) -> None:
    kept = host.check_output(IN_FORCE)
    try:
        host.check_output("hgfleet-firewall add insert rule inet hgfleet input tcp dport 1 drop")
        assert host.check_output(IN_FORCE) != kept
    finally:
        # The timer starts this unit when no run has confirmed the change.
        host.check_output("systemctl start hgfleet-firewall-undo.service")
    assert host.check_output(IN_FORCE) == kept


def test_no_undo_waits_after_a_run(host: Host) -> None:
    timer = host.check_output("systemctl show hgfleet-firewall-undo.timer")
    assert "ActiveState=inactive" in timer
    assert (
        host.run("systemctl cat hgfleet-firewall-undo.timer").stdout.count("OnActiveSec=60s") == 1
    )


@pytest.mark.changes
def test_rules_that_another_program_flushed_are_back_and_told(
    host: Host, wait_for: WaitFor
) -> None:
    kept = host.check_output(IN_FORCE)
    # Only this table: in a container, the engine's rules for names of hosts are in the ruleset too.
    host.check_output("nft delete table inet hgfleet")
    wait_for("the rules are back", lambda: host.run(IN_FORCE).stdout.strip() == kept.strip(), 60)
    state = json.loads(host.check_output("cat /run/hgfleet-firewall-watch/state.json"))
    assert state["in_force"] is True
    assert time.time() - state["restored"] < 120


@pytest.mark.changes
def test_tables_of_others_are_left_alone(host: Host) -> None:
    host.check_output("nft add table inet other")
    try:
        host.check_output("systemctl reload hgfleet-firewall.service")
        assert host.run("nft list table inet other").rc == 0
    finally:
        host.check_output("nft delete table inet other")


def test_only_security_updates_are_installed_without_an_operator(host: Host) -> None:
    if not host.package("unattended-upgrades").is_installed:
        pytest.skip("the inventory of this host leaves them out: base_unattended_upgrades")
    effective = host.check_output("apt-config dump")
    origins = [line for line in effective.splitlines() if "Origins-Pattern::" in line]
    assert len(origins) == 1, origins
    assert "-security,label=Debian-Security" in origins[0]
    assert 'Unattended-Upgrade::Automatic-Reboot "false";' in effective
    assert 'APT::Periodic::Unattended-Upgrade "1";' in effective
    assert host.run("systemctl is-enabled apt-daily-upgrade.timer").stdout.strip() == "enabled"
