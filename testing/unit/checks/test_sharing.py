"""controller/checks/sharing.py: things that tests may not share on their cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.checks import sharing

if TYPE_CHECKING:
    from pathlib import Path


def told(top: Path, first: str, second: str = "", names: tuple[str, str] = ("one", "two")) -> str:
    """Return the problems of two files of tests that may run at the same time."""
    folder = top / "testing/e2e"
    folder.mkdir(parents=True)
    for name, text in zip(names, (first, second), strict=True):
        (folder / f"test_{name}.py").write_text(text)
    (top / "testing/faults").mkdir()
    return "\n".join(sharing.problems(top))


@pytest.fixture(autouse=True)
def _no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "READ", {})


def test_the_tests_of_this_repository_share_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert sharing.problems() == []


PUSH = 'REPOSITORY = "e2e/x"\ndef test_push(alice): alice.clone(alice.ssh_url(REPOSITORY))\n'
SEES = 'def test_sees(cluster): assert cluster.get("e2e/x")\n'


def test_two_parts_that_use_a_repository_are_refused(tmp_path: Path) -> None:
    said = told(tmp_path, PUSH, SEES)
    assert "test_one.py and testing/e2e/test_two.py: both use the repository e2e/x" in said
    assert "PARTS in testing/e2e/turns.py" in said


def test_files_of_one_part_may_share(tmp_path: Path) -> None:
    assert told(tmp_path, PUSH, SEES, ("push", "access")) == ""


def test_an_imported_name_of_a_repository_counts(tmp_path: Path) -> None:
    (tmp_path / "testing").mkdir()
    (tmp_path / "testing/places.py").write_text('WHERE: Final = "e2e/x"\n')
    other = "from testing.places import WHERE\ndef test_sees(cluster): cluster.get(WHERE)\n"
    assert "e2e/x" in told(tmp_path, PUSH, other)


@pytest.mark.parametrize("mark", ["alone", "disruptive"])
def test_a_test_that_is_alone_shares_nothing(tmp_path: Path, mark: str) -> None:
    assert told(tmp_path, PUSH, f"import pytest\n@pytest.mark.{mark}\n{SEES}") == ""


def test_tests_that_exclude_each_other_by_a_resource_share_nothing(tmp_path: Path) -> None:
    other = f'import pytest\n@pytest.mark.disruptive("stores")\n{SEES}'
    assert told(tmp_path, PUSH, other) == ""
    beside = f'import pytest\npytestmark = pytest.mark.without("stores")\n{PUSH}'
    assert "e2e/x" in told(tmp_path / "again", beside, other)


def test_a_reader_is_declared_and_may_not_push(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "READ", {"e2e/x": ("test_two",)})
    assert told(tmp_path / "reads", PUSH, SEES) == ""
    said = told(tmp_path / "pushes", SEES, PUSH)
    assert "test_two.py: READ says it reads e2e/x, and it may push" in said
    assert "READ: test_two does not name e2e/x" in told(tmp_path / "gone", PUSH, "")


CHANGES = 'def test_off(provider): provider.modify("mallory", "x")\n'
USES = 'def test_in(cluster): cluster.person("mallory").ssh("whoami")\n'


def test_a_person_whom_another_part_changes_is_refused(tmp_path: Path) -> None:
    assert "one changes mallory, whom the other uses" in told(tmp_path, CHANGES, USES)
    alone = f"import pytest\n@pytest.mark.alone\n{CHANGES}"
    assert told(tmp_path / "alone", alone, USES) == ""


def test_a_fixture_that_changes_a_person_counts(tmp_path: Path) -> None:
    first = "def test_key(carols_entry): carols_entry.change()\n"
    assert "one changes carol" in told(tmp_path, first, "def test_in(carol): carol.ssh()\n")


def test_two_parts_may_use_a_person(tmp_path: Path) -> None:
    assert told(tmp_path, USES, USES) == ""


STOPS = 'host.systemctl("stop", "nginx.service")'


@pytest.mark.parametrize(
    "text",
    [
        f"def test_x(host): {STOPS}\n",
        f"def helper(host): {STOPS}\ndef test_x(host): helper(host)\n",
        f"@pytest.fixture\ndef away(host): {STOPS}\ndef test_x(away): ...\n",
        (
            f"@pytest.fixture\ndef away(host): {STOPS}\n"
            '@pytest.mark.usefixtures("away")\ndef test_x(): ...\n'
        ),
        "def test_x(host): host.shell('true; systemctl restart nginx')\n",
        "def test_x(host): run(['docker', 'pause', host.container])\n",
        "def test_x(stopped): stopped('web', 'nginx.service')\n",
        "def test_x(faults): faults.stop_unit()\n",
        f"class TestX:\n    def test_x(self, host): {STOPS}\n",
    ],
)
def test_a_unit_is_stopped_by_tests_that_are_alone(tmp_path: Path, text: str) -> None:
    assert "test_x: " in told(tmp_path, text)
    alone = f'import pytest\npytestmark = pytest.mark.disruptive("monitoring")\n{text}'
    assert told(tmp_path / "alone", alone) == ""


def test_a_job_may_be_started_and_a_unit_asked(tmp_path: Path) -> None:
    text = 'def test_x(host): host.systemctl("start", "backup"); host.systemctl("show", "x")\n'
    assert told(tmp_path, text) == ""


def test_a_fixture_with_a_lock_of_its_own_is_for_its_part(tmp_path: Path) -> None:
    text = "def test_x(faults): faults.stop_unit()\n"
    assert told(tmp_path, text, names=("fault_directory", "two")) == ""
