"""Set up the cluster for the bench of hostile requests, and restore it.

| made                                              | put back                                    |
| ------------------------------------------------- | ------------------------------------------- |
| mirrors are drained: the primary serves readers   | the drain is removed, the proxy uses them   |
| repositories `people/PERSON/hostile-*`            | archived and purged, on the mirrors too     |
| tokens with the description of this bench         | removed from the file of tokens             |
| jobs of all repositories wait, on the primary     | their timers run                            |

`put_back` finds everything by these names: after an error, after Ctrl-C, and at the beginning of
the next run after a kill. The drain has an expiry time, so a killed bench leaves no mirror drained
for long. Drains of an operator or a deploy stay.

`hostile-history` and `hostile-failing` are filled without push log records, so mirrors do not have
their content. Nothing of them is left at the end. `hostile-failing` is corrupt, so the jobs that
read all repositories would fail on it and raise alarms.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import signal
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from controller.cluster.lock import undisturbed
from testing.e2e.mirrors import mirrors_of, wait_for_absence, wait_for_use

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host

T = TypeVar("T")

OWNER: Final = "alice"
"""Owns the healthy repositories, and signs in while tokens of others are refused."""

ATTACKER: Final = "bob"
"""Owns the repositories for hostile requests, and has an expired token."""

DISABLED: Final = "mallory"
PREFIX: Final = "hostile-"
OURS: Final = re.compile(rf"people/(?:{OWNER}|{ATTACKER})/{PREFIX}[a-z]+")
HISTORY: Final = f"people/{ATTACKER}/{PREFIX}history"
FAILING: Final = f"people/{ATTACKER}/{PREFIX}failing"
HEALTHY: Final = f"people/{OWNER}/{PREFIX}healthy"
PRIVATE: Final = f"people/{OWNER}/{PREFIX}private"

DESCRIPTION: Final = "bench of hostile requests"
DRAIN: Final = "/etc/hgfleet/web.drain"
DRAIN_SECONDS: Final = 4 * 3600
"""A time longer than a run of all phases."""

TIMERS: Final = ("hgfleet-bundles.timer", "hgfleet-integrity.timer")
"""The jobs that would read all repositories of the primary within hours."""

PROGRAM: Final = "/opt/hgfleet/current/bin"
AS_HG: Final = ("runuser", "-u", "hg", "--", "env", "HGRCPATH=", f"{PROGRAM}/python")
DYNAMIC: Final = "/var/lib/hgfleet/dynamic/registry.json"
CHANGESETS: Final = 5
"""Number of changesets of each healthy repository."""

# Adds a token that no command makes: expired, or of a disabled person. Prints its secret.
ADD_TOKEN: Final = """
import sys
from datetime import UTC, datetime, timedelta
from hgfleet.auth import token_file, tokens
from hgfleet.core.principal import Principal
owner, description, age = sys.argv[1:]
when = datetime.now(UTC) - timedelta(days=int(age))
with token_file.update() as kept:
    made, identity, secret = tokens.create(kept, Principal(owner), description, 1, when)
    kept[identity] = made[identity]
print(secret)
"""

REMOVE_TOKENS: Final = """
import sys
from hgfleet.auth import token_file
with token_file.update() as kept:
    for name in [name for name, token in kept.items() if token.description == sys.argv[1]]:
        del kept[name]
"""

SECRET: Final = re.compile(r"hgt_[a-z2-7]{40}")


@dataclass(frozen=True)
class Prepared:
    """Repositories, and pairs of name and token, for the phases."""

    history: str
    failing: str
    healthy: str
    private: str
    reader: tuple[str, str]
    refused: Mapping[str, tuple[str, str]]
    """Names and tokens by the reason of their refusal."""


def around(cluster: Cluster, work: Callable[[Prepared], T]) -> T:
    """Set everything up for `work`, and restore it, even after an error or an interrupt.

    Until then nothing else changes the cluster. If something cannot be restored, the mark of tests
    stays, and the next `./cluster up` repairs the hosts.
    """
    failure: BaseException | None = None
    with undisturbed("testing.bench.hostile"):
        try:
            put_back(cluster)
            result = work(make(cluster))
        except BaseException as problem:
            failure = problem
        print("putting the cluster back", flush=True)
        with uninterrupted():
            try:
                put_back(cluster)
            except Exception as problem:
                raise problem from failure
    if failure is not None:
        raise failure
    return result


def make(cluster: Cluster) -> Prepared:
    """Drain the mirrors and stop the timers of jobs; make repositories and tokens."""
    for mirror in mirrors_of(cluster):
        drain(cluster, mirror)
    primary = cluster.first("ssh")
    primary.systemctl("stop", *TIMERS).ok()
    for path in (HISTORY, FAILING, HEALTHY):
        cluster.person(path.split("/")[1]).ssh("repo", "create", path, "--read", "public").ok()
    owner = cluster.person(OWNER)
    owner.ssh("repo", "create", PRIVATE, "--read", "private").ok()
    for path in (HEALTHY, PRIVATE):
        with tempfile.TemporaryDirectory(prefix="hgfleet-bench-") as folder:
            work = owner.clone(owner.ssh_url(path), Path(folder) / "work")
            for number in range(CHANGESETS):
                work.commit(f"{number}.txt", uuid.uuid4().hex.encode() * 100, f"change {number}")
            work.hg("push").ok()
        # Pull bundles that appear later would change the bytes of a pull.
        cluster.wait_for_bundles(path)
    said = owner.ssh("token", "create", "--days", "1", *DESCRIPTION.split()).ok().stdout
    expired = _add_token(primary, ATTACKER, 30)
    disabled = _add_token(primary, DISABLED, 0)
    cluster.wait_for_mirrors()
    return Prepared(
        *(HISTORY, FAILING, HEALTHY, PRIVATE),
        (OWNER, _secret(said)),
        {"disabled": (DISABLED, disabled), "expired": (ATTACKER, expired)},
    )


def _add_token(primary: Host, owner: str, age_days: int) -> str:
    words = (*AS_HG, "-c", ADD_TOKEN, owner, DESCRIPTION, str(age_days))
    return _secret(primary.run(*words).ok().stdout)


def _secret(said: str) -> str:
    match = SECRET.search(said)
    assert match, f"expected a token: {said}"
    return match[0]


def drain(cluster: Cluster, mirror: Host) -> None:
    """Drain a mirror, unless it is already drained, and wait until it is out of use."""
    text = drain_text(time.time())
    mirror.shell(f"[ -e {DRAIN} ] || printf %s {shlex.quote(text)} >{DRAIN}")
    wait_for_absence(cluster, mirror)


def drain_text(now: float) -> str:
    """Return the content of the drain file: its expiry time and its owner."""
    return f"until={int(now) + DRAIN_SECONDS} {DESCRIPTION}\n"


def is_ours(text: str) -> bool:
    """Whether a drain was made by this bench, judged by its content."""
    return text.startswith("until=") and text.rstrip().endswith(DESCRIPTION)


def put_back(cluster: Cluster) -> None:
    """Remove everything that this bench has made, now or in a killed run.

    After a failed step the next steps are still tried; then the first error is raised.
    """
    tasks: list[Callable[[Cluster], None]] = [_purge, _remove_tokens, _start_jobs, _undrain]
    problems: list[Exception] = []
    for task in tasks:
        try:
            task(cluster)
        except (AssertionError, OSError, ValueError) as problem:
            problems.append(problem)
            print(f"not put back: {problem}", flush=True)
    if problems:
        raise problems[0]
    cluster.wait_for_mirrors()


def _purge(cluster: Cluster) -> None:
    primary = cluster.first("ssh")
    text = primary.shell(f"cat {DYNAMIC} 2>/dev/null || echo '{{\"repositories\": {{}}}}'")
    for path, is_archived in made_before(text).items():
        if not is_archived:
            primary.run(f"{PROGRAM}/hgfleet", "repo", "archive", path).ok()
        primary.run(f"{PROGRAM}/hgfleet", "repo", "purge", "--now", path, path).ok()


def made_before(registry: str) -> dict[str, bool]:
    """Return this bench's repositories in the dynamic registry, and which are archived."""
    entries = json.loads(registry)["repositories"]
    return {
        path: entry["archived"] is not None
        for path, entry in sorted(entries.items())
        if OURS.fullmatch(path)
    }


def _remove_tokens(cluster: Cluster) -> None:
    cluster.first("ssh").run(*AS_HG, "-c", REMOVE_TOKENS, DESCRIPTION).ok()


def _start_jobs(cluster: Cluster) -> None:
    """Start the timers, except timers that an operator has disabled."""
    for timer in TIMERS:
        script = f"! systemctl is-enabled --quiet {timer} || systemctl start {timer}"
        cluster.first("ssh").shell(script)


def _undrain(cluster: Cluster) -> None:
    ours = [
        mirror
        for mirror in mirrors_of(cluster)
        if is_ours(mirror.shell(f"cat {DRAIN} 2>/dev/null || :"))
    ]
    for mirror in ours:
        mirror.run("rm", "-f", DRAIN).ok()
    for mirror in ours:
        wait_for_use(cluster, mirror)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore a second Ctrl-C or SIGTERM, which would leave the cluster half restored."""
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = [(kind, signal.signal(kind, signal.SIG_IGN)) for kind in kinds]
    try:
        yield
    finally:
        for kind, handler in before:
            signal.signal(kind, handler)
