"""Bundles of a private repository: signed URLs from a real hg, and real clones through them."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import syslog
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.bundles.decide.names import make_key
from hgfleet.objectstore.presign import PrivateStore
from hgfleet.steering.order import Endpoint
from testing.integration.steering.site import IDENTITY, REPOSITORY, SteeredSite, own
from testing.integration.support.site import HGEXT
from testing.integration.support.store import SECRET, Store, write_keys

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hgfleet.bundles.decide.manifest import Entry

FAR = "https://far.example/bundles"
ENDPOINT = Endpoint("far", FAR, "us")
OTHER = "9a" * 16
NETWORKS = 'eu = ["192.0.2.0/24"]\nus = ["198.51.100.0/24"]'


class SignedSite(SteeredSite):
    """A private repository, the store of its bundles, and a store that is far from here."""

    def __init__(self, root: Path, store: Store) -> None:
        super().__init__(root, "clonebundles_steer", "signedbundles")
        assert store.reader is not None
        self.store, self.reader = store, store.reader
        self.keys(self.reader)
        self.readers(("team",))

    def keys(self, reader: PrivateStore, lifetime: int = 600) -> None:
        """Replace the keys of both stores."""
        far = PrivateStore("far", FAR, "us-1", "reader", SECRET)
        write_keys(self.root / "signing.toml", reader, far, lifetime=lifetime)

    def entry(self, kind: str = "zstd", of: str = IDENTITY, content: bytes = b"x") -> Entry:
        key = str(make_key(of, "a" * 40, hashlib.sha256(content).hexdigest(), kind))
        return own(self.store.put(key, content, f"{kind}-v2"))

    def far(self) -> Entry:
        """Return the entry of an object that is in the far store."""
        entry = self.entry()
        return replace(entry, url=entry.url.replace(self.store.url, FAR))

    def both_up(self, *, dead: dict[str, str] | None = None) -> None:
        """Steer: both endpoints answer, these objects do not."""
        self.steer([Endpoint("closed", self.store.url, "eu"), ENDPOINT], networks=NETWORKS)
        self.probed("closed", "far", dead=dead)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SignedSite]:
    store = Store("closed", private=True)
    yield SignedSite(tmp_path, store)
    store.stop()


@pytest.mark.parametrize("command", [b"clonebundles", b"clonebundles_manifest"])
def test_urls_of_private_stores_are_signed(site: SignedSite, command: bytes) -> None:
    entry = site.entry()
    site.publish(entry, site.far())

    first, second = site.lines(command=command)

    assert second.startswith(f"{FAR}/".encode())
    assert b"&X-Amz-Signature=" in second
    url, attributes = first.decode().split(" ", 1)
    assert attributes == entry.line().split(" ", 1)[1]
    assert url.startswith(f"{entry.url}?X-Amz-Algorithm=AWS4-HMAC-SHA256&")
    assert "&X-Amz-Expires=600&" in url
    assert site.store.admits("GET", url)


@pytest.mark.parametrize("command", [b"clonebundles", b"clonebundles_manifest"])
@pytest.mark.parametrize(
    "extensions", [("signedbundles",), ("clonebundles_steer", "signedbundles")]
)
def test_a_history_is_signed_for_readers_of_its_repository_alone(
    site: SignedSite, command: bytes, extensions: tuple[str, ...]
) -> None:
    """A private repository was renamed, and a public repository was made at its path."""
    site.load(*extensions)
    entry = site.entry()
    site.publish(entry)
    assert site.told(command=command) == [entry.url]
    # As the registry has it, before and after the file of the repository follows.
    site.readers("public", known_as=OTHER)
    assert site.told(command=command) == []
    (site.control / "store/identity").write_text(f"{OTHER}\n")
    assert site.told(command=command) == []
    # A line does not make it an object of another repository either.
    site.publish(replace(entry, identity=OTHER), replace(entry, identity=OTHER, private=False))
    assert site.told(command=command) == []
    # The repository itself is public now: its private bundles go, and no URL of them is signed.
    (site.control / "store/identity").write_text(f"{IDENTITY}\n")
    site.readers("public")
    site.publish(entry, replace(entry, private=False))
    assert site.told(command=command) == []


EXTENSIONS = ("clonebundles_steer", "signedbundles")


@pytest.mark.parametrize("order", [EXTENSIONS, EXTENSIONS[::-1]])
def test_steering_sees_plain_urls_in_either_order_of_loading(
    site: SignedSite, order: tuple[str, str]
) -> None:
    site.load(*order)
    zstd, gzip = site.entry("zstd"), site.entry("gzip")
    far_entry = site.far()
    site.publish(gzip, far_entry, zstd)

    site.both_up()
    assert site.told() == [zstd.url, far_entry.url, gzip.url]
    far = site.lines("198.51.100.1")
    assert [line.split(b"?")[0].split(b" ")[0].decode() for line in far] == [
        far_entry.url,
        zstd.url,
        gzip.url,
    ]
    assert all(b"X-Amz-Signature=" in line for line in far)
    site.both_up(dead={zstd.url: "gone"})
    assert site.told() == [far_entry.url, gzip.url]

    log = (site.control / "blackbox.log").read_text()
    assert f"first={zstd.url} " in log
    assert "X-Amz" not in log


@pytest.mark.parametrize("extensions", [EXTENSIONS, EXTENSIONS[::-1], EXTENSIONS[1:]])
def test_lines_are_compared_with_the_registry_once(
    site: SignedSite, extensions: tuple[str, ...]
) -> None:
    site.load(*extensions)
    count = site.root / "count.py"
    count.write_text(
        "from hgfleet.bundles.decide import advertised\n"
        "def counted(*words, plain=advertised.choose):\n"
        f"    open({str(site.root / 'counted')!r}, 'a').write('once ')\n"
        "    return plain(*words)\n"
        "advertised.choose = counted\n"
    )
    hgrc = site.hgrc.read_text()
    site.hgrc.write_text(hgrc.replace("[extensions]\n", f"[extensions]\ncount = {count}\n"))
    entry = site.entry()
    site.publish(entry)
    assert site.told() == [entry.url]
    assert (site.root / "counted").read_text() == "once "


def test_without_a_key_lines_of_private_stores_are_left_out(site: SignedSite) -> None:
    entry, far = site.entry(), site.far()
    site.publish(entry, far)
    file = site.root / "signing.toml"
    good = file.read_text()
    file.write_text(good.replace("/closed", "/other"))
    assert site.told() == [far.url]
    for broken in (good.replace("store]]", "stores]]"), "x", ""):
        file.write_text(broken)
        assert site.told() == [], broken
    file.unlink()
    assert site.told() == []
    file.mkdir()  # the superuser may read everything but this
    assert site.told() == []
    # A client clones from the server.
    site.hg_in(REPOSITORY, "commit", "-mx")
    site.publish(site.entry())
    assert "clone bundle" not in site.clone("clone")


def test_only_bundles_of_this_repository_are_signed(site: SignedSite) -> None:
    url, good = site.store.url, site.entry()
    key = good.url.removeprefix(f"{url}/").encode()
    base, rest = url.encode(), f" private=yes identity={IDENTITY}".encode()
    site.publish(
        site.entry(of=OTHER),
        site.entry(of=f"{IDENTITY}/inner"),
        # The release before named objects by the path of the repository.
        site.entry(of=REPOSITORY),
        replace(site.entry(), url=f"{url}/index.html"),
        replace(site.entry(of=OTHER), private=False),
        base + b"/other/../" + key + rest,
        base + b"/" + key + b"?versionId=1" + rest,
        base + b"/" + key + b"#x" + rest,
        base + b"/" + key.replace(b"5f", b"%35f", 1) + rest,
        base + b"/\xff" + key + rest,
        base + b"/" + rest,
        b"https://elsewhere.example/x" + rest,
        b"private=yes" + rest,
        rest,
        # Unmarked, and in the store all the same.
        base + b"/" + key + f" identity={IDENTITY}".encode(),
        base + b"/" + key,
        good,
    )
    (told,) = site.lines()
    assert site.told() == [good.url]
    assert b"X-Amz-Signature=" in told


def test_another_key_counts_from_the_next_request_on(site: SignedSite) -> None:
    site.publish(site.entry())
    (before,) = site.lines()
    site.store.reader = replace(site.reader, secret_key="another")
    assert not site.store.admits("GET", before.decode().split(" ")[0])
    site.keys(site.store.reader, lifetime=60)
    (after,) = site.lines()
    assert b"X-Amz-Expires=60&" in after
    assert site.store.admits("GET", after.decode().split(" ")[0])


def test_a_clone_downloads_from_the_private_store(site: SignedSite) -> None:
    site.hg_in(REPOSITORY, "commit", "-mx")
    bundle = site.root / "bundle.hg"
    site.hg_in(REPOSITORY, "bundle", "-a", "-t", "zstd-v2", bundle)
    entry = site.entry(content=bundle.read_bytes())
    site.publish(entry)

    assert f"applying clone bundle from {entry.url}?" in site.clone("clone")

    assert site.store.requests == [("GET", site.store.key(entry), 200)]
    assert site.hg("-R", str(site.root / "clone"), "log", "-T", "{desc}") == "x"


def test_the_store_refuses_a_url_that_was_changed_or_is_old(site: SignedSite) -> None:
    """The tests above rely on this: the store's own check, with the same signatures."""
    from hgfleet.objectstore.presign import presign

    entry, now = site.entry(), datetime.now(UTC)

    def admits(when: datetime, method: str = "GET") -> bool:
        url = presign(entry.url, site.reader, when, 600, "GET")
        return site.store.admits(method, url)

    assert admits(now)
    assert not admits(now, "HEAD")
    assert not admits(now - timedelta(seconds=601))


def test_entries_that_are_left_out_are_logged_without_secrets(
    site: SignedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location("signedbundles", HGEXT / "signedbundles.py")
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

        def config(self, _section: bytes, name: bytes) -> bytes:
            files = {b"compiled": site.registry, b"dynamic": site.dynamic}
            return os.fsencode(files.get(name, REPOSITORY))

    def manifest(repo: Any, _proto: Any) -> Any:
        return repo

    class Repo:
        ui = Ui()
        root = os.fsencode(site.path(REPOSITORY))
        data = site.entry(of=REPOSITORY).line().encode() + b"\n" + site.entry().line().encode()

    def ask() -> str:
        said.clear()
        extension.Signed(manifest)(Repo(), None)
        return said[0] if said else ""

    assert ask() == (
        "event=bundles.unsigned repository=team/project left_out=1 "
        'reason="a bundle of another repository"'
    )
    settings.write_text(settings.read_text().replace("region", "reg"))
    assert "left_out=2" in ask()
    assert "store.region: got nothing, expected a text" in said[0]
    settings.unlink()
    assert "no such file" in ask()
    assert SECRET not in "".join(said)
