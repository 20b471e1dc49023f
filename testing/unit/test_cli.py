from __future__ import annotations

import grp
import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from hgfleet import cli
from hgfleet.core import errors
from hgfleet.core.subcommands import Parser

ROOT = Path(__file__).resolve().parents[2]

REGISTRY = """\
version: 1
defaults: {push: [maintainers]}
namespaces:
  sandbox: {push: [maintainers, sandbox]}
repositories:
  hgfleet: {description: Operations}
  sandbox/playground: {description: Something to push to}
"""


@pytest.fixture
def registry_file(tmp_path: Path) -> str:
    file = tmp_path / "registry.yml"
    file.write_text(REGISTRY)
    return str(file)


def hgfleet(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it as a person would."""
    return subprocess.run(
        [sys.executable, "-m", "hgfleet", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_arguments_it_says_what_there_is() -> None:
    done = hgfleet()
    assert done.returncode == 2
    assert "check, show and apply the registry" in done.stderr
    assert "examples:" in done.stderr


def test_each_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ((), ("registry",), ("registry", "apply")):
        with pytest.raises(SystemExit) as caught:
            cli.main([*words, "--help"])
        assert caught.value.code == 0
        assert "examples:" in capsys.readouterr().out


def test_every_help_fills_sentences_and_keeps_examples(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part, and each command of it, has a parser of the same class."""
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        cli.main(["metrics", "--help"])
    shown = capsys.readouterr().out
    assert "Metrics of this host, in Prometheus' text format, out of\n" in shown
    assert "\nexample" in shown
    for part in cli.PARTS:
        (parts,) = (
            action.choices
            for action in cli._parser([part])._actions
            if isinstance(action.choices, dict)
        )
        assert type(parts[part]) is Parser


def test_a_typo_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["regsitry", "check"])
    assert caught.value.code == 2
    assert "regsitry" in capsys.readouterr().err


def test_a_fine_registry_is_called_fine(
    registry_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["registry", "check", registry_file]) == 0
    assert capsys.readouterr().out == f"{registry_file}: fine (2 repositories, 1 namespace)\n"


def test_a_bad_registry_is_data_of_the_wrong_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "registry.yml"
    file.write_text("version: 1\nrepositories: {A: {description: x}, B: {}}\n")
    assert cli.main(["registry", "check", str(file)]) == errors.RegistryError.exit_code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count(f"{file}:2:") == 3


def test_show_has_inherited_values(registry_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["registry", "show", registry_file]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["REPOSITORY", "READ", "PUSH", "PHASES", "BUNDLES", "DESCRIPTION"]
    assert lines[2].split()[:5] == [
        "sandbox/playground",
        "public",
        "maintainers,sandbox",
        "publishing",
        "stream,zstd,gzip",
    ]


def test_show_has_everything_about_one_repository(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "r.yml"
    file.write_text(
        """
version: 1
namespaces: {n: {read-only: we move, policies: {no-symlinks: {}, file-size: {max: 1KiB}}}}
repositories:
  n/a:
    description: A
    read: [staff]
    rules: [{branches: [stable], push: [release]}, {paths: [keys, '*.pem'], push: []}]
"""
    )
    assert cli.main(["registry", "show", str(file), "--path", "n/a"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "repository:  n/a",
        "description: A",
        "read:        staff",
        "push:        nobody",
        "read-only:   we move",
        "phases:      publishing",
        "bundles:     stream, zstd, gzip",
        'policy:      file-size {"max": 1024}',
        "policy:      no-symlinks",
        "rule:        on branches stable only: release",
        "rule:        touching keys, *.pem only: nobody",
    ]
    assert cli.main(["registry", "show", str(file)]) == 0
    assert "(read-only)" in capsys.readouterr().out
    assert cli.main(["registry", "show", str(file), "--path", "n/b"]) == 2
    assert "there is no repository n/b" in capsys.readouterr().err


def test_show_compiled_is_what_show_json_wrote(
    registry_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["registry", "show", "--json", registry_file]) == 0
    text = capsys.readouterr().out
    assert list(json.loads(text)["repositories"]) == ["hgfleet", "sandbox/playground"]
    (tmp_path / "registry.json").write_text(text)
    assert cli.main(["registry", "show", "--compiled", str(tmp_path / "registry.json")]) == 0
    assert "sandbox/playground" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["some.yml", "--compiled"]])
def test_show_needs_one_source(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["registry", "show", *arguments]) == 2
    assert "either FILE or --compiled" in capsys.readouterr().err


def test_apply_ends_with_the_number_of_changes(
    registry_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("repos", "lib"):
        (tmp_path / name).mkdir()
    arguments = [
        *("registry", "apply", "--registry", registry_file, "--root", str(tmp_path / "repos")),
        *("--compiled", str(tmp_path / "lib/registry.json")),
        *("--user", pwd.getpwuid(os.geteuid()).pw_name),
        *("--group", grp.getgrgid(os.getegid()).gr_name),
    ]
    assert cli.main([*arguments, "--check", "--diff"]) == 0
    assert not (tmp_path / "lib/registry.json").exists()
    assert capsys.readouterr().out.splitlines()[-1] == "changed=3"
    assert cli.main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "changed=3"
    assert cli.main(arguments) == 0
    assert capsys.readouterr().out == "changed=0\n"


def test_apply_checks_the_registry_before_it_touches_anything(tmp_path: Path) -> None:
    bad = tmp_path / "registry.yml"
    bad.write_text("version: 1\nrepositories: {a: {}}\n")
    done = hgfleet("registry", "apply", "--registry", str(bad), "--root", "/no-such-place")
    assert done.returncode == 65
    assert f"{bad}:2:16: got no description" in done.stderr


def test_only_the_part_that_is_asked_for_is_imported(registry_file: str) -> None:
    code = (
        "import sys; from hgfleet import cli; cli.main(sys.argv[1:]); "
        "print(sorted({'boto3', 'botocore', 'ldap', 'mercurial'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "registry", "check", registry_file],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_reader_that_goes_away_causes_no_traceback(registry_file: str) -> None:
    command = f"{sys.executable} -m hgfleet registry show --json {registry_file} | true"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_ctrl_c_is_one_line(
    registry_file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hgfleet.registry.model.schema.load", interrupt)
    assert cli.main(["registry", "check", registry_file]) == 130
    assert capsys.readouterr().err == "hgfleet: interrupted\n"


def test_exit_codes_are_distinct() -> None:
    # Parts have subclasses of their own, which share the code of their kind.
    kinds = [value for value in vars(errors).values() if isinstance(value, type)]
    codes = [kind.exit_code for kind in kinds if issubclass(kind, errors.HgfleetError)]
    assert len(set(codes)) == len(codes) > 5
