"""Ansible as a process, for ./deploy: its command line, its output and its log."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import tarfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from controller import bootstrap
from controller.bootstrap import CACHE, ROOT, Step
from controller.deploy import decide, processes, trees
from controller.deploy.decide import DeployError, HostState, Result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.deploy.trees import Kept, Taken

PLAYBOOKS = Path("ansible/playbooks")
INTERNAL = PLAYBOOKS / "internal"
"""Playbooks that no person runs."""
SITE = Path("ansible/site.yml")
"""Below the top of a checkout, or of its copy, like the playbooks."""

INVENTORIES = ROOT / "ansible/inventories"
CONSTRUCTED = "constructed.yml"
"""A file of Ansible's plugin of that name, in the folder of an inventory that uses it."""

LOGS = CACHE / "deploy"

_NUMBERS = itertools.count(1)

MOST_FORKS = 64
"""Hosts that are asked at once; each is a process of Ansible for as long as its host answers."""

TASK_SECONDS = 600
"""A task that takes longer has failed, so that a release that hangs is taken back.

Well below the time after which a drain ends by itself (`playbooks/roll/drain.yml`).
"""

UNREACHABLE = 4
"""Exit code of ansible-playbook when a host did not answer and none failed otherwise."""

VAULT_HINT = (
    "If secrets of the inventory are encrypted, say where the password is:"
    " ANSIBLE_VAULT_PASSWORD_FILE=FILE ./deploy ..."
)


def way_out(said: str) -> str:
    """Return the way out of an error of Ansible's that comes before it asks a host."""
    if "decrypt" in said.lower():
        return VAULT_HINT
    return "Nothing was changed. Correct what Ansible names above, then run the same command again."


@dataclass(frozen=True, slots=True)
class Built:
    """A release, for the variables of the inventory that look it up in the environment."""

    version: str
    archive: Path | None
    versitygw: Path | None

    def variables(self) -> dict[str, str]:
        """Return the environment variables, empty for a missing file."""
        return {
            "HGFLEET_RELEASE_VERSION": self.version,
            "HGFLEET_RELEASE_ARCHIVE": str(self.archive or ""),
            "HGFLEET_VERSITYGW": str(self.versitygw or ""),
        }


@dataclass(frozen=True, slots=True)
class Site:
    """An inventory as Ansible sees it; `said` is how the person named it.

    `hosts` are the hosts of this run (--limit), `everything` all hosts; both with their groups.
    `variables` has the variables of each host, with templates not filled in; `listing`
    is all that ansible-inventory says. `seen` is the fingerprint of the inventory (`trees`) from
    before it was read. `copy` are the copies of tree and inventory that Ansible
    runs, None for this checkout and the inventory as they are.
    """

    said: str
    path: Path
    hosts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    extra_vars: Sequence[str] = ()
    verbose: bool = False
    everything: Mapping[str, Sequence[str]] = field(default_factory=dict)
    variables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    listing: str = ""
    seen: str = ""
    copy: Kept | None = None

    def playbook(self, book: Path, *options: str) -> list[str]:
        """Return the command that runs a playbook, below the top of the tree, on this inventory."""
        inventory = self.copy.inventory if self.copy else self.path
        command = ["ansible-playbook", *sources(inventory), str(self.top / book), *options]
        for text in self.extra_vars:
            command += ["--extra-vars", text]
        return command

    @property
    def top(self) -> Path:
        """Return the top of the tree that Ansible runs."""
        return self.copy.checkout if self.copy else ROOT

    def environment(self, built: Built | None = None) -> dict[str, str]:
        """Return the environment of Ansible's commands on this inventory."""
        env = environment() if built is None else environment(built)
        if self.copy is not None:
            env |= {"ANSIBLE_CONFIG": str(self.top / "ansible.cfg"), "PYTHONPATH": str(self.top)}
        return env

    def named(self, text: str) -> str:
        """Return a text with the inventory's own files in the place of its copy's files."""
        if self.copy is None:
            return text
        return text.replace(str(self.copy.inventory.parent), str(self.path.parent))

    def in_group(self, group: str) -> list[str]:
        """Return the hosts of a group."""
        return [name for name, groups in self.hosts.items() if group in groups]


def find_inventory(said: str) -> Path:
    """Return the file of an inventory: a file, a folder, or a name in ansible/inventories."""
    # The name first: ./cluster is a file here, and an inventory there.
    for candidate in (INVENTORIES / said, Path(said)):
        if candidate.is_file():
            return candidate.resolve()
        if (candidate / "hosts.yml").is_file():
            # Not the folder: Ansible would take registry.yml for an inventory too.
            return (candidate / "hosts.yml").resolve()
    known = sorted(path.parent.name for path in INVENTORIES.glob("*/hosts.yml"))
    raise DeployError(
        f"There is no inventory {said}: no such file, and no folder with a hosts.yml.",
        f"In {INVENTORIES.relative_to(ROOT)} there are: {', '.join(known)}.",
    )


def sources(inventory: Path) -> list[str]:
    """Return the options that name an inventory: its file, and the constructed file if any."""
    beside = inventory.with_name(CONSTRUCTED)
    files = [inventory, beside] if beside.is_file() else [inventory]
    return [word for file in files for word in ("-i", str(file))]


def environment(built: Built | None = None) -> dict[str, str]:
    """Return the environment of Ansible's commands."""
    env = bootstrap.controller_environment()
    if built is not None:
        env.update(built.variables())
    return env


def read_site(
    said: str, limit: str | None, extra_vars: Sequence[str] = (), *, verbose: bool = False
) -> Site:
    """Read the inventory; DeployError if there is none, or no host."""
    path = find_inventory(said)
    require_no_dangling_link(path.parent)
    seen = trees.fingerprint(path)
    listing = _listing(path)
    everything = decide.hosts_of(listing)
    hosts = decide.hosts_of(_listing(path, "--limit", limit)) if limit else everything
    if not hosts:
        where = f"--limit {limit} leaves no host of" if limit else "There is no host in"
        raise DeployError(f"{where} {path}.", "Nothing was changed.")
    # Values that a plugin made have a mark: they are never filled in.
    plain = json.loads(listing, object_hook=lambda of: of.get("__ansible_unsafe", of))
    variables = plain["_meta"]["hostvars"]
    return Site(said, path, hosts, extra_vars, verbose, everything, variables, listing, seen)


def with_copies(site: Site) -> tuple[Site, Taken]:
    """Copy this tree and the inventory; return the site whose playbooks run from the copies."""
    written = trees.written_folders(site.path, site.variables.values())
    with Step("copies", "copying this tree and the inventory"):
        taken = trees.take(site.path, site.seen, written)
    return replace(site, copy=taken.kept), taken


def _listing(path: Path, *options: str) -> str:
    command = ["ansible-inventory", *sources(path), "--list", *options]
    try:
        return bootstrap.run(command, what="Reading the inventory", env=environment())
    except bootstrap.SetupError as error:
        raise DeployError(str(error), way_out(str(error))) from None


def require_no_dangling_link(folder: Path) -> None:
    """Refuse a copy of an example without the files that the example shares with another.

    Ansible skips such links, and would name missing variables instead.
    """
    dangling = sorted(
        str(path.relative_to(folder))
        for name in ("*", "group_vars/**/*", "host_vars/**/*")
        for path in folder.glob(name)
        if path.is_symlink() and not path.exists()
    )
    if dangling:
        raise DeployError(
            f"These files of {folder} are links to files that are missing: {', '.join(dangling)}.",
            "Copy an example with `cp -rL`, which makes files of links. Nothing was changed.",
        )


def parts() -> set[str]:
    """Return the groups that are parts of the service: each has a role of its name."""
    return {path.name for path in (ROOT / "ansible/roles").iterdir()}


def read_states(site: Site) -> dict[str, HostState]:
    """Ask every host for its releases."""
    command = site.playbook(INTERNAL / "state.yml", "--limit", ",".join(site.hosts))
    # A host that does not answer takes 10 s, and all of them together must not take more.
    env = {
        **site.environment(),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
        "ANSIBLE_FORKS": str(min(len(site.hosts), MOST_FORKS)),
    }
    with Step("hosts", f"asking {decide.count(len(site.hosts), 'host')} what there is"):
        done = processes.run(command, env)
    try:
        return decide.states_of(done.stdout)
    except ValueError:
        said = site.named(done.stderr + done.stdout).strip().splitlines()[-25:]
        tail = "\n".join(f"  | {line}" for line in said)
        raise DeployError(f"Asking the hosts failed:\n{tail}", way_out(tail)) from None


def take_archive(archive: Path) -> Built:
    """Return the release in an archive that was built before."""
    try:
        with tarfile.open(archive) as file:
            first = file.next()
    except (OSError, tarfile.TarError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no tar file"
        raise DeployError(
            f"{archive} is not an archive of a release: {reason}.",
            "A build leaves one in .cache/release: hgfleet-VERSION.tar.gz.",
        ) from error
    version = decide.version_in_archive(first.name if first else "")
    return Built(version, archive.resolve(), find_versitygw())


def formats_of(built: Built) -> dict[str, Any]:
    """Return the formats that a release declares in its archive; none without an archive."""
    if built.archive is None:
        return {}
    with tarfile.open(built.archive) as archive:
        for member in archive:
            # Names are sorted, so this name is among the first.
            if member.name.removeprefix("./") == f"{built.version}/formats.json":
                file = archive.extractfile(member)
                return dict(json.load(file)) if file else {}
            if member.name.removeprefix("./").startswith(f"{built.version}/hgext"):
                break
    return {}


def known_release(version: str) -> Built:
    """Return a release by its version; its archive only if the cache still has it."""
    archive = CACHE / "release" / f"hgfleet-{version}.tar.gz"
    return Built(version, archive if archive.is_file() else None, find_versitygw())


def find_versitygw() -> Path | None:
    """Return the S3 server for inventories with an object store of their own, if it was built."""
    named = os.environ.get("HGFLEET_VERSITYGW", "")
    if named:
        return Path(named)
    programs = sorted(
        (CACHE / "release").glob("versitygw-*"), key=lambda path: path.stat().st_mtime
    )
    return programs[-1] if programs else None


def build() -> Built:
    """Build the release of this checkout, or find it built."""
    from controller.cluster import release

    bootstrap.ensure_engine()
    built = release.ensure()
    Step.say("release", f"{built.version} ({built.archive.relative_to(ROOT)})")
    return Built(built.version, built.archive, built.versitygw)


def _site_command(
    site: Site, built: Built, limit: str, kept: Kept | None
) -> tuple[list[str], dict[str, str]]:
    if kept is not None:
        site = replace(site, copy=kept)
    env = site.environment(built)
    env.setdefault("ANSIBLE_TASK_TIMEOUT", str(TASK_SECONDS))
    env["PYTHONUNBUFFERED"] = "1"
    env["ANSIBLE_FORCE_COLOR"] = "1" if sys.stdout.isatty() else "0"
    if not site.verbose:
        env["ANSIBLE_DISPLAY_OK_HOSTS"] = "0"
    return site.playbook(SITE, "--limit", limit, "--diff"), env


def site_playbook(
    site: Site,
    built: Built,
    hosts: Sequence[str],
    *,
    check: bool,
    kept: Kept | None = None,
    tags: Sequence[str] = (),
    skipped: Sequence[str] = (),
    variables: Mapping[str, Any] | None = None,
    aside: TextIO | None = None,
) -> tuple[dict[str, Result], int, Path]:
    """Run site.yml on these hosts, showing the changes; return the recap, the exit code, the log.

    The recap leaves out localhost, where nothing but checks runs. `kept` is an earlier tree and
    inventory, None for the tree of this run. `tags` are the parts to run, all if there are none,
    without the `skipped` parts; `variables` are for internal/record.yml. A run at the same time as
    another shows nothing, and writes to `aside` what it would show.
    """
    # The registries are checked before a plan (survey.py), which so needs nothing of localhost.
    limit = ",".join(hosts) if check else decide.limit_to(hosts)
    command, env = _site_command(site, built, limit, kept)
    command += ["--check"] if check else []
    command += ["--tags", ",".join(tags)] if tags else []
    command += ["--skip-tags", ",".join(skipped)] if skipped else []
    command += ["--extra-vars", json.dumps(variables)] if variables else []
    subject = "plan" if check else "apply"
    what = "ansible/site.yml " + ("--check --diff" if check else f"on {decide.joined(hosts)}")
    results: dict[str, Result] = {}
    log = new_log(site, subject)
    out = aside or sys.stdout
    progress = Step(subject, f"{what} (log: {log.relative_to(ROOT)})")
    with (
        progress if aside is None else contextlib.nullcontext(),
        log.open("w") as copy,
        processes.started(command, env) as process,
    ):
        assert process.stdout is not None
        shown = process.stdout if site.verbose else decide.without_includes(process.stdout)
        for line in map(site.named, shown):
            out.write(line)
            out.flush()
            copy.write(decide.plain(line))
            play = decide.play_of(line)
            if play:
                progress.what = play
            recap = decide.recap_of(line)
            if recap is not None and recap[0] in site.hosts:
                results[recap[0]] = recap[1]
        code = process.wait()
    return results, code, log


def new_log(site: Site, subject: str) -> Path:
    """Make the log of a run, readable only for the owner."""
    LOGS.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    # A roll has several of a kind within a second.
    stamp += f"-{next(_NUMBERS):03}"
    log = LOGS / f"{stamp}-{site.path.parent.name}-{subject}.log"
    # Diffs have no secrets (no_log), yet they say how the site is built.
    log.touch(mode=0o600)
    return log
