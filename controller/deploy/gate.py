"""Whether a tree may be deployed: it passed ./run-tests, or a reason is given. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.deploy.decide import DeployError

if TYPE_CHECKING:
    from controller.attestation import Attestation

WAY_OUT = (
    "Run ./run-tests in this checkout, bring the attestation of a run elsewhere (--attestation"
    " FILE), or say why it cannot wait: --untested REASON."
)


@dataclass(frozen=True, slots=True)
class Found:
    """The attestation for a deploy, and who signed it.

    `problem` is the reason why there is none. `signer` is a name of the site's allowed_signers;
    None if the site has no such file, empty if no key of it signed.
    """

    attestation: Attestation | None = None
    problem: str = ""
    signer: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the gate, as the plan, the summary and the deploy log tell it.

    `refusal` is the reason why the tree may not be deployed; empty if it may. `release` is the
    tested release; None if any may be deployed.
    """

    tree: str
    said: str
    refusal: str = ""
    release: str | None = None


def judge(tree: str, evidence: Found, reason: str | None) -> Verdict:
    """Decide about a tree. `reason` is the value of --untested, None without it."""
    if reason is not None:
        return Verdict(tree, f"UNTESTED: {reason}")
    refusal = _refusal(tree, evidence)
    if refusal:
        return Verdict(tree, f"UNTESTED: {refusal}", refusal)
    assert evidence.attestation is not None
    passed = _passed(evidence.attestation, evidence.signer)
    return Verdict(tree, passed, release=evidence.attestation.release)


def require(verdict: Verdict) -> None:
    """Refuse an untested tree."""
    if verdict.refusal:
        raise DeployError(f"{verdict.refusal} Nothing was changed.", WAY_OUT)


def require_release(verdict: Verdict, version: str) -> None:
    """Refuse an archive of another release than was tested with this tree."""
    if verdict.release not in (None, version):
        raise DeployError(
            f"Release {version} is not the one that was tested with this tree, which is"
            f" {verdict.release or 'unknown'}. Nothing was changed.",
            "Deploy without --release, take the archive of that version, or say why it cannot wait:"
            " --untested REASON.",
        )


def _refusal(tree: str, evidence: Found) -> str:
    attestation = evidence.attestation
    if attestation is None:
        return evidence.problem or f"No attestation says that this tree ({short(tree)}) passed."
    if attestation.tree != tree:
        return (
            f"The attestation is of tree {short(attestation.tree)}, and this checkout is tree"
            f" {short(tree)}: another commit, or files that are changed or not committed."
        )
    failed = [
        name
        for name, tier in attestation.tiers.items()
        if tier.failed or not (tier.passed or tier.recorded)
    ]
    if failed or not attestation.tiers:
        return f"The attestation tells of a run that did not pass ({', '.join(failed) or 'empty'})."
    if evidence.signer == "":
        return "No key of the site's allowed_signers signed the attestation of this tree."
    return ""


def _passed(attestation: Attestation, signer: str | None) -> str:
    tiers = attestation.tiers.values()
    passed, skipped = sum(tier.passed for tier in tiers), sum(tier.skipped for tier in tiers)
    minutes = sum(tier.seconds for tier in tiers) / 60
    return (
        f"tree {short(attestation.tree)} passed ./run-tests at {attestation.finished}: {passed}"
        f" passed, 0 failed, {skipped} skipped, {minutes:.0f} min"
        + (f"; signed by {signer}" if signer else "")
    )


def short(tree: str) -> str:
    """Return the beginning of a hash, which is enough for a person."""
    return tree[:12] or "unknown"
