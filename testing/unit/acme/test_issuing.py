"""The folder of ACME: which certificate is in use, and its replacement by a new certificate."""

from __future__ import annotations

import io
import stat
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from hgfleet.acme import cli, issuing, renewal
from hgfleet.acme.settings import Settings
from hgfleet.core.errors import HostError, UnavailableError
from hgfleet.core.report import Report
from testing.support import certificates
from testing.support.certificates import NAME

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = Settings("https://acme.example/dir", "a@example.org", (NAME,))
NOW = datetime.now(UTC).timestamp()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder as the role makes it: the host's own certificate is in use."""
    made = tmp_path / "acme"
    (made / "lego/certificates").mkdir(parents=True)
    (tmp_path / "tls").mkdir()
    (tmp_path / "tls/cert.pem").write_text("the host's\n")
    (made / "served").symlink_to(tmp_path / "tls")
    return made


def put(folder: Path, days: int = 90, *, begin: float = NOW, other_key: bool = False) -> None:
    """Write a certificate and a key where lego puts them."""
    key = certificates.make_key()
    start = datetime.fromtimestamp(begin, UTC)
    chain = certificates.pem(start + timedelta(days=days), key, begin=start)
    (folder / f"lego/certificates/{NAME}.crt").write_text(chain)
    written = certificates.make_key() if other_key else key
    (folder / f"lego/certificates/{NAME}.key").write_text(certificates.key_pem(written))


def install(folder: Path) -> Path:
    return issuing.install(SETTINGS, folder, folder.parent / "renewed", NOW)


def test_the_certificate_of_the_host_is_none_of_the_ca(folder: Path) -> None:
    assert issuing.served(folder) is None


def test_a_new_certificate_is_swapped_in_and_the_one_before_goes(folder: Path) -> None:
    renewed = folder.parent / "renewed"
    put(folder)
    first = install(folder)
    served = issuing.served(folder)
    assert served
    assert (served.directory, served.names) == (SETTINGS.directory, {NAME})
    assert served.not_after - served.not_before == 90 * renewal.DAY_SECONDS
    assert renewed.exists()
    put(folder, days=80)
    second = install(folder)
    assert (folder / "served").resolve() == second != first
    assert list((folder / "issued").iterdir()) == [second]


def test_the_key_is_closed_to_others_and_has_one_copy(folder: Path) -> None:
    put(folder)
    new = install(folder)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in new.iterdir()}
    assert modes == {"cert.pem": 0o644, "key.pem": 0o640, "request.json": 0o644}
    assert stat.S_IMODE(new.stat().st_mode) == 0o755
    assert not list((folder / "lego/certificates").iterdir())


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ({"other_key": True}, "cannot be used"),
        ({"begin": NOW + 5 * renewal.DAY_SECONDS}, "clock"),
        ({"begin": NOW - 99 * renewal.DAY_SECONDS}, "clock"),
    ],
    ids=["the key of another", "of the future", "expired"],
)
def test_a_certificate_that_no_server_can_use_is_not_swapped_in(
    folder: Path, broken: dict[str, float], expected: str
) -> None:
    put(folder, **broken)  # type: ignore[arg-type]
    with pytest.raises(HostError, match=expected):
        install(folder)
    assert (folder / "served").resolve() == folder.parent / "tls"
    assert not (folder.parent / "renewed").exists()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"directory": 1, "names": 2}'])
def test_a_damaged_record_is_no_certificate(folder: Path, content: str) -> None:
    put(folder)
    (install(folder) / "request.json").write_text(content)
    assert issuing.served(folder) is None


def test_a_failed_run_of_lego_is_told_and_leaves_the_certificate_in_use(folder: Path) -> None:
    out = io.StringIO()
    with pytest.raises(UnavailableError, match=r"exit code 1.*stays"):
        cli.renew(SETTINGS, folder, folder.parent / "renewed", Report("events", out), "/bin/false")
    assert "none is there" in out.getvalue()
    assert (folder / "served").resolve() == folder.parent / "tls"


def test_a_missing_lego_is_told(folder: Path) -> None:
    with pytest.raises(HostError, match="the role `acme` installs it"):
        issuing.issue(SETTINGS, folder, str(folder / "lego-is-not-here"))


def test_no_certificate_is_asked_for_while_none_is_due(folder: Path) -> None:
    put(folder)
    install(folder)
    out = io.StringIO()
    report = Report("events", out, part="acme")
    assert cli.renew(SETTINGS, folder, folder.parent / "renewed", report, "/bin/false") == 0
    assert out.getvalue().startswith("event=acme.kept ")
