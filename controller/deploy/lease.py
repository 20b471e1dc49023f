"""The lock of the site while ./deploy changes it, and the entries of the deploy log."""

from __future__ import annotations

import base64
import contextlib
import getpass
import json
import os
import socket
import subprocess
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

from controller.bootstrap import CACHE, Step
from controller.deploy import history, processes, run
from controller.deploy.decide import DeployError, joined
from controller.deploy.history import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from controller.deploy.run import Site

RENEW_SECONDS = 60.0
"""Between the begins of two renewals; each is a run of Ansible, some 3 s."""

ASK_SECONDS = 55.0
"""For a renewal."""

LEASE_SECONDS = 300.0
"""The host gives the lock to another run after this time; more than three renewals that fail."""

DRAIN_SECONDS = 1800
"""The time of a drain, as in playbooks/roll/drain.yml."""

EXTEND_SECONDS = 600.0
"""Between two extensions of a drain."""

ANSIBLE = "ansible-playbook"
"""Stands for a host among the problems, where Ansible gave none."""

BOOK = run.INTERNAL / "lock.yml"


def record(release: str, hosts: Sequence[str], tree: str, tests: str, plan: str) -> Record:
    """Return the record of a run that begins now."""
    now = time.gmtime()
    who = f"{os.environ.get('SUDO_USER') or getpass.getuser()}@{socket.gethostname()}"
    number = f"{time.strftime('%Y%m%dT%H%M%SZ', now)}-{uuid.uuid4().hex[:8]}"
    begun = time.strftime("%Y-%m-%dT%H:%M:%SZ", now)
    return Record(number, begun, who, release, list(hosts), tree, tests, plan)


class Lease:
    """The lock of the site in the hands of a run, which renews it for as long as the run lives.

    `taken` is when the host of the lock gave it. `drained` are hosts whose drain is extended too.
    """

    def __init__(self, site: Site, host: str, asked: Mapping[str, Any], taken: float) -> None:
        self.site, self.host, self.asked = site, host, asked
        self.taken = taken
        self.drained: Sequence[str] = ()
        self.refusal = ""
        self.clock = time.monotonic
        self.ended = threading.Event()
        self._renewed = self._extended = self.clock()
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self.keep, daemon=True)

    @property
    def said(self) -> dict[str, Any]:
        """Return the lock as hosts are told it, which are about to be changed."""
        return {"id": self.asked["id"], "said": self.asked["said"], "taken": self.taken}

    def start(self) -> None:
        """Begin to renew; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End after the renewal under way."""
        self.ended.set()
        self._thread.join()

    def keep(self) -> None:
        """Renew the lease until the run ends.

        A renewal begins a fixed time after the one before began, however long that took: the lease
        has to outlast two that fail.
        """
        began = self.clock()
        while not self.ended.wait(max(0.0, began + RENEW_SECONDS - self.clock())):
            began = self.clock()
            if reason := self.renew():
                Step.say("lock", f"NOT RENEWED on {self.host}: {reason}")

    def renew(self) -> str:
        """Renew the lease once, and the drains if it is time; return the problem of the lease."""
        with self._turn:
            began = self.clock()
            answers, problems = _ask(self.site, [self.host], {**self.asked, "action": "renew"})
            reason = not_renewed(self.host, answers, problems)
            if not reason:
                self._renewed = began
            elif self.host in answers:
                self.refusal = reason
            drained = list(self.drained)
            if drained and not reason and self.clock() - self._extended > EXTEND_SECONDS:
                self._extended = self.clock()
                asked = {**self.said, "action": "drain", "seconds": DRAIN_SECONDS}
                _answers, left = _ask(self.site, drained, asked)
                for name, problem in left.items():
                    Step.say("lock", f"the drain of {name} was not extended: {problem}")
            return reason

    def drains(self, hosts: Sequence[str]) -> None:
        """Extend the drain of these hosts from now on, which was made just now; or of none."""
        self._extended = self.clock()
        self.drained = hosts

    def require(self) -> None:
        """End the run if another one may have the lock: DeployError, before the next batch.

        A host of the lock that does not answer is waited for until the lease is about to end.
        """
        reason = self.refusal
        if not reason and self.clock() - self._renewed > 2 * RENEW_SECONDS:
            reason = self.renew()
        is_over = self.clock() - self._renewed > LEASE_SECONDS - RENEW_SECONDS
        if reason and (self.refusal or is_over):
            raise DeployError(
                f"This run has lost the lock of the site on {self.host}: {reason}.",
                "It ended before its next hosts, and keeps what it changed. Look at what another"
                f" run did (./deploy {self.site.said} --log), then run the same command again.",
            )


@contextlib.contextmanager
def held(site: Site, of: Record) -> Iterator[Lease]:
    """Hold the lock of the site; log the begin of a run, and its end on all of its hosts."""
    asked = {
        "id": of.id,
        "checkout": _checkout(site),
        "said": of.said,
        "seconds": LEASE_SECONDS,
    }
    host, taken = _take(site, of, asked)
    began = time.monotonic()
    lease = Lease(site, host, asked, taken)
    lease.start()
    result = "interrupted"
    try:
        yield lease
        result = "done"
    except Exception as error:
        result = f"failed: {str(error).splitlines()[0]}"
        raise
    finally:
        lease.stop()
        entry = of.end(result, time.monotonic() - began)
        hosts = dict.fromkeys([host, *of.hosts])
        _answers, problems = _ask(site, hosts, {**asked, "action": "end", "entry": entry})
        for name, problem in problems.items():
            Step.say("lock", f"{name} did not log the end of the run: {problem}")


def show(site: Site) -> str:
    """Return the deploy log and the lock, as the hosts have them; DeployError if none answers."""
    answers, problems = _ask(site, site.hosts, {"action": "show"})
    if not answers:
        told = _lines(problems)
        raise DeployError(f"No host told its deploy log:\n{told}", run.way_out(told))
    shown = [history.Shown(**answer) for answer in answers.values()]
    text = history.table(shown)
    if problems:
        text += f"\nNo answer:\n{_lines(problems)}"
    return text


def _take(site: Site, of: Record, asked: Mapping[str, object]) -> tuple[str, float]:
    """Take the lock; return the host that has it, and when that gave it.

    That is the same host for all controllers (internal/lock.yml). Only while it is down, a run
    that leaves it out takes the next of them among its own hosts.
    """
    request = {**asked, "action": "take", "entry": of.begin()}
    answers, problems = _ask(site, (), request)
    if not answers and not set(problems) & {ANSIBLE, *of.hosts}:
        other = next((name for name in candidates(site) if name in of.hosts), of.hosts[0])
        Step.say("lock", f"{joined(problems)} does not answer; the lock is on {other}")
        answers, problems = _ask(site, [other], request)
    if not answers:
        raise DeployError(
            f"The lock of the site cannot be taken:\n{_lines(problems)}",
            "Nothing was changed. Repair the host, then run the same command again.",
        )
    ((host, answer),) = answers.items()
    if answer.get("refusal"):
        raise DeployError(
            f"{host} has the lock of the site: {answer['refusal']}. Nothing was changed.",
            f"Wait until it is done (./deploy {site.said} --log shows it), then try again.",
        )
    if answer.get("before"):
        Step.say("lock", f"taken over on {host}; this run broke off: {answer['before']}")
    return host, float(answer["taken"])


def candidates(site: Site) -> list[str]:
    """Return the hosts that may have the lock, as in internal/lock.yml: the first that is up."""
    ssh = [name for name, groups in site.everything.items() if "ssh" in groups]
    return [*sorted(ssh), *sorted(set(site.everything) - set(ssh))]


def not_renewed(
    host: str, answers: Mapping[str, Mapping[str, Any]], problems: Mapping[str, str]
) -> str:
    """Return why the host of the lock did not renew the lease, empty if it did."""
    if host in answers:
        return str(answers[host].get("refusal") or "")
    # A failure of Ansible itself names no host.
    return problems.get(host) or " ".join(problems.values()) or "no answer"


def _checkout(site: Site) -> str:
    """Return the name of this checkout at work on an inventory; `cli` allows a single run."""
    path = CACHE / "deploy/checkout"
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError), path.open("x") as file:
        file.write(uuid.uuid4().hex)
    return f"{path.read_text()} {socket.gethostname()} {site.path}"


def _ask(
    site: Site, hosts: Iterable[str], request: Mapping[str, Any]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Send a request of site_lock.py to hosts, by default to the host of the lock.

    Returns the answers, and the problems of the hosts without an answer.
    """
    encoded = base64.b64encode(json.dumps(request).encode()).decode()
    command = site.playbook(BOOK, "--extra-vars", f"lock_request={encoded}")
    names = list(hosts)
    if names:
        command += ["--extra-vars", json.dumps({"lock_hosts": names})]
    env = {**site.environment(), "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"}
    try:
        is_renewal = request.get("action") in ("renew", "drain")
        done = processes.run(command, env, seconds=ASK_SECONDS if is_renewal else None)
    except subprocess.TimeoutExpired:
        return {}, dict.fromkeys(names or [ANSIBLE], f"no answer within {ASK_SECONDS:.0f} s")
    try:
        return history.answers_of(done.stdout)
    except ValueError:
        tail = (done.stderr + done.stdout).strip().splitlines()[-5:]
        return {}, {ANSIBLE: " ".join(tail) or f"exit code {done.returncode}"}


def _lines(problems: Mapping[str, str]) -> str:
    return "\n".join(f"  | {name}: {problem}" for name, problem in problems.items())
