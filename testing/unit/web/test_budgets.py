from __future__ import annotations

import pytest

from hgfleet.web.http.settings import Settings
from hgfleet.web.rendering.budgets import (
    Budget,
    Kind,
    budget,
    exceeded,
    kind,
    stream_exceeded,
    way_out,
)

URL = "https://hg.example.org/team/project"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("annotate", Kind.DEAR),
        ("json-annotate", Kind.DEAR),
        ("raw-file", Kind.DEAR),
        ("rev", Kind.DEAR),
        ("shortlog", Kind.PAGE),
        ("default", Kind.PAGE),
    ],
)
def test_pages_that_read_whole_files_or_changesets_are_dear(command: str, expected: Kind) -> None:
    assert kind(command, is_wire=False, is_archive=False, is_search=False) is expected


def test_searches_archives_and_wire_commands_have_classes() -> None:
    assert kind("log", is_wire=False, is_archive=False, is_search=True) is Kind.DEAR
    assert kind("archive", is_wire=False, is_archive=True, is_search=False) is Kind.ARCHIVE
    assert kind("branchmap", is_wire=True, is_archive=False, is_search=False) is Kind.WIRE


def test_archives_have_their_own_processor_time() -> None:
    settings = Settings(request_cpu_seconds=1, archive_cpu_seconds=9, request_memory_bytes=5)
    assert budget(settings, Kind.ARCHIVE) == (9, 5, 0)
    assert budget(settings, Kind.DEAR) == (1, 5, 0)


def test_a_data_stream_has_its_own_limits_and_its_client_reads_them() -> None:
    settings = Settings(stream_cpu_seconds=7, stream_memory_bytes=2**21, stream_seconds=90)
    limits = budget(settings, Kind.STREAM)
    assert limits == (7, 2**21, 90)
    sentence = stream_exceeded(limits)
    assert "more than 7 s of processor time, 2 MiB of memory or 90 s" in sentence
    assert "hg pull --rev" in sentence


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("/rev/tip", f"The raw form is at {URL}/raw-rev/tip; all of it: hg clone {URL}"),
        ("/annotate/tip/a/b", f"The raw form is at {URL}/raw-file/tip/a/b; all of it: hg"),
        ("/log", f"or clone the repository: hg clone {URL}"),
        ("", f"or clone the repository: hg clone {URL}"),
    ],
)
def test_a_client_is_told_a_cheaper_way(rest: str, expected: str) -> None:
    assert expected in way_out(URL, rest)


def test_the_refusal_names_the_limits() -> None:
    sentence = exceeded(Budget(2.5, 160 * 2**20), URL, "/rev/tip")
    assert "2.5 s of processor time, 160 MiB of memory or 8 MiB of HTML" in sentence
