"""Whether releases read each other's state, and whether their declaration is true."""

from __future__ import annotations

import io
import json
import tarfile
from typing import TYPE_CHECKING

import pytest

from controller.deploy import formats, run
from controller.deploy.decide import DeployError
from hgfleet.auth import token_file
from hgfleet.core.formats import FORMATS
from hgfleet.pushlog import record
from hgfleet.registry.dynamic import user_repositories
from hgfleet.registry.model import compiled
from hgfleet.replication.protocol import messages

if TYPE_CHECKING:
    from pathlib import Path

ONE = {"tokens": {"writes": 1, "reads": [1]}}
BRIDGE = {"tokens": {"writes": 1, "reads": [1, 2]}}
TWO = {"tokens": {"writes": 2, "reads": [1, 2]}}


def test_the_declared_formats_are_those_that_the_code_writes() -> None:
    assert {state: declared["writes"] for state, declared in FORMATS.items()} == {
        "compiled-registry": compiled.COMPILED_FORMAT,
        "dynamic-registry": user_repositories.FORMAT,
        "message-id": messages.ID_FORMAT,
        "push-record": record.VERSION,
        "tokens": token_file.FORMAT,
    }
    assert all(declared["writes"] in declared["reads"] for declared in FORMATS.values())


def test_each_form_of_the_ids_of_messages_is_read() -> None:
    identity = "1f" * 16
    forms = {1: f"{identity}.7.2", 2: f"{identity}.7.2.{'ab' * 8}"}
    assert [*forms] == FORMATS["message-id"]["reads"]
    for form in forms.values():
        assert messages.named({messages.MESSAGE_ID_HEADER: form}) == (identity, 7, 2)


@pytest.mark.parametrize(
    ("present", "new"), [(ONE, ONE), (ONE, BRIDGE), (BRIDGE, TWO), (TWO, BRIDGE), ({}, TWO)]
)
def test_there_is_a_way_where_each_reads_what_the_other_writes(
    present: dict[str, object], new: dict[str, object]
) -> None:
    formats.require_way({"0.1": present}, "0.2", new)


def test_a_format_that_the_present_release_cannot_read_has_no_way_back() -> None:
    with pytest.raises(DeployError, match=r"0\.1 cannot read tokens: format 2 .* by 0\.2"):
        formats.require_way({"0.1": ONE}, "0.2", TWO)


def test_a_format_that_the_new_release_cannot_read_has_no_way_forward() -> None:
    with pytest.raises(DeployError, match=r"0\.1 cannot read tokens: format 2 .* by 0\.2"):
        formats.require_way({"0.2": TWO}, "0.1", ONE)


def test_the_formats_of_an_archive_are_read(tmp_path: Path) -> None:
    path = tmp_path / "release.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in {
            "VERSION": "1",
            "formats.json": json.dumps(ONE),
            "hgext/x.py": "",
        }.items():
            member = tarfile.TarInfo(f"1/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    assert run.formats_of(run.Built("1", path, None)) == ONE
    assert run.formats_of(run.Built("2", path, None)) == {}
    assert run.formats_of(run.Built("1", None, None)) == {}
