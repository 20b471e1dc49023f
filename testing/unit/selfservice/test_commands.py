"""Commands that only read, and refusals of commands that change something."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hgfleet.core.errors import AccessDeniedError, RegistryError, UsageError
from hgfleet.policies.rule import Rule
from hgfleet.registry.dynamic import dynamic_update, user_repositories
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.selfservice import argv, commands, person_commands
from hgfleet.selfservice.command import Call, understand
from hgfleet.selfservice.context import Context
from testing.unit.selfservice.selfservice_registry import BOB, MADE, NOBODY, STATIC


def call(line: str) -> Call:
    understood = understand(line, commands.COMMANDS)
    assert understood is not None
    return understood


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


@pytest.fixture
def context(tmp_path: Path) -> Context:
    (tmp_path / "registry.json").write_text(dump_compiled(STATIC))
    (tmp_path / "dynamic").mkdir()
    with dynamic_update.update(tmp_path / "dynamic/registry.json") as dynamic:
        dynamic["people/bob/x"] = Entry("bob", "Mine", MADE, read=())
        dynamic["people/bob/old"] = Entry("bob", "Old", MADE, archived=MADE)
        dynamic["people/carol/y"] = Entry("carol", "Carol's", MADE)
        dynamic["people/carol/z"] = Entry("carol", "Carol's secret", MADE, read=())
    return Context(
        BOB,
        str(tmp_path / "registry.json"),
        str(tmp_path / "dynamic/registry.json"),
        str(tmp_path / "repos"),
        str(tmp_path / "hgrc"),
        "SHA256:" + "a" * 43,
    )


def ask(context: Context, line: str) -> str:
    understood = call(line)
    return understood.command.run(context, understood)


def test_whoami_names_groups_permissions_and_the_used_quota(context: Context) -> None:
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
    assert person_commands._listed([f"r{n:03}" for n in range(50)]).endswith("r019 and 30 more")


def test_a_login_is_greeted(context: Context) -> None:
    said = person_commands.greeting(context, Call(commands.GREETING))
    assert said.startswith("Hello bob: your key works.\n\nname:      bob\n")
    assert "help" in said


def test_keys_shows_the_one_of_this_session(context: Context) -> None:
    assert f"This session's key:  SHA256:{'a' * 43}\n" in ask(context, "keys")


def test_list_shows_only_readable_repositories(context: Context) -> None:
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
def test_a_hidden_repository_is_answered_as_a_missing_one(
    context: Context, command: str, path: str
) -> None:
    more = {"describe": " text", "fork": " open/f"}.get(command, "")
    with pytest.raises(AccessDeniedError) as refused:
        ask(context, f"repo {command} {path}{more}")
    shown = argv.quoted(path.strip("/"))
    assert str(refused.value).startswith(f"There is no repository {shown} here for bob.")


@pytest.mark.parametrize("path", ["people/carol/z", "people/carol/y", "hgfleet", "no/such"])
def test_only_an_owner_restores_a_repository(context: Context, path: str) -> None:
    with pytest.raises(AccessDeniedError, match=r"There is no repository .* here for bob"):
        ask(context, f"repo restore {path}")


def test_only_an_owner_changes_a_repository(context: Context) -> None:
    with pytest.raises(AccessDeniedError, match="belongs to carol, and only its owner"):
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
        "drafts": "published by a push",
        "policies": "file-size",
        "created": MADE,
        "clone": "hg clone ssh://hg@HOST/people/bob/x",
    }


def test_info_says_each_rule(context: Context) -> None:
    rules = (
        Rule(("release",), branches=("stable",), paths=("doc",)),
        Rule(("release",), tags=("v*",)),
        Rule((), branches=("old",)),
    )
    ruled = replace(STATIC.repositories["hgfleet"], rules=rules)
    static = replace(STATIC, repositories={**STATIC.repositories, "hgfleet": ruled})
    Path(context.registry).write_text(dump_compiled(static))
    said = dict(line.split(":", 1) for line in ask(context, "repo info hgfleet").splitlines())
    assert {name: value.strip() for name, value in said.items() if "only" in name} == {
        "only members of release": "may push to branches stable and paths doc; to tags v*",
        "only nobody": "may push to branches old",
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
