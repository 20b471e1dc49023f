"""./deploy refuses each wrong input with the way out, and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testing.deploys.wrong_inputs import CASES, Wrong, without_traces

if TYPE_CHECKING:
    from controller.cluster.release import Release
    from testing.deploys.site import Site

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("wrong", CASES, ids=lambda wrong: wrong.name)
def test_a_wrong_input_is_told_and_nothing_is_touched(
    blank: Site, built: Release, wrong: Wrong
) -> None:
    with wrong.made(blank), without_traces(blank, wrong):
        done = blank.deploy("--yes", *wrong.release(built), *wrong.options)
    done.refused(*wrong.told)
    assert "PLAY [" not in done.stdout
