"""Pages of the running cluster: the output of the programs of each host, by PART.txt."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from controller.checks.goldens import once
from controller.checks.goldens.once import Host, Text
from testing.effective import clean
from testing.effective.parts import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from testing.e2e.cluster import Cluster

FOLDER: Final = Path(__file__).parent
HEAD: Final = "# Told by the hosts of the cluster: .venv/bin/python -m testing.effective\n"
AT_ONCE: Final = 4


def values(env: Mapping[str, str], state: Path) -> dict[str, str]:
    """Return names for the values of a cluster: its network, its ports and its secrets."""
    names = {env["HGFLEET_CLUSTER_NETWORK"]: "network", env["HGFLEET_CLUSTER_NAME"]: "cluster"}
    for name, value in env.items():
        if name.endswith("_PORT"):
            names[f"127.0.0.1:{value}"] = f"published {name}"
        elif name.endswith("_URL"):
            names.setdefault(urlsplit(value).netloc, f"published {name}")
    for path in (*(state / "secrets").glob("*"), *(state / "passwords").glob("*")):
        if words := path.read_text().split():
            names[words[0]] = f"secret {path.name}"
    return names


def members(inventory: Mapping[str, Any], group: str) -> Iterator[str]:
    """Yield the hosts of a group and of its children."""
    content = inventory.get(group, {})
    yield from content.get("hosts", ())
    for child in content.get("children", ()):
        yield from members(inventory, child)


def pages(cluster: Cluster) -> dict[str, str]:
    """Return each page by its name."""
    env = cluster.env
    known = values(env, Path(env["HGFLEET_KEYS"]).parent)
    told = cluster.inventory["_meta"]["hostvars"]
    asked = [
        (part, name)
        for part, source in PARTS.items()
        for name in sorted(set(members(cluster.inventory, source.group)))
    ]

    def ask(pair: tuple[str, str]) -> str:
        part, name = pair
        text = cluster.host(name).shell(PARTS[part].script)
        return clean.named(PARTS[part].cleaned(text), known)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        texts = dict(zip(asked, pool.map(ask, asked), strict=True))
    addresses = {name: clean.named(told[name]["base_address"], known) for name in told}
    return shared(texts, addresses)


def shared(texts: Mapping[tuple[str, str], str], addresses: Mapping[str, str]) -> dict[str, str]:
    """Return the page of each part by its name, PART.txt, from the text of each part and host."""
    parts: dict[str, dict[Host, list[Text]]] = {}
    for (part, name), text in texts.items():
        if text:
            host = Host("cluster", name, addresses[name])
            parts.setdefault(part, {})[host] = sections(part, text)
    return {f"{part}.txt": once.page(HEAD, hosts) for part, hosts in parts.items()}


def sections(part: str, text: str) -> list[Text]:
    """Return the sections of a part; lines before the first heading have the name of the part."""
    first, *others = re.split(r"(?m)^=== (?=\S)", text)
    headed = [(part, first)] if first.strip() else []
    headed += [
        (heading, body) for heading, _, body in (section.partition("\n") for section in others)
    ]
    return [
        Text(body.strip("\n"), f"=== {heading}", heading.split()[-1]) for heading, body in headed
    ]
