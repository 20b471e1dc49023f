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
from controller.deploy import history, run
from controller.deploy.decide import DeployError, joined
from controller.deploy.history import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from controller.deploy.run import Site

RENEW_SECONDS = 100.0
"""Between two renewals, a third of site_lock.LEASE_SECONDS; each is a run of Ansible, some 3 s."""

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


@contextlib.contextmanager
def held(site: Site, of: Record) -> Iterator[None]:
    """Hold the lock of the site; log the begin of a run, and its end on all of its hosts."""
    asked = {"id": of.id, "checkout": _checkout(site), "said": of.said}
    host = _take(site, of, asked)
    began = time.monotonic()
    renewals = _Renewals(site, host, asked)
    renewals.start()
    result = "interrupted"
    try:
        yield
        result = "done"
    except Exception as error:
        result = f"failed: {str(error).splitlines()[0]}"
        raise
    finally:
        renewals.stop()
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


def _take(site: Site, of: Record, asked: Mapping[str, str]) -> str:
    """Take the lock and return the host that has it.

    That is the same host for all controllers (internal/lock.yml). Only while it is down, a run
    that leaves it out takes the first of its own hosts.
    """
    request = {**asked, "action": "take", "entry": of.begin()}
    answers, problems = _ask(site, (), request)
    if not answers and not set(problems) & {ANSIBLE, *of.hosts}:
        Step.say("lock", f"{joined(problems)} does not answer; the lock is on {of.hosts[0]}")
        answers, problems = _ask(site, of.hosts[:1], request)
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
    return host


def not_renewed(
    host: str, answers: Mapping[str, Mapping[str, Any]], problems: Mapping[str, str]
) -> str:
    """Return why the host of the lock did not renew the lease, empty if it did."""
    if host in answers:
        return str(answers[host].get("refusal") or "")
    # Ansible's own failure has the name of no host.
    return problems.get(host) or " ".join(problems.values()) or "no answer"


class _Renewals:
    """Renews a lease beside the run, for as long as the run lives."""

    def __init__(self, site: Site, host: str, asked: Mapping[str, str]) -> None:
        self.site, self.host, self.asked = site, host, asked
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self.thread.start()

    def stop(self) -> None:
        """End after the renewal under way."""
        self.ended.set()
        self.thread.join()

    def _run(self) -> None:
        while not self.ended.wait(RENEW_SECONDS):
            answers, problems = _ask(self.site, [self.host], {**self.asked, "action": "renew"})
            if reason := not_renewed(self.host, answers, problems):
                Step.say("lock", f"NOT RENEWED on {self.host}: {reason}")


def _checkout(site: Site) -> str:
    """Return the name of this checkout at work on an inventory; `cli` lets one run at a time."""
    path = CACHE / "deploy/checkout"
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError), path.open("x") as file:
        file.write(uuid.uuid4().hex)
    return f"{path.read_text()} {socket.gethostname()} {site.path}"


def _ask(
    site: Site, hosts: Iterable[str], request: object
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Send a request of site_lock.py to hosts, by default to the one of the lock.

    Returns the answers, and the problems of the hosts without one.
    """
    encoded = base64.b64encode(json.dumps(request).encode()).decode()
    command = site.playbook(BOOK, "--extra-vars", f"lock_request={encoded}")
    names = list(hosts)
    if names:
        command += ["--extra-vars", json.dumps({"lock_hosts": names})]
    env = {**run.environment(), "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"}
    # Ctrl-C ends the run, and not the request that gives the lock back.
    done = subprocess.run(
        command, capture_output=True, text=True, env=env, check=False, start_new_session=True
    )
    try:
        return history.answers_of(done.stdout)
    except ValueError:
        tail = (done.stderr + done.stdout).strip().splitlines()[-5:]
        return {}, {ANSIBLE: " ".join(tail) or f"exit code {done.returncode}"}


def _lines(problems: Mapping[str, str]) -> str:
    return "\n".join(f"  | {name}: {problem}" for name, problem in problems.items())
