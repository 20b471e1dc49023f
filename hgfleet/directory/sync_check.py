"""`hgfleet replica`: tell whether this host's copy of the directory is as new as the provider's.

slapd copies by itself (syncrepl). What it cannot do is notice that it is behind, and a replica that
is behind lets in whoever was thrown out. So a timer compares the newest change that both know,
`contextCSN`, and says what it found; a service unit that fails is the alarm.

| state | means | exit code | key lookup asks |
| --- | --- | --- | --- |
| in-sync | the replica has every change of the provider | 0 | the replica first |
| provider-unreachable | no answer; people go on with what the replica has | 75 | as before |
| lagging | a change has not arrived within `patience` | 71 | the provider first |
| never-synchronised | the replica is still empty | 71 | the provider first |
| refused | the provider answers, and refuses this account | 77 | the provider first |
| clock | the newest change is from the future | 71 | the provider first |
| replica-unreachable | this host's slapd does not answer | 69 | the provider first |

"The provider first" is the file `stale_file`: while it is there, hgfleet-keys asks sockets of this
host last. CSNs are compared with CSNs, both made by the provider's clock. How long a replica lags
is measured by this host's clock since boot, from when it first saw the change that is missing.

A change from the future means that the provider's clock went wrong. Once it is right, a replica
takes new changes for old ones and ignores them, and both show the same `contextCSN` all the while.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import time
import tomllib
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import logfmt, systemd
from hgfleet.core.errors import ConfigurationError
from hgfleet.directory import connection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

CONFIG: Final = "/etc/hgfleet/replica.toml"

CLOCK_TOLERANCE: Final = timedelta(seconds=60)
"""How far the newest change may be ahead of this host's clock: more than NTP ever leaves apart."""

EVERY: Final = 0.2
"""Seconds between two looks at a replica that is behind."""

IN_SYNC: Final = "in-sync"
LAGGING: Final = "lagging"
NEVER: Final = "never-synchronised"
CLOCK: Final = "clock"
REFUSED: Final = "refused"
PROVIDER_AWAY: Final = "provider-unreachable"
REPLICA_AWAY: Final = "replica-unreachable"

EXIT_CODES: Final[Mapping[str, int]] = {
    IN_SYNC: 0,
    LAGGING: 71,
    NEVER: 71,
    CLOCK: 71,
    REFUSED: 77,
    PROVIDER_AWAY: 75,
    REPLICA_AWAY: 69,
}

# As OpenLDAP writes it: time, number within it, server, number within an operation.
_CSN: Final = re.compile(r"(\d{14}\.\d{6}Z)#([0-9a-f]{6})#([0-9a-f]{3})#([0-9a-f]{6})")


class UnreachableError(Exception):
    """A server does not answer; the message says which words it did not."""


class RefusedError(Exception):
    """A server answers and refuses, be it the password or the attribute."""


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


@dataclass(frozen=True, slots=True)
class Memory:
    """What one check leaves for the next: the changes that were missing, and since when."""

    state: str = ""
    missing: Mapping[str, str] | None = None
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found. `stale` is what has to become of the file; None leaves it as it is."""

    state: str
    stale: bool | None
    detail: str = ""
    behind: float | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of a check with this verdict."""
        return EXIT_CODES[self.state]


# --- decisions ------------------------------------------------------------------------------


def parse_csns(values: Sequence[str]) -> dict[str, str]:
    """Return the newest change by server (there is one `contextCSN` for each that takes writes).

    Raises ValueError for what is no CSN. The texts have a fixed width, so they sort as they are.
    """
    result = {}
    for value in values:
        found = _CSN.fullmatch(value)
        if found is None:
            raise ValueError(f"contextCSN: got {value!r}, expected a change sequence number")
        result[found[3]] = value
    return result


def missing(replica: Mapping[str, str], provider: Mapping[str, str]) -> dict[str, str]:
    """Return the changes of the provider, by server, that the replica does not have."""
    return {server: csn for server, csn in provider.items() if replica.get(server, "") < csn}


def moment(csn: str) -> datetime:
    """Return when a change was made, by the clock of the server that took it."""
    return datetime.strptime(csn.partition("#")[0], "%Y%m%d%H%M%S.%fZ").replace(tzinfo=UTC)


def decide(
    replica: Mapping[str, str] | Exception,
    provider: Mapping[str, str] | Exception,
    before: Memory,
    *,
    wall: datetime,
    boot: float,
) -> tuple[Verdict, Memory]:
    """Compare what both servers said. `boot` is in seconds since this host's boot."""
    verdict, lacking = _verdict(replica, provider, wall)
    if verdict.state == PROVIDER_AWAY:
        # What was missing still is, as far as anybody can know.
        return verdict, replace(before, state=verdict.state)
    if not lacking:
        return verdict, Memory(verdict.state)
    # Still the same change that is missing: it began then. Another one: the replica has moved.
    held = replica if isinstance(replica, dict) else {}
    stuck = bool(before.missing and missing(held, before.missing))
    since = before.since if stuck else boot
    kept = before.missing if stuck else lacking
    return replace(verdict, behind=boot - since), Memory(verdict.state, kept, since)


def _verdict(
    replica: Mapping[str, str] | Exception,
    provider: Mapping[str, str] | Exception,
    wall: datetime,
) -> tuple[Verdict, dict[str, str]]:
    if isinstance(replica, Exception):
        return Verdict(REPLICA_AWAY, stale=True, detail=str(replica)), {}
    if isinstance(provider, RefusedError):
        return Verdict(REFUSED, stale=True, detail=str(provider)), {}
    if isinstance(provider, Exception):
        if not replica:
            return Verdict(NEVER, stale=True, detail=str(provider)), {}
        # What the replica has is the best there is: it stays as trusted as it was.
        return Verdict(PROVIDER_AWAY, stale=None, detail=str(provider)), {}
    lacking = missing(replica, provider)
    if not replica:
        return Verdict(NEVER, stale=True), lacking
    if lacking:
        return Verdict(LAGGING, stale=True, detail=f"lacks {max(lacking.values())}"), lacking
    newest = max(provider.values())
    ahead = moment(newest) - wall
    if ahead > CLOCK_TOLERANCE:
        seconds = int(ahead.total_seconds())
        return Verdict(CLOCK, stale=True, detail=f"{newest} is {seconds} s ahead"), {}
    return Verdict(IN_SYNC, stale=False, detail=newest), {}


# --- the servers ----------------------------------------------------------------------------


def load_config(path: str) -> Config:
    """Read replica.toml; raise ConfigurationError with what is wrong."""
    try:
        data = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"{path}: {error.strerror}. A host that has no replica of the directory has none of"
            " its settings either."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    names = {field.name: field.type for field in fields(Config)}
    if set(data) != set(names):
        wrong = ", ".join(sorted(set(data) ^ set(names)))
        raise ConfigurationError(f"{path}: unknown or missing settings: {wrong}")
    for name, kind in names.items():
        value = data[name]
        right = isinstance(value, str) if kind == "str" else isinstance(value, int | float)
        if not right or not value:
            raise ConfigurationError(f"{path}: {name}: got {value!r}, expected a {kind}")
    return Config(**data)


def read_replica(config: Config) -> dict[str, str]:
    """Return the replica's CSNs, empty before its first synchronisation.

    The socket tells slapd which user asks, so no password is needed.
    """
    return _read(config, config.replica, lambda connection: connection.sasl_external_bind_s())


def read_provider(config: Config) -> dict[str, str]:
    """Return the provider's CSNs; raise UnreachableError or RefusedError."""
    password = _password(config)
    found = _read(
        config,
        config.provider,
        lambda connection: connection.simple_bind_s(config.bind_dn, password),
    )
    if not found:
        raise RefusedError(
            f"{config.provider} shows {config.bind_dn} no contextCSN of {config.suffix}"
        )
    return found


def _password(config: Config) -> str:
    # The unit's credential, else (root at a terminal) the file it is made from.
    path = systemd.credential("replica-bind") or config.bind_password_file
    return connection.read_password(str(path))


def _read(config: Config, uri: str, bind: Callable[[Any], object]) -> dict[str, str]:
    connection.isolate()
    ldap: Any = importlib.import_module("ldap")
    opened = connection.connect(ldap, uri, ca_file=config.ca_file, timeout=config.timeout)
    try:
        bind(opened)
        entries = opened.search_ext_s(
            config.suffix,
            ldap.SCOPE_BASE,
            "(objectClass=*)",
            ["contextCSN"],
            timeout=config.timeout,
        )
    except ldap.NO_SUCH_OBJECT:
        return {}
    except (ldap.INVALID_CREDENTIALS, ldap.INSUFFICIENT_ACCESS) as error:
        raise RefusedError(f"{uri}: {connection.reason_of(error)}") from error
    except ldap.LDAPError as error:
        raise UnreachableError(f"{uri}: {connection.reason_of(error)}") from error
    finally:
        opened.unbind_ext()
    try:
        return parse_csns(
            [v.decode("ascii", "replace") for _, a in entries for v in a.get("contextCSN", ())]
        )
    except ValueError as error:
        raise RefusedError(f"{uri}: {error}") from error


# --- one check ------------------------------------------------------------------------------


def look(config: Config, before: Memory, patience: float) -> tuple[Verdict, Memory]:
    """Ask both, and give a replica that is behind `patience` seconds to catch up."""
    deadline = time.monotonic() + patience
    provider = _attempt(read_provider, config)
    while True:
        verdict, memory = decide(
            _attempt(read_replica, config),
            provider,
            before,
            wall=datetime.now(UTC),
            boot=time.clock_gettime(time.CLOCK_BOOTTIME),
        )
        if verdict.behind is None or time.monotonic() >= deadline:
            return verdict, memory
        time.sleep(EVERY)
        # What is measured is how long the change of the first look has been missing.
        before = memory


def _attempt(
    read: Callable[[Config], dict[str, str]], config: Config
) -> dict[str, str] | UnreachableError | RefusedError:
    try:
        return read(config)
    except (UnreachableError, RefusedError) as error:
        return error


def load_memory(path: str) -> Memory:
    """Return what the last check left; nothing where there was none, or where it is damaged."""
    try:
        data = json.loads(Path(path).read_text("utf-8"))
        return Memory(str(data["state"]), data["missing"], float(data["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Memory()


def save_memory(path: str, memory: Memory) -> None:
    """Leave it for the next check, in one step."""
    text = json.dumps({"state": memory.state, "missing": memory.missing, "since": memory.since})
    beside = Path(f"{path}.new")
    beside.write_text(text, "utf-8")
    beside.replace(path)


def mark(path: str, stale: bool | None) -> bool:
    """Create or remove the file that sends lookups to the provider; tell if it is there."""
    file = Path(path)
    if stale:
        file.touch()
    elif stale is not None:
        file.unlink(missing_ok=True)
    return file.exists()


def event(verdict: Verdict, config: Config, seconds: float, *, stale: bool) -> str:
    """Format the line for the journal."""
    return logfmt.line(
        "replica",
        state=verdict.state,
        provider=config.provider,
        behind=verdict.behind,
        stale="yes" if stale else "no",
        detail=verdict.detail or None,
        seconds=seconds,
    )


def priority(verdict: Verdict, before: Memory) -> str:
    """Return the prefix by which the journal knows how loud a line is (sd-daemon(3))."""
    if verdict.state != IN_SYNC:
        return "<4>"
    # That all is well is news only once.
    return "<6>" if before.state == IN_SYNC else "<5>"


# --- the commands ---------------------------------------------------------------------------

_SENTENCES: Final[Mapping[str, str]] = {
    IN_SYNC: "The replica of this host has every change that {provider} has.",
    LAGGING: "The replica of this host lacks a change that {provider} has, for {behind:.0f} s now.",
    NEVER: "The replica of this host has never been synchronised with {provider}.",
    CLOCK: "The newest change of {provider} is from the future; others may be ignored until then.",
    REFUSED: "{provider} answers, but refuses the replica's account {bind_dn}.",
    PROVIDER_AWAY: "{provider} does not answer; people go on with what the replica has.",
    REPLICA_AWAY: "The replica of this host does not answer.",
}


def sentence(verdict: Verdict, config: Config) -> str:
    """Say it to a person."""
    text = _SENTENCES[verdict.state].format(
        provider=config.provider, bind_dn=config.bind_dn, behind=verdict.behind or 0.0
    )
    return f"{verdict.state}: {text}" + (f" ({verdict.detail})" if verdict.detail else "")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `replica` and its commands."""
    raw = argparse.RawDescriptionHelpFormatter
    codes = "exit codes:\n" + "\n".join(f"  {code:<3} {name}" for name, code in EXIT_CODES.items())
    parser = subparsers.add_parser(
        "replica",
        help="compare this host's copy of the directory with the provider",
        description="Compare this host's copy of the directory with the provider.",
        epilog=codes,
        formatter_class=raw,
    )
    parser.add_argument("--config", default=CONFIG, metavar="FILE", help=f"default: {CONFIG}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    status = commands.add_parser(
        "status",
        help="say how it is now; changes nothing",
        description="Say how it is now, at once; changes nothing. The exit code is the state.",
        epilog=codes,
        formatter_class=raw,
    )
    status.set_defaults(run=_status)
    check = commands.add_parser(
        "check",
        help="what the timer runs: look, log, and say where key lookups have to ask first",
        description="Look, give a replica that is behind a few seconds, log one line, and create or"
        " remove the file that makes key lookups ask the provider first.",
        epilog=codes,
        formatter_class=raw,
    )
    check.set_defaults(run=_check)


def _status(options: argparse.Namespace) -> int:
    config = load_config(options.config)
    verdict, _ = look(config, load_memory(config.state_file), patience=0)
    print(sentence(verdict, config))
    if Path(config.stale_file).exists():
        print(f"Key lookups ask {config.provider} first ({config.stale_file} is there).")
    return verdict.exit_code


def _check(options: argparse.Namespace) -> int:
    config = load_config(options.config)
    before = load_memory(config.state_file)
    begin = time.monotonic()
    verdict, memory = look(config, before, config.patience)
    stale = mark(config.stale_file, verdict.stale)
    save_memory(config.state_file, memory)
    line = event(verdict, config, time.monotonic() - begin, stale=stale)
    # Only the journal understands the prefix.
    prefix = priority(verdict, before) if "JOURNAL_STREAM" in os.environ else ""
    print(prefix + line, flush=True)
    return verdict.exit_code
