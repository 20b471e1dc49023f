from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.auth import daemon
from hgfleet.core.daemons import line_server
from hgfleet.core.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("text", ["uris = [", "\udcff", 'uris = ["ldaps://a"]'])
def test_the_check_names_the_mistake_in_a_file(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "auth.toml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert daemon.main(["--check", str(file)]) == 78
    assert str(file) in capsys.readouterr().err


def test_the_daemon_is_started_by_its_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert daemon.main(["--check", str(tmp_path / "missing.toml")]) == 78
    monkeypatch.delenv("LISTEN_FDS", raising=False)
    with pytest.raises(ConfigurationError, match="socket unit"):
        line_server.listening("hgfleet-auth")
    assert "missing.toml" in capsys.readouterr().err
