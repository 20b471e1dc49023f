"""Evaluates `ansible/site.yml` for each host of an inventory, with no host and no connection.

Conditions, loops, arguments and templates are evaluated by Ansible's own templar, with the
variables that a run has. Results of modules and facts come from `results`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ansible._internal._templating import _template_vars
from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.playbook import Playbook
from ansible.playbook.block import Block
from ansible.playbook.helpers import load_list_of_blocks
from ansible.playbook.role_include import IncludeRole
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar, trust_as_template
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

from controller.checks.goldens import results

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parents[3]
SITE: Final = ROOT / "ansible/site.yml"

INCLUDED: Final = re.compile(r"{%-?\s*(?:include|extends|import|from)\s+['\"]([^'\"]+)['\"]")


# Once a process, and after Ansible's settings are in the environment.
init_plugin_loader()


class RenderError(Exception):
    """A task cannot be evaluated; the message names it and the reason."""


@dataclass(frozen=True, slots=True)
class Change:
    """A call of a module that changes a host: its arguments; of a file also content and sources."""

    part: str
    module: str
    arguments: Mapping[str, Any]
    content: str | None = None
    sources: tuple[str, ...] = ()


@dataclass
class Site:
    """An inventory, and the changes that a run of `site.yml` would make to its hosts."""

    inventory: Path
    extra: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.loader = DataLoader()
        self.hosts = InventoryManager(self.loader, sources=[str(self.inventory)])
        self.variables = VariableManager(self.loader, self.hosts)
        # It registers itself with the manager, for variables of other hosts.
        HostVars(self.hosts, self.variables, self.loader)
        for name, value in self.extra.items():
            self.variables.extra_vars[name] = value
        self.variables._options_vars = {"ansible_check_mode": False, "ansible_diff_mode": False}
        for host in self.hosts.get_hosts():
            self.variables.set_host_facts(host.name, results.FACTS)

    def address(self, host: str) -> str:
        """Return the address that other hosts reach a host by."""
        entry = self.hosts.get_host(host)
        known = self.variables.get_vars(host=entry)
        return str(Templar(self.loader, known).template(known.get("base_address", host)))

    def changes(self) -> dict[str, list[Change]]:
        """Return the changes to each host in their order; RenderError if a change is not known."""
        self.loader.set_basedir(str(SITE.parent))
        by_host: dict[str, list[Change]] = {host.name: [] for host in self.hosts.get_hosts()}
        book = Playbook.load(str(SITE), variable_manager=self.variables, loader=self.loader)
        for play in book.get_plays():
            if play.name.startswith("Variables "):
                # The checks of internal/variables.yml change nothing.
                continue
            # A fact of an earlier play may choose hosts, and delegation reads any host's.
            for host in self.hosts.get_hosts(play.hosts):
                if host.name not in by_host:
                    # Plays of the controller check files.
                    continue
                for block in play.compile():
                    for task in self._tasks(play, block, host):
                        by_host[host.name] += self._changes(play, task, host)
        return by_host

    def _tasks(self, play: Any, block: Any, host: Any) -> Iterator[Any]:
        for entry in block.block + block.always:
            if isinstance(entry, Block):
                yield from self._tasks(play, entry, host)
            elif isinstance(entry, IncludeRole):
                # The preflight changes nothing.
                if entry.args.get("tasks_from") != "preflight":
                    yield from self._of_role(play, entry, host)
            elif isinstance(entry, TaskInclude) and not entry.statically_loaded:
                yield from self._included(play, entry, host)
            else:
                yield entry

    def _of_role(self, play: Any, task: Any, host: Any) -> Iterator[Any]:
        for _ in self._calls(play, task, host):
            blocks, _handlers = task.get_block_list(
                play=play, variable_manager=self.variables, loader=self.loader
            )
            for block in blocks:
                yield from self._tasks(play, block, host)

    def _included(self, play: Any, task: Any, host: Any) -> Iterator[Any]:
        for variables in self._calls(play, task, host):
            named = Templar(self.loader, variables).template(task.args)["_raw_params"]
            path = Path(task._role._role_path) / "tasks" / named
            parent = task.copy(exclude_parent=True)
            parent._parent = task._parent
            # Files that the included file imports are looked for in its folder.
            parent.args = {**task.args, "_raw_params": named}
            blocks = load_list_of_blocks(
                self.loader.load_from_file(str(path), trusted_as_template=True),
                play=play,
                parent_block=parent.build_parent_block(),
                role=task._role,
                loader=self.loader,
                variable_manager=self.variables,
            )
            for block in blocks:
                yield from self._tasks(play, block, host)

    def _calls(self, play: Any, task: Any, host: Any) -> Iterator[dict[str, Any]]:
        """Yield the variables of each call of a task: of each item whose condition is true."""
        variables = self.variables.get_vars(play=play, host=host, task=task)
        variables["ansible_search_path"] = [*task.get_search_path(), str(SITE.parent)]
        templar = Templar(self.loader, variables)
        try:
            if task.loop is None:
                if self._holds(task, variables):
                    yield variables
                return
            # A condition that holds for no item need not have items.
            items = templar.template(task.loop)
            name = task.loop_control.loop_var if task.loop_control else "item"
            for item in items:
                own = {**variables, name: item}
                if self._holds(task, own):
                    yield own
        except AnsibleError as error:
            raise RenderError(f"{host.name}: {task.get_path()}: {task.name}: {error}") from error

    def _holds(self, task: Any, variables: dict[str, Any]) -> bool:
        templar = Templar(self.loader, variables)
        return all(templar.evaluate_conditional(condition) for condition in task.when)

    def _changes(self, play: Any, task: Any, host: Any) -> list[Change]:
        changes: list[Change] = []
        registered: list[dict[str, Any]] = []
        module = task.resolved_action or task.action
        name = task.loop_control.loop_var if task.loop_control else "item"
        for variables in self._calls(play, task, host):
            try:
                changes += self._call(task, module, variables, registered, name)
            except AnsibleError as error:
                raise RenderError(
                    f"{host.name}: {task.get_path()}: {task.name}: {error}"
                ) from error
        if module == "ansible.builtin.set_fact":
            facts = {key: value for result in registered for key, value in result["args"].items()}
            self.variables.set_nonpersistent_facts(host.name, facts)
        if task.register:
            self._register(task, host, registered)
        return changes

    def _register(self, task: Any, host: Any, registered: Sequence[dict[str, Any]]) -> None:
        if task.loop is not None:
            value: dict[str, Any] = {"results": list(registered), "changed": False, "failed": False}
        elif registered:
            value = registered[0]
        else:
            value = {"skipped": True, "changed": False, "failed": False}
        self.variables.set_nonpersistent_facts(host.name, {task.register: value})

    def _call(
        self,
        task: Any,
        module: str,
        variables: dict[str, Any],
        registered: list[dict[str, Any]],
        item: str,
    ) -> list[Change]:
        # A delegated task changes the controller, or reads another host.
        reads = module in results.READ_ONLY or task.delegate_to is not None
        if reads and module not in results.RESULTS and module != "ansible.builtin.set_fact":
            registered.append(results.result_of(module, {}))
            return []
        templar = Templar(self.loader, variables)
        arguments = dict(templar.template(task.args))
        registered.append({**results.result_of(module, arguments), "args": arguments})
        if item in variables:
            registered[-1]["item"] = variables[item]
        if reads or module in results.ACTIONS:
            return []
        part = task._role.get_name() if task._role else "site"
        if module == "ansible.builtin.template":
            text, sources = self._render(task, str(arguments.pop("src")), variables)
            return [Change(part, module, arguments, text, sources)]
        content = arguments.pop("content", None) if module == "ansible.builtin.copy" else None
        return [Change(part, module, arguments, content)]

    def _render(
        self, task: Any, source: str, variables: dict[str, Any]
    ) -> tuple[str, tuple[str, ...]]:
        """Return a rendered template, and the paths of it and of the templates that it includes."""
        folder = Path(task._role._role_path) / "templates"
        path = folder / source
        about = _template_vars.generate_ansible_template_vars(path=source, fullpath=str(path))
        known = {**variables, **about}
        text = self.loader.get_text_file_contents(str(path))
        templar = Templar(self.loader, known).copy_with_new_env(
            searchpath=[str(folder)], available_variables=known
        )
        overrides = {"trim_blocks": True, "lstrip_blocks": False, "newline_sequence": "\n"}
        rendered = templar.template(
            trust_as_template(text), escape_backslashes=False, overrides=overrides
        )
        paths = [path, *(folder / name for name in INCLUDED.findall(text))]
        return str(rendered or ""), tuple(str(included.relative_to(ROOT)) for included in paths)
