"""Certificates: accepted for exactly one clean person of the directory."""

from __future__ import annotations

import base64
import re
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.directory import publickey
from hgfleet.directory.entries import DeniedError
from hgfleet.ssh.keys import authorized_keys, lookup, settings, user_certificate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hgfleet.directory.entries import Entry

ALICE = "uid=alice,ou=people,dc=x"
SHELL = "/opt/hgfleet/current/bin/hgfleet-shell"
HOUR = 3600


def string(*values: bytes) -> bytes:
    return b"".join(len(value).to_bytes(4, "big") + value for value in values)


PARTS = {
    "ssh-ed25519": [bytes(range(32))],
    "sk-ssh-ed25519@openssh.com": [bytes(range(32)), b"ssh:"],
    "ssh-rsa": [b"\x01\x00\x01", b"\x00" + b"\xc5" * 384],
    "ecdsa-sha2-nistp256": [b"nistp256", b"\x04" + bytes(64)],
    "ecdsa-sha2-nistp384": [b"nistp384", b"\x04" + bytes(96)],
    "ecdsa-sha2-nistp521": [b"nistp521", b"\x04" + bytes(132)],
    "sk-ecdsa-sha2-nistp256@openssh.com": [b"nistp256", b"\x04" + bytes(64), b"ssh:"],
}


def cert_type(key_type: str) -> str:
    return key_type.partition("@")[0] + "-cert-v01@openssh.com"


def made(key_type: str = "ssh-ed25519", rest: bytes = b"", **changes: Any) -> list[str]:
    """The arguments of sshd for a certificate that is right but for `changes`."""
    now = int(time.time())
    values: dict[str, Any] = {
        "inner": cert_type(key_type).encode(),
        "parts": PARTS[key_type],
        "kind": 1,
        "id": b"alice at work",
        "principals": [b"alice"],
        "after": now - HOUR,
        "before": now + HOUR,
        "critical": [],
        "extensions": [(b"permit-pty", b"")],
        **changes,
    }
    blob = string(values["inner"], b"nonce", *values["parts"]) + (7).to_bytes(8, "big")
    blob += values["kind"].to_bytes(4, "big") + string(values["id"])
    blob += string(string(*values["principals"]))
    blob += values["after"].to_bytes(8, "big") + values["before"].to_bytes(8, "big")
    for options in (values["critical"], values["extensions"]):
        blob += string(b"".join(string(name, value) for name, value in options))
    blob += string(b"", string(b"ssh-ed25519", bytes(32)), string(b"ssh-ed25519", bytes(64)))
    return [cert_type(key_type), base64.b64encode(blob + rest).decode()]


class Directory:
    """Has alice, and notes its searches."""

    def __init__(self, people: list[Entry] | None = None) -> None:
        self.people: list[Entry] = [(ALICE, {"uid": [b"alice"]})]
        if people is not None:
            self.people = people
        self.asked: list[str] = []

    def search(self, base: str, filter_: str, attributes: list[str]) -> list[Entry]:
        assert "sshPublicKey" not in attributes
        self.asked.append(filter_)
        if base.startswith("ou=groups"):
            return [("cn=maintainers,ou=groups,dc=x", {"cn": [b"maintainers"]})]
        return self.people


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "keys.toml"
    types = ", ".join(f'"{name}"' for name in publickey.KEY_TYPES)
    path.write_text(
        'uris = ["ldaps://near"]\npeople_base = "ou=people,dc=x"\ngroups_base = "ou=groups,dc=x"\n'
        'bind_dn = "cn=keys"\nbind_password_file = "/x"\nca_file = "/x"\ntimeout = 2\n'
        f'shell = "{SHELL}"\nkey_types = [{types}]\n'
    )
    return path


@pytest.fixture
def ask(config: Path) -> Callable[..., tuple[str | None, str]]:
    """Ask as sshd does; return the line for sshd and the line of the log."""

    def run(
        question: list[str], directory: lookup.Directory | None = None
    ) -> tuple[str | None, str]:
        logged: list[str] = []
        line = authorized_keys.answer(
            ["--principals", *question],
            str(config),
            logged.append,
            lambda _config, _uri: directory or Directory(),
        )
        assert len(logged) == 1, "every decision is one line"
        assert logged[0].isprintable()
        return line, logged[0]

    return run


def test_a_certificate_of_a_person_gets_the_forced_shell(ask: Callable[..., Any]) -> None:
    directory = Directory()
    line, log = ask(made(), directory)
    assert line is not None
    assert re.fullmatch(
        rf'restrict,command="{SHELL} --user alice --groups maintainers --login [0-9]{{10}}'
        r' --certificate serial=7" alice',
        line,
    )
    assert log.startswith("event=certificate decision=allow reason=ok fingerprint=SHA256:")
    for word in ("person=alice", "serial=7", 'key_id="alice at work"', "source=ldaps://near"):
        assert word in log
    assert re.search(r" ca=SHA256:\S{43} ", log)
    assert directory.asked[0] == "(&(uid=alice)(!(pwdAccountLockedTime=000001010000Z)))"


@pytest.mark.parametrize("key_type", publickey.KEY_TYPES)
def test_every_type_of_key_can_be_certified(ask: Callable[..., Any], key_type: str) -> None:
    line, log = ask(made(key_type))
    assert line is not None, log
    blob = base64.b64encode(string(key_type.encode(), *PARTS[key_type])).decode()
    assert f"fingerprint={publickey.check(key_type, blob).fingerprint} " in log


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_certificates_of_ssh_keygen_can_be_read(tmp_path: Path, kind: str) -> None:
    def keygen(*words: str) -> str:
        done = subprocess.run(
            ["ssh-keygen", *words], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout

    keygen("-q", "-t", "ed25519", "-N", "", "-f", "ca")
    keygen("-q", "-t", kind, "-N", "", "-f", "key")
    keygen(
        *("-q", "-s", "ca", "-I", "an id", "-n", "alice,bob", "-z", "42", "-V", "-1h:+1h"),
        *("-O", "source-address=192.0.2.0/24", "-O", "force-command=true", "key.pub"),
    )
    key_type, blob, *_ = (tmp_path / "key-cert.pub").read_text().split()

    read = user_certificate.parse(key_type, blob)

    assert (read.serial, read.key_id, read.is_user) == (42, "an id", True)
    assert read.principals == ("alice", "bob")
    assert read.critical == ("force-command", "source-address")
    assert read.valid_after < time.time() < read.valid_before
    assert read.key.fingerprint == keygen("-l", "-f", "key.pub").split()[1]
    assert read.authority == keygen("-l", "-f", "ca.pub").split()[1]


NOW = int(time.time())
REFUSED: dict[str, tuple[list[str], str]] = {
    "host certificate": (made(kind=2), "host-certificate"),
    "no principal": (made(principals=[]), "principals"),
    "two principals": (made(principals=[b"alice", b"bob"]), "principals"),
    "one principal twice": (made(principals=[b"alice", b"alice"]), "principals"),
    "principal with a comma": (made(principals=[b"alice,root"]), "name"),
    "principal with a newline": (made(principals=[b"alice\nroot"]), "name"),
    "principal with NUL": (made(principals=[b"alice\0"]), "name"),
    "principal with a filter": (made(principals=[b"*)(uid=*"]), "name"),
    "principal with options": (made(principals=[b'command="sh" alice']), "name"),
    "principal in capitals": (made(principals=[b"Alice"]), "name"),
    "empty principal": (made(principals=[b""]), "name"),
    "huge principal": (made(principals=[b"a" * 8000]), "name"),
    "principal that is not text": (made(principals=[b"\xff"]), "name"),
    "expired": (made(before=NOW - 1), "expired"),
    "not yet valid": (made(after=NOW + HOUR), "not-yet-valid"),
    "never valid": (made(after=2**64 - 1, before=2**64 - 1), "not-yet-valid"),
    "force-command": (made(critical=[(b"force-command", string(b"sh"))]), "critical-option"),
    "unknown option": (made(critical=[(b"zz@example.org", b"")]), "critical-option"),
    "options out of order": (
        made(critical=[(b"verify-required", b""), (b"source-address", b"")]),
        "question",
    ),
    "an option twice": (made(extensions=[(b"permit-pty", b""), (b"permit-pty", b"")]), "question"),
    "a kind that is none": (made(kind=3), "question"),
    "another type inside": (made(inner=b"ssh-rsa-cert-v01@openssh.com"), "question"),
    "plain type inside": (made(inner=b"ssh-ed25519"), "question"),
    "short key": (made(parts=[bytes(31)]), "question"),
    "weak RSA": (
        made("ssh-rsa", parts=[b"\x01\x00\x01", b"\x00" + b"\xc5" * 128]),
        "question",
    ),
    "something after it": (made(rest=b"\0"), "question"),
    "64 KiB after it": (made(rest=bytes(65536)), "question"),
    "plain key": (
        ["ssh-ed25519", base64.b64encode(string(b"ssh-ed25519", bytes(32))).decode()],
        "type",
    ),
    "DSA": (["ssh-dss-cert-v01@openssh.com", made()[1]], "type"),
    "old format": (["ssh-rsa-cert-v00@openssh.com", made()[1]], "type"),
    "nothing": ([], "question"),
    "only a type": (made()[:1], "question"),
    "an argument too many": ([*made(), "x"], "question"),
    "not base64": ([made()[0], "!!!!"], "question"),
    "empty": ([made()[0], ""], "question"),
    "undecodable": ([made()[0], "\udcff"], "question"),
}


@pytest.mark.parametrize(("question", "reason"), REFUSED.values(), ids=REFUSED)
def test_no_server_hears_of_a_bad_certificate(
    ask: Callable[..., Any], question: list[str], reason: str
) -> None:
    directory = Directory()
    line, log = ask(question, directory)
    assert line is None
    assert f"decision=deny reason={reason} " in log
    assert directory.asked == []
    assert len(log) < 1500


def test_a_certificate_that_is_cut_off_anywhere_is_refused(ask: Callable[..., Any]) -> None:
    kind, text = made()
    blob = base64.b64decode(text)
    for length in range(len(blob)):
        line, log = ask([kind, base64.b64encode(blob[:length]).decode()])
        assert line is None
        assert "reason=question" in log


def test_a_certificate_with_any_length_changed_does_not_crash(ask: Callable[..., Any]) -> None:
    kind, text = made()
    blob = base64.b64decode(text)
    for position in range(len(blob) - 4):
        broken = blob[:position] + b"\xff\xff\xff\xff" + blob[position + 4 :]
        _, log = ask([kind, base64.b64encode(broken).decode()])
        assert "reason=crash" not in log


ANSWERS: dict[str, tuple[list[Entry], str]] = {
    "nobody": ([], "unknown"),
    "two": ([(ALICE, {"uid": [b"alice"]}), ("uid=a,dc=x", {"uid": [b"alice"]})], "ambiguous"),
    "disabled": (
        [(ALICE, {"uid": [b"alice"], "pwdAccountLockedTime": [b"000001010000Z"]})],
        "disabled",
    ),
    "the name in another case": ([(ALICE, {"uid": [b"Alice"]})], "name"),
    "another name": ([(ALICE, {"uid": [b"bob"]})], "name"),
    "two names": ([(ALICE, {"uid": [b"alice", b"bob"]})], "name"),
}


@pytest.mark.parametrize(("people", "reason"), ANSWERS.values(), ids=ANSWERS)
def test_a_certificate_without_a_person_is_refused(
    ask: Callable[..., Any], people: list[Entry], reason: str
) -> None:
    line, log = ask(made(), Directory(people))
    assert line is None
    assert f"decision=deny reason={reason} " in log


@pytest.mark.parametrize("asked", ["Alice", "ALICE", "alice ", "alic"])
def test_a_directory_that_compares_names_loosely_does_not_decide(config: Path, asked: str) -> None:
    """It may ignore case and blanks; sshd demands the name that the certificate has."""
    with pytest.raises(DeniedError) as denied:
        lookup.find_person(settings.load(str(config)), asked, lambda _config, _uri: Directory())
    assert denied.value.reason == "name"


@pytest.mark.parametrize(
    ("id_", "name"),
    [
        (b"alice@laptop", "alice@laptop"),
        (b"", "serial=7"),
        (b'x" ; reboot', "serial=7"),
        (b"$(reboot)", "serial=7"),
        (b"x" * 129, "serial=7"),
        ("é".encode(), "serial=7"),
        (b"a\nb", "serial=7"),
    ],
)
def test_the_push_log_knows_a_certificate_by_a_harmless_id(
    ask: Callable[..., Any], id_: bytes, name: str
) -> None:
    line, _ = ask(made(id=id_))
    assert f' --certificate {name}" alice' in line


def test_restrictions_that_sshd_keeps_are_welcome(ask: Callable[..., Any]) -> None:
    options = [(b"source-address", string(b"192.0.2.0/24")), (b"verify-required", b"")]
    assert ask(made(critical=options))[0] is not None


def test_a_site_that_allows_fewer_types_allows_fewer_certificates() -> None:
    kind, blob = made("ssh-rsa")
    with pytest.raises(publickey.BadKeyError, match="not allowed"):
        user_certificate.parse(kind, blob, {"ssh-ed25519"})
