"""The roll: batch by batch, each drained, changed, checked and put back; back again on a failure.

The steps are plain playbooks (`playbooks/roll/`, `site.yml --limit BATCH`); the order is decided by
`batches`, the check judged by `check`, the way back read by `ways`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from controller.bootstrap import ROOT, Step
from controller.deploy import books, decide, run, trees, ways
from controller.deploy.decide import DeployError
from controller.deploy.ways import Way

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from controller.deploy.batches import Batch
    from controller.deploy.decide import HostState
    from controller.deploy.lease import Lease
    from controller.deploy.run import Built, Site
    from controller.deploy.trees import Kept


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a host; `kept` is None for this checkout and the inventory as it is.

    `later` are the parts that come from another tree and inventory than the rest (`only`).
    """

    built: Built
    way: Way
    kept: Kept | None = None
    later: tuple[tuple[str, Kept], ...] = ()


def target_of(built: Built, way: Way) -> Target:
    """Return what a host is to have again; DeployError if it is not on this controller."""
    if way.versitygw:
        built = replace(built, versitygw=trees.find_program(way.versitygw))
    pairs = [(later.part, trees.find(later)) for later in way.later]
    later = tuple((part, kept) for part, kept in pairs if kept is not None)
    return Target(built, way, trees.find(way), later)


@dataclass
class Roll:
    """A roll over the hosts of a site; `rows` are for the summary at the end.

    `at` is the time of the deploy in the records of its hosts.
    """

    site: Site
    states: Mapping[str, HostState]
    targets: Mapping[str, Target]
    new: Sequence[str] = ()
    is_rollback: bool = False
    rows: list[tuple[str, str, str, float, float | None]] = field(default_factory=list)
    at: float = field(default_factory=time.time)
    noted: set[str] = field(default_factory=set)
    lock: Lease | None = None

    def run(self, batches: Sequence[Batch]) -> None:
        """Change the batches in their order; DeployError after the first that fails."""
        self._put_back_of_earlier_runs()
        self._let_new_hosts_in()
        for number, batch in enumerate(batches, 1):
            if self.lock:
                self.lock.require()
            Step.say("roll", f"batch {number} of {len(batches)}, {batch.said}")
            self._change(batch)
        arrived = [name for batch in batches if batch.stage == "new" for name in batch.hosts]
        if arrived:
            self._require_well(self._check(arrived))

    def _put_back_of_earlier_runs(self) -> None:
        drained = [name for name, state in self.states.items() if state.is_drained]
        if drained:
            Step.say("roll", f"an earlier run left {decide.joined(drained)} drained")
            self._book("ready", drained)

    def _let_new_hosts_in(self) -> None:
        there = [name for name in self.site.hosts if name not in self.new]
        if self.new and there and (problem := self._book("open", there)):
            raise DeployError(problem, "No service was changed.")

    def _change(self, batch: Batch) -> None:
        try:
            self._change_drained(batch)
        finally:
            if self.lock:
                self.lock.drains(())

    def _change_drained(self, batch: Batch) -> None:
        began, hosts = time.monotonic(), batch.hosts
        is_new = batch.stage == "new"
        problem = "" if is_new else self._out(hosts)
        if problem:
            left = self._book("ready", hosts)
            back = f"It was not put back: {left}." if left else "The batch was put back as it was."
            raise DeployError(f"{batch.said} failed: {problem}.", f"{back} {self._others()}")
        problem = self._apply(hosts, {name: self.targets[name] for name in hosts})
        verdicts: dict[str, Any] = {}
        if not problem and not is_new:
            verdicts = self._check(hosts)
            problem = _sentence(verdicts)
        if not problem:
            # A new host was not drained, and the proxies take it when it has caught up.
            book = "record" if is_new else "ready"
            problem = self._book(book, hosts, {"roll_records": self._records(hosts)})
        if problem:
            self._take_back(batch, problem)
        spent = time.monotonic() - began
        for name in hosts:
            held = verdicts.get(name, {}).get("held_seconds")
            had, has = self.states[name].current, self.targets[name].built.version
            if "release" not in self.site.hosts[name]:
                had = has = "-"
            self.rows.append((name, had or "-", has, spent, held))

    def _out(self, hosts: Sequence[str]) -> str:
        """Drain a batch, and record that its change has begun; return the problem."""
        if self._has_no_peer(hosts):
            self._book("check", hosts, {"roll_before": True})
        begun = {
            name: ways.begun(self.states[name].record, self.states[name].current, self.at)
            for name in hosts
        }
        problem = self._book("drain", hosts, {"roll_records": begun})
        if self.lock and not problem:
            self.lock.drains(hosts)
        return problem

    def _has_no_peer(self, hosts: Sequence[str]) -> bool:
        web = [name for name in self.site.everything if "web" in self.site.everything[name]]
        primary = self.states[hosts[0]].primary
        others = [name for name in web if name not in (*hosts, *self.new, primary)]
        return bool(set(web).intersection(hosts)) and not others

    def _records(self, hosts: Sequence[str]) -> dict[str, Any]:
        result = {}
        for name in hosts:
            state = self.states[name]
            had = ways.present(state.record, state.current) if name not in self.new else None
            had = None if self.is_rollback else had
            result[name] = ways.done(had, self.targets[name].way, self.at)
        return result

    def _apply(self, hosts: Sequence[str], targets: Mapping[str, Target]) -> str:
        """Run site.yml on these hosts, for each release and tree once; return the problem."""
        wanted = {name: replace(targets[name], way=Way()) for name in hosts}
        for target in dict.fromkeys(wanted.values()):
            those = [name for name in hosts if wanted[name] == target]
            # The first run leaves out a part that came later: the run would bring an older state of
            # the part, and a person who was disabled since could log in until the next run.
            skipped = [part for part, _kept in target.later]
            code, log = self._site(target.built, those, target.kept, skipped=skipped)
            for part, kept in target.later:
                if code == 0:
                    code, log = self._site(target.built, those, kept, tags=[part])
            if code != 0:
                return (
                    f"ansible/site.yml failed on {decide.joined(those)} (exit code {code}); the"
                    f" whole run is in {log.relative_to(ROOT)}"
                )
        return ""

    def _site(
        self,
        built: Built,
        hosts: Sequence[str],
        kept: Kept | None,
        *,
        tags: Sequence[str] = (),
        skipped: Sequence[str] = (),
    ) -> tuple[int, Path]:
        _results, code, log = run.site_playbook(
            self.site, built, hosts, check=False, kept=kept, tags=tags, skipped=skipped
        )
        return code, log

    def _check(
        self, hosts: Sequence[str], targets: Mapping[str, Target] | None = None
    ) -> dict[str, Any]:
        """Return the verdict on each host, after a wait for problems that pass by themselves."""
        versions = {
            name: (targets or self.targets)[name].built.version
            for name in hosts
            if name in (targets or self.targets)
        }
        variables = {"roll_versions": versions, "roll_absent": self._absent(hosts)}
        with Step("check", decide.joined(hosts)):
            verdicts = books.settled(self.site, hosts, variables)
        notes = {note: None for verdict in verdicts.values() for note in verdict.get("notes", ())}
        for note in notes:
            if note not in self.noted:
                Step.say("check", note)
        self.noted.update(notes)
        return verdicts

    def _absent(self, hosts: Sequence[str]) -> list[str]:
        return [name for name in self.new if name not in hosts]

    def _require_well(self, verdicts: Mapping[str, Any]) -> None:
        """Refuse new hosts that are not well; a mirror may take hours to catch up."""
        behind = {
            name
            for name, verdict in verdicts.items()
            if any(text.startswith(books.BEHIND) for text in verdict["problems"])
        }
        if behind:
            names = decide.joined(sorted(behind))
            Step.say("roll", f"not caught up yet, and without clients until then: {names}")
        well = {name: verdict for name, verdict in verdicts.items() if name not in behind}
        if problem := _sentence(well):
            raise DeployError(
                f"New hosts are not well: {problem}.",
                "They have the release. Repair the cause, then run the same command again.",
            )

    def _book(
        self, name: str, hosts: Sequence[str], variables: Mapping[str, Any] | None = None
    ) -> str:
        """Run a playbook of the roll; return the problem, empty if there is none."""
        given = {"roll_absent": self._absent(hosts), **(variables or {})}
        if self.lock:
            given["roll_lock"] = self.lock.said
        with Step(name, decide.joined(hosts)):
            code, log = books.play(self.site, name, hosts, given)
        if code == 0:
            return ""
        book = books.path_of(name).relative_to(run.PLAYBOOKS)
        return f"playbooks/{book} failed; the whole run is in {log.relative_to(ROOT)}"

    def _take_back(self, batch: Batch, problem: str) -> None:
        """Bring a batch to its former state, check it, put it back; always raise DeployError."""
        Step.say("roll", f"{batch.said} failed: {problem}")
        known = [name for name in batch.hosts if name not in self.new]
        others = self._others()
        if not known:
            raise DeployError(
                f"{batch.said} failed: {problem}.",
                f"{others} New hosts stay as far as they came; run the same command again when the"
                " cause is repaired.",
            )
        targets = {name: self._former(name) for name in known}
        Step.say("roll", f"back to {decide.joined({t.way.said for t in targets.values()})}")
        again = self._apply(known, targets)
        # Also where a task failed: hosts that are well do not stay drained because of others.
        verdicts = self._check(known, targets)
        well = [name for name in known if books.may_serve(verdicts[name]["problems"])]
        ill = [name for name in known if name not in well]
        again = again or _sentence({name: verdicts[name] for name in ill})
        left = self._put_back(well, verdicts, is_whole=not again) if well else ""
        if not again and not left:
            raise DeployError(
                f"{batch.said} failed: {problem}.",
                f"It has {decide.joined(sorted({t.way.said for t in targets.values()}))} again, and"
                f" was checked and put back. {others}",
            )
        told = self._leave_drained(ill) if ill else ""
        back = f"{decide.joined(well)} passed the check, and was put back." if well else ""
        raise DeployError(
            f"{batch.said} failed: {problem}.\n  Going back failed too: {again or left}.",
            " ".join(filter(None, (back, told, others))),
        )

    def _put_back(
        self, names: Sequence[str], verdicts: Mapping[str, Any], *, is_whole: bool
    ) -> str:
        """Put hosts back that have what they had; return the problem.

        Where going back broke off, the records go on to say that a change is not finished. No proxy
        uses a mirror before it has caught up, so such a mirror is not waited for.
        """
        records = {
            name: ways.as_it_was(self.states[name].record, self.states[name].current)
            for name in (names if is_whole else ())
        }
        waits = not any(verdicts[name]["problems"] for name in names)
        return self._book("ready", names, {"roll_records": records, "roll_back_waits": waits})

    def _leave_drained(self, names: Sequence[str]) -> str:
        """Drain hosts that are not well until a person has looked; return the sentence."""
        if problem := self._book("drain", names, {"roll_drain_stays": True}):
            return f"{decide.joined(names)} could not be drained: {problem}."
        return f"{decide.joined(names)} stay drained until /etc/hgfleet/web.drain is removed."

    def _others(self) -> str:
        """Return what is with the hosts of other batches."""
        if not self.rows:
            return "No other host was touched."
        names = [row[0] for row in self.rows]
        return (
            f"{decide.joined(names)} keep what this run gave them:"
            f" ./deploy {self.site.said} --rollback takes it back."
        )

    def _former(self, name: str) -> Target:
        state = self.states[name]
        way = ways.present(state.record, state.current)
        built = run.known_release(way.release) if way.release else self.targets[name].built
        try:
            return target_of(built, way)
        except DeployError as error:
            # Only the release goes back, configured by this tree, as with a version.
            Step.say("roll", str(error).splitlines()[0])
            return Target(built, Way(way.release))

    def summary(self) -> str:
        """Return the table of the changed hosts."""
        return decide.table(
            ("HOST", "BEFORE", "AFTER", "SECONDS", "PUSHES HELD"),
            [
                (name, had, has, f"{spent:.0f}", "-" if held is None else f"{held:.2f} s")
                for name, had, has, spent, held in self.rows
            ],
        )


def _sentence(verdicts: Mapping[str, Any]) -> str:
    parts = [
        f"{name}: {'; '.join(verdict['problems'])}"
        for name, verdict in verdicts.items()
        if verdict["problems"]
    ]
    return " | ".join(parts)
