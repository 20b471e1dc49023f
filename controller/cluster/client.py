"""Client settings of people and tests, and the smoke check, which goes every user's way."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import ssl
import subprocess
import time
import urllib.request
from typing import TYPE_CHECKING, Any, Final

from controller import bootstrap
from controller.bootstrap import ROOT, STATE, Step, run
from controller.cluster import cluster as life
from controller.cluster import settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from controller.cluster.cluster import Host
    from controller.cluster.settings import Settings

SMOKE_REPOSITORY = "sandbox/smoke"
OWN_REPOSITORY = "hgfleet"
SSH_FOLDERS = {"ssh": "/etc/hgfleet/ssh", "admin_ssh": "/etc/ssh"}
"""Where the two SSH servers have their host keys, by the name of the published port."""


def first_in(hosts: Mapping[str, Host], group: str) -> str:
    """Return the first host of a group."""
    first = next((name for name, host in hosts.items() if group in host.groups), None)
    if first is None:
        bootstrap.fail(
            f"The inventory has no host in the group {group}.", f"Add a host to {life.INVENTORY}."
        )
    return first


def contract(cluster: Settings) -> dict[str, str]:
    """Return the variables of `./cluster env`; people and tests build on them."""
    variables = {
        "HGFLEET_HTTP_URL": f"https://127.0.0.1:{cluster.port('https')}",
        "HGFLEET_SSH_HOST": "127.0.0.1",
        "HGFLEET_SSH_PORT": str(cluster.port("ssh")),
        "HGFLEET_ADMIN_SSH_PORT": str(cluster.port("admin_ssh")),
        "HGFLEET_CA_CERT": str(STATE / "pki/ca.pem"),
        "HGFLEET_KNOWN_HOSTS": str(STATE / "client/known_hosts"),
        "HGFLEET_KEYS": str(STATE / "keys"),
        "HGFLEET_PASSWORDS": str(STATE / "passwords"),
        "HGFLEET_LDAP_URL": f"ldaps://127.0.0.1:{cluster.port('ldap')}",
        "HGFLEET_LDAP_BASE": "dc=hgfleet,dc=test",
        "HGFLEET_S3_URL": f"https://127.0.0.1:{cluster.port('s3')}",
        "HGFLEET_S3_2_URL": f"https://127.0.0.1:{cluster.port('s3_2')}",
        "HGFLEET_CDN_URL": f"https://127.0.0.1:{cluster.port('cdn')}",
        "HGFLEET_BUNDLE_URL": bundle_url(cluster),
        "HGFLEET_METRICS_URL": f"https://127.0.0.1:{cluster.port('metrics')}",
        "HGFLEET_METRICS_CERT": str(metrics_certificate()),
        "HGFLEET_STATUS_URL": f"https://127.0.0.1:{cluster.port('s3')}/status/index.html",
        "HGFLEET_HGRC": str(STATE / "client/hgrc"),
    }
    # For ansible-playbook by hand with the cluster's inventory.
    variables.update(life.ansible_variables(cluster, None))
    built = STATE / "release.json"
    if built.exists():
        variables.update(json.loads(built.read_text()))
    return variables


def bundle_url(cluster: Settings) -> str:
    """Return the address that clone bundle manifests carry.

    It is the store's address inside the cluster's network, not a published port: hosts, client
    containers and this machine all reach it under the same name, as they would in production.
    """
    return f"https://{cluster.network}.20:7443/bundles"


def metrics_certificate() -> Path:
    """Return the file with the certificate and key that Prometheus of the cluster asks for."""
    return STATE / "client/metrics.pem"


def write_metrics_certificate() -> None:
    """Make that file with the cluster's CA, unless a file that is newer than the CA is there."""
    ca, file = STATE / "pki/ca.pem", metrics_certificate()
    if file.exists() and file.stat().st_mtime >= ca.stat().st_mtime:
        return
    script = ROOT / "controller/cluster/certificate.py"
    run(
        [str(bootstrap.VENV / "bin/python"), str(script), str(ca.parent), "cluster", str(file)],
        what="Making a certificate for Prometheus",
    )


def firing(cluster: Settings) -> list[str]:
    """Return a line for each alert that fires: its severity, name and summary. Raises OSError."""
    context = ssl.create_default_context(cafile=str(STATE / "pki/ca.pem"))
    context.load_cert_chain(metrics_certificate())
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    url = f"{contract(cluster)['HGFLEET_METRICS_URL']}/api/v1/alerts"
    with opener.open(url, timeout=5) as answer:
        return lines_of(json.load(answer)["data"]["alerts"])


def lines_of(alerts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the lines of the alerts that fire, without the heartbeat, which always does. Pure."""
    return sorted(
        f"{alert['labels']['severity']:<7}{alert['labels']['alertname']}: "
        f"{alert['annotations']['summary']}"
        for alert in alerts
        if alert["state"] == "firing" and alert["labels"]["severity"] != "heartbeat"
    )


def write_client_files(cluster: Settings, hosts: Mapping[str, Host]) -> None:
    """Write known_hosts, an ssh configuration and an hgrc that trusts the cluster's CA."""
    folder = settings.state_folder("client")
    ssh_host = first_in(hosts, "ssh")
    lines = []
    for port, keys_folder in SSH_FOLDERS.items():
        keys = life.on_host(
            cluster,
            ssh_host,
            ["sh", "-c", f"cat {keys_folder}/*.pub"],
            what="Reading the host keys of SSH",
        )
        inside = f",{ssh_host}" if port == "ssh" else ""
        names = f"[127.0.0.1]:{cluster.port(port)}{inside}"
        lines += [f"{names} {' '.join(line.split()[:2])}" for line in keys.splitlines()]
    (folder / "known_hosts").write_text("\n".join(lines) + "\n")
    (folder / "ssh_config").write_text(
        "# Names no key: ssh tries every key that it is told of. Add -i KEYS/PERSON.\n"
        "Host *\n"
        "  BatchMode yes\n"
        "  IdentitiesOnly yes\n"
        "  StrictHostKeyChecking yes\n"
        f"  UserKnownHostsFile {folder / 'known_hosts'}\n"
        "  GlobalKnownHostsFile /dev/null\n"
    )
    (folder / "hgrc").write_text(
        "# Client settings for this cluster: HGRCPATH=THIS_FILE hg clone ...\n"
        "[web]\n"
        f"cacerts = {STATE / 'pki/ca.pem'}\n"
        "[ui]\n"
        f"ssh = {ssh_command('alice')}\n"
        "username = alice <alice@hgfleet.test>\n"
    )


def ssh_command(person: str) -> str:
    """Return the ssh command of a person, quoted for a shell; host and command follow it."""
    arguments = ["ssh", "-F", str(STATE / "client/ssh_config"), "-i", str(STATE / "keys" / person)]
    return shlex.join(arguments)


def ssh_url(cluster: Settings, path: str) -> str:
    """Return the address for pushing to a repository."""
    return f"ssh://hg@127.0.0.1:{cluster.port('ssh')}/{path}"


def https_url(cluster: Settings, path: str) -> str:
    """Return the address for cloning a repository."""
    return f"https://127.0.0.1:{cluster.port('https')}/{path}"


def hg_environment() -> dict[str, str]:
    """Return the environment of the controller's hg, with the cluster's client settings."""
    env = bootstrap.controller_environment()
    env.update(HGRCPATH=str(STATE / "client/hgrc"), HGPLAIN="1", HGENCODING="UTF-8")
    # PYTHONPATH is for Ansible; Mercurial must run from its own environment.
    env.pop("PYTHONPATH", None)
    return env


def hg(arguments: list[str], what: str, cwd: Path | None = None) -> str:
    """Run the controller's hg with the cluster's client settings."""
    command = [str(bootstrap.VENV / "bin/hg"), *arguments]
    return run(command, what=what, cwd=cwd, env=hg_environment())


RECENT: Final = 100
"""Commits of this project that a cluster begins with: real content, converted in seconds."""


def import_own_history(cluster: Settings) -> None:
    """Convert this checkout's recent git history and push it as alice: real content, as users push.

    Later commits are added to the first import.
    """
    folder = settings.state_folder("import") / cluster.identity
    if not (ROOT / ".git").exists():
        Step.say("import", "this is no git checkout; the repository hgfleet stays as it is")
        return
    with Step("import", f"this project's recent git history into {OWN_REPOSITORY}"):
        source = _recent_history(folder.with_suffix(".git"))
        hg(
            ["--config", "extensions.convert=", "convert", "--quiet", "--source-type", "git",
             "--dest-type", "hg", str(source), str(folder)],
            what="Converting the git history",
        )  # fmt: skip
        push(folder, ssh_url(cluster, OWN_REPOSITORY))


def _recent_history(copy: Path) -> Path:
    """Bring a bare copy of this checkout's history up to date; return it.

    At the first import, the commit RECENT commits before the newest becomes the oldest.
    """

    def git(*arguments: str, repository: Path) -> str:
        return run(["git", *arguments], what="Copying the git history", cwd=repository).strip()

    if not copy.exists():
        fresh = copy.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        git("init", "--quiet", "--bare", str(fresh), repository=ROOT)
        git("fetch", "--quiet", str(ROOT), "HEAD", repository=fresh)
        known = git(
            "rev-list",
            "--first-parent",
            f"--max-count={RECENT + 1}",
            "FETCH_HEAD",
            repository=fresh,
        )
        if len(commits := known.split()) > RECENT:
            git("replace", "--graft", commits[RECENT - 1], repository=fresh)
        fresh.rename(copy)
    git("fetch", "--quiet", "--force", str(ROOT), "HEAD:refs/heads/main", repository=copy)
    return copy


def push(repository: Path, url: str) -> None:
    """Push everything to `url`; nothing new to push is fine."""
    done = subprocess.run(
        [str(bootstrap.VENV / "bin/hg"), "-R", str(repository), "push", "--quiet", "--force", url],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=hg_environment(),
    )
    if done.returncode not in (0, 1):  # 1 means that there was nothing to push
        bootstrap.fail(
            f"Pushing to {url} failed:\n  | " + done.stdout.strip().replace("\n", "\n  | "),
            journal_hint(),
        )


def journal_hint() -> str:
    """Return where to look when a check of the service fails."""
    return "See ./cluster status and ./cluster logs HOST."


def generate_bundles(cluster: Settings, hosts: Mapping[str, Host]) -> None:
    """Run the bundle job once, as its timer would."""
    host = first_in(hosts, "bundles")
    with Step("bundles", "generating, verifying and publishing clone bundles"):
        try:
            life.on_host(
                cluster,
                host,
                ["systemctl", "start", "hgfleet-bundles.service"],
                what="The bundle job",
            )
        except bootstrap.SetupError:
            life.execute(
                cluster,
                host,
                ["journalctl", "-u", "hgfleet-bundles.service", "-n", "40", "--no-pager"],
            )
            raise


OFFERED_S = 30
"""Seconds for a prober that has just started, perhaps before the store, to find that it answers."""


def wait_for_bundles(url: str) -> None:
    """Wait until clients get bundles: not before the prober has seen that they answer."""
    deadline = time.monotonic() + OFFERED_S
    command = ["debug::clonebundle-manifest", "--raw", url]
    while not hg(command, what="Asking for the clone bundles").strip():
        if time.monotonic() > deadline:
            bootstrap.fail(
                f"Clients are told of no clone bundle of {url} after {OFFERED_S} s.",
                "See ./cluster exec hg1 -- hgfleet steering status.",
            )
        time.sleep(1)


def smoke(cluster: Settings, hosts: Mapping[str, Host]) -> None:
    """Push as alice, run the bundle job, clone over HTTPS: from a bundle, and complete."""
    with Step("smoke", "push as alice over SSH, clone over HTTPS from the object store"):
        work = STATE / "smoke"
        if work.exists():
            shutil.rmtree(work)
        work.mkdir()
        source, copy = work / "source", work / "copy"
        hg(
            ["clone", "--quiet", ssh_url(cluster, SMOKE_REPOSITORY), str(source)],
            what="Cloning over SSH",
        )
        (source / "checked.txt").write_text(
            f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {os.getpid()}\n"
        )
        hg(
            ["commit", "--addremove", "--quiet", "-m", "check the service"],
            what="Committing",
            cwd=source,
        )
        push(source, ssh_url(cluster, SMOKE_REPOSITORY))
    generate_bundles(cluster, hosts)
    with Step("smoke", "clone over HTTPS"):
        url = https_url(cluster, SMOKE_REPOSITORY)
        wait_for_bundles(url)
        told = hg(["clone", url, str(copy)], what="Cloning over HTTPS")
        if "applying clone bundle" not in told:
            bootstrap.fail(f"The clone did not use a clone bundle:\n{told}", journal_hint())
        wanted = hg(
            ["-R", str(source), "log", "-r", "tip", "-T", "{node}"], what="Reading the source"
        )
        got = hg(["-R", str(copy), "log", "-r", "tip", "-T", "{node}"], what="Reading the clone")
        if wanted != got:
            bootstrap.fail(f"The clone's tip is {got}, the source's {wanted}.", journal_hint())
        shutil.rmtree(work)


def summary(cluster: Settings) -> str:
    """Return the addresses of the service and the next commands to try."""
    return f"""
The service is up.

  web       {https_url(cluster, "")}   (CA: .cluster/pki/ca.pem)
  bundles   {bundle_url(cluster)}
  ssh       ssh://hg@127.0.0.1:{cluster.port("ssh")}/
  ldap      ldaps://127.0.0.1:{cluster.port("ldap")}
  alerts    https://127.0.0.1:{cluster.port("metrics")}/   (.cluster/client/metrics.pem)

Clone (from the object store), push (as alice):

  eval "$(./cluster env)"; export HGRCPATH=$HGFLEET_HGRC PATH="$PWD/.venv/bin:$PATH"
  hg clone $HGFLEET_HTTP_URL/{OWN_REPOSITORY}
  hg clone ssh://hg@$HGFLEET_SSH_HOST:$HGFLEET_SSH_PORT/sandbox/playground
  cd playground && echo hello > hello && hg commit -Am hello && hg push

Try next:

  ./cluster status            hosts, their health, their ports, alerts that fire
  ./cluster ssh bob           what bob's key may do
  ./cluster exec hg1 -- hgfleet bundles status
  ./cluster logs hg1 hgfleet-web
  ./run-tests e2e             the end-to-end tests on this cluster
"""
