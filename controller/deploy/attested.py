"""The attestation of this checkout, for the gate: options, files and git."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from controller import attestation
from controller.bootstrap import Step
from controller.deploy import gate
from controller.deploy.decide import DeployError

if TYPE_CHECKING:
    import argparse

    from controller.deploy.trees import Taken

SIGNERS = "allowed_signers"
"""A file in the folder of hosts.yml, as ssh-keygen(1) has it under ALLOWED SIGNERS.

A site with this file takes only attestations that a key in it signed.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the gate."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--attestation",
        metavar="FILE",
        type=Path,
        help="the attestation of a ./run-tests elsewhere, its signature in FILE.sig",
    )
    group.add_argument(
        "--untested",
        metavar="REASON",
        type=_reason,
        help="deploy a tree that did not pass ./run-tests; the reason is kept in the deploy log",
    )


def _reason(text: str) -> str:
    if not text.strip():
        raise ValueError
    return " ".join(text.split())


def judge(taken: Taken, options: argparse.Namespace) -> gate.Verdict:
    """Say whether the tree of a run passed ./run-tests."""
    evidence = gate.Found(problem=taken.problem)
    if taken.judged and options.untested is None:
        signers = taken.kept.inventory.with_name(SIGNERS)
        evidence = read(taken.judged, options.attestation, signers)
    verdict = gate.judge(taken.judged, evidence, options.untested)
    Step.say("tests", verdict.said)
    return verdict


def read(tree: str, named: Path | None, signers: Path) -> gate.Found:
    """Read an attestation: the file that was named, else this tree's on this machine."""
    path = named or attestation.path_of(tree)
    try:
        parsed = attestation.parse(path.read_text("utf-8"))
    except FileNotFoundError:
        if named:
            raise DeployError(f"There is no attestation {named}.", gate.WAY_OUT) from None
        return gate.Found()
    except (OSError, ValueError) as error:
        raise DeployError(f"{path} is no attestation: {error}.", gate.WAY_OUT) from error
    signer = attestation.signer_of(path, signers) if signers.is_file() else None
    return gate.Found(parsed, signer=signer)
