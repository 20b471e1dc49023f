"""Set up the cluster for the bench of hostile requests, and put it back.

| made                                              | put back                                    |
| ------------------------------------------------- | ------------------------------------------- |
| mirrors are drained: the primary serves readers   | the drain is removed, the proxy uses them   |
| repositories `people/PERSON/hostile-*`            | archived and purged, on the mirrors too     |
| tokens with the description of this bench         | removed from the file of tokens             |
| jobs of all repositories wait, on the primary     | their timers run                            |

`put_back` finds all of it by these names: after an error, after Ctrl-C, and at the beginning of the
next run after a kill. The drain has a time, so a killed bench leaves no mirror drained for long.
Drains of an operator or a deploy stay.

Two of the repositories are filled past their push log, so that mirrors do not have their content:
`hostile-history` and `hostile-failing`. Nothing of them is left. The latter is corrupt, so the jobs
that read all repositories would fail on it, and alarm.
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
"""Owns the healthy repositories, and is who signs in while tokens of others are refused."""

ATTACKER: Final = "bob"
"""Owns the repositories that hostile requests ask for, and has a token that expired."""

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
"""Longer than a run of all phases."""

TIMERS: Final = ("hgfleet-bundles.timer", "hgfleet-integrity.timer")
"""Those jobs that read all repositories of the primary within hours."""

PROGRAM: Final = "/opt/hgfleet/current/bin"
AS_HG: Final = ("runuser", "-u", "hg", "--", "env", "HGRCPATH=", f"{PROGRAM}/python")
DYNAMIC: Final = "/var/lib/hgfleet/dynamic/registry.json"
CHANGESETS: Final = 5
"""Of each healthy repository."""

# Adds a token that no command makes: of a person who is disabled, or expired. Prints its secret.
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
    """What phases use: repositories, and pairs of name and token."""

    history: str
    failing: str
    healthy: str
    private: str
    reader: tuple[str, str]
    refused: Mapping[str, tuple[str, str]]
    """By the reason of the refusal."""


def around(cluster: Cluster, work: Callable[[Prepared], T]) -> T:
    """Make all of it for `work`, and put everything back, also after an error or an interrupt.

    Nothing changes the cluster meanwhile. If something cannot be put back, the mark of tests stays,
    and the next `./cluster up` repairs the hosts.
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
    """Drain the mirrors, hold jobs back; make repositories and tokens."""
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
        # Pull bundles that come later would change the bytes of a pull.
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
    found = SECRET.search(said)
    assert found, f"expected a token: {said}"
    return found[0]


def drain(cluster: Cluster, mirror: Host) -> None:
    """Take a mirror out of use, unless it is already, and wait for that."""
    text = drain_text(time.time())
    mirror.shell(f"[ -e {DRAIN} ] || printf %s {shlex.quote(text)} >{DRAIN}")
    wait_for_absence(cluster, mirror)


def drain_text(now: float) -> str:
    """Return the content of the file: until when it counts, and whose it is."""
    return f"until={int(now) + DRAIN_SECONDS} {DESCRIPTION}\n"


def is_ours(text: str) -> bool:
    """Whether a drain is that of this bench, by its content."""
    return text.startswith("until=") and text.rstrip().endswith(DESCRIPTION)


def put_back(cluster: Cluster) -> None:
    """Remove everything that this bench has made, now or in a run that was killed.

    A step that fails does not keep the next ones from being tried; the first error is raised then.
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
    """Return the repositories of this bench in the registry of people's, and which are archived."""
    entries = json.loads(registry)["repositories"]
    return {
        path: entry["archived"] is not None
        for path, entry in sorted(entries.items())
        if OURS.fullmatch(path)
    }


def _remove_tokens(cluster: Cluster) -> None:
    cluster.first("ssh").run(*AS_HG, "-c", REMOVE_TOKENS, DESCRIPTION).ok()


def _start_jobs(cluster: Cluster) -> None:
    """Start the timers; one that an operator has disabled stays off."""
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
    """Ignore a second Ctrl-C or SIGTERM, which would leave half of it behind."""
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = [(kind, signal.signal(kind, signal.SIG_IGN)) for kind in kinds]
    try:
        yield
    finally:
        for kind, handler in before:
            signal.signal(kind, handler)
