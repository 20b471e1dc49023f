"""Brokers as the role `replication` configures them, and the certificates of their site."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import jinja2
import yaml

if TYPE_CHECKING:
    from collections.abc import Sequence

ROLE: Final = Path(__file__).resolve().parents[3] / "ansible/roles/replication"
PRIMARY: Final = "hg1.example.org"
MIRRORS: Final = ("web1.example.org", "web2.example.org")
BROKER: Final = "broker1.example.org"
CLIENTS_PORT: Final = 4222
ROUTES_PORT: Final = 6222


def configuration(tls: Path, name: str = BROKER, brokers: Sequence[str] = (BROKER,)) -> str:
    """Return the role's configuration, without the settings that a test's broker has of its own.

    These are its address and its settings of JetStream; files of TLS are in the folder.
    """
    loader = jinja2.FileSystemLoader(ROLE / "templates")
    environment = jinja2.Environment(loader=loader, trim_blocks=True)  # noqa: S701  (no HTML)
    environment.filters["human_to_bytes"] = {"1G": 2**30}.__getitem__
    values = yaml.safe_load((ROLE / "vars/main.yml").read_text())
    text = environment.get_template("nats.conf.j2").render(
        ansible_managed="managed",
        inventory_hostname=name,
        replication_brokers=list(brokers),
        replication_primary=PRIMARY,
        replication_mirrors=list(MIRRORS),
        replication_broker_port=CLIENTS_PORT,
        replication_routes_port=ROUTES_PORT,
        replication_broker_disk="1G",
        _replication_checksums={"/etc/hgfleet/tls/cert.pem": "0"},
        _replication_streams=values["_replication_streams"],
    )
    before, rest = text.split("\njetstream {", 1)
    settings, tls_section = before.split("\ntls {", 1)
    listen = f'\nlisten: "0.0.0.0:{CLIENTS_PORT}"\n'
    assert listen in settings
    others = rest.split("\n}\n", 1)[1]
    whole = settings.replace(listen, "\n") + "\ntls {" + tls_section + others
    return whole.replace("/etc/hgfleet/tls", str(tls))


class Authority:
    """A CA with certificates of hosts, as the role `base` makes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=CA"),
        )

    def sign(self, name: str, file: str, names: str = "", key: str = "") -> ssl.SSLContext:
        """Make a certificate and return the TLS settings of a client that has it."""
        key = key or f"{file}-key"
        self._openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", f"{key}.pem", "-out", f"{file}.csr", "-subj", f"/CN={name}"),
        )
        # As in the cluster, a certificate has more names than the host's.
        (self.folder / "ext").write_text(f"subjectAltName={names or f'DNS:{name},DNS:localhost'}\n")
        self._openssl(
            *("x509", "-req", "-in", f"{file}.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
            *("-CAcreateserial", "-days", "2", "-extfile", "ext", "-out", f"{file}.pem"),
        )
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        context.load_cert_chain(self.folder / f"{file}.pem", self.folder / f"{key}.pem")
        return context

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)
