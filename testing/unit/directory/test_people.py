"""A command about a person makes the change that the operator asks for, once, and no other."""

from __future__ import annotations

import base64
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet import cli
from hgfleet.core import logfmt
from hgfleet.directory import fingerprints, people, people_cli
from hgfleet.directory.client import DirectoryError
from hgfleet.directory.entry_changes import Change, Edit
from hgfleet.directory.filters import DISABLED
from hgfleet.directory.people import PersonError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

SUFFIX = "dc=x"


def key(number: int, comment: str = "") -> str:
    fields = (b"ssh-ed25519", bytes([number]) * 32)
    blob = b"".join(len(field).to_bytes(4, "big") + field for field in fields)
    return f"ssh-ed25519 {base64.b64encode(blob).decode()} {comment}".rstrip()


def fingerprint(number: int) -> str:
    return people.check_key(key(number)).fingerprint


class FakeDirectory:
    """A directory in memory that understands the few filters that are asked for."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, list[bytes]]] = {}
        self.applied: list[Change] = []
        self.refuses: set[str] = set()

    def add(self, dn: str, **attributes: Any) -> None:
        self.entries[dn] = {
            name: [v if isinstance(v, bytes) else v.encode() for v in given]
            for name, given in attributes.items()
        }

    def suffix(self) -> str:
        return SUFFIX

    def get(self, dn: str, attributes: Sequence[str]) -> Any:
        entry = self.entries.get(dn)
        if entry is None:
            return None
        return {name: given for name, given in entry.items() if name in attributes and given}

    def search(
        self, base: str, filter_: str, attributes: Sequence[str], *, deep: bool = False
    ) -> Iterator[tuple[str, Any]]:
        for dn in list(self.entries):
            below = dn.endswith(base) if deep else dn.partition(",")[2] == base
            if below and self._matches(dn, filter_):
                yield dn, self.get(dn, attributes)

    def _matches(self, dn: str, filter_: str) -> bool:
        entry = self.entries[dn]
        for part in filter_.replace("(!(", "(!").replace("(&", "").replace("(|", "").split("("):
            name, _, value = part.strip(")").partition("=")
            wanted = value.encode().replace(b"\\2c", b",").replace(b"\\3d", b"=")
            values = entry.get(name.removeprefix("!"), [])
            if name in ("sshPublicKeyId", "member", "pwdAccountLockedTime") and value != "*":
                if wanted not in values:
                    return False
            elif name.startswith("!") and wanted in values:
                return False
        return True

    def apply(self, change: Change) -> None:
        if change.dn in self.refuses:
            raise DirectoryError("no such attribute in the schema")
        self.applied.append(change)
        if change.kind == "delete":
            del self.entries[change.dn]
            return
        entry = self.entries.setdefault(change.dn, {})
        for edit in change.edits:
            values = entry.setdefault(edit.attribute, [])
            if edit.attribute == "userPassword":
                values[:] = [b"{SSHA}xxxx"] if edit.do == "replace" else []
                entry.pop("pwdAccountLockedTime", None)
                entry["pwdChangedTime"] = [b"20260101000000Z"]
            elif edit.do == "add":
                assert not set(values) & set(edit.values), "a server refuses values it has"
                values.extend(edit.values)
            elif edit.do == "replace":
                values[:] = edit.values
            else:
                assert set(edit.values) <= set(values), (
                    "a server refuses to delete what is not there"
                )
                values[:] = [v for v in values if edit.values and v not in edit.values]


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> FakeDirectory:
    """Alice has a key, bob none; mallory is disabled; alice and bob are maintainers."""
    fake = FakeDirectory()
    inet = ["inetOrgPerson", "ldapPublicKey"]
    fake.add(
        "uid=alice,ou=people,dc=x",
        objectClass=inet,
        uid=["alice"],
        cn=["Alice Example"],
        mail=["alice@example.org"],
        sshPublicKey=[key(1, "alice@laptop")],
        sshPublicKeyId=[fingerprint(1)],
    )
    fake.add("uid=bob,ou=people,dc=x", objectClass=["inetOrgPerson"], uid=["bob"], cn=["Bob"])
    fake.add(
        "uid=mallory,ou=people,dc=x",
        objectClass=inet,
        uid=["mallory"],
        cn=["Mallory"],
        pwdAccountLockedTime=[DISABLED],
    )
    fake.add(
        "cn=maintainers,ou=groups,dc=x",
        objectClass=["groupOfNames"],
        cn=["maintainers"],
        member=["uid=alice,ou=people,dc=x", "uid=bob,ou=people,dc=x"],
    )
    monkeypatch.setattr(people_cli, "connect", lambda _options: fake)
    monkeypatch.setattr(fingerprints, "connect", lambda _options: fake)
    monkeypatch.setenv("SUDO_USER", "dana")
    return fake


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(logfmt, "to_syslog", lambda _identifier: lines.append)
    return lines


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run `hgfleet person ...`; return its output."""

    def command(*words: str, code: int = 0) -> str:
        got = cli.main(["person", *words])
        out, err = capsys.readouterr()
        assert got == code, out + err
        assert "Traceback" not in err
        return out + err

    return command


def test_a_new_person_is_in_no_group_of_a_former_one_of_the_name(
    run: Callable[..., str], directory: FakeDirectory, log: list[str]
) -> None:
    dave = "uid=dave,ou=people,dc=x"
    for name in ("maintainers", "staff", "last"):
        directory.entries.setdefault(f"cn={name},ou=groups,dc=x", {"cn": [name.encode()]})
        directory.entries[f"cn={name},ou=groups,dc=x"].setdefault("member", [])
    for name in ("maintainers", "staff", "last"):
        directory.entries[f"cn={name},ou=groups,dc=x"]["member"].append(dave.encode())
    directory.entries["cn=staff,ou=groups,dc=x"]["member"].append(b"uid=alice,ou=people,dc=x")
    said = run("add", "dave", "--group", "staff")
    assert f"- member: {dave}" in said
    groups = {
        dn: entry["member"] for dn, entry in directory.entries.items() if dn.startswith("cn=")
    }
    # LDAP has no empty groups.
    assert "cn=last,ou=groups,dc=x" not in groups
    assert dave.encode() not in groups["cn=maintainers,ou=groups,dc=x"]
    assert dave.encode() in groups["cn=staff,ou=groups,dc=x"]
    assert directory.applied[-1].dn == dave, "the person is there last"
    assert len(log) == 1


@pytest.mark.usefixtures("directory", "log")
class TestCommands:
    @pytest.mark.parametrize(
        "words",
        [
            ("add", "dave", "--full-name", "Dave Example", "--mail", "d@example.org"),
            ("add", "dave", "--key", key(7, "dave@x"), "--group", "maintainers"),
            ("add", "dave", "--group", "newgroup"),
            ("add", "alice", "--mail", "new@example.org", "--key", key(8)),
            ("disable", "alice"),
            ("enable", "mallory"),
            ("key", "add", "alice", key(2, "alice@desk")),
            ("key", "add", "bob", key(2)),
            ("key", "remove", "alice", fingerprint(1)),
            ("group", "add", "mallory", "maintainers"),
            ("group", "add", "mallory", "others"),
            ("group", "remove", "bob", "maintainers"),
        ],
    )
    def test_a_dry_run_changes_nothing_and_a_second_run_neither(
        self,
        run: Callable[..., str],
        directory: FakeDirectory,
        log: list[str],
        words: tuple[str, ...],
    ) -> None:
        before = json.dumps(directory.entries, default=repr)
        shown = run(*words, "--check")
        assert json.dumps(directory.entries, default=repr) == before
        assert log == []

        done = run(*words)
        assert directory.applied
        assert shown.splitlines()[:-1] == done.splitlines()[:-1], "the dry run shows the same diff"
        assert len(log) == 1
        assert f"person={words[2] if words[0] in ('key', 'group') else words[1]} " in log[0]
        assert log[0].endswith("by=dana changed=yes")

        directory.applied.clear()
        assert "nothing to change" in run(*words)
        assert directory.applied == []

    def test_a_new_person_has_what_was_asked_for(
        self, run: Callable[..., str], directory: FakeDirectory
    ) -> None:
        run("add", "dave", "--full-name", "Dave Example", "--key", key(7, "x"), "--group", "team")
        entry = directory.entries["uid=dave,ou=people,dc=x"]
        assert entry["cn"] == [b"Dave Example"]
        assert entry["sn"] == [b"Example"]
        assert entry["sshPublicKey"] == [key(7, "x").encode()]
        assert entry["sshPublicKeyId"] == [fingerprint(7).encode()]
        assert directory.entries["cn=team,ou=groups,dc=x"]["member"] == [b"uid=dave,ou=people,dc=x"]

    def test_a_key_can_come_from_a_file_and_from_standard_input(
        self,
        run: Callable[..., str],
        directory: FakeDirectory,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        file = tmp_path / "key.pub"
        file.write_text(key(3, "from a file") + "\n")
        run("key", "add", "alice", str(file))
        monkeypatch.setattr("sys.stdin", io.StringIO(key(4) + "\n"))
        run("key", "add", "alice", "-")
        ids = directory.entries["uid=alice,ou=people,dc=x"]["sshPublicKeyId"]
        assert ids == [fingerprint(n).encode() for n in (1, 3, 4)]

    def test_a_key_belongs_to_one_person(
        self, run: Callable[..., str], directory: FakeDirectory
    ) -> None:
        said = run("key", "add", "bob", key(1, "mine now"), code=65)
        assert "is a key of alice already" in said
        assert directory.applied == []

    def test_a_key_is_removed_by_its_comment(
        self, run: Callable[..., str], directory: FakeDirectory
    ) -> None:
        run("key", "remove", "alice", "alice@laptop")
        entry = directory.entries["uid=alice,ou=people,dc=x"]
        assert entry["sshPublicKey"] == []
        assert entry["sshPublicKeyId"] == []

    def test_a_slip_in_a_comment_is_no_success(self, run: Callable[..., str]) -> None:
        said = run("key", "remove", "alice", "alice@labtop", code=65)
        assert "of alice@laptop" in said

    def test_a_comment_of_two_keys_is_no_choice(
        self, run: Callable[..., str], directory: FakeDirectory
    ) -> None:
        run("key", "add", "alice", key(2, "alice@laptop"))
        said = run("key", "remove", "alice", "alice@laptop", code=65)
        assert fingerprint(1) in said
        assert fingerprint(2) in said
        assert len(directory.entries["uid=alice,ou=people,dc=x"]["sshPublicKey"]) == 2

    def test_a_fingerprint_left_without_its_key_goes_too(
        self, run: Callable[..., str], directory: FakeDirectory
    ) -> None:
        directory.entries["uid=alice,ou=people,dc=x"]["sshPublicKey"] = []
        run("key", "remove", "alice", fingerprint(1))
        assert directory.entries["uid=alice,ou=people,dc=x"]["sshPublicKeyId"] == []

    def test_the_last_member_takes_the_group_along(
        self, run: Callable[..., str], directory: FakeDirectory
    ) -> None:
        run("group", "remove", "alice", "maintainers")
        said = run("group", "remove", "bob", "maintainers")
        assert "- dn: cn=maintainers,ou=groups,dc=x" in said
        assert "cn=maintainers,ou=groups,dc=x" not in directory.entries

    def test_a_new_password_does_not_enable_a_disabled_person(
        self, run: Callable[..., str], directory: FakeDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO("correct horse battery\n"))
        said = run("password", "mallory")
        assert "correct horse" not in said
        entry = directory.entries["uid=mallory,ou=people,dc=x"]
        assert entry["pwdAccountLockedTime"] == [DISABLED.encode()]
        assert entry["userPassword"] == [b"{SSHA}xxxx"]

    def test_a_server_that_keeps_passwords_in_clear_keeps_none(
        self, run: Callable[..., str], directory: FakeDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO("correct horse battery\n"))
        get = directory.get
        clear = {"userPassword": [b"correct horse battery"]}
        monkeypatch.setattr(
            directory, "get", lambda dn, names: clear if "userPassword" in names else get(dn, names)
        )
        said = run("password", "alice", code=78)
        assert "in clear" in said
        assert directory.applied[-1].edits == (Edit("delete", "userPassword"),)

    def test_show_says_it_all(self, run: Callable[..., str]) -> None:
        said = run("show", "alice")
        assert "state:     enabled" in said
        assert "groups:    maintainers" in said
        assert f"{fingerprint(1)} ssh-ed25519 alice@laptop" in said
        assert json.loads(run("show", "alice", "--json"))["keys"][0]["comment"] == "alice@laptop"
        assert "state:     disabled" in run("show", "mallory")

    def test_show_says_which_keys_are_of_no_use(
        self, run: Callable[..., str], directory: FakeDirectory
    ) -> None:
        bad = [f'command="sh" {key(5)}'.encode(), b"\xff\x1b[2J", key(6).encode()]
        directory.entries["uid=alice,ou=people,dc=x"]["sshPublicKey"] = bad
        said = run("show", "alice")
        assert "unusable: got options before the key" in said
        assert "unusable: this is not text" in said
        assert "(not indexed: hgfleet keys index)" in said
        assert "\x1b" not in said

    @pytest.mark.parametrize(
        ("options", "names"),
        [
            ((), ["alice", "bob", "mallory"]),
            (("--disabled",), ["mallory"]),
            (("--enabled",), ["alice", "bob"]),
            (("--group", "maintainers"), ["alice", "bob"]),
            (("--no-keys",), ["bob", "mallory"]),
        ],
    )
    def test_list_filters(
        self, run: Callable[..., str], options: tuple[str, ...], names: list[str]
    ) -> None:
        assert [line.split()[0] for line in run("list", *options).splitlines()] == names
        assert [person["name"] for person in json.loads(run("list", *options, "--json"))] == names

    @pytest.mark.parametrize("word", ["disable", "enable", "show", "password"])
    def test_somebody_unknown_is_named(self, run: Callable[..., str], word: str) -> None:
        assert "there is no person zoe" in run(word, "zoe", code=65)

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "Alice",
            "a" * 33,
            "a,ou=x",
            "a)(uid=*",
            "*",
            "a b",
            "a\n",
            "é",
            "-a",
            "1a",
            "a=b",
            "a\0",
        ],
    )
    def test_a_hostile_name_reaches_no_server(
        self, run: Callable[..., str], directory: FakeDirectory, name: str
    ) -> None:
        for words in (("add", "--", name), ("group", "add", "--", "alice", f"{name}!")):
            run(*words, code=65)
        assert directory.applied == []

    def test_a_change_that_fails_is_logged_as_such(
        self, run: Callable[..., str], directory: FakeDirectory, log: list[str]
    ) -> None:
        directory.refuses.add("uid=alice,ou=people,dc=x")
        run("disable", "alice", code=65)
        assert log[0].endswith('changed="no, failed"')


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "0 lines"),
        (f"{key(1)}\n{key(2)}", "2 lines"),
        (f'command="sh" {key(1)}', "options"),
        ("ssh-rsa AAAAB3NzaC1yc2E=", "well-formed"),
        (key(1).replace("AAAAC3", "AAAAC4"), "inside"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "private key"),
        (f"{key(1)}\0", "line breaks"),
        (key(1) + " " + "x" * 9000, "characters"),
    ],
)
def test_what_is_no_key_is_refused(text: str, said: str) -> None:
    with pytest.raises(PersonError, match=said):
        people.check_key(text)


@pytest.mark.parametrize(
    "password", ["", "short", "x" * 201, "a" * 20, "alice is the best", "tab\tin the middle"]
)
def test_what_is_no_password_is_refused(password: str) -> None:
    with pytest.raises(PersonError):
        people.check_password(password, "alice")


@pytest.mark.parametrize("mail", ["", "x", "@x", "a@", "a b@x", "a@x\n", "ä@x"])
def test_what_is_no_mail_address_is_refused(mail: str) -> None:
    with pytest.raises(PersonError):
        people.check_mail(mail)


# --- showing ----------------------------------------------------------------------------------


def test_a_diff_shows_no_password_and_does_nothing_to_a_terminal() -> None:
    edits = (
        Edit("replace", "userPassword", (b"secret",)),
        Edit("add", "cn", (b"\x1b[2J\n\xff",)),
        Edit("add", "sshPublicKey", (b"A" * 900 + b" comment",)),
    )
    lines = Change("uid=a", "modify", edits).lines()
    assert "secret" not in "".join(lines)
    assert all(line.isprintable() and len(line) < 200 for line in lines)
    assert lines[-1].endswith(" comment")


# --- keys index -------------------------------------------------------------------------------


def test_index_fills_and_repairs_and_goes_on_where_it_stopped(
    directory: FakeDirectory, log: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    base = "ou=people,dc=x"
    directory.add(f"uid=old,{base}", uid=["old"], sshPublicKey=[key(10), key(11, "x")])
    directory.add(f"uid=odd,{base}", uid=["odd"], sshPublicKey=["rubbish", b"\xff", key(12)])
    directory.add(f"uid=gone,{base}", uid=["gone"], sshPublicKeyId=[fingerprint(13)])
    directory.add(f"uid=twin,{base}", uid=["twin"], sshPublicKey=[key(1)])

    assert cli.main(["keys", "index", "--check"]) == 0
    shown = capsys.readouterr().out
    assert directory.applied == []
    assert log == []
    assert "nothing was changed" in shown

    assert cli.main(["keys", "index"]) == 0
    said = capsys.readouterr().out
    assert f"uid=odd,{base}: key 1 is of no use: got 'rubbish'" in said
    assert f"uid=odd,{base}: key 2 is of no use: this is not text" in said
    assert f"uid=twin,{base}: {fingerprint(1)} is a key of uid=alice,{base} too" in said
    assert "4 changed, 0 could not be changed, 2 unusable keys, 1 keys of several people" in said
    ids = {
        name: directory.entries[f"uid={name},{base}"].get("sshPublicKeyId")
        for name in ("old", "odd", "gone")
    }
    assert ids == {
        "old": [fingerprint(10).encode(), fingerprint(11).encode()],
        "odd": [fingerprint(12).encode()],
        "gone": [],
    }
    assert "event=keys-index" in log[0]

    directory.applied.clear()
    assert cli.main(["keys", "index"]) == 0
    assert directory.applied == []


def test_index_does_not_stop_at_an_entry_that_cannot_be_changed(
    directory: FakeDirectory, log: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for number, name in enumerate(("one", "two")):
        directory.add(f"uid={name},dc=x", uid=[name], sshPublicKey=[key(20 + number)])
    directory.refuses.add("uid=one,dc=x")
    assert cli.main(["keys", "index", "--base", "dc=x"]) == 65
    assert "uid=one,dc=x: no such attribute" in capsys.readouterr().out
    assert directory.entries["uid=two,dc=x"]["sshPublicKeyId"]
    assert "failed=1" in log[0]
