"""The change to another CA, in three steps, on the throw-away host of the role."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from controller.bootstrap import ROOT, controller_environment

if TYPE_CHECKING:
    from pathlib import Path

    from testinfra.host import Host

INVENTORY: Final = "testing/roles/inventory/base.yml"
CERTIFICATE: Final = "/etc/hgfleet/tls/cert.pem"
TRUST: Final = "/etc/hgfleet/tls/ca.pem"
STORE: Final = "/etc/ssl/certs/ca-certificates.crt"


@dataclass(frozen=True)
class Controller:
    """A controller with its own folder for the CA."""

    folder: Path
    container: str

    def play(self, playbook: str, *options: str) -> tuple[int, str]:
        """Run a playbook on the host; return its exit code, and its output as a single line."""
        variables = (f"base_tls_ca_folder={self.folder}", f"ansible_host={self.container}")
        given = [word for variable in variables for word in ("--extra-vars", variable)]
        done = subprocess.run(
            ["ansible-playbook", "-i", INVENTORY, playbook, *given, *options],
            env=controller_environment(),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    def deploy(self) -> str:
        """Apply the role to the host; return Ansible's output."""
        code, said = self.play("testing/roles/playbooks/base.yml")
        assert code == 0, said
        return said

    def step(self, *options: str) -> str:
        """Take the next step; return the output of the playbook."""
        code, said = self.play("ansible/playbooks/ca.yml", *options)
        assert code == 0, said
        return said

    def ca(self, name: str = "ca.pem") -> str:
        """Return a certificate from the folder."""
        return (self.folder / name).read_text()


@pytest.fixture(scope="module")
def controller(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Controller:
    """Return a controller with a CA that the site made itself, with its own subject."""
    folder = tmp_path_factory.mktemp("ca")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-384 -noenc -days 1000"
    subject = ["-subj", "/O=Example/CN=A CA of the site"]
    extensions = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    files = ["-keyout", str(folder / "ca.key"), "-out", str(folder / "ca.pem")]
    made = [*command.split(), *subject, *extensions, *files]
    subprocess.run(made, check=True, capture_output=True, env={**os.environ, "LC_ALL": "C"})
    return Controller(folder, host.backend.name)


def issuer_is(host: Host, ca: str) -> bool:
    """Tell whether a CA signed the host's certificate."""
    host.check_output("printf '%%s\\n' %s > /run/ca-of-a-test.pem", ca)
    command = f"openssl verify -no-CApath -no-CAstore -CAfile /run/ca-of-a-test.pem {CERTIFICATE}"
    return host.run(command).rc == 0


def test_a_ca_of_the_site_signs_and_stays_as_it_is(host: Host, controller: Controller) -> None:
    before = controller.ca()
    controller.deploy()
    assert controller.ca() == before
    assert issuer_is(host, before)
    assert host.file(TRUST).content_string == before


def test_hosts_trust_the_next_ca_before_it_signs(host: Host, controller: Controller) -> None:
    present, certificate = controller.ca(), host.file(CERTIFICATE).content_string
    assert "Deploy to all hosts" in controller.step()
    following = controller.ca("next/ca.pem")
    code, said = controller.play("ansible/playbooks/ca.yml")
    assert code != 0
    assert "without trust in the new CA" in said
    assert controller.ca() == present

    controller.deploy()
    assert host.file(TRUST).content_string == present + following
    assert following in host.file(STORE).content_string
    assert issuer_is(host, present)
    # Services reload when the certificate's file changes, even if the certificate is the same.
    now = host.file(CERTIFICATE).content_string
    assert now.startswith(certificate)
    assert now != certificate
    again = controller.deploy()
    assert "changed=0" in again, again


def test_the_next_ca_signs_and_the_one_before_is_trusted(
    host: Host, controller: Controller
) -> None:
    former, following = controller.ca(), controller.ca("next/ca.pem")
    before = sorted(path.name for path in controller.folder.rglob("*"))
    controller.step("--check")
    assert sorted(path.name for path in controller.folder.rglob("*")) == before
    controller.step()
    assert (controller.ca(), controller.ca("former/ca.pem")) == (following, former)
    code, said = controller.play("ansible/playbooks/ca.yml")
    assert code != 0
    assert "with a certificate of the CA before" in said

    controller.deploy()
    assert issuer_is(host, following)
    assert host.file(TRUST).content_string == following + former


def test_trust_in_the_ca_before_ends(host: Host, controller: Controller) -> None:
    present, former = controller.ca(), controller.ca("former/ca.pem")
    controller.step()
    assert not (controller.folder / "former").exists()
    assert len(list(controller.folder.glob("retired-*/ca.key"))) == 1
    controller.deploy()
    assert host.file(TRUST).content_string == present
    store = host.file(STORE).content_string
    assert present in store
    assert former not in store
    again = controller.deploy()
    assert "changed=0" in again, again
