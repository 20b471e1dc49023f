"""The fast way into a container: its capabilities, and the engine where there is none."""

from __future__ import annotations

import pytest

from testing.e2e import container


@pytest.mark.parametrize(
    ("mask", "words"),
    [("0000000000000000", ""), ("0000000000000005", "+cap_0,+cap_2"), ("8000000000", "+cap_39")],
)
def test_capabilities_of_a_container_are_kept(mask: str, words: str) -> None:
    status = f"CapEff:\tffffffffffffffff\nCapBnd:\t{mask}\nCapAmb:\t0\n"
    assert container.capabilities(status) == words


def test_a_container_that_does_not_run_is_left_to_the_engine() -> None:
    assert container.entering("no-such-container") == ["docker", "exec", "no-such-container"]
