"""Places of repositories, as workers hand them to renderers."""

from __future__ import annotations

import json
from dataclasses import replace

from mercurial import ui as ui_module

from hgfleet.registry.model.registry import Repository
from hgfleet.web.engine.places import Place, place_of

ENTRY = Repository(
    *("team/tool", "A tool", ("staff",), ("staff", "release")),
    publishing=False,
    bundles=(),
    policies={"file-size": {"max": 3}},
    identity="a" * 32,
)


def test_a_place_differs_with_all_that_opening_depends_on() -> None:
    place = place_of(ENTRY)
    assert place is place_of(replace(ENTRY))
    assert (place.path, place.identity) == ("team/tool", "a" * 32)
    for other in (
        replace(ENTRY, description="Another"),
        replace(ENTRY, publishing=True),
        replace(ENTRY, read="public"),
        replace(ENTRY, policies={}),
    ):
        assert place_of(other) != place
        assert place_of(other).key != place.key
    moved = place_of(replace(ENTRY, identity="b" * 32))
    assert moved != place
    assert moved.key == place.key


def test_a_place_that_was_sent_configures_hg_as_the_entry_says() -> None:
    place = Place(*json.loads(json.dumps(place_of(ENTRY))))
    assert place == place_of(ENTRY)
    ui = ui_module.ui()
    place.configure(ui)
    assert not ui.configbool(b"phases", b"publish")
    assert ui.configlist(b"hgfleet", b"push") == [b"staff", b"release"]
    assert ui.config(b"hgfleet", b"path") == b"team/tool"
    assert ui.config(b"web", b"description") == b"A tool"
