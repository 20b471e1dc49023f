from __future__ import annotations

import pytest

from hgfleet.web.archives import problem


@pytest.mark.parametrize(
    "path",
    [
        b"../../../../tmp/x",
        b"/abs",
        b".hg/hgrc",
        b".HG/hgrc",
        b"sub/.hg/hgrc",
        b"a/../b",
        b"a/..",
        b"a//b",
        b"",
        b"line\nend",
        b"nul\0",
    ],
)
@pytest.mark.parametrize("kind", ["zip", "tgz"])
def test_a_path_that_leads_out_of_a_folder_is_in_no_archive(path: bytes, kind: str) -> None:
    found = problem([b"fine", path], kind)
    assert found is not None
    assert "unsafe" in found


def test_a_zip_has_only_names_in_utf_8_and_the_refusal_names_the_other_format() -> None:
    names = [b"fine", "größe".encode(), "größe".encode("latin-1")]
    found = problem(names, "zip")
    assert found is not None
    assert "tar.gz" in found
    assert problem(names, "tgz") is None
    assert problem(names[:2], "zip") is None


def test_a_shown_path_is_short_and_printable() -> None:
    found = problem([b"/" + b"\xff\x1b[31m" * 1000], "tgz")
    assert found is not None
    assert found.isascii()
    assert found.isprintable()
    assert len(found) < 300
