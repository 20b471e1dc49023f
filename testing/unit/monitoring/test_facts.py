"""Facts of a host, read from folders that look like a host's."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.backup.restic import packs
from hgfleet.backup.restic.restic import Check
from hgfleet.bundles.steps import run_record
from hgfleet.bundles.stores import corruption
from hgfleet.core import counters, files
from hgfleet.hg import clone_counts, push_outcome
from hgfleet.integrity import state
from hgfleet.monitoring import cli, facts
from hgfleet.probes import result_history
from hgfleet.ssh.keys import lookup_counts
from hgfleet.ssh.session import session_counts
from hgfleet.steering import health
from hgfleet.steering.health import Condition, Findings, Health
from hgfleet.web.http import request_counts
from testing.support.certificates import pem

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_795_598_185.0

BACKUP = 'host = "hg1"\nrepository = "s3:https://s3.example/b/hg1"\nparts = ["ssh"]\n'


def put(root: Path, path: str, content: str | bytes) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def put_record(root: Path, name: str, data: dict[str, Any]) -> None:
    put(root, f"var/lib/hgfleet-backup/{name}.json", json.dumps(data))


def test_a_blank_host_has_no_facts_and_nothing_is_wrong(tmp_path: Path) -> None:
    host = facts.read(tmp_path, NOW)
    assert not host.unreadable
    assert (host.release, host.backup, host.replication) == (None, None, None)
    assert "release" in host.sources


def test_the_current_release_is_the_one_of_the_link(tmp_path: Path) -> None:
    (tmp_path / "opt/hgfleet").mkdir(parents=True)
    (tmp_path / "opt/hgfleet/current").symlink_to("releases/1.2-abc")
    assert facts.read(tmp_path, NOW).release == "1.2-abc"


def test_enabled_units_are_those_of_the_service(tmp_path: Path) -> None:
    for name in ("hgfleet-web.service", "nginx.service", "getty@tty1.service", "ssh.service"):
        put(tmp_path, f"etc/systemd/system/multi-user.target.wants/{name}", "")
    put(tmp_path, "etc/systemd/system/timers.target.wants/hgfleet-backup.timer", "")
    assert facts.read(tmp_path, NOW).enabled == {
        "hgfleet-web.service",
        "hgfleet-backup.timer",
        "nginx.service",
        "ssh.service",
    }


def test_records_of_backups_are_read(tmp_path: Path) -> None:
    put(tmp_path, "etc/hgfleet/backup.toml", f"{BACKUP}drill_days = 30\n")
    put_record(tmp_path, "runs", {"ended": 5.0})
    backups = facts.read(tmp_path, NOW).backup
    assert backups == facts.Backup({"ended": 5.0}, {}, 30)


def test_the_host_that_prunes_has_no_backup_of_its_own(tmp_path: Path) -> None:
    put(tmp_path, "etc/hgfleet/backup.toml", f'{BACKUP}pruned = ["hg1", "ldap1"]\n')
    put_record(tmp_path, "packs", {"hg1": packs.after(None, 1, Check(("ed",), 1), 5.0)})
    host = facts.read(tmp_path, NOW)
    assert host.backup is None
    assert host.packs == {
        "hg1": packs.Checked(5.0, 5.0, 1, 1),
        "ldap1": packs.Checked(0.0, 0.0, 0, 0),
    }


def test_figures_of_bundles_and_of_integrity_are_read(tmp_path: Path) -> None:
    for folder in (facts.BUNDLES, facts.INTEGRITY):
        (tmp_path / folder).mkdir(parents=True)
    made = run_record.Record(1.0, 2.0, 0, 0, 3, 3, 1.0, 2.0, {"s3-1": 4})
    run_record.save(made, tmp_path / facts.BUNDLES)
    corruption.note(tmp_path / facts.BUNDLES, {"s3-1": 5.0})
    state.save(state.State(30, 5.0), tmp_path / facts.INTEGRITY)
    host = facts.read(tmp_path, NOW)
    assert host.bundles == made
    assert host.corrupt_bundles == {"s3-1": 5.0}
    assert host.integrity == state.Figures(30, 5.0, 0, 0, 0.0)


def test_findings_of_the_prober_are_counted(tmp_path: Path) -> None:
    file = put(tmp_path, facts.STEERING, health.dump(Health(NOW, {"s3-1": Condition(True)})))
    dead = {"https://s3/dead-tree.hg": "the answer is 404"}
    findings = Findings(dead, {"https://s3/a.hg", "https://s3/b-dead"})
    files.replace(health.objects_file(file), health.dump_findings(findings), durable=False)
    host = facts.read(tmp_path, NOW)
    assert host.steering is not None
    assert host.steering.endpoints["s3-1"].is_up
    assert host.dead_objects == 1


@pytest.mark.parametrize("content", ["", "[]", '{"format": 99}', "\xff"])
def test_a_damaged_source_is_named_and_the_others_are_read(tmp_path: Path, content: str) -> None:
    put(tmp_path, facts.STEERING, content.encode("latin-1"))
    put(
        tmp_path,
        facts.REPLICATION,
        content.encode("latin-1") if content != '{"format": 99}' else "",
    )
    put(tmp_path, facts.REPLICA, '{"state": "in-sync"}')
    put(tmp_path, f"{facts.BUNDLES}/{run_record.NAME}", content.encode("latin-1"))
    put(tmp_path, f"{facts.INTEGRITY}/{state.FIGURES}", content.encode("latin-1"))
    host = facts.read(tmp_path, NOW)
    assert set(host.unreadable) == {"steering", "replication", "bundles", "integrity"}
    assert host.replica == {"state": "in-sync"}


def test_counts_of_pushes_are_read_also_before_the_first(tmp_path: Path) -> None:
    folder = tmp_path / facts.COUNTERS
    assert facts.read(tmp_path, NOW).pushes is None
    folder.mkdir(parents=True)
    assert facts.read(tmp_path, NOW).pushes == push_outcome.of({})
    counters.add(str(folder), push_outcome.FILE, push_outcome.counts(None, 2.0))
    pushes = facts.read(tmp_path, NOW).pushes
    assert pushes is not None
    assert (pushes.accepted, pushes.seconds) == (1, 2.0)
    (folder / push_outcome.FILE).write_text("damage")
    assert set(facts.read(tmp_path, NOW).unreadable) == {"pushes"}


def test_counts_of_clients_are_read_also_before_the_first(tmp_path: Path) -> None:
    for path in (facts.COUNTERS, facts.LOOKUPS, facts.WEB):
        (tmp_path / path).mkdir(parents=True)
    host = facts.read(tmp_path, NOW)
    assert not host.unreadable
    assert host.lookups is not None
    assert host.lookups.count == 0
    assert host.clones.keys() == {"ssh", "https"}
    assert lookup_counts.add("unknown", 0.1, str(tmp_path / facts.LOOKUPS)) is None
    session_counts.add(str(tmp_path / facts.COUNTERS), "serve", "hg", 0.5)
    put(tmp_path, f"{facts.COUNTERS}/{clone_counts.FILE}", "pull live 2\n")
    put(tmp_path, f"{facts.WEB}/{request_counts.FILE}", "page 2xx 3\nclone clone-bundle 4\n")
    host = facts.read(tmp_path, NOW)
    assert host.lookups is not None
    assert host.sessions is not None
    assert host.requests is not None
    assert host.lookups.by_reason["unknown"] == 1
    assert host.sessions.by_kind["serve", "hg"] == 1
    assert host.clones["ssh"].counts["pull", "live"] == 2
    assert host.clones["https"].counts["clone", "clone-bundle"] == 4
    assert host.requests.counts["page", "2xx"] == 3


def test_results_of_probes_are_read_also_before_the_first(tmp_path: Path) -> None:
    assert facts.read(tmp_path, NOW).probes is None
    put(tmp_path, facts.PROBES, 'clone_url = "https://hg.example/canary"\n')
    host = facts.read(tmp_path, NOW)
    assert (host.probes, host.shows_page) == ({"clone": result_history.History()}, False)
    store = '[store]\nendpoint = "https://s3.example"\nbucket = "status"\n'
    put(tmp_path, facts.PROBES, f'clone_url = "https://hg.example/canary"\n{store}')
    wanted = result_history.add(result_history.History(), result_history.Result(NOW, 0.5))
    file = put(tmp_path, "var/lib/hgfleet-probes/clone.json", result_history.dump(wanted))
    host = facts.read(tmp_path, NOW)
    assert (host.probes, host.shows_page) == ({"clone": wanted}, True)
    file.write_text("damage")
    assert set(facts.read(tmp_path, NOW).unreadable) == {"probes"}


def test_a_push_probe_has_results_of_its_own(tmp_path: Path) -> None:
    push = '[push]\nurl = "ssh://hg@hg1/canary"\nhost = "monitor1"\nknown_hosts = "/known"\n'
    put(tmp_path, facts.PROBES, f'clone_url = "https://hg.example/canary"\n{push}')
    wanted = result_history.add(result_history.History(), result_history.Result(NOW, None))
    put(tmp_path, "var/lib/hgfleet-probes/push.json", result_history.dump(wanted))
    assert facts.read(tmp_path, NOW).probes == {"clone": result_history.History(), "push": wanted}


def test_metrics_of_a_host_say_which_source_is_damaged(tmp_path: Path) -> None:
    put(tmp_path, facts.REPLICA, "no JSON")
    text = cli.text(tmp_path, NOW)
    assert 'hgfleet_metrics_source_readable{source="replica"} 0.0\n' in text
    assert 'hgfleet_metrics_source_readable{source="backup"} 1.0\n' in text


def test_a_certificate_of_acme_counts_while_it_is_in_use(tmp_path: Path) -> None:
    """It counts next to the host's own, to which the link leads until the CA issues the first."""
    for name in ("ca", "cert"):
        put(tmp_path, f"etc/hgfleet/tls/{name}.pem", pem(datetime(2030, 1, 1, tzinfo=UTC)))
    used = tmp_path / "var/lib/hgfleet-acme/served"
    used.parent.mkdir(parents=True)
    used.symlink_to(tmp_path / "etc/hgfleet/tls")
    assert set(facts.read(tmp_path, NOW).certificates) == {"ca.pem", "cert.pem"}
    put(tmp_path, "etc/hgfleet/acme.toml", "")
    host = facts.read(tmp_path, NOW)
    assert host.certificates["acme/cert.pem"] == host.certificates["cert.pem"]
    used.unlink()
    used.symlink_to(tmp_path / "missing")
    assert "certificates" in facts.read(tmp_path, NOW).unreadable


def test_a_file_system_is_read_only_by_its_own_options(tmp_path: Path) -> None:
    put(
        tmp_path,
        facts.MOUNTS,
        "22 1 8:1 / / ro,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n"
        "23 22 8:2 / /srv rw,relatime shared:2 master:3 - xfs /dev/sdb1 ro,attr2\n"
        "24 22 0:5 / /run rw - tmpfs tmpfs ro,size=1k\n"
        "25 22 0:6 / /x rw - overlay disk rw,lowerdir=/ro,upperdir=/b\n"
        "not a mount\n",
    )
    host = facts.read(tmp_path, NOW)
    assert host.readonly == {"/dev/sda1": False, "/dev/sdb1": True, "disk": False}


def test_states_of_webhooks_firewall_and_outdated_units_are_read(tmp_path: Path) -> None:
    put(tmp_path, facts.WEBHOOKS, '{"ci": {"dead": 1}}')
    put(tmp_path, facts.FIREWALL, '{"in_force": true}')
    put(tmp_path, facts.OUTDATED, '{"units": {"a.service": "/usr/lib/x"}}')
    host = facts.read(tmp_path, NOW)
    assert (host.webhooks, host.firewall) == ({"ci": {"dead": 1}}, {"in_force": True})
    assert host.outdated == {"a.service": "/usr/lib/x"}
    put(tmp_path, facts.WEBHOOKS, '{"ci": 1}')
    put(tmp_path, facts.OUTDATED, "{}")
    assert set(facts.read(tmp_path, NOW).unreadable) == {"webhooks", "outdated"}
