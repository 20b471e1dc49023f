"""Attestations of ./run-tests, and the gate of ./deploy that asks for an attestation."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from controller import attestation
from controller.attestation import Attestation, Figures
from controller.deploy import attested, cli, gate
from controller.deploy.decide import DeployError
from controller.tests import attestation as runner
from controller.tests.outcome import Failure, Outcome

if TYPE_CHECKING:
    from pathlib import Path

TREE, OTHER = "a" * 40, "b" * 40
PASSED = Attestation(
    TREE,
    "2026-01-02T03:04:05Z",
    "0.1.0-aaaaaaaaaaaa",
    {"lint": Figures(10, 0, 0, 60.0), "e2e": Figures(200, 0, 3, 1740.0)},
)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(attestation, "FOLDER", tmp_path / "attestations")
    return tmp_path / "attestations"


def git(top: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=top, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    top = tmp_path / "checkout"
    (top / "roles").mkdir(parents=True)
    (top / "roles/tasks.yml").write_text("- name: Task\n")
    (top / ".gitignore").write_text("/.cache/\n")
    git(top, "init", "--quiet")
    git(top, "add", "--all")
    git(top, "commit", "--quiet", "--message", "first")
    return top


def key(path: Path) -> Path:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)]
    subprocess.run(command, check=True)
    return path


# --- the tree ---------------------------------------------------------------------------------


def test_a_clean_checkout_is_the_tree_of_its_commit(checkout: Path) -> None:
    assert attestation.tree_of(checkout) == git(checkout, "rev-parse", "HEAD^{tree}").strip()


def test_each_changed_file_is_another_tree_and_an_ignored_one_is_none(checkout: Path) -> None:
    before = attestation.tree_of(checkout)
    (checkout / ".cache").mkdir()
    (checkout / ".cache/x").write_text("x")
    assert attestation.tree_of(checkout) == before
    seen = {before}
    (checkout / "new").write_text("")
    seen.add(attestation.tree_of(checkout))
    (checkout / "new").chmod(0o755)
    seen.add(attestation.tree_of(checkout))
    (checkout / "roles/tasks.yml").write_text("- name: Another task\n")
    seen.add(attestation.tree_of(checkout))
    (checkout / "roles/tasks.yml").unlink()
    seen.add(attestation.tree_of(checkout))
    assert len(seen) == 5


def test_the_records_of_runs_are_no_part_of_the_tree(checkout: Path) -> None:
    before = attestation.tree_of(checkout)
    (checkout / "tested").mkdir()
    (checkout / "tested/whole.json").write_text("{}")
    assert attestation.tree_of(checkout) == before
    git(checkout, "add", "tested")
    git(checkout, "commit", "-qm", "tested: record")
    assert attestation.tree_of(checkout) == before
    (checkout / "roles/tested").mkdir()
    (checkout / "roles/tested/x").write_text("")
    assert attestation.tree_of(checkout) != before


def test_the_repository_and_its_index_stay_as_they_are(checkout: Path) -> None:
    (checkout / "new").write_text("not added")
    before = {path: path.stat().st_mtime_ns for path in (checkout / ".git").rglob("*")}
    attestation.tree_of(checkout)
    assert {path: path.stat().st_mtime_ns for path in (checkout / ".git").rglob("*")} == before
    assert git(checkout, "status", "--porcelain") == "?? new\n"


def test_an_unpacked_archive_has_the_tree_of_the_commit(checkout: Path, tmp_path: Path) -> None:
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    git(checkout, "archive", "--output", str(tmp_path / "archive.tar"), "HEAD")
    subprocess.run(["tar", "-xf", tmp_path / "archive.tar", "-C", unpacked], check=True)
    assert attestation.tree_of(unpacked) == attestation.tree_of(checkout)


# --- the file and its signature ---------------------------------------------------------------


def test_an_attestation_is_read_as_it_was_written() -> None:
    path = attestation.write(PASSED)
    assert attestation.parse(path.read_text()) == PASSED
    assert not attestation.signature_of(path).exists()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"tree": "x", "finished": "", "release": "", "tiers": {}}']
)
def test_another_file_is_not_taken_for_an_attestation(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"attestation|tree|Expecting"):
        attestation.parse(text)
    (tmp_path / "file").write_text(text)
    with pytest.raises(DeployError, match="is no attestation"):
        attested.read(TREE, tmp_path / "file", tmp_path / "allowed_signers")


def test_the_signer_is_told_and_each_change_breaks_the_signature(tmp_path: Path) -> None:
    ours, theirs = key(tmp_path / "ours"), key(tmp_path / "theirs")
    allowed = tmp_path / "allowed_signers"
    options = f'namespaces="{attestation.NAMESPACE}"'
    allowed.write_text(f"ci@example.org {options} {ours.with_suffix('.pub').read_text()}")
    path = attestation.write(PASSED, str(ours))
    assert attested.read(TREE, None, allowed).signer == "ci@example.org"
    path.write_text(path.read_text().replace("0.1.0", "0.1.1"))
    assert attested.read(TREE, None, allowed).signer == ""
    attestation.write(PASSED, str(theirs))
    assert attested.read(TREE, None, allowed).signer == ""
    attestation.write(PASSED)
    assert attested.read(TREE, None, allowed).signer == ""


def test_a_key_that_cannot_sign_is_named(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("no key")
    with pytest.raises(attestation.bootstrap.SetupError, match=attestation.KEY_VARIABLE):
        attestation.write(PASSED, str(tmp_path / "key"))


# --- the decision -----------------------------------------------------------------------------

RED = replace(PASSED, tiers={"lint": Figures(9, 1, 0, 60.0)})
NOTHING = replace(PASSED, tiers={"lint": Figures(0, 0, 4, 60.0)})


@pytest.mark.parametrize(
    ("evidence", "refusal"),
    [
        (gate.Found(PASSED), ""),
        (gate.Found(PASSED, signer="ci@example.org"), ""),
        (gate.Found(), "No attestation"),
        (gate.Found(problem="git is not installed"), "git is not installed"),
        (gate.Found(PASSED, signer=""), "allowed_signers"),
        (gate.Found(replace(PASSED, tree=OTHER)), "not committed"),
        (gate.Found(RED), "did not pass"),
        (gate.Found(NOTHING), "did not pass"),
        (gate.Found(replace(PASSED, tiers={})), "did not pass"),
    ],
)
def test_only_a_tree_that_passed_may_be_deployed(evidence: gate.Found, refusal: str) -> None:
    verdict = gate.judge(TREE, evidence, None)
    assert refusal in verdict.refusal
    if refusal:
        with pytest.raises(DeployError, match="--untested"):
            gate.require(verdict)
    else:
        gate.require(verdict)
        assert "210 passed, 0 failed, 3 skipped, 30 min" in verdict.said


def test_an_untested_tree_needs_a_reason_which_is_shown(tmp_path: Path) -> None:
    verdict = gate.judge(TREE, gate.Found(), "outage of the primary")
    gate.require(verdict)
    gate.require_release(verdict, "0.1.0-of-somewhere")
    assert verdict.said == "UNTESTED: outage of the primary"
    with pytest.raises(SystemExit):
        cli.build_parser().parse_args([str(tmp_path), "--untested", " "])


def test_an_archive_of_another_release_was_not_tested_with_the_tree() -> None:
    verdict = gate.judge(TREE, gate.Found(PASSED), None)
    gate.require_release(verdict, PASSED.release)
    with pytest.raises(DeployError, match=f"which is {PASSED.release}"):
        gate.require_release(verdict, "0.1.0-bbbbbbbbbbbb")


# --- the run of tests -------------------------------------------------------------------------


def test_the_attestation_has_the_figures_of_each_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attestation, "tree_of", lambda: TREE)
    monkeypatch.delenv(attestation.KEY_VARIABLE, raising=False)
    outcomes = [
        Outcome("lint", "ruff", passed=1),
        Outcome("lint", "mypy", passed=1),
        Outcome("e2e", "service", passed=5, skipped=[("a test", "no IPv6")]),
    ]
    outcomes[2].repeated.append(Failure("test_a.py::test_x", "E   AssertionError: late"))
    outcomes.append(Outcome("roles", "passed before", recorded=["base", "web"]))
    walls = {"lint": 61.04, "roles": 0.0, "e2e": 300.0}
    assert "accepts" in runner.attest(TREE, outcomes, walls)
    written = attestation.parse(attestation.path_of(TREE).read_text())
    assert written.tiers == {
        "lint": Figures(2, 0, 0, 61.0),
        "roles": Figures(0, 0, 0, 0.0, 2),
        "e2e": Figures(5, 0, 1, 300.0),
    }
    assert written.repeated == ("e2e: test_a.py::test_x: AssertionError: late",)
    assert not gate.judge(TREE, gate.Found(written), None).refusal
    failed = [Outcome("lint", "ruff", failures=[Failure("ruff", "x")])]
    assert runner.figures(failed, {"lint": 1.0}) == {"lint": Figures(0, 1, 0, 1.0)}


def test_a_tree_that_changed_during_the_run_is_not_attested(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr(attestation, "tree_of", lambda: OTHER)
    assert "files changed" in runner.attest(TREE, [], {})
    assert not folder.exists()
