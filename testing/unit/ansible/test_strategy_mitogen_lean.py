from __future__ import annotations

import marshal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import ansible
import jinja2
import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.plugins import strategy
from ansible.plugins.loader import (
    action_loader,
    filter_loader,
    init_plugin_loader,
    test_loader,
)
from ansible.template import Templar, trust_as_template

from testing.support import loading

if TYPE_CHECKING:
    from collections.abc import Callable

lean = loading.module("ansible/plugins/strategy/mitogen_lean.py")
CODE = compile("1 + 1", "<text>", "eval")


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the texts of the templates that Jinja compiles from now on."""
    done: list[str] = []
    real = jinja2.Environment.compile

    def compile_and_note(self: Any, source: Any, *rest: Any) -> Any:
        done.append(str(source))
        return real(self, source, *rest)

    monkeypatch.setattr(jinja2.Environment, "compile", compile_and_note)
    return done


@pytest.fixture
def render(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that fills in a template as a task does, with code kept on disk."""
    environment = lean.jinja_bits.AnsibleEnvironment
    monkeypatch.setattr(environment, "compile", environment.compile)
    lean.keep_compiled_templates(lean.CompiledTemplates(tmp_path / "cache", b"state"))

    def filled_in(text: str, **variables: Any) -> Any:
        templar = Templar(loader=DataLoader(), variables=variables)
        return templar.template(trust_as_template(text))

    return filled_in


def test_a_template_is_compiled_once_and_filled_in_with_the_values_of_each_task(
    compilations: list[str], render: Callable[..., Any]
) -> None:
    assert render("{{ name | upper }}", name="hg1") == "HG1"
    assert render("{{ name | upper }}", name="hg2") == "HG2"
    assert compilations == ["{{ name | upper }}"]


def test_a_condition_is_evaluated_anew(render: Callable[..., Any]) -> None:
    text = "{% if 'web' in groups %}yes{% else %}no{% endif %}"
    assert [render(text, groups=groups) for groups in (["web"], [])] == ["yes", "no"]


def test_text_that_differs_in_how_it_is_read_has_code_of_its_own() -> None:
    plain = jinja2.Environment(autoescape=True)
    keys = {
        lean.key_of(plain, "a {{ b }}", defer_init=False),
        lean.key_of(plain, "a {{ c }}", defer_init=False),
        lean.key_of(plain, "a {{ b }}", defer_init=True),
        lean.key_of(plain.overlay(trim_blocks=True), "a {{ b }}", defer_init=False),
        lean.key_of(plain.overlay(variable_start_string="[["), "a {{ b }}", defer_init=False),
    }
    with lean.jinja_bits._TemplateCompileContext(escape_backslashes=True):
        keys.add(lean.key_of(plain, "a {{ b }}", defer_init=False))
    assert len(keys) == 6


def test_code_is_read_back(tmp_path: Path) -> None:
    templates = lean.CompiledTemplates(tmp_path, b"state")
    templates.write("key", CODE)
    assert templates.read("key") == CODE
    assert templates.read("another") is None
    assert templates.folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "content", [b"", b"no code", marshal.dumps(CODE)[:-9], marshal.dumps(["no", "code"])]
)
def test_a_broken_file_is_no_code(tmp_path: Path, content: bytes) -> None:
    templates = lean.CompiledTemplates(tmp_path, b"state")
    (templates.folder / "key").write_bytes(content)
    assert templates.read("key") is None


def test_code_of_another_state_goes(tmp_path: Path) -> None:
    former = lean.CompiledTemplates(tmp_path, b"former")
    former.write("key", CODE)
    now = lean.CompiledTemplates(tmp_path, b"now")
    assert now.read("key") is None
    assert list(tmp_path.iterdir()) == [now.folder]
    former.write("key", CODE)
    assert former.read("key") is None


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    templates = lean.CompiledTemplates(tmp_path / "file", b"state")
    templates.write("key", CODE)
    assert templates.read("key") is None


def test_the_state_is_that_of_the_locks_and_filters(tmp_path: Path) -> None:
    filters = tmp_path / "ansible/plugins/filter"
    filters.mkdir(parents=True)
    lock = tmp_path / "requirements.txt"
    states = set()
    for file, text in ((lock, "1"), (lock, "2"), (filters / "a.py", "1"), (filters / "a.py", "2")):
        file.write_text(text)
        states.add(lean.state_of_compilers(tmp_path))
    assert len(states) == 4


def test_a_file_is_searched_once_and_the_same_imports_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finder = lean.ansible_mitogen.module_finder
    top = Path(ansible.__file__).parent

    def imports_of_modules() -> list[Any]:
        return [
            finder.scan(f"ansible.modules.{name}", str(top / f"modules/{name}.py"), (folder,))
            for name in ("copy", "file", "command")
        ]

    folder = str(top / "module_utils")
    before = imports_of_modules()
    read: list[str] = []
    real = compile

    def compile_and_note(text: bytes, name: str, mode: str) -> Any:
        read.append(name)
        return real(text, name, mode)

    monkeypatch.setattr(lean.builtins, "compile", compile_and_note)
    monkeypatch.setattr(finder, "compile", compile_and_note, raising=False)
    monkeypatch.setattr(finder, "walk_imports", finder.walk_imports)
    lean.search_each_file_once()
    assert imports_of_modules() == before
    assert len(read) == len(set(read)) > len(before)


def test_a_task_finds_the_plugins_loaded_that_most_tasks_need() -> None:
    init_plugin_loader()
    lean.load_plugins()
    before = set(sys.modules)
    names = {
        plugin.ansible_name for loader in (filter_loader, test_loader) for plugin in loader.all()
    }
    assert {"ansible.builtin.regex_replace", "ansible.builtin.match"} <= names
    assert action_loader.get("template", class_only=True) is not None
    assert set(sys.modules) == before


def test_sources_of_mitogen_keep_their_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lean.mitogen.minify, "minimize_source", None)
    lean.send_sources_as_they_are()
    assert lean.mitogen.minify.minimize_source(b"a = 1  # \xc3\xa4") == "a = 1  # \u00e4"


def test_no_collection_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = lean.ansible_mitogen.planner
    monkeypatch.setattr(planner, "_load_collections", planner._load_collections)
    monkeypatch.setattr(planner.ansible.collections.list, "list_collection_dirs", None)
    lean.look_for_no_collections()
    invocation = SimpleNamespace(_extra_sys_paths=set())
    planner._load_collections(invocation)
    assert invocation._extra_sys_paths == set()


def test_the_controller_sleeps_longer_while_a_task_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(lean.constants, "DEFAULT_INTERNAL_POLL_INTERVAL", 0.001)
    monkeypatch.setattr(strategy.time, "sleep", slept.append)
    lean.ask_less_often()
    manager = SimpleNamespace(_terminated=False, has_dead_workers=bool)
    running = SimpleNamespace(_pending_results=1, _tqm=manager)

    def ended(_iterator: object) -> list[object]:
        running._pending_results = 0 if slept else 1
        return []

    running._process_pending_results = ended
    strategy.StrategyBase._wait_on_pending_results(running, None)
    assert slept == [0.01]


def test_ssh_args_decide_how_soon_a_lost_connection_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = lean.mitogen.ssh.Options
    monkeypatch.setattr(options, "__init__", options.__init__)

    lean.leave_keepalive_to_ssh_args()

    made = options(hostname="hg1", max_message_size=1, ssh_args=["-o", "ServerAliveInterval=15"])
    assert not made.keepalive_enabled
    assert made.ssh_args == ["-o", "ServerAliveInterval=15"]
