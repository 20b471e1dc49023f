"""hg for the bundle jobs, in processes of their own: state, snapshot, bundles, clones.

Bundles are made from a *snapshot*, a clone in the scratch folder that a run brings up to date:

* the job may only read the repository, and `hg bundle` of a stream needs the repository's lock
  (streamclone.generatev2), which would also make every push wait while it lists the store;
* a pull transfers only changesets that a reader may see: nothing secret, no half of a transaction;
* all bundles of a run have the same heads, however many pushes happen during the run.

It costs a second copy on disk, which may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.bundles.decide.kinds import KINDS
from hgfleet.bundles.decide.plan import State
from hgfleet.bundles.decide.pullbundle_chain import SPEC
from hgfleet.core.errors import TemporaryError
from hgfleet.hg.command_server import MAX_ERROR, Hg, HgError

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

CHUNK: Final = 1024 * 1024
"""Bytes read at a time."""

_FOUND: Final = re.compile(r"^(\d+) changesets found", re.MULTILINE)
_HEADS: Final = "heads(not secret())"
_STATE: Final = "{rev} {node} {ifcontains(rev, revset('" + _HEADS + "'), 'head', 'covered')}\n"


def look(hg: Hg, path: Path, tips: Collection[str] = ()) -> State:
    """Ask hg for the state of a repository; `tips` are the tips of its bundles."""
    if not (path / ".hg").is_dir():
        return State(exists=False)
    revsets = [_HEADS, *(f"present('{tip}') and not secret()" for tip in sorted(tips))]
    arguments = [argument for revset in revsets for argument in ("--rev", revset)]
    output = hg.run("log", "--repository", path, *arguments, "--template", _STATE)
    heads, covered = {}, {}
    for line in output.splitlines():
        revision, node, sort = line.split()
        # Revision numbers count from 0, with secret and hidden changesets: near enough.
        if sort == "head":
            heads[node] = int(revision) + 1
        if node in tips:
            covered[node] = int(revision) + 1
    if not heads:
        return State()
    tip = max(heads, key=heads.__getitem__)
    return State(heads=frozenset(heads), tip=tip, changesets=heads[tip], covered=covered)


def hidden(hg: Hg, path: Path, tips: Collection[str]) -> frozenset[str]:
    """Return the changesets that a repository still has, though a client does not see them.

    They are obsolete: rewritten, not removed. A secret changeset was taken from clients.
    """
    if not tips:
        return frozenset()
    arguments = [part for tip in sorted(tips) for part in ("--rev", f"present('{tip}')")]
    template = "{ifeq(phase, 'secret', '', '{node}\n')}"
    return frozenset(
        hg.run("log", "--hidden", "--repository", path, *arguments, "--template", template).split()
    )


@dataclass(frozen=True, slots=True)
class Source:
    """A repository that a snapshot is made of; the registry says whether it publishes."""

    path: Path
    publishing: bool

    def options(self) -> tuple[str, str]:
        """Return the options of a clone or pull from it: hg reads no settings in it."""
        return "--config", f"phases.publish={'yes' if self.publishing else 'no'}"


def refresh_snapshot(hg: Hg, source: Source, seen: State, snapshot: Path, work: Path) -> State:
    """Make `snapshot` an exact clone of the changesets that a reader sees in `source`.

    Returns its state. `seen` is the state of the source a moment ago, `work` an empty folder on the
    same file system.
    Raises TemporaryError if pushes come so fast that no pull catches up, HgError if the source
    cannot be read.
    """
    for last in (False, True):
        if last:
            shutil.rmtree(snapshot, ignore_errors=True)
        # A push between the look and the pull does no harm: look again.
        for _ in range(3):
            try:
                if (snapshot / ".hg").is_dir():
                    hg.run("pull", "--repository", snapshot, *source.options(), source.path)
                else:
                    _clone(hg, source, snapshot, work)
                state = look(hg, snapshot)
            except HgError:
                if last:
                    raise
                # A killed run leaves an interrupted transaction, or the disk lost data. A new
                # snapshot is made of the repository.
                break
            if state.heads == seen.heads:
                return state
            seen = look(hg, source.path)
        # History was removed from the source (hg strip): the snapshot still has it.
    raise TemporaryError(
        f"{source.path}: pushes arrive faster than they can be copied; the next run tries again"
    )


def _clone(hg: Hg, source: Source, snapshot: Path, work: Path) -> None:
    fresh = work / "snapshot"
    # --pull: a copy by hard links would need the source's lock, and carry its secret changesets.
    hg.run("clone", "--pull", "--noupdate", *source.options(), source.path, fresh)
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
    """Let hg write a bundle with the whole snapshot into the folder `work`."""
    path = work / f"{kind}.hg"
    arguments: list[str | Path] = ["bundle", "--repository", snapshot, "--all"]
    arguments += ["--type", KINDS[kind].hg_type]
    if kind == "zstd":
        arguments += ["--config", f"experimental.bundlecomplevel.zstd={zstd_level}"]
    with _Tee(work / f"{kind}.pipe", path) as tee:
        hg.run(*arguments, tee.pipe)
    bundlespec = KINDS[kind].hg_type
    if kind == "stream":
        # A client must know beforehand whether it can read the store's format.
        bundlespec = hg.run("debugbundle", "--spec", path).strip()
        if not bundlespec.startswith(KINDS[kind].hg_type) or len(bundlespec.split()) != 1:
            raise HgError(f"hg debugbundle --spec printed {bundlespec!r}, expected one bundlespec")
    return Bundle(kind, path, bundlespec, tee.digest.hexdigest(), tee.size)


def heads_of_first(hg: Hg, snapshot: Path, count: int) -> tuple[str, ...]:
    """Return the heads that a snapshot had when it had so many changesets."""
    revset = f"heads(0:{count - 1})"
    output = hg.run("log", "--repository", snapshot, "--rev", revset, "--template", "{node}\n")
    return tuple(sorted(output.split()))


def generate_link(
    hg: Hg,
    snapshot: Path,
    bases: Collection[str],
    heads: Collection[str],
    work: Path,
    target: Path,
    zstd_level: int,
) -> tuple[Bundle, int]:
    """Let hg write the changesets between `bases` (none: the beginning) and `heads` into a file.

    Return the bundle and the number of its changesets.
    """
    arguments: list[str | Path] = ["bundle", "--repository", snapshot, "--type", SPEC]
    arguments += ["--config", f"experimental.bundlecomplevel.zstd={zstd_level}"]
    for base in bases or ("null",):
        arguments += ["--base", base]
    for head in heads:
        arguments += ["--rev", head]
    with _Tee(work / "pull.pipe", target) as tee:
        said = hg.run(*arguments, tee.pipe)
    count = _FOUND.search(said)
    if count is None:
        raise HgError(f"hg bundle printed {said[-MAX_ERROR:]!r}, expected the number of changesets")
    return Bundle("pull", target, SPEC, tee.digest.hexdigest(), tee.size), int(count[1])


def apply_link(
    hg: Hg, snapshot: Path, bundle: Path, bases: Collection[str], trial: Path
) -> frozenset[str]:
    """Apply a link to a clone with only the ancestors of `bases`; return its heads afterwards.

    The clone is made at `trial`, and left there.
    """
    if bases:
        # Hard links, where the snapshot lies on the same file system; hg breaks them as it writes.
        hg.run("clone", "--noupdate", snapshot, trial)
        beyond = f"not ::({' + '.join(sorted(bases))})"
        hg.run("debugstrip", "--repository", trial, "--no-backup", "--force", "--rev", beyond)
    else:
        hg.run("init", trial)
    hg.run("unbundle", "--repository", trial, bundle)
    return look(hg, trial).heads


def digest(path: Path) -> str:
    """Return the sha256 of a file in hexadecimal digits, "" if there is none."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return ""


class _Tee:
    """A pipe that hg takes for a file: its output is hashed and written to the target.

    The digest is of hg's output, and not of bytes that a disk returns later.
    """

    def __init__(self, pipe: Path, target: Path) -> None:
        self.pipe, self._target = pipe, target
        self.digest, self.size = hashlib.sha256(), 0
        self._problem: OSError | None = None
        self._thread = threading.Thread(target=self._copy, name="tee", daemon=True)

    def _copy(self) -> None:
        with self.pipe.open("rb", buffering=0) as source:
            try:
                with self._target.open("wb") as target:
                    while chunk := source.read(CHUNK):
                        self.digest.update(chunk)
                        self.size += len(chunk)
                        target.write(chunk)
            except OSError as error:
                # A full disk. hg gets a broken pipe, and its complaint would hide the reason.
                self._problem = error

    def __enter__(self) -> _Tee:
        os.mkfifo(self.pipe, 0o600)
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_rest: object) -> None:
        # If hg never opened the pipe, the thread still waits for a writer.
        with contextlib.suppress(OSError):
            os.close(os.open(self.pipe, os.O_WRONLY | os.O_NONBLOCK))
        self._thread.join()
        # hg removes the pipe itself when it fails, as a half-written file.
        self.pipe.unlink(missing_ok=True)
        if self._problem is not None:
            raise self._problem


def clone_through(hg: Hg, snapshot: Path, manifest_line: str, target: Path) -> frozenset[str]:
    """Make a real clone through a manifest line, as every client does; return its heads.

    The snapshot advertises just this line (hgext/bundle_verify.py); the client is hg itself: it
    downloads the object, with its checks of certificate and DIGEST, applies it, and pulls missing
    changesets. Raises HgError if hg fails or clones without the bundle.
    """
    # With --pull, hg takes no stream unless it is asked to.
    stream = ["--stream"] if ";stream=" in manifest_line else []
    output = hg.run(
        *(
            "clone",
            *stream,
            "--pull",
            "--noupdate",
            "--config",
            f"bundle_verify.entry={manifest_line}",
        ),
        *(snapshot, target),
    )
    if "finished applying clone bundle" not in output:
        raise HgError(f"hg clone did not use the bundle, it said: {output[-MAX_ERROR:].strip()}")
    return look(hg, target).heads


def verify_clone(hg: Hg, clone: Path) -> None:
    """Run `hg verify` on a clone. Raises HgError with its findings."""
    hg.run("verify", "--repository", clone, "--quiet")
