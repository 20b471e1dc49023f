"""Mitogen's linear strategy, without work that every task of a run would do again.

Ansible forks a process for each task on each host, and what such a process finds out ends with it.
These changes to Ansible and Mitogen leave out what costs most (by profiles of site.yml):

- Jinja templates that any process has compiled are kept in `.cache/ansible`, as Python keeps its
  bytecode.
- The process of a task ends soon, so it collects no garbage: that would copy the memory that it
  shares with the controller.
- Plugins that most tasks need are loaded before the first of them begins.
- A file that many modules import is searched for its own imports once a run, not once a module.
- A module of a collection is found without the metadata of a hundred others.
- Mitogen sends its own modules with their comments: taking them out takes over a second a run.
- The controller asks 100 times a second, not 1,000 times, whether a task has ended.
- No process is pinned to a processor. On a machine with two, Mitogen pins its multiplexer to the
  first and all other processes of the controller to the second.

Measured on two cores: a run of site.yml that changes nothing on ten hosts, three times each by
turns. With this strategy 52 to 54 s and 57 to 60 s of the controller's processors; with Mitogen's
own 92 to 98 s and 84 to 91 s. So Mitogen's own takes 79 % longer.

And ssh_args of ansible.cfg decides how soon a lost connection is noticed, as without Mitogen, which
would wait for five minutes.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import gc
import hashlib
import importlib.util
import marshal
import os
import shutil
import threading
from pathlib import Path
from types import CodeType
from typing import Any

import ansible._internal._templating._jinja_bits as jinja_bits
import ansible_mitogen.affinity
import ansible_mitogen.loaders
import ansible_mitogen.module_finder
import ansible_mitogen.planner
import ansible_mitogen.strategy
import jinja2
import mitogen.minify
import mitogen.ssh
from ansible import constants
from ansible.executor.process.worker import WorkerProcess
from ansible.module_utils.common.text.converters import to_text
from ansible.plugins.loader import action_loader, connection_loader, filter_loader, test_loader

DOCUMENTATION = """
    name: mitogen_lean
    short_description: Mitogen's linear strategy without repeated work
    description:
      - Runs tasks as the strategy linear does, through Mitogen. Compiled templates are kept between
        tasks and runs, forked processes collect no garbage, no process is pinned to a processor.
    author: hgfleet
"""

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".cache/ansible"


class CompiledTemplates:
    """Code of Jinja templates, a file each, in a folder for each state of all that compiles them.

    A user who can write there can run code as the operator, so the folder is only for its owner.
    Without a folder that can be written, every process compiles for itself.
    """

    def __init__(self, cache: Path, state: bytes) -> None:
        self.folder = cache / f"templates-{hashlib.sha256(state).hexdigest()[:16]}"
        if self.folder.is_dir():
            return
        for former in cache.glob("templates-*"):
            shutil.rmtree(former, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def read(self, key: str) -> CodeType | None:
        """Return the code that was kept under a key, or None."""
        try:
            code = marshal.loads((self.folder / key).read_bytes())  # noqa: S302  # our own files
        except (OSError, ValueError, EOFError, TypeError):
            return None
        return code if isinstance(code, CodeType) else None

    def write(self, key: str, code: CodeType) -> None:
        """Keep code under a key; another process may do so at the same time."""
        made = self.folder / f"{key}.{os.getpid()}.{threading.get_ident()}"
        with contextlib.suppress(OSError):
            made.write_bytes(marshal.dumps(code))
            made.replace(self.folder / key)


def state_of_compilers(root: Path) -> bytes:
    """Return the state that decides, together with its text, how a template compiles.

    Python, the locked versions of Ansible, Jinja and the collections, and our own filters, since
    code depends on which arguments a filter asks for.
    """
    filters = sorted((root / "ansible/plugins/filter").glob("*.py"))
    files = [root / "requirements.txt", *filters, Path(__file__)]
    return b"\0".join([importlib.util.MAGIC_NUMBER, *(file.read_bytes() for file in files)])


def key_of(environment: jinja2.Environment, source: str, *, defer_init: bool) -> str:
    """Return the name of a template's code: a hash of its text and of the syntax it is in."""
    context = jinja_bits._TemplateCompileContext.current(optional=True)  # noqa: SLF001
    syntax = [
        *(environment.block_start_string, environment.block_end_string),
        *(environment.variable_start_string, environment.variable_end_string),
        *(environment.comment_start_string, environment.comment_end_string),
        *(environment.line_statement_prefix, environment.line_comment_prefix),
        *(environment.trim_blocks, environment.lstrip_blocks, environment.newline_sequence),
        environment.keep_trailing_newline,
    ]
    escapes = context is not None and context.escape_backslashes
    text = repr((str(source), syntax, escapes, defer_init))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def keep_compiled_templates(templates: CompiledTemplates) -> None:
    """Make Ansible look for the code of a template before it compiles it."""
    compile_anew = jinja2.Environment.compile

    def compiled(  # as jinja2.Environment.compile has them
        environment: jinja2.Environment,
        source: Any,
        name: str | None = None,
        filename: str | None = None,
        raw: bool = False,
        defer_init: bool = False,
    ) -> Any:
        # A condition comes parsed, so it has no text to be found by; a named template keeps a name.
        if raw or name or filename or not isinstance(source, str):
            return compile_anew(environment, source, name, filename, raw, defer_init)
        key = key_of(environment, source, defer_init=defer_init)
        code = templates.read(key)
        if code is None:
            code = compile_anew(environment, source, name, filename, raw, defer_init)
            templates.write(key, code)
        return code

    jinja_bits.AnsibleEnvironment.compile = compiled


def search_each_file_once() -> None:
    """Make Mitogen remember which imports it found in a file of Ansible's."""
    finder = ansible_mitogen.module_finder
    walk = finder.walk_imports
    # The built-in function under its own name: the module has no other place to replace it.
    finder.compile = functools.cache(builtins.compile)
    finder.walk_imports = functools.cache(lambda code, prefix=None: tuple(walk(code, prefix)))


def collect_no_garbage_in_workers() -> None:
    """Make the process of a task collect no garbage; Mitogen's own, which stay, go on."""
    run = WorkerProcess._run  # noqa: SLF001

    def run_without(self: WorkerProcess) -> Any:
        gc.disable()
        return run(self)

    WorkerProcess._run = run_without  # noqa: SLF001


def look_for_no_collections() -> None:
    """Keep Mitogen from reading the metadata of every collection before a module of a collection.

    It would append their folders to `sys.path`, but all collections are packages of the controller
    environment, which Python finds there anyway.
    """
    ansible_mitogen.planner._load_collections = lambda _invocation: None  # noqa: SLF001


def send_sources_as_they_are() -> None:
    """Keep Mitogen from taking the comments out of its own modules at the start of each run.

    Compressed, they are 93 KB for a host with comments and 42 KB without.
    """
    mitogen.minify.minimize_source = to_text


def ask_less_often() -> None:
    """Let the controller sleep for 10 ms, not 1 ms, between looks at whether a task has ended."""
    constants.DEFAULT_INTERNAL_POLL_INTERVAL = 0.01


def leave_keepalive_to_ssh_args() -> None:
    """Give ssh no option of Mitogen's that comes before the same option in ssh_args."""
    mitogen.ssh.Options.__init__ = functools.partialmethod(
        mitogen.ssh.Options.__init__, keepalive_enabled=False
    )


@functools.cache
def change_ansible() -> None:
    """Change Ansible and Mitogen in this process and those that it forks."""
    keep_compiled_templates(CompiledTemplates(CACHE, state_of_compilers(ROOT)))
    search_each_file_once()
    collect_no_garbage_in_workers()
    look_for_no_collections()
    send_sources_as_they_are()
    ask_less_often()
    ansible_mitogen.affinity.policy = ansible_mitogen.affinity.Policy()
    leave_keepalive_to_ssh_args()


PLUGINS = (
    (action_loader, ("normal", "copy", "template", "include_tasks")),
    (connection_loader, ("mitogen_docker", "mitogen_local", "mitogen_ssh")),
)
"""Plugins that the processes of most tasks load."""


@functools.cache
def load_plugins() -> None:
    """Load the plugins that nearly every process of a task would load for itself."""
    for loader in (filter_loader, test_loader):
        list(loader.all())
    for loader, names in PLUGINS:
        for name in names:
            loader.get(name, class_only=True)


Linear = ansible_mitogen.loaders.strategy_loader.get("linear", class_only=True)


class LoadedLinear(Linear):  # type: ignore[misc]
    """The linear strategy, which begins with all plugins loaded that most tasks need."""

    def run(self, *arguments: Any) -> Any:
        """Run a play; arguments and result are as in Ansible's strategies."""
        load_plugins()
        return super().run(*arguments)


class StrategyModule(ansible_mitogen.strategy.StrategyMixin, LoadedLinear):  # type: ignore[misc]
    """Mitogen's linear strategy."""

    def __init__(self, tqm: Any) -> None:
        change_ansible()
        super().__init__(tqm)
