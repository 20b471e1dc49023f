"""Lines of a manifest that clients of a repository may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.bundles.decide import advertised
from hgfleet.bundles.decide.advertised import FOR_OTHERS, FOREIGN, GONE, choose, problem
from hgfleet.core.errors import RegistryError
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.dynamic.effective import EffectiveRegistry
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.registry.model.registry import Namespace, Settings, build

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.registry.model.registry import Read

MINE, OTHER = "5f" * 16, "9a" * 16
NAME = "a" * 40 + ".0123456789abcdef.zstd-v2.hg"


def line(key: str = MINE, *attributes: str) -> bytes:
    return " ".join((f"https://s.example/b/{key}/{NAME}", "size=1", *attributes)).encode()


@pytest.mark.parametrize(
    ("offered", "is_public", "said"),
    [
        (line(MINE, f"identity={MINE}"), True, ""),
        (line(MINE, f"identity={MINE}", "private=yes"), False, ""),
        # The readers changed since it was published.
        (line(MINE, f"identity={MINE}", "private=yes"), True, FOR_OTHERS),
        (line(MINE, f"identity={MINE}"), False, FOR_OTHERS),
        # The bundle of another repository: by its line, by its object, or by both.
        (line(MINE, f"identity={OTHER}"), True, FOREIGN),
        (line(OTHER, f"identity={MINE}"), True, FOREIGN),
        (line(OTHER, f"identity={OTHER}"), True, FOREIGN),
        (line(OTHER, f"identity={MINE}", "private=yes"), False, FOREIGN),
        (line(MINE), True, FOREIGN),
        (line(MINE, f"identity={MINE}", f"identity={OTHER}"), True, FOREIGN),
        (line(MINE, "identity="), True, FOREIGN),
        # The release before named objects by path; objects of public repositories stay for a time.
        (line("team/tool", f"identity={MINE}"), True, ""),
        (line("team/tool", f"identity={MINE}", "private=yes"), False, FOREIGN),
        (line("team/tool"), True, FOREIGN),
        # Files of the repository itself.
        (b"peer-bundle-cache://x.hg BUNDLESPEC=zstd-v2", True, ""),
        (b"peer-bundle-cache://x.hg BUNDLESPEC=zstd-v2", None, ""),
        (line(MINE, f"identity={MINE}"), None, GONE),
    ],
)
def test_a_line_is_for_one_repository_and_for_its_readers(
    offered: bytes, is_public: bool | None, said: str
) -> None:
    assert problem(offered, MINE, is_public) == said


def test_a_repository_without_identity_has_no_bundles() -> None:
    for offered in (line(MINE, f"identity={MINE}"), line(MINE, "identity="), line("team/tool")):
        assert problem(offered, "", True) == FOREIGN


def test_other_lines_keep_their_order() -> None:
    good = [line(MINE, f"identity={MINE}", f"n={number}") for number in range(3)]
    lines = [good[2], line(OTHER), good[0], good[1]]
    assert choose(lines, MINE, True) == ([good[2], good[0], good[1]], {FOREIGN})


def test_readers_are_those_of_the_registry_as_it_is_now(tmp_path: Path) -> None:
    compiled, dynamic = tmp_path / "registry.json", tmp_path / "dynamic/registry.json"
    compiled.write_text(dump_compiled(build({}, {"people": Namespace("people")}, Settings())))
    dynamic.parent.mkdir()
    registry = EffectiveRegistry(compiled, dynamic)

    def look(path: str = "people/bob/x") -> bool | None:
        return advertised.readers(registry, path, MINE)

    assert look() is None
    entry = Entry("bob", "", "2026-11-20T00:00:00Z", identity=MINE)
    readers: tuple[tuple[Read | None, bool], ...] = ((None, True), ((), False), ("public", True))
    for read, expected in readers:
        with dynamic_update.update(dynamic) as entries:
            entries["people/bob/x"] = Entry(
                "bob", "", "2026-11-20T00:00:00Z", read=read, identity=MINE
            )
        assert look() is expected
    # Another repository has the path.
    with dynamic_update.update(dynamic) as entries:
        entries["people/bob/y"] = entry
        entries["people/bob/x"] = Entry("bob", "", "2026-11-20T00:00:00Z", identity=OTHER)
    assert (look(), look("people/bob/y")) == (None, True)
    dynamic.write_text("half of it")
    assert look("people/bob/y") is None
    with pytest.raises(RegistryError):
        registry.read(lambda problem: (_ for _ in ()).throw(RegistryError(problem)))
