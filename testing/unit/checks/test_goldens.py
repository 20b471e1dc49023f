"""Goldens: complete, without a secret, and a fair account of the files that a task writes."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from controller.checks.goldens import once, report
from controller.checks.goldens.inventory import NAMES
from controller.checks.goldens.once import Host, Text
from controller.tests.goldens import INVENTORIES

ROOT = Path(__file__).resolve().parents[3]
GOLDENS = ROOT / "testing/goldens"

SOURCE = re.compile(r"^=== \S+  \S+ \S+  from (\S+)$", re.MULTILINE)
INCLUDED = re.compile(r"{%-?\s*(?:include|extends|import|from)\s+['\"]([^'\"]+)['\"]")
TEMPLATE_LOOKUP = re.compile(r"lookup\('ansible\.builtin\.template', '([^']+)'\)")


@cache
def goldens() -> dict[str, str]:
    texts = {path.name: path.read_text() for path in GOLDENS.glob("*.txt")}
    assert texts
    return texts


def test_every_template_of_every_role_is_in_a_golden() -> None:
    """Named as the source of a file, included by such a template, or an argument of a module."""
    named = {source for text in goldens().values() for source in SOURCE.findall(text)}
    for path in ROOT.glob("ansible/roles/*/tasks/*.yml"):
        named |= {
            str(path.parents[1].relative_to(ROOT) / "templates" / name)
            for name in TEMPLATE_LOOKUP.findall(path.read_text())
        }
    for source in list(named):
        folder = Path(source).parent
        named |= {str(folder / name) for name in INCLUDED.findall((ROOT / source).read_text())}
    templates = {
        str(path.relative_to(ROOT))
        for path in ROOT.glob("ansible/roles/*/templates/**/*")
        if path.is_file()
    }
    assert templates
    assert templates <= named, "no host of an example or of the cluster has these"


def test_no_golden_has_a_secret() -> None:
    secrets = yaml.safe_load((GOLDENS / "secrets.yml").read_text())
    for example in ("small", "large"):
        vault = ROOT / f"ansible/inventories/production-{example}.example/group_vars/all/vault.yml"
        assert set(yaml.safe_load(vault.read_text())) <= set(secrets)
    told = [
        f"{name}: {secret}"
        for name, text in goldens().items()
        for secret, value in secrets.items()
        if value in text
    ]
    assert not told
    assert not [name for name, text in goldens().items() if re.search(r"\{SSHA\}[^<]", text)]
    # Each is somewhere, so the masks stand for something.
    everything = "".join(goldens().values())
    assert not [secret for secret in secrets if f"<{secret}>" not in everything]


def test_a_secret_within_another_is_masked_as_well() -> None:
    secrets = {"short": "geheim-1", "long": "geheim-1-und-mehr"}
    assert report.masked("a geheim-1-und-mehr b geheim-1 c", secrets) == "a <long> b <short> c"
    assert report.masked("userPassword: {SSHA}aGVsbG8=", {}) == "userPassword: {SSHA}<hash>"


A, B = Host("small", "a.x", "10.0.0.1"), Host("small", "b.x", "10.0.0.2")
C = Host("large", "c.x", "10.0.1.1")


def paged(**texts: str) -> list[str]:
    """Return the page of a file without its head: blocks of the hosts a, b and c."""
    hosts = {"a": A, "b": B, "c": C}
    page = once.page(
        "#", {hosts[name]: [Text(text, "=== /f  r", "f")] for name, text in texts.items()}
    )
    return page.splitlines()[3:]


@pytest.mark.parametrize(
    ("text", "other", "is_same"),
    [
        ("I am a.x", "I am b.x", True),
        ("peers: a.x, b.x\nI am 10.0.0.1", "peers: a.x, b.x\nI am 10.0.0.2", True),
        ("I am a.x", "I am a.x.y", False),
        ("I am a.x", "I am b.x\nand more", False),
        ("weight 1", "weight 2", False),
    ],
)
def test_hosts_share_lines_that_differ_by_their_names(text: str, other: str, is_same: bool) -> None:
    shown = paged(a=text, b=other)
    assert (shown == ["=== /f  r", "f on all", *(f"  {x}" for x in text.splitlines())]) is is_same


def test_a_file_stands_once_with_its_hosts() -> None:
    same = "1\n2\n3\n4"
    assert paged(a=same, b=same, c=same)[:2] == ["=== /f  r", "f on all"]
    # Lines that only some hosts have are under a head of their own.
    assert paged(a=same, b=same, c="1\n2\n3\n5") == [
        *("=== /f  r", "f on all", "  1", "  2", "  3"),
        *("f on small", "  4", "f on large", "  5"),
    ]
    assert paged(a=same, b="1\n3\n4", c=same)[3:5] == ["f on small: a; large", "  2"]
    # A text that has little in common with the others is a block.
    assert paged(a=same, b=same, c="6\n7") == [
        *("=== /f  r", "f on small", "  1", "  2", "  3", "  4"),
        *("", "=== /f  r", "f on large", "  6", "  7"),
    ]


def test_a_page_has_all_of_each_host() -> None:
    """In the order of the host, with any entries of other hosts before, between and after."""
    entries = {A: "1 2 3", B: "0 2 5 3 6", C: "4 2 5 3"}
    hosts = {
        host: [*map(Text, words.split()), Text(f"x\n{words}\ny\nz", "=== /f  r", "f")]
        for host, words in entries.items()
    }
    hosts[C].append(Text("only", "=== /g  r", "g"))

    page = once.page("#", hosts)

    def text_of(name: str, inventory: str) -> list[str]:
        return once.of_host(page, inventory, name).splitlines()

    assert text_of("a", "small") == ["1", "2", "3", "=== /f  r", "x", "1 2 3", "y", "z"]
    assert text_of("c", "large")[:4] == ["4", "2", "5", "3"]
    assert text_of("c", "large")[-2:] == ["=== /g  r", "only"]
    assert text_of("b", "small")[:5] == ["0", "2", "5", "3", "6"]
    assert not text_of("d", "small")
    assert once.merged(["12", "21"]) == ["1", "2"], "the first host decides"


def test_each_hunk_of_a_difference_names_its_file_and_hosts() -> None:
    before = once.page("#", {A: [Text("1\n2", "=== /f  r", "f")], C: []})
    after = before.replace("  2", "  3")

    (shown,) = once.differences({"p.txt": before}, {"p.txt": after}, "goldens")

    assert [line for line in shown.splitlines() if line.startswith("@@")] == [
        "@@ -5,3 +5,3 @@ f on small"
    ]


def test_the_goldens_name_every_host_of_the_inventories() -> None:
    base = goldens()["base.txt"]
    (listed,) = [line for line in base.splitlines() if line.startswith(once.HOSTS)]
    for path in ROOT.glob("ansible/inventories/*/hosts.yml"):
        if path.parent.name in NAMES:
            assert f"{NAMES[path.parent.name]}: " in listed
    assert set(NAMES) == set(INVENTORIES)


def test_the_lines_of_the_sandbox_stand_in_one_file() -> None:
    variables = yaml.safe_load((ROOT / "ansible/roles/sandbox/vars/main.yml").read_text())
    # Units of the firewall and the administrators' sshd change the host: they have a few lines.
    own = {"hgfleet-firewall.service.j2", "hgfleet-firewall-watch.service.j2", "ssh.service.j2"}
    lines = {*variables["_sandbox_unit"].splitlines()}
    assert "ProtectKernelLogs=yes" in lines
    said = [
        f"{path.name}: {line}"
        for path in ROOT.glob("ansible/roles/*/templates/*")
        if path.name not in own
        for line in path.read_text().splitlines()
        if line in lines
    ]
    assert not said
