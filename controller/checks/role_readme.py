"""Writes the README.md of every role from meta/argument_specs.yml and defaults/main.yml.

    python -m controller.checks.role_readme            write the READMEs that are not up to date
    python -m controller.checks.role_readme --check    say which are not, write nothing; exit code 1
    python -m controller.checks.role_readme ssh web    only these roles

The argument specs are the manual of a role, so it is an error if a variable is in only one of the
two files: every variable either has a default or is required.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[2]
ROLES = ROOT / "ansible/roles"

LONGEST_IN_TABLE = 60
"""Characters; a longer default makes a table unreadable and is shown below it."""

COMMAND = "python -m controller.checks.role_readme"


class SpecError(Exception):
    """The files of a role do not fit each other."""


class _Loader(yaml.SafeLoader):
    """Defaults may carry Ansible's tags; for a manual their text is enough."""


def _plain(loader: yaml.SafeLoader, _suffix: str, node: yaml.Node) -> object:
    if isinstance(node, yaml.ScalarNode):
        return node.value
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    assert isinstance(node, yaml.MappingNode)
    return loader.construct_mapping(node, deep=True)


_Loader.add_multi_constructor("!", _plain)


def read(path: Path) -> dict[str, Any]:
    """Read a YAML mapping; a missing or empty file is an empty mapping."""
    if not path.exists():
        return {}
    data = yaml.load(path.read_text("utf-8"), Loader=_Loader)  # noqa: S506  (a SafeLoader)
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise SpecError(f"{path}: got {type(data).__name__}, expected a mapping")
    return data


def markup(text: str) -> str:
    """Turn Ansible's markup for documentation into Markdown: C(x), O(x), V(x), B(x), U(x)..."""
    text = re.sub(r"\b[COVPM]\(((?:[^()]|\([^()]*\))*)\)", r"`\1`", text)
    text = re.sub(r"\bB\(([^()]*)\)", r"**\1**", text)
    text = re.sub(r"\bI\(([^()]*)\)", r"*\1*", text)
    text = re.sub(r"\bU\(([^()]*)\)", r"<\1>", text)
    return re.sub(r"\bL\(([^,()]*), *([^()]*)\)", r"[\1](\2)", text)


def paragraphs(text: object) -> list[str]:
    """Descriptions are a text or a list of texts."""
    if text is None:
        return []
    values = text if isinstance(text, list) else [text]
    return [markup(" ".join(str(value).split())) for value in values]


def render_value(value: object) -> str:
    """Render a default as it would be written in an inventory."""
    if isinstance(value, str):
        return value or '""'
    return json.dumps(value, ensure_ascii=False)


def render_type(option: dict[str, Any]) -> str:
    """Render "list of dict" and the like."""
    kind = str(option.get("type", "str"))
    return f"{kind} of {option['elements']}" if "elements" in option else kind


def flatten(
    options: dict[str, dict[str, Any]], prefix: str = ""
) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Every option with its inner options, named as O() names them; the flag is "at the top"."""
    for name, option in options.items():
        yield prefix + name, option, not prefix
        inner = "[]." if option.get("type") == "list" else "."
        yield from flatten(option.get("options") or {}, prefix + name + inner)


def problems(role: Path, options: dict[str, Any], defaults: dict[str, Any]) -> list[str]:
    """Say where the two files of a role disagree, and which options have no description."""
    texts = []
    for name, option in options.items():
        if option.get("required") and name in defaults:
            texts.append(f"{name} is required and has a default")
        if not option.get("required") and name not in defaults:
            texts.append(f"{name} is neither required nor in defaults/main.yml")
    texts += [
        f"{name} is in defaults/main.yml and not in meta/argument_specs.yml"
        for name in defaults
        if name not in options and not name.startswith("_")
    ]
    texts += [
        f"{name} has no description"
        for name, option, _ in flatten(options)
        if not paragraphs(option.get("description"))
    ]
    return [f"{role.name}: {text}" for text in texts]


def cell(text: str) -> str:
    """Keep a text inside its cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def code(text: str) -> str:
    """Render inline code, with any number of backticks in it."""
    if "`" not in text:
        return f"`{text}`"
    return f"`` {text} ``"


def render(role: Path) -> str:
    """Render the README of a role; raises SpecError with everything that does not fit."""
    specs = read(role / "meta/argument_specs.yml").get("argument_specs") or {}
    if "main" not in specs:
        raise SpecError(f"{role.name}: meta/argument_specs.yml has no entry point `main`")
    main = specs["main"]
    options = main.get("options") or {}
    defaults = read(role / "defaults/main.yml")
    wrong = problems(role, options, defaults)
    if wrong:
        raise SpecError("\n".join(wrong))
    lines = [
        f"<!-- Generated from meta/argument_specs.yml and defaults/main.yml by `{COMMAND}`. -->",
        "",
        f"# {role.name}: {markup(str(main.get('short_description', ''))).rstrip('.')}",
        "",
    ]
    for text in paragraphs(main.get("description")):
        lines += [text, ""]
    lines += list(_variables(options, defaults))
    others = {name: spec for name, spec in specs.items() if name != "main"}
    if others:
        lines += ["## Other entry points", ""]
        for name, spec in sorted(others.items()):
            text = " ".join(
                [
                    markup(str(spec.get("short_description", ""))),
                    *paragraphs(spec.get("description")),
                ]
            )
            lines.append(f"- `tasks_from: {name}`: {text}")
        lines.append("")
    scenarios = sorted(path.parent.name for path in role.glob("molecule/*/molecule.yml"))
    if scenarios:
        lines += [
            "## Tests",
            "",
            f"`./run-tests roles:{role.name}` converges a throw-away host with this role, and",
            "checks it with",
            f"[test_{role.name}.py](../../../testing/roles/test_{role.name}.py). `./run-tests e2e`",
            "runs the same file on the hosts of the local cluster.",
            "",
        ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _variables(options: dict[str, Any], defaults: dict[str, Any]) -> Iterator[str]:
    if not options:
        yield from ("It has no variables.", "")
        return
    yield from ("## Variables", "", "| variable | type | default | meaning |", "|---|---|---|---|")
    long: dict[str, object] = {}
    for name, option, top in flatten(options):
        if option.get("required"):
            default = "**required**"
        elif top:
            text = render_value(defaults[name])
            default = code(text)
            if len(text) > LONGEST_IN_TABLE or "\n" in text:
                default = "see below"
                long[name] = defaults[name]
        elif "default" in option:
            default = code(render_value(option["default"]))
        else:
            default = ""
        meaning = " ".join(paragraphs(option.get("description")))
        if "choices" in option:
            meaning += f" One of {', '.join(code(str(choice)) for choice in option['choices'])}."
        columns = (code(name), render_type(option), default, meaning)
        yield "| " + " | ".join(cell(column) for column in columns) + " |"
    yield ""
    if long:
        yield from ("### Longer defaults", "", "```yaml")
        for name, value in long.items():
            yield yaml.safe_dump(
                {name: value}, sort_keys=False, allow_unicode=True, width=100
            ).rstrip("\n")
        yield from ("```", "")


def main(arguments: Sequence[str] | None = None, roles: Path = ROLES) -> int:
    """Write or check; the exit code is 1 if something is (or stays) wrong."""
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, say what is stale")
    parser.add_argument("roles", nargs="*", metavar="ROLE", help="all of them by default")
    options = parser.parse_args(arguments)
    known = {
        path.parents[1].name: path.parents[1] for path in sorted(roles.glob("*/meta/main.yml"))
    }
    known |= {path.parent.name: path.parent for path in sorted(roles.glob("*/tasks"))}
    unknown = [name for name in options.roles if name not in known]
    if unknown:
        parser.error(f"no such role: {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    failed = False
    for name in options.roles or sorted(known):
        target = known[name] / "README.md"
        try:
            text = render(known[name])
        except (SpecError, yaml.YAMLError) as error:
            print(error, file=sys.stderr)
            failed = True
            continue
        if target.exists() and target.read_text("utf-8") == text:
            continue
        if options.check:
            print(f"{target} is not up to date; {COMMAND} {name} writes it", file=sys.stderr)
            failed = True
        else:
            target.write_text(text, "utf-8")
            print(f"{target} written")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
