"""Bundles of a private repository: signed URLs from a real hg, and real clones through them."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import syslog
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.bundles.kinds import make_key
from hgfleet.bundles.manifest import Entry
from hgfleet.steering import probe
from hgfleet.steering.health import Condition, Health
from testing.integration.closedstore import SECRET, ClosedStore, write_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

HG = Path(sys.executable).with_name("hg")
ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
PATH = "team/closed"
EXTENSIONS = {"steer": "clonebundles_steer.py", "sign": "signedbundles.py"}
PUBLIC = Entry("https://open.example/x.hg", "zstd-v2", "0" * 64, 10, 3, NOW)


@dataclass
class Site:
    """A private repository behind `hg serve --stdio`, and the store of its bundles."""

    root: Path
    store: ClosedStore

    def __post_init__(self) -> None:
        write_settings(self.root / "signing.toml", self.store.store)
        self.load("steer", "sign")
        self.hg("init", str(self.repo))
        (self.repo / ".hg/hgrc").write_text(f"[hgfleet]\npath = {PATH}\n")

    @property
    def repo(self) -> Path:
        return self.root / "repo"

    def load(self, *names: str) -> None:
        """Load the extensions in this order."""
        extensions = "".join(f"{name} = {ROOT / 'hgext' / EXTENSIONS[name]}\n" for name in names)
        (self.root / "hgrc").write_text(
            f"[trusted]\nusers = *\n[extensions]\nclonebundles =\nblackbox =\n{extensions}"
            f"[hgfleet]\nsteering = {self.root / 'steering.toml'}\n"
            f"signing = {self.root / 'signing.toml'}\n"
        )

    def environment(self, **more: str) -> dict[str, str]:
        return {
            **os.environ,
            "HGRCPATH": str(self.root / "hgrc"),
            "HGPLAIN": "1",
            "PYTHONPATH": str(ROOT),
            **more,
        }

    def hg(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [HG, *arguments], env=self.environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    def entry(self, kind: str = "zstd", path: str = PATH, content: bytes = b"x") -> Entry:
        sha256 = hashlib.sha256(content).hexdigest()
        url = f"{self.store.store.url}/{make_key(path, 'a' * 40, sha256, kind)}"
        self.store.content[url.removeprefix(self.store.root)] = content
        return Entry(url, f"{kind}-v2", sha256, len(content), 3, NOW, private=True)

    def publish(self, *lines: Entry | bytes) -> None:
        data = b"".join(
            (line if isinstance(line, bytes) else line.line().encode()) + b"\n" for line in lines
        )
        (self.repo / ".hg/clonebundles.manifest").write_bytes(data)

    def probed(self, *, dead: dict[str, str] | None = None) -> None:
        """Steer: both places answer, these objects do not."""
        (self.root / "steering.toml").write_text(
            f'health = "{self.root / "health.json"}"\nstate = "{self.root}"\n'
            f'[[endpoint]]\nname = "closed"\nurl = "{self.store.store.url}"\nregion = "eu"\n'
            '[[endpoint]]\nname = "open"\nurl = "https://open.example"\nregion = "us"\n'
            '[networks]\neu = ["192.0.2.0/24"]\nus = ["198.51.100.0/24"]\n'
        )
        up = {name: Condition().after(None) for name in ("closed", "open")}
        probe.write(self.root / "health.json", Health(time.time(), up, dead or {}))

    def told(
        self, address: str = "192.0.2.1", command: bytes = b"clonebundles_manifest"
    ) -> list[bytes]:
        """Ask as a client of the wire protocol does; return the lines."""
        done = subprocess.run(
            [HG, "-R", self.repo, "serve", "--stdio"],
            env=self.environment(SSH_CONNECTION=f"{address} 5000 10.0.0.1 22"),
            input=command + b"\n" + (b"* 0\n" if command != b"clonebundles" else b""),
            capture_output=True,
            check=True,
        )
        length, _, answer = done.stdout.partition(b"\n")
        assert len(answer) == int(length), done
        return [line for line in answer.split(b"\n") if line]

    def clone(self, name: str, *, code: int = 0) -> str:
        ssh = """ui.ssh=sh -c 'eval "$2"' ssh"""
        options = ["--config", f"ui.remotecmd={HG}", "--config", ssh]
        source = f"ssh://localhost/{self.repo}"
        return self.hg(*options, "clone", "-U", source, str(self.root / name), code=code)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    store = ClosedStore()
    yield Site(tmp_path, store)
    store.stop()


def plain(line: bytes) -> str:
    return line.split(b" ")[0].split(b"?")[0].decode()


@pytest.mark.parametrize("command", [b"clonebundles", b"clonebundles_manifest"])
def test_a_url_of_a_private_store_is_signed_and_others_are_not(site: Site, command: bytes) -> None:
    entry = site.entry()
    site.publish(entry, PUBLIC)

    first, second = site.told(command=command)

    assert second == PUBLIC.line().encode()
    url, attributes = first.decode().split(" ", 1)
    assert attributes == entry.line().split(" ", 1)[1]
    assert url.startswith(f"{entry.url}?X-Amz-Algorithm=AWS4-HMAC-SHA256&")
    assert "&X-Amz-Expires=600&" in url
    assert site.store.admits("GET", url.removeprefix(site.store.root))


@pytest.mark.parametrize("order", [("steer", "sign"), ("sign", "steer")])
def test_steering_sees_plain_urls_whatever_is_loaded_first(
    site: Site, order: tuple[str, str]
) -> None:
    site.load(*order)
    zstd, gzip = site.entry("zstd"), site.entry("gzip")
    site.publish(gzip, PUBLIC, zstd)

    site.probed()
    assert [plain(line) for line in site.told()] == [zstd.url, PUBLIC.url, gzip.url]
    far = site.told("198.51.100.1")
    assert [plain(line) for line in far] == [PUBLIC.url, zstd.url, gzip.url]
    assert all((b"X-Amz-Signature=" in line) == (b"private=yes" in line) for line in far)
    site.probed(dead={zstd.url: "gone"})
    assert [plain(line) for line in site.told()] == [PUBLIC.url, gzip.url]

    log = (site.repo / ".hg/blackbox.log").read_text()
    assert f"first={zstd.url} " in log
    assert "X-Amz" not in log


def test_without_a_key_lines_of_private_stores_are_left_out(site: Site) -> None:
    site.publish(site.entry(), PUBLIC)
    file = site.root / "signing.toml"
    good = file.read_text()
    for broken in (good.replace("store]]", "stores]]"), good.replace("/closed", "/other"), "x", ""):
        file.write_text(broken)
        assert [plain(line) for line in site.told()] == [PUBLIC.url], broken
    file.unlink()
    assert [plain(line) for line in site.told()] == [PUBLIC.url]
    file.mkdir()  # the superuser may read everything but this
    assert [plain(line) for line in site.told()] == [PUBLIC.url]
    # And a client clones from the server.
    site.hg("-R", str(site.repo), "--config", "ui.allowemptycommit=yes", "commit", "-um", "-mx")
    site.publish(site.entry())
    assert "clone bundle" not in site.clone("clone")


def test_nothing_else_than_bundles_of_this_repository_is_signed(site: Site) -> None:
    url, good = site.store.store.url, site.entry()
    key = good.url.removeprefix(f"{url}/").encode()
    base = url.encode()
    site.publish(
        site.entry(path="team/other"),
        site.entry(path="team/closed/inner"),
        replace(site.entry(), url=f"{url}/index.html"),
        replace(site.entry(path="team/other"), private=False),
        base + b"/other/../" + key + b" private=yes",
        base + b"/" + key + b"?versionId=1 private=yes",
        base + b"/" + key + b"#x private=yes",
        base + b"/" + key.replace(b"team", b"%74eam") + b" private=yes",
        base + b"/\xff" + key + b" private=yes",
        base + b"/ private=yes",
        b"https://elsewhere.example/x private=yes",
        b"private=yes private=yes",
        b" private=yes",
        # Unmarked, and in the store all the same.
        base + b"/" + key,
        good,
    )
    told = site.told()
    assert [plain(line) for line in told] == [good.url, good.url]
    assert all(b"X-Amz-Signature=" in line for line in told)


def test_another_key_counts_from_the_next_request_on(site: Site) -> None:
    site.publish(site.entry())
    (before,) = site.told()
    site.store.store = replace(site.store.store, secret_key="another")
    assert not site.store.admits("GET", plain(before))
    write_settings(site.root / "signing.toml", site.store.store, lifetime=60)
    (after,) = site.told()
    assert b"X-Amz-Expires=60&" in after
    assert site.store.admits("GET", after.decode().split(" ")[0].removeprefix(site.store.root))


def test_a_clone_downloads_from_the_private_store(site: Site) -> None:
    site.hg("-R", str(site.repo), "--config", "ui.allowemptycommit=yes", "commit", "-um", "-mx")
    bundle = site.root / "bundle.hg"
    site.hg("-R", str(site.repo), "bundle", "-a", "-t", "zstd-v2", str(bundle))
    entry = site.entry(content=bundle.read_bytes())
    site.publish(entry)
    path = entry.url.removeprefix(site.store.root)

    assert f"applying clone bundle from {entry.url}?" in site.clone("clone")

    assert site.store.asked == [("GET", path, 200)]
    assert site.hg("-R", str(site.root / "clone"), "log", "-T", "{desc}") == "x"


def test_the_store_refuses_a_url_that_was_changed_or_is_old(site: Site) -> None:
    """What the tests above rely on: the store's own check, with the same signatures."""
    from hgfleet.objectstore.presign import presign

    entry, now = site.entry(), datetime.now(UTC)

    def admits(when: datetime, method: str = "GET") -> bool:
        url = presign(entry.url, site.store.store, when, 600, "GET")
        return site.store.admits(method, url.removeprefix(site.store.root))

    assert admits(now)
    assert not admits(now, "HEAD")
    assert not admits(now - timedelta(seconds=601))


def test_what_was_left_out_is_logged_and_no_secret_is(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location("signedbundles", ROOT / "hgext/signedbundles.py")
    assert spec is not None
    assert spec.loader is not None
    extension: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extension)
    said: list[str] = []
    monkeypatch.setattr(syslog, "syslog", lambda _priority, text: said.append(text))
    settings = site.root / "signing.toml"

    class Ui:
        def configpath(self, *_names: bytes) -> bytes:
            return os.fsencode(settings)

        def config(self, *_names: bytes) -> bytes:
            return PATH.encode()

    def manifest(repo: Any, _proto: Any) -> Any:
        return repo

    class Repo:
        ui = Ui()
        data = site.entry(path="team/other").line().encode() + b"\n" + site.entry().line().encode()

    def ask() -> str:
        said.clear()
        extension.Signed(manifest)(Repo(), None)
        return said[0] if said else ""

    assert ask() == (
        "event=bundles.unsigned repository=team/closed left_out=1 "
        'reason="not a bundle of this repository"'
    )
    settings.write_text(settings.read_text().replace("region", "reg"))
    assert "left_out=2" in ask()
    assert "store: expected tables" in said[0]
    settings.unlink()
    assert "no such file" in ask()
    assert SECRET not in "".join(said)
