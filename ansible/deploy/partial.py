"""The parts that a deploy has to run, from the inventory and the notes of the hosts."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bootstrap import ROOT, Step
from localcluster import images

from deploy import books, decide, inputs, run, ways
from deploy.decide import DeployError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from deploy.decide import HostState, Result
    from deploy.run import Built, Site
    from deploy.ways import Way

APPLIED = (
    "ansible.cfg",
    "ansible/deploy",
    "ansible/playbooks",
    "ansible/plugins",
    "ansible/roles",
    "ansible/site.yml",
    "ansible/group_vars",
    "ansible/host_vars",
    "hgfleet",
    "requirements.txt",
)
"""Inputs of a run beside the inventory and the release. Ansible reads variables beside site.yml."""

BOOK = run.PLAYBOOKS / "inputs_note.yml"


@dataclass(frozen=True, slots=True)
class Scope:
    """The tags of site.yml to run, none for all of it, and the note of the run."""

    tags: Sequence[str] = ()
    note: str = ""


WHOLE = Scope()


def scope(
    site: Site, built: Built, states: Mapping[str, HostState], *, new: Sequence[str], whole: bool
) -> Scope:
    """Decide which parts to run on all hosts of a site."""
    present = _present(site, built)
    if present is None:
        return WHOLE
    notes = [states[name].inputs for name in site.hosts]
    is_whole = whole or bool(new) or _is_unfinished(site, built, states)
    now = time.time()
    tags = [] if is_whole else inputs.parts(present, notes, now)
    if not tags:
        return Scope((), inputs.note(present, now))
    differ = inputs.changed(present, notes[0]["inputs"])
    Step.say("plan", f"only {decide.joined(differ)} changed since the last deploy")
    return Scope(tags, inputs.note(present, notes[0]["whole"]))


def _is_unfinished(site: Site, built: Built, states: Mapping[str, HostState]) -> bool:
    """Whether a host is on its way to another state, or has another release."""
    return any(
        states[name].is_unfinished
        or ("release" in groups and states[name].current != built.version)
        for name, groups in site.hosts.items()
    )


def apply(
    site: Site,
    built: Built,
    states: Mapping[str, HostState],
    part: Scope,
    kept: Mapping[str, Way],
) -> list[str]:
    """Run the parts on all hosts; return the hosts that changed, which a rollback brings back."""
    hosts = list(site.hosts)
    at = time.time()
    begun = {name: ways.begun(states[name].record, states[name].current, at) for name in hosts}
    notes = {name: states[name].inputs for name in hosts}
    variables = {"roll_records": begun, "roll_notes": notes}
    results, code, log = run.site_playbook(
        site, built, hosts, check=False, tags=part.tags, variables=variables
    )
    if code != 0:
        raise DeployError(
            f"The run failed (exit code {code}).",
            f"The whole run is in {log.relative_to(ROOT)}. When the cause is repaired, run the same"
            " command again; it runs all parts.",
        )
    leave(site, part, {name: {} for name in hosts}, records(states, results, kept, at))
    return [name for name, result in results.items() if result.changed]


def records(
    states: Mapping[str, HostState],
    results: Mapping[str, Result],
    kept: Mapping[str, Way],
    at: float,
) -> dict[str, dict[str, Any]]:
    """Return the record of each host after a run; a host without changes keeps its own."""
    return {
        name: ways.done(ways.present(states[name].record, states[name].current), kept[name], at)
        if result.changed
        else dict(states[name].record)
        for name, result in results.items()
    }


def notes_after(
    states: Mapping[str, HostState], changed: Collection[str]
) -> dict[str, Mapping[str, Any]]:
    """Return the note of each host after a run on some: every run removes it from its hosts."""
    return {name: {} if name in changed else state.inputs for name, state in states.items()}


def leave(
    site: Site,
    part: Scope,
    expected: Mapping[str, Mapping[str, Any]],
    records: Mapping[str, Any] | None = None,
) -> None:
    """Leave the note of a run on all hosts, and records on some.

    No host takes a note if one has another than expected: another run has changed that host.
    """
    if not part.note:
        return
    command = site.playbook(books.FOLDER / "record.yml", str(BOOK))
    command += ["--limit", decide.limit_to(site.hosts)]
    command += ["--extra-vars", json.dumps({"roll_records": records or {}, "roll_notes": expected})]
    done = subprocess.run(
        command,
        env=run.environment() | {"HGFLEET_INPUTS": _with_new_authority(site, part.note)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        Step.say("note", "not every host took its note: the next ./deploy runs all parts")


def _authorities(named: Collection[str]) -> dict[str, bytes]:
    """Return the certificates of the CAs in the folders among these paths; the names of `base`."""
    names = ("ca.pem", "next/ca.pem", "former/ca.pem")
    found = (Path(text) / name for text in sorted(named) for name in names)
    return {str(path): path.read_bytes() for path in found if path.is_file()}


def _with_new_authority(site: Site, note: str) -> str:
    """Return the note of a run that has made the CA."""
    content = json.loads(note)
    if not content["inputs"]["ca"]:
        named = inputs.paths(site.listing, str(site.path.parent), os.environ)
        content["inputs"]["ca"] = inputs.of_files(_authorities(named or ()))
    return json.dumps(content)


def _present(site: Site, built: Built) -> dict[str, str] | None:
    folder = str(site.path.parent)
    named = inputs.paths(site.listing, folder, os.environ)
    if named is None:
        return None
    files = inputs.files_below(site.path, map(Path, named))
    tree = images.tree_parts(path for name in APPLIED if (path := ROOT / name).exists())
    others = [built.version, str(built.versitygw), images.content_key(tree)]
    return inputs.digest(site.listing, folder, files, _authorities(named), os.environ, others)
