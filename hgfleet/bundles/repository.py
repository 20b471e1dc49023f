"""What hg does for the bundle jobs, as processes of their own.

Bundles are made from a *snapshot*, a clone in the scratch folder that a run brings up to date:

* the job may only read the repository, and `hg bundle` of a stream needs the repository's lock
  (streamclone.generatev2), which would also make every push wait while it lists the store;
* a pull transfers what a reader may see: never a secret changeset, never half a transaction;
* all bundles of a run have the same heads, however many pushes happen meanwhile.

It costs a second copy on disk, which may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from hgfleet.bundles.kinds import KINDS
from hgfleet.bundles.plan import State
from hgfleet.errors import HgfleetError, TemporaryError

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

MAX_ERROR: Final = 2000
"""Characters of hg's complaint that are worth repeating; the last ones."""

_HEADS: Final = "heads(not secret())"
_STATE: Final = "{rev} {node} {ifcontains(rev, revset('" + _HEADS + "'), 'head', 'covered')}\n"


class HgError(HgfleetError):
    """hg did not do what it was asked to; the message has its own words."""


@dataclass(frozen=True, slots=True)
class Hg:
    """How to run hg: the executable and its HGRCPATH (configuration of no user, no repository)."""

    executable: Path
    hgrc: Path

    def environment(self) -> dict[str, str]:
        """Return the environment of every hg that is started here."""
        kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "HOME") if name in os.environ}
        return kept | {"HGRCPATH": str(self.hgrc), "HGPLAIN": "1", "LC_ALL": "C.UTF-8"}

    def run(self, *arguments: str | Path) -> str:
        """Run hg to its end and return its output. Raises HgError with what it said instead."""
        command = [str(self.executable), "--noninteractive", *map(str, arguments)]
        try:
            done = subprocess.run(
                command,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
        except OSError as error:
            raise HgError(f"{self.executable}: cannot run hg ({error.strerror})") from error
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip())[-MAX_ERROR:]
            how = f"exit code {done.returncode}"
            if done.returncode < 0:
                how = f"killed by signal {-done.returncode}"
            raise HgError(f"hg {arguments[0]} failed ({how}): {said}")
        return done.stdout


def look(hg: Hg, path: Path, tips: Collection[str] = ()) -> State:
    """Ask hg for the state of a repository; `tips` are those of its published bundles."""
    if not (path / ".hg").is_dir():
        return State(exists=False)
    revsets = [_HEADS, *(f"present('{tip}')" for tip in sorted(tips))]
    arguments = [word for revset in revsets for word in ("--rev", revset)]
    output = hg.run("log", "--repository", path, *arguments, "--template", _STATE)
    heads, covered = {}, {}
    for line in output.splitlines():
        revision, node, what = line.split()
        # Revision numbers count changesets from 0, secret and hidden ones included: near enough.
        if what == "head":
            heads[node] = int(revision) + 1
        if node in tips:
            covered[node] = int(revision) + 1
    if not heads:
        return State()
    tip = max(heads, key=heads.__getitem__)
    return State(heads=frozenset(heads), tip=tip, changesets=heads[tip], covered=covered)


def refresh_snapshot(hg: Hg, source: Path, seen: State, snapshot: Path, work: Path) -> State:
    """Make `snapshot` an exact clone of what a reader sees in `source`; return its state.

    `seen` is the state of the source a moment ago, `work` an empty folder on the same file system.
    Raises TemporaryError if pushes come so fast that no pull catches up, HgError if the source
    cannot be read.
    """
    for last in (False, True):
        if last:
            shutil.rmtree(snapshot, ignore_errors=True)
        # A push between the look and the pull is no harm: look again.
        for _ in range(3):
            try:
                if (snapshot / ".hg").is_dir():
                    hg.run("pull", "--repository", snapshot, source)
                else:
                    _clone(hg, source, snapshot, work)
                state = look(hg, snapshot)
            except HgError:
                if last:
                    raise
                # A run killed in the middle leaves an interrupted transaction; or the disk lost
                # something. It is only a copy.
                break
            if state.heads == seen.heads:
                return state
            seen = look(hg, source)
        # History was removed from the source (hg strip): the snapshot still has it.
    raise TemporaryError(
        f"{source}: pushes arrive faster than they can be copied; the next run tries again"
    )


def _clone(hg: Hg, source: Path, snapshot: Path, work: Path) -> None:
    fresh = work / "snapshot"
    # --pull: a copy by hard links would need the source's lock, and carry its secret changesets.
    hg.run("clone", "--pull", "--noupdate", source, fresh)
    shutil.rmtree(snapshot, ignore_errors=True)
    snapshot.parent.mkdir(parents=True, exist_ok=True)
    fresh.rename(snapshot)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle on local disk; `size` in bytes, `sha256` in hexadecimal digits."""

    kind: str
    path: Path
    bundlespec: str
    sha256: str
    size: int


def generate(hg: Hg, snapshot: Path, kind: str, work: Path, zstd_level: int) -> Bundle:
    """Let hg write one bundle with everything in the snapshot into the folder `work`."""
    path = work / f"{kind}.hg"
    arguments: list[str | Path] = ["bundle", "--repository", snapshot, "--all"]
    arguments += ["--type", KINDS[kind].hg_type]
    if kind == "zstd":
        arguments += ["--config", f"experimental.bundlecomplevel.zstd={zstd_level}"]
    hg.run(*arguments, path)
    bundlespec = KINDS[kind].hg_type
    if kind == "stream":
        # A client must know beforehand whether it can read the store's format.
        bundlespec = hg.run("debugbundle", "--spec", path).strip()
        if not bundlespec.startswith(KINDS[kind].hg_type) or len(bundlespec.split()) != 1:
            raise HgError(f"hg debugbundle --spec printed {bundlespec!r}, expected one bundlespec")
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return Bundle(kind, path, bundlespec, sha256, path.stat().st_size)


def clone_through(hg: Hg, snapshot: Path, manifest_line: str, target: Path) -> frozenset[str]:
    """Make a real clone through one manifest line, the way every client does; return its heads.

    hg runs on both ends: the one end serves the snapshot with a manifest of just this line, the
    other downloads and applies what the line names, with hg's own checks of certificate and DIGEST,
    and would pull what the bundle lacks. Raises HgError if hg fails or goes another way.
    """
    manifest = snapshot / ".hg" / "clonebundles.manifest"
    manifest.write_text(manifest_line + "\n", "utf-8")
    try:
        output = hg.run(
            "clone",
            "--noupdate",
            # Both ends are on this host: what ssh would run there, a shell runs here.
            *("--config", """ui.ssh=sh -c 'eval "$2"' ssh"""),
            *("--config", f"ui.remotecmd={hg.executable}"),
            f"ssh://localhost/{quote(str(snapshot))}",
            target,
        )
    finally:
        with contextlib.suppress(OSError):
            manifest.unlink()
    if "finished applying clone bundle" not in output:
        raise HgError(f"hg clone did not use the bundle, it said: {output[-MAX_ERROR:].strip()}")
    return look(hg, target).heads
