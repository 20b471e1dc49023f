"""`hgfleet replica`: compare this host's copy of the directory with the provider.

Reads `contextCSN` on both servers, and after changes `entryCSN` of all entries. `sync_check`
decides. The command logs, and creates or removes the file that sends key lookups to the provider.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hgfleet.core import files, logfmt, settings_file
from hgfleet.core.daemons import systemd
from hgfleet.directory import connection
from hgfleet.directory.sync_check import (
    AHEAD,
    CLOCK,
    EXIT_CODES,
    IN_SYNC,
    LAGGING,
    NEVER,
    OTHER,
    PROVIDER_AWAY,
    REFUSED,
    REPLICA_AWAY,
    Content,
    Contents,
    Memory,
    RefusedError,
    UnreachableError,
    Verdict,
    content,
    decide,
    is_due,
    parse_csns,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping

    from hgfleet.core.settings_file import Table

CONFIG: Final = "/etc/hgfleet/replica.toml"

EVERY: Final = 0.2
"""Seconds between two checks of a replica that is behind."""

CONTENT_SECONDS: Final = 20.0
"""For the entries of a single server: 10,000 users take a second."""

TRIES: Final = 3
"""Comparisons of the entries in a check, while changes arrive."""

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Config:
    """The contents of replica.toml. Times are in seconds."""

    replica: str
    provider: str
    suffix: str
    bind_dn: str
    bind_password_file: str
    ca_file: str
    timeout: float
    patience: float
    stale_file: str
    state_file: str


def load_config(path: str) -> Config:
    """Read replica.toml; raise ConfigurationError that names the setting."""
    return settings_file.read(
        path,
        parse,
        "the settings of the replica",
        "a host that has no replica of the directory has none of its settings either",
    )


def parse(table: Table) -> Config:
    """Read the settings; all of them are required, because the role writes all of them."""
    return Config(
        replica=table.text("replica"),
        provider=table.text("provider"),
        suffix=table.text("suffix"),
        bind_dn=table.text("bind_dn"),
        bind_password_file=table.file_name("bind_password_file"),
        ca_file=table.file_name("ca_file"),
        timeout=table.seconds("timeout", least=0.1, most=30),
        patience=table.seconds("patience", least=0, most=3600),
        stale_file=table.file_name("stale_file"),
        state_file=table.file_name("state_file"),
    )


def read_replica(settings: Config) -> dict[str, str]:
    """Return the replica's CSNs, empty before its first synchronisation.

    The socket tells slapd which user asks, so no password is needed.
    """
    with _opened(settings, settings.replica, settings.timeout) as asked:
        return _csns(asked, settings, settings.replica)


def read_provider(settings: Config) -> dict[str, str]:
    """Return the provider's CSNs; raise UnreachableError or RefusedError."""
    with _opened(settings, settings.provider, settings.timeout) as asked:
        csns = _csns(asked, settings, settings.provider)
    if not csns:
        raise RefusedError(
            f"{settings.provider} shows {settings.bind_dn} no contextCSN of {settings.suffix}"
        )
    return csns


def read_content(settings: Config, uri: str) -> Content:
    """Return the content of a server; raise UnreachableError or RefusedError."""
    with _opened(settings, uri, CONTENT_SECONDS) as asked:
        return content(_entries(asked, settings.suffix))


def _entries(asked: Any, suffix: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield `entryUUID` and `entryCSN` of all entries as they come; python-ldap keeps none."""
    ldap: Any = importlib.import_module("ldap")
    names = ["entryUUID", "entryCSN"]
    number = asked.search_ext(suffix, ldap.SCOPE_SUBTREE, "(entryUUID=*)", names)
    while True:
        kind, results = asked.result(number, all=0, timeout=CONTENT_SECONDS)
        if kind == ldap.RES_SEARCH_RESULT:
            return
        if kind == ldap.RES_SEARCH_ENTRY:
            for _, entry in results:
                uuid, csn = (b"".join(entry.get(name, ())) for name in names)
                yield uuid, csn


def _password(settings: Config) -> str:
    # The unit's credential, else (root at a terminal) the file it is made from.
    path = systemd.credential("replica-bind") or settings.bind_password_file
    return connection.read_password(str(path))


@contextlib.contextmanager
def _opened(settings: Config, uri: str, timeout: float) -> Iterator[Any]:
    """Connect and bind; every failure until the end is UnreachableError or RefusedError."""
    password = "" if uri == settings.replica else _password(settings)
    connection.isolate()
    ldap: Any = importlib.import_module("ldap")
    opened = connection.connect(ldap, uri, ca_file=settings.ca_file, timeout=timeout)
    try:
        if uri == settings.replica:
            opened.sasl_external_bind_s()
        else:
            opened.simple_bind_s(settings.bind_dn, password)
        yield opened
    except (ldap.INVALID_CREDENTIALS, ldap.INSUFFICIENT_ACCESS) as error:
        raise RefusedError(f"{uri}: {connection.reason_of(error)}") from error
    except ldap.LDAPError as error:
        raise UnreachableError(f"{uri}: {connection.reason_of(error)}") from error
    finally:
        opened.unbind_ext()


def _csns(asked: Any, settings: Config, uri: str) -> dict[str, str]:
    ldap: Any = importlib.import_module("ldap")
    try:
        entries = asked.search_ext_s(
            settings.suffix,
            ldap.SCOPE_BASE,
            "(objectClass=*)",
            ["contextCSN"],
            timeout=settings.timeout,
        )
    except ldap.NO_SUCH_OBJECT:
        return {}
    try:
        return parse_csns(
            [v.decode("ascii", "replace") for _, a in entries for v in a.get("contextCSN", ())]
        )
    except ValueError as error:
        raise RefusedError(f"{uri}: {error}") from error


def examine(
    settings: Config, before: Memory, patience: float, *, whole: bool = False
) -> tuple[Verdict, Memory]:
    """Ask both servers, and give a replica that is behind `patience` seconds to catch up.

    The entries are compared when that is due, and always with `whole`.
    """
    deadline = time.monotonic() + patience
    provider = _attempt(read_provider, settings)
    while True:
        replica = _attempt(read_replica, settings)
        verdict, memory = _decide(replica, provider, before)
        if verdict.state == AHEAD:
            # The change may have arrived after the provider was asked.
            provider = _attempt(read_provider, settings)
            verdict, memory = _decide(replica, provider, before)
        if verdict.behind is None or time.monotonic() >= deadline:
            break
        time.sleep(EVERY)
        # The lag counts from the first check that found the change missing.
        before = memory
    csn = max(provider.values(), default="") if isinstance(provider, dict) else ""
    if verdict.state not in (IN_SYNC, OTHER) or not (whole or is_due(before, csn, _boot())):
        return verdict, memory
    return _compare(settings, before)


def _compare(settings: Config, before: Memory) -> tuple[Verdict, Memory]:
    """Compare the entries of both servers, at the same newest change of both.

    If a change reaches the replica while its entries are read, a second comparison is made.
    """
    for number in range(TRIES):
        first = _attempt(read_provider, settings)
        there = _attempt(lambda config: read_content(config, config.provider), settings)
        here = _attempt(lambda config: read_content(config, config.replica), settings)
        replica, provider = _attempt(read_replica, settings), _attempt(read_provider, settings)
        contents = None
        if isinstance(there, Exception):
            provider = there
        elif isinstance(here, Exception):
            replica = here
        elif isinstance(provider, dict) and provider == first:
            contents = Contents(here, there, max(provider.values()), _boot())
        verdict, memory = _decide(replica, provider, before, contents)
        is_unclear = verdict.state == IN_SYNC and contents is None
        if number + 1 == TRIES or not (is_unclear or verdict.state == OTHER):
            break
    return verdict, memory


def _decide(
    replica: dict[str, str] | Exception,
    provider: dict[str, str] | Exception,
    before: Memory,
    contents: Contents | None = None,
) -> tuple[Verdict, Memory]:
    wall = datetime.now(UTC)
    return decide(replica, provider, before, wall=wall, boot=_boot(), contents=contents)


def _boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _attempt(
    read: Callable[[Config], _Answer], settings: Config
) -> _Answer | UnreachableError | RefusedError:
    try:
        return read(settings)
    except (UnreachableError, RefusedError) as error:
        return error


def load_memory(path: str) -> Memory:
    """Return the state of the last check; an empty state if the file is missing or damaged."""
    try:
        data = json.loads(Path(path).read_text("utf-8"))
        return Memory(
            str(data["state"]),
            data["missing"],
            float(data["since"]),
            # Checks of an older release did not compare entries.
            str(data.get("compared", "")),
            float(data.get("compared_at", 0.0)),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return Memory()


def save_memory(path: str, memory: Memory) -> None:
    """Keep the state for the next check."""
    files.replace(path, json.dumps(asdict(memory)), durable=False)


def mark(path: str, stale: bool | None) -> bool:
    """Create or remove the file that sends lookups to the provider; return whether it exists."""
    file = Path(path)
    if stale:
        file.touch()
    elif stale is not None:
        file.unlink(missing_ok=True)
    return file.exists()


def event(verdict: Verdict, settings: Config, seconds: float, *, stale: bool) -> str:
    """Format the line of the journal."""
    return logfmt.line(
        "replica",
        state=verdict.state,
        provider=settings.provider,
        behind=verdict.behind,
        stale="yes" if stale else "no",
        detail=verdict.detail or None,
        seconds=seconds,
    )


def priority(verdict: Verdict, before: Memory) -> str:
    """Return the prefix of a line's priority in the journal (sd-daemon(3))."""
    if verdict.state != IN_SYNC:
        return "<4>"
    # A replica that stays in sync is worth a notice only once.
    return "<6>" if before.state == IN_SYNC else "<5>"


_SENTENCES: Final[Mapping[str, str]] = {
    IN_SYNC: "The replica of this host has every change that {provider} has.",
    LAGGING: "The replica of this host has missed a change of {provider} for {behind:.0f} s now.",
    NEVER: "The replica of this host has never been synchronised with {provider}.",
    AHEAD: "The replica of this host has a change that {provider} does not have: was the provider "
    "restored from a backup? Rebuild the replica (runbook hgfleet-replica-check).",
    OTHER: "The replica of this host has other entries than {provider}: rebuild it (runbook "
    "hgfleet-replica-check).",
    CLOCK: "The newest change of {provider} is from the future; others may be ignored until then.",
    REFUSED: "{provider} answers, but refuses the replica's account {bind_dn}.",
    PROVIDER_AWAY: "{provider} does not answer; the content of the replica stays in use.",
    REPLICA_AWAY: "The replica of this host does not answer.",
}


def sentence(verdict: Verdict, settings: Config) -> str:
    """Return the sentence for a person."""
    text = _SENTENCES[verdict.state].format(
        provider=settings.provider, bind_dn=settings.bind_dn, behind=verdict.behind or 0.0
    )
    return f"{verdict.state}: {text}" + (f" ({verdict.detail})" if verdict.detail else "")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `replica` and its commands."""
    codes = "exit codes:\n" + "\n".join(f"  {code:<3} {name}" for name, code in EXIT_CODES.items())
    parser = subparsers.add_parser(
        "replica",
        help="compare this host's copy of the directory with the provider",
        description="Compare this host's copy of the directory with the provider.",
        epilog=codes,
    )
    parser.add_argument("--config", default=CONFIG, metavar="FILE", help=f"default: {CONFIG}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    status = commands.add_parser(
        "status",
        help="show the state; changes nothing",
        description="Show the state at once; changes nothing. The exit code is the state.",
        epilog=codes,
    )
    status.set_defaults(run=_status)
    check = commands.add_parser(
        "check",
        help="compare, log, and choose the server that key lookups ask first (for the timer)",
        description="Compare, give a replica that is behind a few seconds, log a line, create or"
        " remove the file that makes key lookups ask the provider first.",
        epilog=codes,
    )
    check.set_defaults(run=_check)


def _status(options: argparse.Namespace) -> int:
    settings = load_config(options.config)
    verdict, _ = examine(settings, load_memory(settings.state_file), patience=0, whole=True)
    print(sentence(verdict, settings))
    if Path(settings.stale_file).exists():
        print(f"Key lookups ask {settings.provider} first ({settings.stale_file} is there).")
    return verdict.exit_code


def _check(options: argparse.Namespace) -> int:
    settings = load_config(options.config)
    before = load_memory(settings.state_file)
    begin = time.monotonic()
    verdict, memory = examine(settings, before, settings.patience)
    stale = mark(settings.stale_file, verdict.stale)
    save_memory(settings.state_file, memory)
    line = event(verdict, settings, time.monotonic() - begin, stale=stale)
    # Only the journal understands the prefix.
    prefix = priority(verdict, before) if "JOURNAL_STREAM" in os.environ else ""
    print(prefix + line, flush=True)
    return verdict.exit_code
