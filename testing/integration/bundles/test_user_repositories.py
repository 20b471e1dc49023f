"""Clone bundles of user repositories: from a size on, without an entry of the inventory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hgfleet.bundles.decide.plan import Action
from hgfleet.registry.dynamic import user_repositories
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.registry.model.registry import Namespace, Registry, Settings, build
from testing.integration.support.site import identity_of

if TYPE_CHECKING:
    from hgfleet.registry.model.registry import Repository
    from testing.integration.bundles.site import BundleSite

PATH = "people/bob/project"
STATIC: Registry = build({}, {"people": Namespace("people", settings=Settings(push=()))})


def of_bob(site: BundleSite, *, public: bool = True, least: int = 0) -> Repository:
    """Make a repository of bob, whose bundles begin at `least` bytes, or at the built-in size."""
    if not site.path(PATH).exists():
        site.repository(PATH)
    entry = Entry("bob", read=None if public else (), identity=identity_of(PATH))
    made = user_repositories.effective(PATH, entry, STATIC)
    return replace(made, bundles_from=least) if least else made


def test_a_small_user_repository_gets_no_bundles(site: BundleSite) -> None:
    (outcome,) = site.run(of_bob(site))
    assert outcome.error is None
    assert outcome.plan is not None
    assert outcome.plan.action is Action.KEEP
    assert outcome.plan.reasons == ("smaller than 10 MiB, from which on it gets bundles",)
    assert site.bundles() == [[]]


def test_a_user_repository_above_the_size_gets_bundles_until_it_is_raised(
    site: BundleSite,
) -> None:
    (outcome,) = site.run(of_bob(site, least=100))
    assert outcome.error is None
    kinds = [kind for kind, _ in site.kinds_and_stores(PATH)]
    assert kinds == ["stream", "zstd", "gzip"]
    (outcome,) = site.run(of_bob(site))
    assert outcome.plan is not None
    assert outcome.plan.action is Action.WITHDRAW
    assert site.published(PATH) == ()


def test_a_private_user_repository_has_bundles_in_private_stores_alone(closed: BundleSite) -> None:
    private = of_bob(closed, public=False, least=100)
    assert closed.run(private)[0].error is None
    assert closed.bundles() == [[], [PATH] * 3]


def test_a_private_user_repository_gets_no_bundles_without_a_private_store(
    site: BundleSite,
) -> None:
    (outcome,) = site.run(of_bob(site, public=False, least=100))
    assert outcome.plan is not None
    assert outcome.plan.reasons == ("not public, and no store is private: it gets no bundles",)
    assert site.bundles() == [[]]
