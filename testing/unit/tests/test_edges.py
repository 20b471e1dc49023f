"""A change of each extension, each module of policies and three roles chooses its tests.

The expected tests are written here or searched in texts, not taken from the graph.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

import pytest

from controller.bootstrap import ROOT
from controller.tests import goldens, worktree
from controller.tests.choice import references
from controller.tests.choice.selection import TESTS, select

if TYPE_CHECKING:
    from collections.abc import Mapping

INTEGRATION: Final = "testing/integration/"

# The tests whose hg loads the extension, besides the story of its name.
LOADED_BY: Final[dict[str, str]] = {
    "access": "test-access-replaced.t test-bundle_trigger.t test-pushcounts.t test-session_limits.t"
    " pushlog/* selfservice/* replication/test_applier.py test_session_rights.py",
    "admission": "bundles/test_pullbundle_answers.py web/test_web_admission.py",
    "any_date": "test-policies-metadata.t",
    "bundle_trigger": "",
    "bundle_verify": "bundles/test_publication.py bundles/test_verification.py"
    " bundles/test_interrupted_runs.py bundles/test_withdrawal.py",
    "clonebundles_steer": "steering/test_clonebundles_steer.py steering/test_prober_scale.py"
    " steering/test_signedbundles.py web/test_web_clients.py",
    "clonecounts": "",
    "getbundlelog": "",
    "hardening": "test-pushcounts.t test-session_limits.t pushlog/*",
    "owner_quota": "selfservice/test_size_quota.py",
    "pinned_store": "test-access-replaced.t pushlog/* storage/* replication/test_source.py",
    "policies": "test-pushcounts.t pushlog/* selfservice/* replication/test_applier.py",
    "pullbundles": "bundles/test_pullbundles.py bundles/test_pullbundle_answers.py"
    " bundles/test_pullbundle_cost.py",
    "pushcounts": "",
    "pushlog": "test-pushcounts.t pushlog/* web/test_web_pushlog_recorded.py"
    " replication/test_applier.py replication/test_resync.py",
    "pushlog_index": "replication/test_apply.py web/test_web_pushlog_recorded.py",
    "recovery": "pushlog/test_killed.py",
    "replicated": "",
    "session_limits": "test-pushcounts.t pushlog/* test_session_rights.py",
    "session_rights": "test_session_rights.py",
    "signedbundles": "steering/test_signedbundles.py",
}
EVERY_EXTENSION: Final = {"test_extensions_together.py", "test_senseless_requests.py"}

EXTENSIONS: Final = sorted(path.stem for path in (ROOT / "hgext").glob("*.py"))
POLICIES: Final = sorted(path.name for path in (ROOT / "hgfleet/policies").glob("*.py"))

# Tests that read files of a role.
OF_ROLE: Final = {
    "ssh": ("templates/keys.toml.j2", {"test_keys_config.py"}),
    "web": ("defaults/main.yml", {"test_filter_variables.py"}),
    "replication": ("templates/nats.conf.j2", {"test_broker_permissions.py"}),
}
CARRIERS: Final = {
    "ssh": {"ssh", "directory", "backup", "replication"},
    "web": {"web", "proxy", "replication"},
    "replication": {"replication"},
}


@cache
def checkout() -> tuple[list[str], Mapping[str, str], Mapping[str, frozenset[str]]]:
    """Return the files of this checkout, their texts, and the graph of references."""
    names = worktree.files()
    sources = worktree.sources(names)
    return names, sources, references.graph(sources, names)


def chosen(file: str, tier: str) -> set[str]:
    """The tests of a tier that depend on a file, by their paths in the folder of the tier."""
    names, _, graph = checkout()
    affected = references.dependents([file], graph)
    folder = f"testing/{tier}/"
    return {n.removeprefix(folder) for n in names if TESTS[tier].fullmatch(n) and n in affected}


def listed(words: str) -> set[str]:
    names = set()
    for word in words.split():
        paths = list((ROOT / INTEGRATION).glob(word))
        assert paths, f"{word} is in the table, and no test"
        names |= {str(p.relative_to(ROOT / INTEGRATION)) for p in paths if p.name[:5] in STORY}
    return names


STORY: Final = ("test_", "test-")


def stories_with(pattern: str) -> set[str]:
    """Stories with a text, themselves or in a script that they source."""
    scripts = {
        p.name for p in (ROOT / INTEGRATION).glob("*.sh") if re.search(pattern, p.read_text())
    }
    return {
        path.name
        for path in (ROOT / INTEGRATION).glob("*.t")
        if re.search("|".join([pattern, *map(re.escape, scripts)]), path.read_text())
    }


def test_the_table_has_every_extension() -> None:
    assert sorted(LOADED_BY) == EXTENSIONS


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_an_extension_chooses_every_test_that_loads_it(extension: str) -> None:
    tests = chosen(f"hgext/{extension}.py", "integration")
    own = {f"test-{extension}.t"} & {path.name for path in TESTS_OF_INTEGRATION}
    loads = stories_with(rf"hgext/{extension}\.py")
    assert listed(LOADED_BY[extension]) | own | loads | EVERY_EXTENSION <= tests
    assert len(tests) < len(TESTS_OF_INTEGRATION) // 2


TESTS_OF_INTEGRATION: Final = [
    path for path in (ROOT / INTEGRATION).rglob("test*") if path.name[:5] in STORY
]


@pytest.mark.parametrize("file", POLICIES)
def test_a_module_of_policies_chooses_the_stories_about_policies(file: str) -> None:
    """Stories name a policy only in an hgrc, and all source `policies.sh`."""
    stories = stories_with(r"policies\.sh")
    assert len(stories) > 5
    expected = stories | listed("selfservice/test_creation.py")
    assert expected <= chosen(f"hgfleet/policies/{file}", "integration")
    module = re.compile(rf"from hgfleet\.policies(\.| import .*\b){file.removesuffix('.py')}\b")
    folder = ROOT / "testing/unit"
    tests = folder.rglob("test_*.py")
    units = {str(p.relative_to(folder)) for p in tests if module.search(p.read_text())}
    assert units <= chosen(f"hgfleet/policies/{file}", "unit")


@pytest.mark.parametrize("role", OF_ROLE)
def test_a_role_chooses_its_scenarios_the_goldens_and_tests_that_read_it(role: str) -> None:
    file, tests = OF_ROLE[role]
    names, sources, graph = checkout()
    changed = [f"ansible/roles/{role}/{file}"]
    selected = select(changed, sources, names, worktree.carried_roles(), graph).chosen
    assert set(selected["roles"]) == CARRIERS[role]
    assert selected["goldens"] == goldens.INVENTORIES
    assert tests <= {
        n.rpartition("/")[2] for tier in ("unit", "integration") for n in selected[tier]
    }


def test_a_script_of_stories_chooses_them_and_nothing_else() -> None:
    assert chosen("testing/integration/policies.sh", "integration") == stories_with(r"policies\.sh")


def test_each_file_of_tests_is_of_a_tier_that_a_change_of_it_chooses() -> None:
    """The tier `site` runs only with an inventory: `deploys` and `e2e` run its files."""
    names, _, _ = checkout()
    files = [name for name in names if name.rpartition("/")[2].startswith(STORY)]
    of_testing = [n for n in files if n.startswith("testing/") and n.endswith((".py", ".t"))]
    unknown = [
        name
        for name in of_testing
        if not any(pattern.fullmatch(name) for pattern in TESTS.values())
    ]
    assert [name for name in unknown if not name.startswith("testing/site/")] == []
