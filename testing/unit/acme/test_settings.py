"""The settings of ACME, and values that they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from hgfleet.acme import settings
from hgfleet.core.errors import ConfigurationError

RIGHT = {
    "directory": '"https://acme.example/directory"',
    "email": '"hostmaster@example.org"',
    "accept_terms": "true",
    "names": '["hg.example.org"]',
}


def load(folder: Path, **changed: str) -> settings.Settings:
    file = folder / "acme.toml"
    values = {**RIGHT, **changed}
    file.write_text("".join(f"{name} = {value}\n" for name, value in values.items()))
    return settings.load(file)


def test_what_is_not_set_has_a_default(tmp_path: Path) -> None:
    assert load(tmp_path) == settings.Settings(
        "https://acme.example/directory", "hostmaster@example.org", ("hg.example.org",)
    )


def test_every_setting_is_read(tmp_path: Path) -> None:
    acme_settings = load(
        tmp_path,
        names='["hg.example.org", "xn--bcher-kva.example"]',
        renew_days="20",
        challenge_port="999",
        directory_ca='"/ca.pem"',
    )
    assert acme_settings.names == ("hg.example.org", "xn--bcher-kva.example")
    assert (acme_settings.renew_days, acme_settings.challenge_port) == (20, 999)
    assert acme_settings.directory_ca == Path("/ca.pem")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("names", "[]"),
        ("names", '["*.example.org"]'),
        ("names", '["HG.example.org"]'),
        ("names", '["localhost"]'),
        ("names", '["192.0.2.1"]'),
        ("names", '["../../etc/shadow"]'),
        ("names", '["--csr.example.org"]'),
        ("names", '["hg.example.org\\n"]'),
        ("names", '["hg.example.org,b.example.org"]'),
        ("names", f'["{"a" * 64}.example.org"]'),
        ("names", f"{[f'h{number}.example.org' for number in range(101)]}"),
        ("directory", '"http://acme.example/directory"'),
        ("directory", '"https://user:word@acme.example/directory"'),
        ("directory", '"https://acme.example/directory --csr=/etc/passwd"'),
        ("email", '"--csr=/etc/passwd"'),
        ("email", '"a@b@c"'),
        ("email", '"../a@example.org"'),
        ("accept_terms", "false"),
        ("renew_days", "0"),
        ("challenge_port", "8402"),
        ("challenge_port", "0"),
    ],
)
def test_wrong_and_hostile_values_are_refused(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"acme.toml: {name}: got .*expected"):
        load(tmp_path, **{name: value})


def test_terms_are_accepted_explicitly(tmp_path: Path) -> None:
    file = tmp_path / "acme.toml"
    file.write_text("".join(f"{k} = {v}\n" for k, v in RIGHT.items() if k != "accept_terms"))
    with pytest.raises(ConfigurationError, match="accept_terms"):
        settings.load(file)
