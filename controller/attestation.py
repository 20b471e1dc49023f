"""Attestations: a tree of this repository passed the gate, ./run-tests without names of tiers.

./run-tests writes it, ./deploy asks for it. An attestation is a file of JSON in
.cache/attestations, named after the tree, and next to it is an SSH signature (`ssh-keygen -Y sign`)
if HGFLEET_ATTESTATION_KEY names a key. Both files can be carried to another machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from controller import bootstrap
from controller.bootstrap import CACHE, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

FOLDER = CACHE / "attestations"
KEY_VARIABLE = "HGFLEET_ATTESTATION_KEY"
RECORD = "tested"
"""The folder of the checkout with records of earlier runs, which is no part of a tested tree."""
NAMESPACE = "hgfleet-attestation"
"""The purpose of a signature, for OpenSSH, which refuses a signature of another purpose."""

_TREE = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Figures:
    """A tier in figures; `recorded` are steps that passed in an earlier run with these files."""

    passed: int
    failed: int
    skipped: int
    seconds: float
    recorded: int = 0


@dataclass(frozen=True, slots=True)
class Attestation:
    """A tree (git's hash of the files), and the run of tests that it passed.

    `finished` is a time in ISO 8601, `release` the version that was built and tested, and
    `repeated` has the tests that failed at first and were run once more, each with the reason.
    """

    tree: str
    finished: str
    release: str
    tiers: Mapping[str, Figures]
    repeated: tuple[str, ...] = ()


def tree_of(top: Path = ROOT) -> str:
    """Return the hash of the tree that git would write of the files as they are; raises SetupError.

    Uncommitted files count. Ignored files do not, nor does the folder RECORD, which a run writes
    about the tree that it tests. The repository is left as it is.
    """
    with _indexed(top) as env:
        return _git(["write-tree"], env, top)


def copy_tree(parts: Sequence[str], place: Path, top: Path = ROOT) -> str:
    """Write the files below `parts` of a tree to a folder; return the hash of the whole tree.

    The files come from the objects that the hash names: a file that changes meanwhile is in the
    folder as it is in the hash. Ignored files are in neither.
    """
    with _indexed(top) as env:
        tree = _git(["write-tree"], env, top)
        names = _git(["ls-files", "-z", "--", *parts], env, top)
        written = ["checkout-index", "-z", "--stdin", f"--prefix={place}/"]
        _git(written, env, top, names.encode("utf-8", "surrogateescape"))
        return tree


@contextlib.contextmanager
def _indexed(top: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of git with an index of the files as they are."""
    with tempfile.TemporaryDirectory() as scratch:
        env = {
            **os.environ,
            "GIT_INDEX_FILE": f"{scratch}/index",
            "GIT_OBJECT_DIRECTORY": scratch,
            "GIT_OPTIONAL_LOCKS": "0",
        }
        if not (top / ".git").exists():
            # An unpacked archive.
            env |= {"GIT_DIR": f"{scratch}/git", "GIT_WORK_TREE": str(top)}
            env.pop("GIT_OBJECT_DIRECTORY")
            _git(["init", "--quiet"], env, top)
        _git(["add", "--all", "--", ".", f":(exclude){RECORD}"], env, top)
        yield env


def _git(arguments: list[str], env: dict[str, str], top: Path, stdin: bytes | None = None) -> str:
    try:
        return bootstrap.run(
            ["git", *arguments],
            what="Reading the tree of this checkout",
            env=env,
            cwd=top,
            stdin=stdin,
        ).strip()
    except OSError:
        bootstrap.fail(
            "git is not installed, and it reads the tree of this checkout.", "Install it."
        )


def path_of(tree: str) -> Path:
    """Return the file of the attestation of a tree on this machine."""
    return FOLDER / f"{tree}.json"


def signature_of(path: Path) -> Path:
    """Return the file with the signature of an attestation."""
    return path.with_name(f"{path.name}.sig")


def parse(text: str) -> Attestation:
    """Read an attestation; ValueError for anything else."""
    try:
        data = json.loads(text)
        tiers = {str(tier): figures(of) for tier, of in data["tiers"].items()}
        repeated = tuple(str(test) for test in data.get("repeated", []))
        attestation = Attestation(
            str(data["tree"]), str(data["finished"]), str(data["release"]), tiers, repeated
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no attestation: {error!r}") from error
    if not _TREE.fullmatch(attestation.tree):
        raise ValueError(f"'{attestation.tree}' is not the hash of a tree")
    return attestation


def figures(of: Mapping[str, Any]) -> Figures:
    """Read the figures of a tier; KeyError, TypeError or ValueError for anything else."""
    return Figures(
        int(of["passed"]),
        int(of["failed"]),
        int(of["skipped"]),
        float(of["seconds"]),
        int(of.get("recorded", 0)),
    )


def write(attestation: Attestation, key: str = "") -> Path:
    """Write an attestation, and its signature if a key is named; SetupError if signing fails.

    `key` is a file as `ssh-keygen -Y sign -f` takes it: a private key, or the public key of a
    private key in the agent.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = path_of(attestation.tree)
    signature = signature_of(path)
    signature.unlink(missing_ok=True)
    path.write_text(json.dumps(asdict(attestation), indent=2) + "\n")
    if key:
        # ssh-keygen asks for a passphrase on the terminal, and a run of tests has no reader.
        bootstrap.run(
            ["setsid", "ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", NAMESPACE, str(path)],
            what=f"Signing the attestation with {key}",
            way_out=f"{KEY_VARIABLE} names a key without a passphrase, or the public key of a key"
            " that ssh-agent has.",
        )
    return path


def signer_of(path: Path, allowed_signers: Path) -> str:
    """Return the name in `allowed_signers` whose key signed an attestation, empty if none did."""
    signature = signature_of(path)
    principals = _keygen("find-principals", "-s", str(signature), "-f", str(allowed_signers))
    for name in principals.splitlines():
        known = ("-f", str(allowed_signers), "-I", name, "-n", NAMESPACE)
        if _keygen("verify", *known, "-s", str(signature), stdin=path.read_bytes()):
            return name
    return ""


def _keygen(action: str, *arguments: str, stdin: bytes = b"") -> str:
    """Return the output of ssh-keygen, empty if it refuses."""
    done = subprocess.run(
        ["ssh-keygen", "-Y", action, *arguments], input=stdin, capture_output=True, check=False
    )
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
