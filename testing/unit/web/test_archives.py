from __future__ import annotations

import math

import pytest

from hgfleet.web.engine.archives import (
    GZIP_TIMES,
    UNKNOWN_TIME,
    ZIP_NAME,
    ZIP_TIMES,
    Progress,
    censored,
    problem,
    time_within,
)


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
    sentence = problem([b"fine", path], kind)
    assert sentence is not None
    assert "unsafe" in sentence


def test_a_zip_has_only_names_in_utf_8_and_the_refusal_names_the_other_format() -> None:
    names = [b"fine", "größe".encode(), "größe".encode("latin-1")]
    sentence = problem(names, "zip")
    assert sentence is not None
    assert "tar.gz" in sentence
    assert problem(names, "tgz") is None
    assert problem(names[:2], "zip") is None


def test_a_shown_path_is_short_and_printable() -> None:
    sentence = problem([b"/" + b"\xff\x1b[31m" * 1000], "tgz")
    assert sentence is not None
    assert sentence.isascii()
    assert sentence.isprintable()
    assert len(sentence) < 300


def test_a_zip_holds_no_name_that_is_too_long_and_the_refusal_names_the_other_format() -> None:
    longest = b"x" * (ZIP_NAME - 100)
    assert problem([longest], "zip", 100) is None
    sentence = problem([longest + b"y"], "zip", 100)
    assert sentence is not None
    assert "tar.gz" in sentence
    assert len(sentence) < 300
    assert problem([longest + b"y"], "tgz", 100) is None


@pytest.mark.parametrize(
    ("seconds", "in_zip", "in_gzip"),
    [
        (-315_619_200.0, ZIP_TIMES[0], 0.0),
        (-(2.0**63), ZIP_TIMES[0], 0.0),
        (0.0, ZIP_TIMES[0], 0.0),
        (ZIP_TIMES[0], ZIP_TIMES[0], ZIP_TIMES[0]),
        (1_700_000_000.0, 1_700_000_000.0, 1_700_000_000.0),
        (2.0**31, 2.0**31 - 1, 2.0**31),
        (2.0**33, 2.0**31 - 1, 2.0**32 - 1),
        (math.inf, 2.0**31 - 1, 2.0**32 - 1),
        (-math.inf, ZIP_TIMES[0], 0.0),
        (math.nan, UNKNOWN_TIME, UNKNOWN_TIME),
    ],
)
def test_a_time_becomes_the_nearest_one_that_a_format_holds(
    seconds: float, in_zip: float, in_gzip: float
) -> None:
    assert time_within(seconds, ZIP_TIMES) == in_zip
    assert time_within(seconds, GZIP_TIMES) == in_gzip


def test_a_removed_file_is_named_and_so_is_the_way_out() -> None:
    sentence = censored(b"folder/secret\n.txt")
    assert "'folder/secret" in sentence
    assert "a folder without that file" in sentence
    assert sentence.isprintable()


@pytest.mark.parametrize(
    ("files", "size", "seconds", "exceeds"),
    [
        # A tenth of the whole, of 2 s.
        (10, 100, 0.29, False),
        (10, 100, 0.31, True),
        # Few large files came first, or many small files: the larger share counts.
        (1, 500, 0.31, False),
        (50, 10, 0.31, False),
        (100, 1000, 2.9, False),
    ],
)
def test_an_archive_is_refused_if_the_part_that_is_made_cost_too_much(
    files: int, size: int, seconds: float, *, exceeds: bool
) -> None:
    whole = Progress(100, 1000)
    assert Progress(files, size).exceeds(whole, seconds, 2.0) is exceeds
