"""hgfleet-keys: tell sshd whose key this is (AuthorizedKeysCommand), or say nothing.

sshd_config(5) calls it as `hgfleet-keys %f %t %k`: fingerprint, type and base64 of the key that a
client offers. It searches the directory for the person with that fingerprint and prints one line

    restrict,command="/opt/hgfleet/current/bin/hgfleet-shell --user alice --groups a,b" TYPE KEY

Nothing printed is a refusal, whatever the cause; the exit status is always 0, because sshd treats
any other as a fault of its own configuration. Each decision is one line in the system log:

    event=key decision=deny reason=unknown fingerprint=SHA256:... source=ldaps://... seconds=0.011

| reason | means |
| --- | --- |
| ok | allowed |
| question | sshd's arguments are not a fingerprint, a type and a key that belong together |
| type | a type of key that `key_types` does not allow |
| unknown | no enabled person has this key |
| ambiguous | two people have this key: neither gets in |
| disabled | the person is disabled (the filter excludes them; this is the second look) |
| name | the person's name is missing, not single, or unsafe in a command line |
| directory-key | no stored key of the person is this one and clean (`detail` says why) |
| groups | the person is in more groups than a command line should bear |
| unavailable | no directory server answered in time |
| configuration, crash | keys.toml is unreadable or wrong; a defect of this program |

For operators: `hgfleet-keys --check FILE` checks a configuration, and `hgfleet-keys --probe`, run
as the lookup's user, asks every server and says how long it took; both say what is wrong and then
exit with an error.

sshd asks twice for each login (the offer, then the signature), so the time this takes counts
twice: it imports little, and of python-ldap only its C part `_ldap` (17 ms instead of 120 ms).
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hgfleet import events, publickey
from hgfleet.errors import ConfigurationError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Protocol

    Entry = tuple[str, Mapping[str, Sequence[bytes]]]

    class Directory(Protocol):
        """A bound connection."""

        def search(self, base: str, filter_: str, attributes: list[str]) -> list[Entry]:
            """Return the entries directly below `base` that match; raise UnavailableError."""

    Connect = Callable[["Config", str], Directory]

CONFIG: Final = "/etc/hgfleet/keys.toml"

DISABLED: Final = "000001010000Z"
"""pwdAccountLockedTime of a person who is disabled until somebody enables them (slapo-ppolicy).

Any other time is a lock after wrong passwords. It does not concern keys: if it did, whoever guesses
at a password could lock a person out of pushing.
"""

MAX_GROUPS: Final = 200
"""Of one person; with the longest names they make a command of 13 KiB, which sshd and sh take."""

# Both end up in a command line inside double quotes inside an authorized_keys line.
_PERSON: Final = re.compile(r"[a-z][a-z0-9._-]{0,31}")
_GROUP: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_SHELL: Final = re.compile(r"/[A-Za-z0-9_./-]+")


class DeniedError(Exception):
    """The answer is no; `reason` is for the log, never for the client."""

    def __init__(self, reason: str, detail: str | None = None, person: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail
        self.person = person


class Config(NamedTuple):
    """The contents of keys.toml."""

    uris: tuple[str, ...]
    people_base: str
    groups_base: str
    bind_dn: str
    bind_password_file: str
    ca_file: str
    shell: str
    timeout: float
    key_types: frozenset[str]


class Allowed(NamedTuple):
    """Whose key it is, and the key as the directory has it."""

    person: str
    groups: tuple[str, ...]
    key: publickey.PublicKey
    source: str
    unsafe_groups: int


def load_config(path: str) -> Config:
    """Read keys.toml; raise ConfigurationError with what is wrong and what was expected."""
    import tomllib

    try:
        with open(path, "rb") as file:  # noqa: PTH123  (pathlib is slow to import)
            return parse_config(tomllib.load(file))
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, ValueError) as error:
        raise ConfigurationError(f"{path}: {error}") from error


def parse_config(data: Mapping[str, Any]) -> Config:
    """Check the values of keys.toml; raise ValueError."""

    def text(name: str) -> str:
        value = data.get(name)
        if not isinstance(value, str) or not value or not value.isprintable():
            raise ValueError(f"{name}: got {value!r}, expected a text")
        return value

    def texts(name: str) -> list[str]:
        value = data.get(name)
        if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
            raise ValueError(f"{name}: got {value!r}, expected a list of texts")
        return value

    unknown = sorted(set(data) - set(Config._fields))
    if unknown:
        raise ValueError(f"got unknown settings {', '.join(unknown)}")
    for uri in texts("uris"):
        # ldapi is a socket of this host; plain ldap would send the password in clear.
        if not uri.startswith(("ldaps://", "ldapi://")):
            raise ValueError(f"uris: got {uri!r}, expected ldaps://HOST or ldapi://PATH")
    for key_type in texts("key_types"):
        if key_type not in publickey.KEY_TYPES:
            raise ValueError(f"key_types: got {key_type!r}, which is not a type of key")
    if not _SHELL.fullmatch(text("shell")):
        raise ValueError("shell: expected an absolute path without blanks or quotes")
    timeout = data.get("timeout")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= 30:
        raise ValueError(f"timeout: got {timeout!r}, expected seconds, more than 0 and at most 30")
    return Config(
        uris=tuple(texts("uris")),
        people_base=text("people_base"),
        groups_base=text("groups_base"),
        bind_dn=text("bind_dn"),
        bind_password_file=text("bind_password_file"),
        ca_file=text("ca_file"),
        shell=text("shell"),
        timeout=float(timeout),
        key_types=frozenset(texts("key_types")),
    )


# --- decisions ------------------------------------------------------------------------------


def check_question(arguments: Sequence[str], allowed: Iterable[str]) -> publickey.PublicKey:
    """Check sshd's %f %t %k: three arguments that describe one and the same allowed key."""
    if len(arguments) != 3 or not publickey.is_fingerprint(arguments[0]):
        raise DeniedError("question")
    fingerprint, key_type, blob = arguments
    try:
        key = publickey.check(key_type, blob, frozenset(allowed))
    except publickey.BadKeyError as error:
        raise DeniedError("type" if error.reason == "type" else "question", error.reason) from error
    if key.fingerprint != fingerprint:
        raise DeniedError("question", "fingerprint")
    return key


def escape(value: str) -> str:
    r"""Escape a value for a search filter (RFC 4515): `*` becomes `\2a`, and so on.

    Everything but letters, digits and a few harmless signs is escaped, also what need not be.
    """
    return "".join(
        chr(byte)
        if byte < 0x7F and (chr(byte).isalnum() or chr(byte) in ",=:/+._-")
        else f"\\{byte:02x}"
        for byte in value.encode("utf-8", "surrogateescape")
    )


def person_filter(fingerprint: str) -> str:
    """The search for the enabled people with this key."""
    return (
        f"(&(objectClass=ldapPublicKey)(sshPublicKeyId={escape(fingerprint)})"
        f"(!(pwdAccountLockedTime={DISABLED})))"
    )


def group_filter(person_dn: str) -> str:
    """The search for the groups of a person."""
    return f"(&(objectClass=groupOfNames)(member={escape(person_dn)}))"


def person_of(
    entries: Sequence[Entry], asked: publickey.PublicKey, allowed: Iterable[str]
) -> tuple[str, str, publickey.PublicKey]:
    """Check what the directory returned for the key; return name, DN and the key as stored."""
    if not entries:
        raise DeniedError("unknown")
    if len(entries) > 1:
        raise DeniedError("ambiguous", " ".join(dn for dn, _ in entries[:5]))
    dn, raw = entries[0]
    attributes = {name.lower(): values for name, values in raw.items()}
    names = [value.decode("utf-8", "replace") for value in attributes.get("uid", ())]
    if len(names) != 1 or not _PERSON.fullmatch(names[0]):
        raise DeniedError("name", dn)
    name = names[0]
    # A server without the ppolicy overlay does not know the attribute that the filter asks for.
    if DISABLED.encode() in attributes.get("pwdaccountlockedtime", ()):
        raise DeniedError("disabled", person=name)
    problems = []
    for value in attributes.get("sshpublickey", ()):
        try:
            key = publickey.parse(value.decode("utf-8"), frozenset(allowed))
        except publickey.BadKeyError as error:
            problems.append(error.reason)
        except UnicodeDecodeError:
            problems.append("not-text")
        else:
            if key == asked:
                return name, dn, key
            problems.append("other-key")
    raise DeniedError("directory-key", ",".join(problems[:5]) or "no-key", name)


def groups_of(entries: Sequence[Entry]) -> tuple[tuple[str, ...], int]:
    """The safe names among the groups found, sorted, and how many were left out.

    A group with another kind of name (a site's directory is full of them) cannot be written into
    the command and cannot be named in the registry either, so leaving it out takes nothing away.
    """
    names = set()
    unsafe = 0
    for _, raw in entries:
        values = {name.lower(): values for name, values in raw.items()}.get("cn", ())
        texts = [value.decode("utf-8", "replace") for value in values]
        # "public" is what the registry calls everybody; a group of that name has no meaning.
        if len(texts) == 1 and _GROUP.fullmatch(texts[0]) and texts[0] != "public":
            names.add(texts[0])
        else:
            unsafe += 1
    if len(names) > MAX_GROUPS:
        raise DeniedError("groups", f"{len(names)}, at most {MAX_GROUPS}")
    return tuple(sorted(names)), unsafe


def authorized_keys_line(config: Config, allowed: Allowed) -> str:
    """Write the line for sshd; `restrict` turns off all that sshd offers beside the command."""
    command = f"{config.shell} --user {allowed.person}"
    if allowed.groups:
        command += f" --groups {','.join(allowed.groups)}"
    return f'restrict,command="{command}" {allowed.key.type} {allowed.key.blob}'


def lookup(config: Config, asked: publickey.PublicKey, connect: Connect) -> Allowed:
    """Ask the servers in their order. The first that answers decides, be it yes or no."""
    failures = []
    for uri in config.uris:
        try:
            directory = connect(config, uri)
            entries = directory.search(
                config.people_base,
                person_filter(asked.fingerprint),
                ["uid", "sshPublicKey", "pwdAccountLockedTime"],
            )
            name, dn, key = person_of(entries, asked, config.key_types)
            found = directory.search(config.groups_base, group_filter(dn), ["cn"])
        except UnavailableError as error:
            failures.append(f"{uri} {error}")
            continue
        groups, unsafe = groups_of(found)
        return Allowed(name, groups, key, uri, unsafe)
    raise DeniedError("unavailable", "; ".join(failures))


# --- the directory --------------------------------------------------------------------------


class _Connection:
    """A bound connection through libldap; closed when the process ends, a moment later."""

    def __init__(self, config: Config, uri: str) -> None:
        # Read here and not with the configuration: it is needed only when there is a question.
        with open(config.bind_password_file, encoding="utf-8") as file:  # noqa: PTH123
            password = file.read().rstrip("\n")
        if not password:
            # A bind with a name and an empty password is anonymous and succeeds (RFC 4513 5.1.2).
            raise ConfigurationError(f"{config.bind_password_file} is empty")
        # ldap.conf and ~/.ldaprc must not be able to weaken what is set here.
        os.environ["LDAPNOINIT"] = "1"
        # libldap's timeouts do not cover the resolver, which waits 10 s for a dead name server.
        os.environ["RES_OPTIONS"] = "timeout:1 attempts:1"
        _ldap: Any = importlib.import_module("_ldap")
        self._ldap = _ldap
        self._timeout = config.timeout
        self._connection = _ldap.initialize(uri)
        option = self._connection.set_option
        option(_ldap.OPT_PROTOCOL_VERSION, _ldap.VERSION3)
        option(_ldap.OPT_REFERRALS, 0)
        option(_ldap.OPT_NETWORK_TIMEOUT, config.timeout)
        option(_ldap.OPT_TIMEOUT, config.timeout)
        if uri.startswith("ldaps:"):
            option(_ldap.OPT_X_TLS_CACERTFILE, config.ca_file)
            option(_ldap.OPT_X_TLS_REQUIRE_CERT, _ldap.OPT_X_TLS_DEMAND)
            option(_ldap.OPT_X_TLS_PROTOCOL_MIN, 0x303)  # TLS 1.2
            try:
                # Without this, libldap goes on with the options of its global context.
                option(_ldap.OPT_X_TLS_NEWCTX, 0)
            except ValueError as error:
                raise ConfigurationError(f"{config.ca_file} has no certificate to trust") from error
        self._call("bind", lambda: self._connection.simple_bind(config.bind_dn, password))

    def search(self, base: str, filter_: str, attributes: list[str]) -> list[Entry]:
        scope = self._ldap.SCOPE_ONELEVEL
        result: list[tuple[str | None, Any]] = self._call(
            "search", lambda: self._connection.search_ext(base, scope, filter_, attributes)
        )
        # Without a DN: a referral to another server, which is not followed.
        return [(dn, found) for dn, found in result if dn is not None]

    def _call(self, what: str, start: Callable[[], int]) -> Any:
        try:
            return self._connection.result4(start(), 1, self._timeout)[1]
        except self._ldap.LDAPError as error:
            info = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
            text = info.get("info") or info.get("desc") or type(error).__name__
            raise UnavailableError(f"({what}: {text})") from error


def _connect(config: Config, uri: str) -> Directory:
    return _Connection(config, uri)


# --- the command ----------------------------------------------------------------------------


def answer(
    arguments: Sequence[str], config_path: str, log: events.Log, connect: Connect = _connect
) -> str | None:
    """Decide, log, and return the line for sshd or None. Never raises."""
    start = time.monotonic()
    fields: dict[str, object] = {}
    line = None
    try:
        config = load_config(config_path)
        asked = check_question(arguments, config.key_types)
        allowed = lookup(config, asked, connect)
        line = authorized_keys_line(config, allowed)
        fields = {
            "person": allowed.person,
            "groups": ",".join(allowed.groups) or None,
            "unsafe_groups": allowed.unsafe_groups or None,
            "source": allowed.source,
        }
        reason = "ok"
    except DeniedError as denied:
        reason = denied.reason
        fields = {"person": denied.person, "detail": denied.detail}
    except (ConfigurationError, OSError) as error:
        reason = "configuration"
        fields = {"detail": error}
    except Exception as error:
        reason = "crash"
        fields = {"detail": f"{type(error).__name__}: {error}"}
    log(
        events.line(
            "key",
            decision="deny" if line is None else "allow",
            reason=reason,
            fingerprint=arguments[0] if arguments else None,
            **fields,
            seconds=time.monotonic() - start,
        )
    )
    return line


def probe(config: Config, connect: Connect = _connect) -> list[tuple[str, str | None, float]]:
    """Ask every server for a key that nobody has; return URI, problem or None, and seconds."""
    results = []
    nobody = publickey.fingerprint(b"")
    for uri in config.uris:
        start = time.monotonic()
        problem = None
        try:
            connect(config, uri).search(config.people_base, person_filter(nobody), ["uid"])
        except (UnavailableError, ConfigurationError, OSError) as error:
            problem = str(error)
        results.append((uri, problem, time.monotonic() - start))
    return results


def _for_operators(arguments: Sequence[str]) -> int:
    try:
        if arguments[0] == "--check" and len(arguments) == 2:
            load_config(arguments[1])
            return 0
        if list(arguments) == ["--probe"]:
            results = probe(load_config(CONFIG))
            for uri, problem, seconds in results:
                print(f"{uri} {problem or 'answers'} after {seconds:.3f} s")
            # One dead replica is a matter for monitoring; that none answers stops a deploy.
            return UnavailableError.exit_code if all(problem for _, problem, _ in results) else 0
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print("expected --check FILE or --probe", file=sys.stderr)
    return 2


def main() -> int:
    """Run as AuthorizedKeysCommand, or for an operator."""
    # No fingerprint begins with a dash, so a client cannot get here.
    if sys.argv[1:] and sys.argv[1].startswith("--"):
        return _for_operators(sys.argv[1:])
    line = answer(sys.argv[1:], CONFIG, events.to_syslog("hgfleet-keys"))
    if line is not None:
        print(line, flush=True)
    return 0
