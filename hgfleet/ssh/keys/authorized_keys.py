"""hgfleet-keys: the AuthorizedKeysCommand of sshd, by lookup in the directory.

sshd_config(5) calls it in two ways, as a user of its own:

    AuthorizedKeysCommand       hgfleet-keys %f %t %k            fingerprint, type, base64 of a key
    AuthorizedPrincipalsCommand hgfleet-keys --principals %t %k  type, base64 of a certificate

It searches the directory for the person with that fingerprint, or with the name of the
certificate's only principal, and prints a single line

    restrict,command="SHELL --user alice --person-id UUID --groups a,b --login TIME
                      --fingerprint SHA256:..." KEY
    restrict,command="SHELL --user alice --person-id UUID --groups a,b --login TIME
                      --certificate ID" alice

where SHELL is /opt/hgfleet/current/bin/hgfleet-shell, UUID the entryUUID of the person's entry
(missing where the directory does not give it), KEY type and base64 of the key, and TIME the seconds
from 1970 to this login. A client may open further sessions over its connection for hours, and
hgfleet asks the directory again at each of those sessions.

Empty output is a refusal, for every cause; the exit status is always 0, because sshd takes any
other status for a fault of its own configuration. Each decision is a line in the system log:

    event=key decision=deny reason=unknown fingerprint=SHA256:... source=ldapi://... seconds=0.005
    event=certificate decision=allow reason=ok fingerprint=SHA256:... person=alice serial=7 ...

| reason | means |
| --- | --- |
| ok | allowed |
| question | sshd's arguments are not a fingerprint, a type and a key that belong together |
| type | a type of key that `key_types` does not allow |
| unknown | no enabled person has this key, or is named by this certificate |
| ambiguous | two people have this key or name: neither gets in |
| disabled | the person is disabled (the filter excludes such people; this is a second check) |
| name | the person's name is missing, not single, or unsafe in a command line |
| directory-key | no stored key of the person equals this key and is clean (`detail` says why) |
| groups | the person is in more groups than a command line can hold |
| host-certificate | the certificate is for a host |
| principals | the certificate has no principal or several, expected a single principal |
| critical-option | the certificate has an option that cannot be honoured, such as `force-command` |
| not-yet-valid, expired | the certificate is outside its period of validity (sshd checks it too) |
| unavailable | no directory server answered in time |
| configuration, crash | keys.toml is unreadable or wrong; a defect of this program |

`lookup_counts` has the same reasons, and counts each decision for metrics.

`source` is the server that decided. Servers are asked in their order. Only a server that does not
answer (no connection, too slow, busy) is skipped, and `passed_over` names it. The first answer of
any server decides, even the answer "unknown". While `stale_file` exists, this host's replica is
behind
the provider, and ldapi:// servers are asked last.

For operators: `hgfleet-keys --check FILE` checks a configuration, and `hgfleet-keys --probe`, run
as the lookup's user, asks every server and prints how long it took. Both name any problem and then
exit with an error.

sshd asks twice for each login (the offer, then the signature), so each run counts twice, and most
of its time is Python's start. So the release starts it without `site` (-IS), and nothing here
imports `re`, `typing`, `os` or a package that does: 12 ms instead of 40. Of python-ldap only the C
part `_ldap` is imported. testing/bench/keys.py measures it.
"""

from __future__ import annotations

import sys
import time

from hgfleet.core import logfmt
from hgfleet.core.errors import ConfigurationError, UnavailableError
from hgfleet.directory.entries import DeniedError
from hgfleet.ssh.keys import lookup, lookup_counts, question, settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hgfleet.ssh.keys.lookup import Allowed, Connect
    from hgfleet.ssh.keys.settings import Config


def command_options(config: Config, allowed: Allowed, now: float, certificate: str = "") -> str:
    """Write the options of the line; `restrict` turns off every other feature of sshd.

    `now` is the time of the login, `certificate` the name of the certificate in the push log.
    """
    command = f"{config.shell} --user {allowed.person}"
    if allowed.person_id:
        command += f" --person-id {allowed.person_id}"
    if allowed.groups:
        command += f" --groups {','.join(allowed.groups)}"
    command += f" --login {int(now)}"
    if allowed.key is not None:
        # The command `keys` shows it to the person; a session ends when its key is removed.
        command += f" --fingerprint {allowed.key.fingerprint}"
    if certificate:
        command += f" --certificate {certificate}"
    return f'restrict,command="{command}"'


def answer(
    arguments: Sequence[str],
    config_path: str,
    log: logfmt.Log,
    connect: Connect = lookup.Connection,
    done: Callable[[str, float], object] = lambda _reason, _seconds: None,
    clock: Callable[[], float] = time.time,
) -> str | None:
    """Decide, log, and return the line for sshd or None. Never raises.

    `done` is called with the reason and the duration in seconds.
    """
    start = time.monotonic()
    by_certificate = arguments[:1] == ["--principals"]
    fields: dict[str, object] = {}
    line = None
    now = clock()  # before the directory is asked
    if not by_certificate:
        fields["fingerprint"] = arguments[0] if arguments else None
    try:
        config = settings.load(config_path)
        if by_certificate:
            certificate = question.check_certificate(arguments[1:], config.key_types)
            fields.update(certificate.fields())
            person = question.principal_of(certificate, now)
            allowed = lookup.find_person(config, person, connect)
            name = certificate.short_id()
            line = f"{command_options(config, allowed, now, name)} {allowed.person}"
        else:
            key = question.check_key(arguments, config.key_types)
            allowed = lookup.find_person(config, key, connect)
            assert allowed.key is not None
            line = f"{command_options(config, allowed, now)} {allowed.key.type} {allowed.key.blob}"
        fields |= allowed.fields()
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
    seconds = time.monotonic() - start
    log(
        logfmt.line(
            "certificate" if by_certificate else "key",
            decision="deny" if line is None else "allow",
            reason=reason,
            **fields,
            seconds=seconds,
        )
    )
    done(reason, seconds)
    return line


def _for_operators(arguments: Sequence[str]) -> int:
    try:
        if arguments[0] == "--check" and len(arguments) == 2:
            settings.load(arguments[1])
            return 0
        if list(arguments) == ["--probe"]:
            results = lookup.probe(settings.load())
            for uri, problem, seconds in results:
                print(f"{uri} {problem or 'answers'} after {seconds:.3f} s")
            # A single dead replica is a matter for monitoring; a deploy stops if no server answers.
            return UnavailableError.exit_code if all(problem for _, problem, _ in results) else 0
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print("expected --check FILE, --probe, or the arguments of sshd", file=sys.stderr)
    return 2


def main() -> int:
    """Run as AuthorizedKeysCommand, or for an operator."""
    # No fingerprint begins with a dash, so no client can reach the options of operators.
    if sys.argv[1:] and sys.argv[1].startswith("--") and sys.argv[1] != "--principals":
        return _for_operators(sys.argv[1:])
    log = logfmt.to_syslog("hgfleet-keys")

    def count(reason: str, seconds: float) -> None:
        problem = lookup_counts.add(reason, seconds)
        if problem is not None:
            log(logfmt.line("not-counted", detail=problem))

    line = answer(sys.argv[1:], settings.PATH, log, done=count)
    if line is not None:
        print(line, flush=True)
    return 0
