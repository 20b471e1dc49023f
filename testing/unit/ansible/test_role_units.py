"""What the templates of all units have in common."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROLES = Path(__file__).resolve().parents[3] / "ansible/roles"

DAEMONS = {
    path: text
    for path in sorted(ROLES.glob("*/templates/*.j2"))
    if re.search(r"(?m)^Restart=", text := path.read_text("utf-8"))
}

SLOW_SECONDS = 10
"""The pause of a unit that needs no growing pauses: it is as long as the longest of the others."""


def values(text: str, name: str) -> list[str]:
    return re.findall(rf"(?m)^{name}=(.*)$", text)


def test_the_daemons_of_all_parts_are_looked_at() -> None:
    names = {path.name for path in DAEMONS}
    assert names >= {"haproxy.service.j2", "nginx.service.j2", "slapd.service.j2", "program.j2"}


@pytest.mark.parametrize("path", DAEMONS, ids=lambda path: path.relative_to(ROLES).as_posix())
def test_a_daemon_is_started_for_ever_after_growing_pauses(path: Path) -> None:
    """The default ends a unit for good after 5 failures in 10 s: DNS or an address came late."""
    text = DAEMONS[path]
    assert values(text, "Restart") == ["always"]
    # Empty in a drop-in: it takes away what Debian's unit has.
    assert values(text, "RestartPreventExitStatus") in ([], [""])
    if int(values(text, "RestartSec")[0]) < SLOW_SECONDS:
        assert values(text, "RestartSteps") == ["8"]
        assert values(text, "RestartMaxDelaySec") == [str(SLOW_SECONDS)]
    imported = [path.parent / name for name in re.findall(r"import '(\S+)'", text)]
    texts = [text, *(other.read_text("utf-8") for other in imported)]
    assert "0" in [value for unit in texts for value in values(unit, "StartLimitIntervalSec")]
