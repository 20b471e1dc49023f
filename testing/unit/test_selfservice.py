"""What people may do by themselves: the words they type, and the rules for what they create."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.core.errors import AccessDeniedError, RegistryError, UsageError
from hgfleet.core.principal import Principal
from hgfleet.registry import dynamic_update, model, user_repositories
from hgfleet.registry.compiled import dump_compiled
from hgfleet.registry.model import Namespace, Settings, build
from hgfleet.registry.user_repositories import Entry
from hgfleet.selfservice import argv, commands, rules
from hgfleet.selfservice.context import Context

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.registry.user_repositories import Dynamic

BOB = Principal("bob", frozenset({"sandbox"}))
ALICE = Principal("alice", frozenset({"maintainers", "staff", "team"}))
NOBODY = Principal("mallory", frozenset())
MADE = "2026-11-21T00:00:00Z"

STATIC = build(
    {
        "hgfleet": ("The service", Settings()),
        "staff/plans": ("Secret plans", Settings(read=("staff",), push=("staff",))),
        "team/tool": ("A tool", Settings()),
    },
    {
        "people": Namespace(
            "people",
            "People's own",
            Settings(push=(), bundles=()),
            create=("sandbox", "maintainers"),
            personal=True,
            quota=2,
        ),
        "team": Namespace("team", "The team's", Settings(read=("team",)), create=("team",)),
        "team/closed": Namespace("team/closed"),
        "open": Namespace("open", create=("sandbox", "team")),
    },
    Settings(push=("maintainers",)),
)


def entries(**given: Entry) -> Dynamic:
    """The paths have slashes, so they are given with a double underscore."""
    raw = {path.replace("__", "/"): entry.to_json() for path, entry in given.items()}
    return user_repositories.parse(json.dumps({"format": 1, "repositories": raw}).encode(), "test")


NONE = entries()


# --- words ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("repo list", ["repo", "list"]),
        ("  repo   list  ", ["repo", "list"]),
        ("a 'b c' d", ["a", "b c", "d"]),
        ("a \"b 'c'\" d", ["a", "b 'c'", "d"]),
        ("--description='x y'", ["--description=x y"]),
        ("a '' b", ["a", "", "b"]),
        # Nothing is expanded, and no sign but quotes and blanks means anything.
        ("$HOME `id` $(a) ~ * \\", ["$HOME", "`id`", "$(a)", "~", "*", "\\"]),
        ("a; b|c & d > #e", ["a;", "b|c", "&", "d", ">", "#e"]),
    ],
)
def test_a_line_is_split_at_blanks_outside_of_quotes(line: str, expected: list[str]) -> None:
    assert argv.split(line) == expected


@pytest.mark.parametrize("line", ["a 'b", 'a "b', "a\nb", "a\tb", "a\0b", "a\x1bb", "a\udcffb"])
def test_what_cannot_be_split_is_refused(line: str) -> None:
    with pytest.raises(UsageError):
        argv.split(line)


def call(line: str) -> argv.Call:
    found = argv.understand(line, commands.COMMANDS)
    assert found is not None
    return found


def test_options_may_be_anywhere_and_joined() -> None:
    for line in (
        "repo create people/bob/x --read private --description 'a b'",
        "repo create --read=private --description='a b' people/bob/x",
        'repo create --description "a b" people/bob/x --read private',
    ):
        found = call(line)
        assert found.arguments == ("people/bob/x",)
        assert found.options == {"--read": "private", "--description": "a b"}


def test_a_text_at_the_end_takes_all_words() -> None:
    assert call("repo describe people/bob/x A tool -v").arguments == ("people/bob/x", "A tool -v")
    assert call("help repo create").arguments == ("repo create",)
    assert call("help").arguments == ()
    assert call("token create --days 7 for the CI").arguments == ("for the CI",)


WRONG = {
    "an unknown option": "repo create people/bob/x --force",
    "a short option": "repo list -a",
    "an option of another command": "repo list --read public",
    "an option twice": "repo create people/bob/x --read public --read private",
    "an option without its value": "repo create people/bob/x --read",
    "a value for an option without one": "repo list --mine=yes",
    "no path": "repo create",
    "one path of two": "repo fork hgfleet",
    "a word too much": "repo archive people/bob/x people/bob/y",
    "a shell's separator": "repo archive people/bob/x; id",
    "a description that lost its quotes": "repo create people/bob/x --description Two words",
    "no such command of repo": "repo delete people/bob/x",
    "repo alone": "repo",
    "whoami of another": "whoami alice",
    "half a quote": "repo describe people/bob/x it's",
}


@pytest.mark.parametrize("line", WRONG.values(), ids=WRONG)
def test_a_wrong_call_is_refused_with_the_right_form(line: str) -> None:
    with pytest.raises(UsageError) as refused:
        argv.understand(line, commands.COMMANDS)
    message = str(refused.value)
    assert message.isascii()
    assert message.isprintable()
    assert "ssh hg@HOST" in message or "quote" in message


def test_quotes_that_the_persons_own_shell_took_away_are_explained() -> None:
    with pytest.raises(UsageError, match="quotes that your own shell leaves in place"):
        argv.understand("repo create people/bob/x --description Two words", commands.COMMANDS)


@pytest.mark.parametrize("line", ["sh", "id", "repolist", "it's", "Repo list", "repos list"])
def test_what_is_no_command_is_none(line: str) -> None:
    assert argv.understand(line, commands.COMMANDS) is None


def test_help_names_every_command_and_each_has_its_own() -> None:
    context = Context(BOB, "", "", "", "")
    everything = commands.help_(context, call("help"))
    for command in commands.COMMANDS:
        assert f"  ssh hg@HOST {command.name} " in everything
        assert commands.help_about(command.name).startswith(f"ssh hg@HOST {command.usage}\n")
    assert all(len(line) <= 100 for line in everything.splitlines())
    assert "repo archive PATH" in commands.help_about("repo")
    with pytest.raises(UsageError, match="no help on that"):
        commands.help_about("cat")


# --- where ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "principal"),
    [("people/bob/x", BOB), ("people/alice/x", ALICE), ("team/new", ALICE), ("open/a/b", BOB)],
)
def test_people_create_where_a_namespace_is_open_to_them(path: str, principal: Principal) -> None:
    assert path.startswith(rules.check_creation(path, principal, STATIC, NONE).path)


REFUSED = {
    "nowhere": ("new", BOB),
    "below nothing": ("other/new", BOB),
    "not for this person": ("team/new", BOB),
    "for nobody": ("people/mallory/x", NOBODY),
    "the inner namespace counts": ("team/closed/new", ALICE),
    "below another person": ("people/alice/x", BOB),
    "without a name": ("people/bob", BOB),
    "directly in people": ("people/x", BOB),
    "deeper": ("people/bob/x/y", BOB),
}


@pytest.mark.parametrize(("path", "principal"), REFUSED.values(), ids=REFUSED)
def test_and_nowhere_else(path: str, principal: Principal) -> None:
    with pytest.raises(AccessDeniedError):
        rules.check_creation(path, principal, STATIC, NONE)


def test_a_refusal_says_where_the_person_may() -> None:
    with pytest.raises(AccessDeniedError, match=r"You may at open/NAME or people/bob/NAME\."):
        rules.check_creation("x", BOB, STATIC, NONE)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/people/bob/x",
        "people/bob/../x",
        "people/bob/X",
        "people/bob/x.hg",
        "people/bob/.hg",
        "people/bob/-x",
        "people//x",
        "people/bob/x\n",
        "people/bob/x y",
        "people/bob/%2e",
        "static/x",
        "people/bob/" + "a" * 200,
        "people/bob/\xe9",
        "people/bob/x/",
    ],
)
def test_a_path_that_no_registry_would_have_is_refused(path: str) -> None:
    with pytest.raises((UsageError, AccessDeniedError)) as refused:
        rules.check_creation(path, BOB, STATIC, NONE)
    assert str(refused.value).isascii()
    assert str(refused.value).isprintable()


TAKEN: dict[str, Any] = {
    "one of the inventory": ("team/tool", ALICE, NONE),
    "inside one of the inventory": ("team/tool/x", ALICE, NONE),
    "a namespace": ("team/closed", ALICE, NONE),
    "one that somebody created": ("open/x", BOB, entries(open__x=Entry("alice", "", MADE))),
    "inside it": ("open/x/y", BOB, entries(open__x=Entry("alice", "", MADE))),
    "above it": ("open/x", BOB, entries(open__x__y=Entry("alice", "", MADE))),
    "a private one": ("open/x", BOB, entries(open__x=Entry("alice", "", MADE, read=()))),
    "one that another has archived": (
        "open/x",
        BOB,
        entries(open__x=Entry("alice", "", MADE, archived=MADE)),
    ),
}


@pytest.mark.parametrize(("path", "principal", "found"), TAKEN.values(), ids=TAKEN)
def test_a_taken_name_is_not_available_whatever_has_it(
    path: str, principal: Principal, found: Dynamic
) -> None:
    with pytest.raises(AccessDeniedError) as refused:
        rules.check_creation(path, principal, STATIC, found)
    assert str(refused.value) == f"The name {path} is not available: choose another one."


def test_an_entry_that_makes_no_sense_still_has_its_name() -> None:
    broken = user_repositories.parse(b'{"format": 1, "repositories": {"open/x": 7}}', "test")
    with pytest.raises(AccessDeniedError, match="not available"):
        rules.check_creation("open/x", BOB, STATIC, broken)


def test_a_person_is_told_of_what_they_archived_themselves() -> None:
    mine = entries(people__bob__x=Entry("bob", "", MADE, archived=MADE))
    with pytest.raises(AccessDeniedError, match="repo restore people/bob/x"):
        rules.check_creation("people/bob/x", BOB, STATIC, mine)


def test_the_quota_counts_what_one_person_owns_below_the_namespace() -> None:
    two = entries(
        people__bob__a=Entry("bob", "", MADE),
        people__bob__b=Entry("bob", "", MADE, archived=MADE),
        people__carol__c=Entry("carol", "", MADE),
        open__d=Entry("bob", "", MADE),
    )
    with pytest.raises(AccessDeniedError) as refused:
        rules.check_creation("people/bob/c", BOB, STATIC, two)
    assert "You own 2 repositories below people, 1 of them archived" in str(refused.value)
    assert "the limit is 2" in str(refused.value)
    rules.check_creation("open/e", BOB, STATIC, two)
    rules.check_creation("people/alice/c", ALICE, STATIC, two)


# --- for whom to read -----------------------------------------------------------------------


def source(read: model.Read) -> model.Repository:
    return model.Repository("staff/plans", "", read, (), publishing=True, bundles=())


@pytest.mark.parametrize(
    ("asked", "inherited", "expected"),
    [
        (None, "public", None),
        (None, ("team",), None),
        ("public", "public", "public"),
        ("private", "public", ()),
        ("staff,team", "public", ("staff", "team")),
        ("staff,staff", ("team",), ("staff",)),
    ],
)
def test_readers_of_a_new_repository(
    asked: str | None, inherited: model.Read, expected: model.Read | None
) -> None:
    assert rules.readers(asked, inherited) == expected


def test_a_repository_is_never_more_public_than_its_namespace() -> None:
    with pytest.raises(AccessDeniedError, match="cannot be public"):
        rules.readers("public", ("team",))


@pytest.mark.parametrize("asked", ["", "a b", "A", ",", "staff,", "public,staff", "-x", "é"])
def test_readers_that_are_no_groups(asked: str) -> None:
    with pytest.raises(UsageError):
        rules.readers(asked, "public")


@pytest.mark.parametrize(
    ("asked", "read", "expected"),
    [
        (None, ("staff", "team"), ("staff", "team")),
        (None, (), ()),
        ("private", ("staff",), ()),
        ("team", ("staff", "team"), ("team",)),
        (None, "public", None),
        ("public", "public", "public"),
        ("staff", "public", ("staff",)),
    ],
)
def test_a_fork_has_at_most_the_readers_of_its_source(
    asked: str | None, read: model.Read, expected: model.Read | None
) -> None:
    assert rules.readers(asked, "public", source(read)) == expected


@pytest.mark.parametrize(
    ("asked", "read"),
    [
        ("public", ("staff",)),
        ("public", ()),
        ("team", ("staff",)),
        ("staff", ()),
        ("a,staff", ("staff",)),
    ],
)
def test_and_never_more(asked: str, read: tuple[str, ...]) -> None:
    with pytest.raises(AccessDeniedError):
        rules.readers(asked, "public", source(read))


# --- answers that only read -----------------------------------------------------------------


@pytest.fixture
def context(tmp_path: Path) -> Context:
    (tmp_path / "registry.json").write_text(dump_compiled(STATIC))
    (tmp_path / "dynamic").mkdir()
    with dynamic_update.update(tmp_path / "dynamic/registry.json") as found:
        found["people/bob/x"] = Entry("bob", "Mine", MADE, read=())
        found["people/bob/old"] = Entry("bob", "Old", MADE, archived=MADE)
        found["people/carol/y"] = Entry("carol", "Carol's", MADE)
        found["people/carol/z"] = Entry("carol", "Carol's secret", MADE, read=())
    return Context(
        BOB,
        str(tmp_path / "registry.json"),
        str(tmp_path / "dynamic/registry.json"),
        str(tmp_path / "repos"),
        str(tmp_path / "hgrc"),
        "SHA256:" + "a" * 43,
    )


def ask(context: Context, line: str) -> str:
    found = call(line)
    return found.command.run(context, found)


def test_whoami_names_groups_rights_and_what_is_left_of_the_quota(context: Context) -> None:
    assert ask(context, "whoami").splitlines() == [
        "name:      bob",
        "groups:    sandbox",
        "may push:  people/bob/x",
        "may read:  hgfleet, people/bob/x, people/carol/y",
        "create at: open/NAME (0 of 20 used), people/bob/NAME (2 of 2 used)",
    ]


def test_a_person_who_may_do_nothing_reads_that(context: Context) -> None:
    said = ask(Context(NOBODY, context.registry, context.dynamic, "", ""), "whoami")
    assert "may push:  nothing\n" in said
    assert "create at: nothing\n" in said


def test_a_long_list_is_cut() -> None:
    assert commands._listed([f"r{n:03}" for n in range(50)]).endswith("r019 and 30 more")


def test_a_login_is_greeted(context: Context) -> None:
    said = commands.greeting(context, argv.Call(commands.GREETING))
    assert said.startswith("Hello bob: your key works.\n\nname:      bob\n")
    assert "help" in said


def test_keys_shows_the_one_of_this_session(context: Context) -> None:
    assert f"This session's key:  SHA256:{'a' * 43}\n" in ask(context, "keys")


def test_list_shows_what_may_be_read_and_nothing_else(context: Context) -> None:
    assert ask(context, "repo list") == (
        "hgfleet         read           The service\n"
        "people/bob/x    push, private  Mine\n"
        "people/carol/y  read           Carol's\n"
    )
    assert ask(context, "repo list carol") == "people/carol/y  read  Carol's\n"
    assert ask(context, "repo list h*t") == "hgfleet  read  The service\n"
    assert ask(context, "repo list --mine") == "people/bob/x  push, private  Mine\n"
    assert ask(context, "repo list --archived") == "people/bob/old  archived 2026-11-21  Old\n"
    assert ask(context, "repo list plans") == "No repositories.\n"


@pytest.mark.parametrize(
    "path", ["staff/plans", "people/carol/z", "people/bob/old", "no/such", "..", "/"]
)
@pytest.mark.parametrize("command", ["info", "archive", "describe", "fork"])
def test_what_is_hidden_is_answered_as_what_does_not_exist(
    context: Context, command: str, path: str
) -> None:
    more = {"describe": " text", "fork": " open/f"}.get(command, "")
    with pytest.raises(AccessDeniedError) as refused:
        ask(context, f"repo {command} {path}{more}")
    shown = argv.shown(path.strip("/"))
    assert str(refused.value).startswith(f"There is no repository {shown} here for bob.")


@pytest.mark.parametrize("path", ["people/carol/z", "people/carol/y", "hgfleet", "no/such"])
def test_only_what_is_ones_own_is_restored(context: Context, path: str) -> None:
    with pytest.raises(AccessDeniedError, match=r"There is no repository .* here for bob"):
        ask(context, f"repo restore {path}")


def test_what_belongs_to_others_is_left_to_them(context: Context) -> None:
    with pytest.raises(AccessDeniedError, match="belongs to carol, who alone"):
        ask(context, "repo archive people/carol/y")
    with pytest.raises(AccessDeniedError, match="ask an operator"):
        ask(context, "repo describe hgfleet Mine now")


def test_info_says_all_of_an_entry(context: Context) -> None:
    said = dict(line.split(":", 1) for line in ask(context, "repo info people/bob/x").splitlines())
    assert {name: value.strip() for name, value in said.items()} == {
        "path": "people/bob/x",
        "description": "Mine",
        "owner": "bob",
        "may read": "bob",
        "may push": "bob",
        "policies": "none",
        "created": MADE,
        "clone": "hg clone ssh://hg@HOST/people/bob/x",
    }


def test_archived_is_out_of_service_at_once(context: Context) -> None:
    assert "Archived people/bob/x" in ask(context, "repo archive people/bob/x")
    again = user_repositories.load_effective(context.registry, context.dynamic)
    assert "people/bob/x" not in again.repositories
    entry = user_repositories.load(context.dynamic).repositories["people/bob/x"]
    assert entry.archived is not None
    assert entry.description == "Mine"


@pytest.mark.parametrize("text", ["a\u202eb", "x" * 201])
def test_a_description_that_would_spoil_pages_and_terminals_is_refused(
    context: Context, text: str
) -> None:
    with pytest.raises(UsageError):
        ask(context, f"repo describe people/bob/x {text}")
    assert (
        user_repositories.load(context.dynamic).repositories["people/bob/x"].description == "Mine"
    )


def test_a_damaged_dynamic_registry_stops_changes_and_nothing_else(
    context: Context, tmp_path: Path
) -> None:
    (tmp_path / "dynamic/registry.json").write_text("half")
    assert "create at: nothing at the moment\n" in ask(context, "whoami")
    assert ask(context, "repo list") == "hgfleet  read  The service\n"
    with pytest.raises(RegistryError):
        ask(context, "repo create people/bob/new")
    assert (tmp_path / "dynamic/registry.json").read_text() == "half"
