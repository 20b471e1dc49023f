"""The promises of the role mercurial, on any host that runs hg."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from testinfra.host import Host

SIGNING = "/etc/hgfleet/signing.toml"
SETTINGS = "HGRCPATH=/etc/hgfleet/hgrc"
PYTHON = "/opt/hgfleet/current/bin/python"
HG = f"{SETTINGS} /opt/hgfleet/current/bin/hg"

# Prints an id for each repository. A process for each repository would mostly load Mercurial.
IDENTIFY = """
import sys
from mercurial import dispatch, main_script
dispatch.initstdio()
for path in sys.argv[1:]:
    if code := dispatch.dispatch(main_script.request([b"-R", path.encode(), b"id"])):
        sys.exit(f"{path}: {code}")
"""


@pytest.fixture
def registry(host: Host) -> dict[str, dict[str, object]]:
    """Return the repositories of the compiled registry."""
    content: dict[str, dict[str, dict[str, object]]] = json.loads(
        host.file("/var/lib/hgfleet/registry.json").content_string
    )
    return content["repositories"]


def test_mercurial_is_the_locked_one_with_its_c_modules(host: Host) -> None:
    told = host.check_output(f"{HG} debuginstall -T '{{hgver}} {{hgmodulepolicy}}'")
    assert told.startswith("7.2.4 c"), told


def test_no_other_settings_than_ours_are_read(host: Host) -> None:
    files = host.check_output(f"{HG} config --debug | grep '^read config from'").splitlines()
    assert files == ["read config from: /etc/hgfleet/hgrc"]


def test_access_rule_is_loaded_and_required(host: Host) -> None:
    shown = host.check_output(f"{HG} config extensions")
    assert "access=/opt/hgfleet/current/hgext/access.py" in shown
    assert "extensions.access:required=yes" in shown
    assert "policies=/opt/hgfleet/current/hgext/policies.py" in shown
    assert "extensions.policies:required=yes" in shown


def test_the_size_of_the_repositories_of_one_person_is_limited(host: Host) -> None:
    shown = host.check_output(f"{HG} config")
    assert "extensions.owner_quota=/opt/hgfleet/current/hgext/owner_quota.py" in shown
    assert "hgfleet.owner-quota=" in shown


@pytest.mark.changes
def test_new_repositories_have_the_format_that_an_upgrade_brings(host: Host) -> None:
    with_links = "for name in .hg/requires .hg/store/requires; do cat $name; done"
    place = host.check_output("mktemp -d")
    made = host.check_output(f"cd {place} && {HG} init . && {with_links} && rm -r {place}")
    assert made.split() == [
        "share-safe",
        *("dotencode", "fncache", "generaldelta", "revlog-compression-zstd"),
        *("revlogv1", "sparserevlog", "store"),
    ]
    assert "pinned_store" in host.check_output(f"{HG} config extensions")


def test_every_repository_has_the_format_of_new_ones(host: Host) -> None:
    said = host.check_output("hgfleet storage plan")
    assert said.splitlines()[-1].startswith("0 of "), said


def test_keys_of_private_stores_are_for_those_who_may_read_every_repository(host: Host) -> None:
    file = host.file(SIGNING)
    assert (file.user, file.group, file.mode) == ("root", "hg", 0o640)
    users = host.check_output(
        "for user in $(cut -d: -f1 /etc/passwd); do can=no;"
        " runuser -u $user -- test -r %s && can=yes; echo $user $can $(id -Gn $user); done",
        SIGNING,
    ).splitlines()
    assert len(users) > 10
    for user, can, *groups in map(str.split, users):
        assert (can == "yes") is ("hg" in groups or user == "root"), user
    secrets = [store["secret_key"] for store in tomllib.loads(file.content_string)["store"]]
    assert secrets
    told = host.check_output("ps -eww -o args") + host.check_output("cat /etc/hgfleet/*rc")
    assert not [secret for secret in secrets if secret in told]


def test_urls_of_private_stores_are_signed_by_every_hg_or_it_does_not_start(host: Host) -> None:
    shown = host.check_output(f"{HG} config extensions").splitlines()
    assert "extensions.signedbundles=/opt/hgfleet/current/hgext/signedbundles.py" in shown
    assert "extensions.signedbundles:required=yes" in shown


def test_every_declared_repository_is_there_for_its_owner_and_readers(
    host: Host, registry: dict[str, dict[str, object]]
) -> None:
    assert registry
    paths = " ".join(registry)
    owners = host.check_output(f"cd /srv/hg/repos && stat -c '%U %G %a %n' {paths}")
    assert owners.splitlines() == [f"hg hg 2750 {path}" for path in registry]
    # The reader is hgweb, which trusts no settings inside a repository.
    identified = host.run(
        f"cd /srv/hg/repos && runuser -u hgweb -- env {SETTINGS} {PYTHON} -c %s {paths}", IDENTIFY
    )
    assert identified.rc == 0, identified.stderr
    assert len(identified.stdout.splitlines()) == len(registry)
    assert identified.stderr.count("not trusting") >= len(registry)


def test_readers_cannot_write_a_repository(
    host: Host, registry: dict[str, dict[str, object]]
) -> None:
    paths = " ".join(registry)
    script = f"for path in {paths}; do test -w /srv/hg/repos/$path/.hg/store && echo $path; done"
    for user, writable in (("hg", [*registry]), ("hgweb", []), ("hgbundles", []), ("nobody", [])):
        tried = host.run("runuser -u %s -- sh -c %s", user, script)
        assert tried.stdout.split() == writable, user
    assert host.run("runuser -u nobody -- ls /srv/hg/repos").rc != 0


@pytest.mark.changes
def test_a_write_without_a_person_is_refused(
    host: Host, registry: dict[str, dict[str, object]]
) -> None:
    path = min(registry)
    tried = host.run(
        f"cd /srv/hg/repos/%s && runuser -u hg -- env {HG} bookmark --rev null x",
        path,
    )
    assert tried.rc == 255, tried.stdout
    assert "abort: " in tried.stderr, tried.stderr
    assert "HGFLEET_USER" in tried.stderr, tried.stderr
    assert "Traceback" not in tried.stderr


def test_sessions_alone_write_what_people_create_and_everybody_reads_it(host: Host) -> None:
    folder = host.file("/var/lib/hgfleet/dynamic")
    assert (folder.user, folder.group, folder.mode) == ("hg", "hg", 0o755)


def test_sessions_alone_have_the_folder_of_slots_and_pushed_bundles(host: Host) -> None:
    folder = host.file("/srv/hg/repos/.sessions")
    assert (folder.user, folder.group, folder.mode) == ("hg", "hg", 0o700)
    disks = host.check_output("stat -c %%d /srv/hg/repos /srv/hg/repos/.sessions").split()
    assert disks[0] == disks[1]
    for user, may in (("hg", True), ("hgweb", False), ("hgbundles", False), ("nobody", False)):
        assert host.run(f"runuser -u {user} -- ls {folder.path}").succeeded is may, user
    shown = host.check_output(f"{HG} config extensions hgfleet.sessions").splitlines()
    assert "extensions.session_limits=/opt/hgfleet/current/hgext/session_limits.py" in shown
    assert "extensions.session_limits:required=yes" in shown
    assert "hgfleet.sessions=/srv/hg/repos/.sessions" in shown


def test_names_of_private_repositories_are_closed_to_other_users(host: Host) -> None:
    # On a mirror the applier writes the files that bundle jobs write on the primary.
    is_mirror = host.run(f"{HG} config hgfleet.replica-of").rc == 0
    for name, user, mode in (
        ("/var/lib/hgfleet/registry.json", "root", 0o640),
        ("/etc/hgfleet/registry.yml", "root", 0o640),
        ("/var/lib/hgfleet/manifests", "hg" if is_mirror else "hgbundles", 0o2750),
    ):
        file = host.file(name)
        assert (file.user, file.group, file.mode) == (user, "hg", mode), name


def test_all_that_serve_share_the_queue_of_clones_and_nobody_else(host: Host) -> None:
    folder = host.file("/run/hgfleet-admission")
    assert (folder.user, folder.group, folder.mode) == ("hg", "hg", 0o2770)
    # systemd creates the folder at each boot.
    declared = host.check_output("systemd-tmpfiles --cat-config | grep hgfleet-admission")
    assert declared.splitlines()[-1] == "d /run/hgfleet-admission 2770 hg hg -"
    for user, may in (("hg", True), ("hgweb", True), ("nobody", False)):
        script = "cd /run/hgfleet-admission && test -w ."
        assert host.run(f"runuser -u {user} -- sh -c '{script}'").succeeded is may, user


def test_clones_are_limited_by_all_that_serve(host: Host) -> None:
    shown = host.check_output(f"{HG} config extensions.admission hgfleet.admission")
    assert shown.splitlines() == [
        "extensions.admission=/opt/hgfleet/current/hgext/admission.py",
        "hgfleet.admission=/run/hgfleet-admission",
    ]


def test_sessions_count_pushes_and_every_user_reads_the_counts(host: Host) -> None:
    folder = host.file("/run/hgfleet-counters")
    assert (folder.user, folder.group, folder.mode) == ("hg", "hg", 0o755)
    declared = host.check_output("systemd-tmpfiles --cat-config | grep hgfleet-counters")
    assert declared.splitlines()[-1] == "d /run/hgfleet-counters 0755 hg hg -"
    shown = host.check_output(f"{HG} config extensions.pushcounts hgfleet.counters")
    assert shown.splitlines() == [
        "extensions.pushcounts=/opt/hgfleet/current/hgext/pushcounts.py",
        "hgfleet.counters=/run/hgfleet-counters",
    ]


def test_clones_are_counted_by_their_source(host: Host) -> None:
    shown = host.check_output(f"{HG} config extensions.clonecounts")
    assert shown == "/opt/hgfleet/current/hgext/clonecounts.py"


def test_sessions_keep_the_index_of_the_push_log(host: Host) -> None:
    shown = host.check_output(f"{HG} config extensions.pushlog_index")
    assert shown == "/opt/hgfleet/current/hgext/pushlog_index.py"


def test_pushers_are_told_what_was_recorded(host: Host) -> None:
    shown = host.check_output(f"{HG} config extensions.replicated extensions.pushlog:required")
    assert set(shown.splitlines()) == {
        "extensions.replicated=/opt/hgfleet/current/hgext/replicated.py",
        "extensions.pushlog:required=yes",
    }


def test_bundle_jobs_are_told_of_pushes(host: Host) -> None:
    if host.run(f"{HG} config hgfleet.replica-of").rc == 0:
        pytest.skip("a mirror, which has no bundle jobs")
    shown = host.check_output(f"{HG} config extensions.bundle_trigger hgfleet.pushed")
    assert shown.splitlines() == [
        "extensions.bundle_trigger=/opt/hgfleet/current/hgext/bundle_trigger.py",
        "hgfleet.pushed=/var/lib/hgfleet/pushed",
    ]
    folder = host.file("/var/lib/hgfleet/pushed")
    assert (folder.user, folder.group, folder.mode) == ("hg", "hg", 0o2770)


def test_second_application_of_the_registry_changes_nothing(host: Host) -> None:
    applied = host.run("hgfleet registry apply --check --root /srv/hg/repos")
    assert applied.stdout.splitlines()[-1] == "changed=0", applied.stdout


def test_repositories_are_verified_at_the_lowest_priority(host: Host) -> None:
    timer, service = host.service("hgfleet-integrity.timer"), "hgfleet-integrity.service"
    assert timer.is_running
    assert timer.is_enabled

    def shown(name: str) -> str:
        return str(host.check_output("systemctl show -P %s %s", name, service))

    assert (shown("Nice"), shown("User"), shown("CPUWeight")) == ("19", "hg", "10")
    assert shown("IOSchedulingClass") in ("3", "idle")
    assert host.file(shown("Documentation").removeprefix("file://")).exists
    told = host.check_output("systemd-analyze security --no-pager %s", service).splitlines()[-1]
    assert float(told.split()[-3]) <= 1.5, told


@pytest.mark.changes
def test_a_night_verifies_a_repository_and_keeps_its_result(host: Host) -> None:
    host.run("systemctl start %s", service := "hgfleet-integrity.service")
    journal = host.run("journalctl -u %s -n 30 --no-pager", service).stdout
    assert host.check_output("systemctl show -P ExecMainStatus %s", service) == "0", journal
    status = json.loads(host.check_output("hgfleet integrity status --json"))
    assert status["corrupt"] == []
    assert any(verified["time"] for verified in status["repositories"].values()), status
    state = host.file("/var/lib/hgfleet-integrity/state.json")
    assert (state.user, state.group, state.mode) == ("hg", "hg", 0o640)
    # The metrics may read neither repositories nor their names.
    read = "runuser -u nobody -- cat /var/lib/hgfleet-integrity/figures.json"
    figures = json.loads(host.check_output(read))
    assert figures["ended"] == status["ended"]
    assert (figures["repositories"], figures["corrupt"]) == (len(status["repositories"]), 0)
