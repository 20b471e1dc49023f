from __future__ import annotations

import pytest

from hgfleet.steering.client_version import parse, supported

PLAIN_STREAM = b"https://a/p BUNDLESPEC=none-v2;stream=v2;requirements%3Dgeneraldelta"
STREAM = PLAIN_STREAM + b"%2Crevlog-compression-zstd"
ZSTD = b"https://a/z BUNDLESPEC=zstd-v2"
LINES = [STREAM, PLAIN_STREAM, ZSTD]


@pytest.mark.parametrize(
    ("agent", "version"),
    [
        ("mercurial/proto-1.0 (Mercurial 4.9)", (4, 9)),
        ("mercurial/proto-1.0 (Mercurial 4.9.1+20190301)", (4, 9)),
        ("mercurial/proto-1.0 (Mercurial 5.0rc0)", (5, 0)),
        ("mercurial/proto-1.0 (Mercurial 10.1)", (10, 1)),
        ("mercurial/proto-1.0", (0, 0)),
        ("mercurial/proto-1.0 (Mercurial unknown)", None),
        ("mercurial/proto-1.0 (Mercurial 4.9) x", None),
        ("mercurial/proto-1.0 (Mercurial " + "9" * 5000 + ".0)", None),
        ("git-cinnabar/0.7.3", None),
        ("Mozilla/5.0", None),
        ("", None),
    ],
)
def test_the_version_is_that_of_the_agent(agent: str, version: tuple[int, int] | None) -> None:
    assert parse(agent) == version


@pytest.mark.parametrize("version", ["2.7", "3.9", "4.8.2", "4.9.1"])
def test_an_old_client_is_not_told_of_a_stream_with_zstd_inside(version: str) -> None:
    assert supported(LINES, f"mercurial/proto-1.0 (Mercurial {version})") == [PLAIN_STREAM, ZSTD]
    assert supported(LINES, "mercurial/proto-1.0") == [PLAIN_STREAM, ZSTD]


@pytest.mark.parametrize(
    "agent", ["", "git-cinnabar/0.7.3", "mercurial/proto-1.0 (Mercurial 5.0)", "hg"]
)
def test_every_other_client_is_told_of_all(agent: str) -> None:
    assert supported(LINES, agent) == LINES
