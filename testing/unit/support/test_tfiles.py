"""Stories of `.t` files: the comparison of output, and its differences."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.support import tfiles

ROOT = Path(__file__).resolve().parents[3]


def run_t(tmp_path: Path, text: str) -> None:
    file = tmp_path / "story.t"
    file.write_text(text)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    tfiles.run(file, scratch)


@pytest.mark.parametrize(
    "text",
    [
        "A sentence.\n\n  $ echo hello\n  hello\n\nAnother.\n\n  $ true\n",
        "  $ false\n  [1]\n",
        "  $ cat <<EOF\n  > a\n  >   b\n  > EOF\n  a\n    b\n",
        "  $ echo abc123\n  abc* (glob)\n  $ echo 'a*b'\n  a\\*b (glob)\n",
        "  $ echo 42\n  \\d+ (re)\n",
        "  $ printf 'a\\tb\\n'\n  a\\tb (esc)\n",
        "  $ printf x\n  x (no-eol)\n",
        "  $ echo >&2 trouble\n  trouble\n",
        "  $ x=1\n  $ cd /\n  $ echo $x $PWD\n  1 /\n",
        "  $ echo one; echo two; echo three\n  one\n  t* (glob)\n  three\n",
        "  $ cat\n  $ echo stdin is empty\n  stdin is empty\n",
        "  $ hg init r; hg -R r log; test -d $TESTTMP/r; ls -A $TESTTMP\n  r\n",
    ],
)
def test_a_true_story_passes(tmp_path: Path, text: str) -> None:
    run_t(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("  $ echo hello\n  goodbye\n", "-  goodbye\n+  hello"),
        ("  $ echo hello\n", "+  hello"),
        ("  $ true\n  something\n", "-  something"),
        ("  $ false\n", "+  [1]"),
        ("  $ true\n  [1]\n", "-  [1]"),
        ("  $ echo hello\n  bye* (glob)\n", "-  bye* (glob)\n+  hello"),
        ("  $ echo abc\n  a.b (glob)\n", "+  abc"),
        ("  $ exit 7\n\n  $ echo never\n  never\n", "+  [the shell ended here with 7]"),
        ("Only prose.\n", "nothing was tested"),
        ("", "nothing was tested"),
    ],
)
def test_a_wrong_story_fails_with_the_difference(tmp_path: Path, text: str, shown: str) -> None:
    with pytest.raises(tfiles.MismatchError) as caught:
        run_t(tmp_path, text)
    assert shown in str(caught.value)


def test_lines_that_match_are_no_part_of_the_difference(tmp_path: Path) -> None:
    with pytest.raises(tfiles.MismatchError) as caught:
        run_t(tmp_path, "  $ echo 1; echo x; echo 3\n  \\d (re)\n  y\n  \\d (re)\n")
    changed = [line for line in str(caught.value).splitlines()[2:] if line[0] in "+-"]
    assert changed == ["-  y", "+  x"]


def test_output_without_a_command_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="line 3: output without a command"):
        run_t(tmp_path, "Prose.\n\n  lost\n")


def test_exit_80_skips(tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match="no inotify here"):
        run_t(tmp_path, "  $ echo no inotify here; exit 80\n")


def test_the_person_who_runs_it_is_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HGUSER", "somebody")
    monkeypatch.setenv("EDITOR", "emacs")
    run_t(tmp_path, '  $ echo "$HGUSER$EDITOR$HGFLEET_USER."; hg config ui.username\n  .\n  test\n')
