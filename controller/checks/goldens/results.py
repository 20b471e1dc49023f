"""Results of modules, as a task registers them on a new host with the facts below.

A new task that needs more of a result than is here fails to render, and the error names the missing
key: add it.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FACTS: Final = {"processor_vcpus": 4, "memtotal_mb": 8192, "tcp_listen": [], "udp_listen": []}
"""Facts of every host, with the prefix `ansible_` in plays that gather them."""

CHECKSUM: Final = "0" * 64

RELEASE: Final = "0.0.0-000000000000"
"""The release of the inventories, which is the current release of every host."""


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _stat(args: Mapping[str, Any]) -> dict[str, Any]:
    target = f"releases/{RELEASE}" if args.get("path") == "/opt/hgfleet/current" else ""
    return {"stat": {"exists": True, "checksum": CHECKSUM, "lnk_target": target}}


def _slurp(args: Mapping[str, Any]) -> dict[str, Any]:
    if args["src"].endswith(("/tls/cert.pem", "/next/ca.pem", "/former/ca.pem")):
        return {"msg": "file not found"}
    return {"content": _base64(f"(content of {args['src']})\n")}


def _key(args: Mapping[str, Any]) -> dict[str, Any]:
    kind = {"ed25519": "ssh-ed25519", "rsa": "ssh-rsa"}[args["type"]]
    return {"public_key": f"{kind} {_base64('host key of the type ' + args['type'])}"}


def _ldap_search(args: Mapping[str, Any]) -> dict[str, Any]:
    # The database of Debian's package, before it is configured; without an entry.
    return {"results": [{"olcSuffix": ""}] if "olcDatabase" in args["dn"] else []}


RESULTS: Final[dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "ansible.builtin.stat": _stat,
    "ansible.builtin.slurp": _slurp,
    "ansible.builtin.find": lambda _args: {"files": [], "matched": 0},
    "ansible.builtin.command": lambda _args: {"rc": 0, "stdout": "", "stdout_lines": []},
    # Of ansible/on_host/unfinished.py: no earlier run broke off.
    "ansible.builtin.script": lambda _args: {"rc": 0, "stdout": '{"broken": false}'},
    "ansible.builtin.setup": lambda _args: {"ansible_facts": {}},
    "ansible.builtin.tempfile": lambda _args: {"path": "/tmp/golden"},
    "community.crypto.openssh_keypair": _key,
    "community.crypto.openssl_csr": lambda _args: {"csr": "(request)"},
    "community.crypto.openssl_csr_pipe": lambda _args: {"csr": "(request)"},
    "community.crypto.x509_certificate_pipe": lambda _args: {"certificate": "(certificate)\n"},
    "community.general.ldap_search": _ldap_search,
}

READ_ONLY: Final = frozenset(
    {
        "ansible.builtin.assert",
        "ansible.builtin.fail",
        "ansible.builtin.find",
        "ansible.builtin.gather_facts",
        "ansible.builtin.meta",
        "ansible.builtin.pause",
        "ansible.builtin.ping",
        "ansible.builtin.service_facts",
        "ansible.builtin.set_fact",
        "ansible.builtin.setup",
        "ansible.builtin.slurp",
        "ansible.builtin.stat",
        "ansible.builtin.uri",
        "ansible.builtin.validate_argument_spec",
        "ansible.builtin.wait_for",
        "ansible.builtin.wait_for_connection",
        "community.crypto.x509_certificate_info",
        "community.general.ldap_search",
        "community.general.listen_ports_facts",
    }
)
"""Modules that change no host."""

ACTIONS: Final = frozenset(
    f"ansible.builtin.{name}" for name in ("command", "raw", "script", "shell")
)
"""Modules that run a command, whose effects are not in this repository."""


def result_of(module: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a call."""
    own = RESULTS[module](args) if module in RESULTS else {}
    return {"changed": False, "failed": False, **own}
