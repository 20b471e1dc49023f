from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.core.errors import ConfigurationError
from hgfleet.objectstore.settings import Credentials, credentials

if TYPE_CHECKING:
    from pathlib import Path


def test_credentials_come_from_systemd_before_the_environment(tmp_path: Path) -> None:
    (tmp_path / "eu-access-key-id").write_text("bundles\n")
    (tmp_path / "eu-secret-access-key").write_text("from systemd\n")
    environment = {
        "CREDENTIALS_DIRECTORY": str(tmp_path),
        "AWS_ACCESS_KEY_ID": "me",
        "AWS_SECRET_ACCESS_KEY": "from the environment",
    }
    assert credentials("eu", environment) == Credentials("bundles", "from systemd")
    del environment["CREDENTIALS_DIRECTORY"]
    assert credentials("eu", environment) == Credentials("me", "from the environment")


def test_missing_credentials_say_how_the_service_gets_them() -> None:
    with pytest.raises(ConfigurationError, match=r"systemctl start hgfleet-bundles\.service"):
        credentials("eu", {"AWS_ACCESS_KEY_ID": "me"})


def test_a_secret_is_not_in_a_traceback() -> None:
    assert "hush" not in repr(Credentials("bundles", "hush"))
