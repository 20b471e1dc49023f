"""hgfleet-keys: tell sshd whose key this is, or say nothing.

sshd_config(5) calls it in two ways, as a user of its own:

    AuthorizedKeysCommand       hgfleet-keys %f %t %k            fingerprint, type, base64 of a key
    AuthorizedPrincipalsCommand hgfleet-keys --principals %t %k  type, base64 of a certificate

It searches the directory for the person with that fingerprint, or with the name of the
certificate's one principal, and prints one line

    restrict,command="SHELL --user alice --groups a,b --fingerprint SHA256:..." TYPE KEY
    restrict,command="SHELL --user alice --groups a,b" alice

where SHELL is /opt/hgfleet/current/bin/hgfleet-shell.

Nothing printed is a refusal, whatever the cause; the exit status is always 0, because sshd treats
any other as a fault of its own configuration. Each decision is one line in the system log:

    event=key decision=deny reason=unknown fingerprint=SHA256:... source=ldapi://... seconds=0.005
    event=certificate decision=allow reason=ok fingerprint=SHA256:... person=alice serial=7 ...

| reason | means |
| --- | --- |
| ok | allowed |
| question | sshd's arguments are not a fingerprint, a type and a key that belong together |
| type | a type of key that `key_types` does not allow |
| unknown | no enabled person has this key, or is named by this certificate |
| ambiguous | two people have this key or name: neither gets in |
| disabled | the person is disabled (the filter excludes them; this is the second look) |
| name | the person's name is missing, not single, or unsafe in a command line |
| directory-key | no stored key of the person is this one and clean (`detail` says why) |
| groups | the person is in more groups than a command line should bear |
| host-certificate | the certificate is for a host |
| principals | the certificate is for nobody in particular, or for several (exactly one is wanted) |
| critical-option | the certificate demands what cannot be kept, such as `force-command` |
| not-yet-valid, expired | what it says of the certificate (sshd looks too) |
| unavailable | no directory server answered in time |
| configuration, crash | keys.toml is unreadable or wrong; a defect of this program |

`source` is the server that decided. Servers are asked in their order; only one that does not answer
(no connection, too slow, busy) is passed over, and `passed_over` names it. A plain "nobody" counts
from whichever server says it first. While `stale_file` exists, this host's replica is known to be
behind, and ldapi:// servers are asked last.

For operators: `hgfleet-keys --check FILE` checks a configuration, and `hgfleet-keys --probe`, run
as the lookup's user, asks every server and says how long it took; both say what is wrong and then
exit with an error.

sshd asks twice for each login (the offer, then the signature), so the time this takes counts twice,
and most of it is Python's start. So the release starts it without `site` (-IS), and nothing here
imports `re`, `typing`, `os` or a package that does: 12 ms instead of 40. Of python-ldap it is only
the C part `_ldap`. testing/bench/keys.py measures it.
"""

from __future__ import annotations

import posix
import sys
import time

from hgfleet.core import logfmt
from hgfleet.core.errors import ConfigurationError, UnavailableError
from hgfleet.core.names import is_person
from hgfleet.directory import connection, publickey
from hgfleet.directory.entries import DeniedError, groups_of, person_of, values
from hgfleet.directory.filters import group_filter, key_filter, name_filter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, Final, Protocol

    from hgfleet.directory.entries import Entry
    from hgfleet.ssh.certificate import Certificate

    class Directory(Protocol):
        """A bound connection."""

        def search(self, base: str, filter_: str, attributes: list[str]) -> list[Entry]:
            """Return the entries directly below `base` that match; raise UnavailableError."""

    Connect = Callable[["Config", str], Directory]

CONFIG: Final = "/etc/hgfleet/keys.toml"
STALE_FILE: Final = "/run/hgfleet/directory-stale"

_LOWER: Final = frozenset("abcdefghijklmnopqrstuvwxyz")
_DIGITS: Final = frozenset("0123456789")
_PATH: Final = _LOWER | _DIGITS | frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ._-/")


class Config:
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
    stale_file: str

    def __init__(self, **settings: Any) -> None:
        self.__dict__.update(settings)


class Allowed:
    """Who it is, and which server said so; `key` as the directory has it."""

    def __init__(
        self, person: str, groups: tuple[str, ...], key: publickey.PublicKey | None = None
    ) -> None:
        self.person = person
        self.groups = groups
        self.key = key
        self.source = ""
        self.passed_over = ""
        self.unsafe_groups = 0


# --- configuration --------------------------------------------------------------------------


def load_config(path: str) -> Config:
    """Read keys.toml; raise ConfigurationError with what is wrong and what was expected."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  (pathlib is slow to import)
            text = file.read()
        data = read_simple(text)
        if data is None:
            import tomllib

            data = tomllib.loads(text)
        return parse_config(data)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # not TOML, not UTF-8, or a wrong setting
        raise ConfigurationError(f"{path}: {error}") from error


def read_simple(text: str) -> dict[str, Any] | None:
    """Read the TOML that the role writes, or return None: then it takes tomllib.

    That is a name, a text without quotes or backslashes in it, a number, or a list of such texts,
    each on one line. (tomllib imports `re`, which takes as long as the whole lookup.)
    """
    data: dict[str, Any] = {}
    for line in text.split("\n"):
        stripped = line.strip(" ")
        if not stripped or (stripped.startswith("#") and stripped.isprintable()):
            continue
        name, _, right = stripped.partition("=")
        name = name.strip(" ")
        value = _simple_value(right.strip(" "))
        if (
            value is None
            or name in data
            or not name
            or not _LOWER.issuperset(name.replace("_", ""))
        ):
            return None
        data[name] = value
    return data


def _simple_value(text: str) -> str | float | list[str] | None:
    if text.startswith("[") and text.endswith("]"):
        values = [_simple_text(part.strip(" ")) for part in text[1:-1].split(",")]
        return [value for value in values if value is not None] if None not in values else None
    whole, dot, fraction = text.partition(".")
    if whole and _DIGITS.issuperset(whole + fraction) and (whole == "0" or whole[0] != "0"):
        if not dot:
            return int(whole)
        return float(text) if fraction else None
    return _simple_text(text)


def _simple_text(text: str) -> str | None:
    inner = text[1:-1]
    if len(text) < 2 or text[0] + text[-1] != '""' or '"' in inner or "\\" in inner:
        return None
    return inner if inner.isprintable() else None


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

    unknown = sorted(set(data) - set(Config.__annotations__))
    if unknown:
        raise ValueError(f"got unknown settings {', '.join(unknown)}")
    for uri in texts("uris"):
        # ldapi is a socket of this host; plain ldap would send the password in clear.
        if not uri.startswith(connection.SCHEMES):
            raise ValueError(f"uris: got {uri!r}, expected ldaps://HOST or ldapi://PATH")
    for key_type in texts("key_types"):
        if key_type not in publickey.KEY_TYPES:
            raise ValueError(f"key_types: got {key_type!r}, which is not a type of key")
    for name in ("shell", "stale_file"):
        if name in data or name == "shell":
            path = text(name)
            if not path.startswith("/") or not _PATH.issuperset(path):
                raise ValueError(f"{name}: expected an absolute path without blanks or quotes")
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
        stale_file=data.get("stale_file", STALE_FILE),
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


def principal_of(certificate: Certificate, now: float) -> str:
    """Return the one person that a certificate is for; sshd has checked its CA and signature.

    Restrictions that sshd keeps by itself are welcome. `force-command` is not: it would have to be
    the command that we force, and sshd refuses the login when both are there.
    """
    if not certificate.is_user:
        raise DeniedError("host-certificate")
    unknown = [n for n in certificate.critical if n not in ("source-address", "verify-required")]
    if unknown:
        raise DeniedError("critical-option", ",".join(unknown[:5]))
    if now < certificate.valid_after:
        raise DeniedError("not-yet-valid")
    if now >= certificate.valid_before:
        raise DeniedError("expired")
    # sshd takes a certificate without principals for one that suits everybody.
    if len(certificate.principals) != 1:
        raise DeniedError("principals", f"{len(certificate.principals)}, expected 1")
    name = certificate.principals[0]
    if not is_person(name):
        raise DeniedError("name", name)
    return name


def key_of(
    values: Sequence[bytes], asked: publickey.PublicKey, allowed: Iterable[str], name: str
) -> publickey.PublicKey:
    """Return the stored key that is the one asked for and clean."""
    problems = []
    for value in values:
        try:
            key = publickey.parse(value.decode("utf-8"), frozenset(allowed))
        except publickey.BadKeyError as error:
            problems.append(error.reason)
        except UnicodeDecodeError:
            problems.append("not-text")
        else:
            if key == asked:
                return key
            problems.append("other-key")
    raise DeniedError("directory-key", ",".join(problems[:5]) or "no-key", name)


def command_options(config: Config, allowed: Allowed) -> str:
    """Write the options of the line; `restrict` turns off all that sshd offers beside it."""
    command = f"{config.shell} --user {allowed.person}"
    if allowed.groups:
        command += f" --groups {','.join(allowed.groups)}"
    if allowed.key is not None:
        # For the person to see which of their keys it is; nothing is decided by it.
        command += f" --fingerprint {allowed.key.fingerprint}"
    return f'restrict,command="{command}"'


def in_order(uris: Sequence[str], stale: bool) -> list[str]:
    """Return the servers in the order to ask: a replica that is known to be behind comes last."""
    return sorted(uris, key=lambda uri: uri.startswith("ldapi:")) if stale else list(uris)


def lookup(config: Config, asked: publickey.PublicKey | str, connect: Connect) -> Allowed:
    """Find the person with a key, or of a name. The first server that answers decides."""
    by_name = isinstance(asked, str)
    search = name_filter(asked) if isinstance(asked, str) else key_filter(asked.fingerprint)
    attributes = ["uid", "pwdAccountLockedTime", *([] if by_name else ["sshPublicKey"])]
    failures = []
    for uri in in_order(config.uris, _exists(config.stale_file)):
        try:
            directory = connect(config, uri)
            name, dn, found = person_of(directory.search(config.people_base, search, attributes))
            key = None
            if isinstance(asked, str):
                # The directory may compare more loosely (case, blanks) than sshd, which wants it
                # to be what the certificate says.
                if name != asked:
                    raise DeniedError("name", dn)
            else:
                key = key_of(values(found, "sshPublicKey"), asked, config.key_types, name)
            groups, unsafe = groups_of(
                directory.search(config.groups_base, group_filter(dn), ["cn"])
            )
        except UnavailableError as error:
            failures.append(f"{uri} {error}")
            continue
        except DeniedError as denied:
            denied.source = uri
            raise
        allowed = Allowed(name, groups, key)
        allowed.source = uri
        allowed.passed_over = "; ".join(failures)
        allowed.unsafe_groups = unsafe
        return allowed
    raise DeniedError("unavailable", "; ".join(failures))


def _exists(path: str) -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True


# --- the directory --------------------------------------------------------------------------


class _Connection:
    """A bound connection through libldap; closed when the process ends, a moment later."""

    def __init__(self, config: Config, uri: str) -> None:
        # Read here and not with the configuration: it is needed only when there is a question.
        password = connection.read_password(config.bind_password_file)
        connection.isolate()
        import _ldap

        self._ldap: Any = _ldap
        self._deadline = time.monotonic() + config.timeout
        self._connection = connection.connect(
            _ldap, uri, ca_file=config.ca_file, timeout=config.timeout
        )
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
            message = start()
            # One time for all steps with a server. Never 0 or less, which means "for ever".
            left = max(0.001, self._deadline - time.monotonic())
            return self._connection.result4(message, 1, left)[1]
        except self._ldap.LDAPError as error:
            raise UnavailableError(f"({what}: {connection.reason_of(error)})") from error


def _connect(config: Config, uri: str) -> Directory:
    return _Connection(config, uri)


# --- the command ----------------------------------------------------------------------------


def answer(
    arguments: Sequence[str], config_path: str, log: logfmt.Log, connect: Connect = _connect
) -> str | None:
    """Decide, log, and return the line for sshd or None. Never raises."""
    start = time.monotonic()
    by_certificate = arguments[:1] == ["--principals"]
    fields: dict[str, object] = {}
    line = None
    if not by_certificate:
        fields["fingerprint"] = arguments[0] if arguments else None
    try:
        config = load_config(config_path)
        if by_certificate:
            certificate = check_certificate(arguments[1:], config.key_types)
            fields.update(certificate.fields())
            allowed = lookup(config, principal_of(certificate, time.time()), connect)
            line = f"{command_options(config, allowed)} {allowed.person}"
        else:
            allowed = lookup(config, check_question(arguments, config.key_types), connect)
            assert allowed.key is not None
            line = f"{command_options(config, allowed)} {allowed.key.type} {allowed.key.blob}"
        fields["person"] = allowed.person
        fields["groups"] = ",".join(allowed.groups) or None
        fields["unsafe_groups"] = allowed.unsafe_groups or None
        fields["source"] = allowed.source
        fields["passed_over"] = allowed.passed_over or None
        reason = "ok"
    except DeniedError as denied:
        reason = denied.reason
        fields.update(person=denied.person, source=denied.source, detail=denied.detail)
    except (ConfigurationError, OSError) as error:
        reason = "configuration"
        fields["detail"] = error
    except Exception as error:
        reason = "crash"
        fields["detail"] = f"{type(error).__name__}: {error}"
    log(
        logfmt.line(
            "certificate" if by_certificate else "key",
            decision="deny" if line is None else "allow",
            reason=reason,
            **fields,
            seconds=time.monotonic() - start,
        )
    )
    return line


def check_certificate(arguments: Sequence[str], allowed: Iterable[str]) -> Certificate:
    """Read sshd's %t %k of a certificate."""
    from hgfleet.ssh import certificate

    if len(arguments) != 2:
        raise DeniedError("question")
    try:
        return certificate.parse(arguments[0], arguments[1], frozenset(allowed))
    except publickey.BadKeyError as error:
        raise DeniedError("type" if error.reason == "type" else "question", error.reason) from error


def probe(config: Config, connect: Connect = _connect) -> list[tuple[str, str | None, float]]:
    """Ask every server for a key that nobody has; return URI, problem or None, and seconds."""
    results = []
    nobody = publickey.fingerprint(b"")
    for uri in config.uris:
        start = time.monotonic()
        problem = None
        try:
            connect(config, uri).search(config.people_base, key_filter(nobody), ["uid"])
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
    print("expected --check FILE, --probe, or what sshd hands over", file=sys.stderr)
    return 2


def main() -> int:
    """Run as AuthorizedKeysCommand, or for an operator."""
    # No fingerprint begins with a dash, so a client cannot get here.
    if sys.argv[1:] and sys.argv[1].startswith("--") and sys.argv[1] != "--principals":
        return _for_operators(sys.argv[1:])
    line = answer(sys.argv[1:], CONFIG, logfmt.to_syslog("hgfleet-keys"))
    if line is not None:
        print(line, flush=True)
    return 0
