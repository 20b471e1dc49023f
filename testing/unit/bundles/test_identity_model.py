"""People change repositories while the bundle jobs run, are killed, and run again.

At each moment each client asks for the bundles of each repository, and loads the URLs that it gets
also from caches: no URL leads it to a changeset that the primary would refuse, and no private
changeset comes into an open store. After a run that nothing disturbed, nothing is left in stores,
manifests and caches that strangers must not have.
"""

from __future__ import annotations

import shutil
import tempfile
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from hgfleet.bundles.steps import unfinished
from testing.support.identity_changes import carry_out, changes
from testing.unit.bundles.bundles_model import MOMENTS, CheckedManifests, KilledError, Serial, Site

if TYPE_CHECKING:
    from testing.support.identity_changes import Change
    from testing.unit.bundles.bundles_model import Moment

WAITS: Final = (1, 30, 400, 8 * 86400)
DURING: Final = (
    "readers",
    "readers",
    "readers and push",
    "move and make again",
    "delete and make again",
)
moments = st.tuples(st.sampled_from((*MOMENTS, "uploaded", "uploaded")), st.integers(1, 2))


class Bundles(RuleBasedStateMachine):
    """A primary and its bundle job."""

    @initialize(private=st.booleans())
    def begin(self, private: bool) -> None:
        """Begin with a repository that has bundles."""
        self.root = Path(tempfile.mkdtemp(prefix="hgfleet-bundles-model-"))
        self.site = site = Site(self.root)
        CheckedManifests.site = site

        class Clock(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return site.date.astimezone(tz)

        def purge(_command: object, *, input: str, **_: object) -> Any:  # noqa: A002
            site.purge(input)
            return mock.Mock(returncode=0, stdout="")

        self.patches: list[Any] = [
            mock.patch("hgfleet.bundles.steps.job.datetime", Clock),
            mock.patch("hgfleet.bundles.steps.job.Manifests", CheckedManifests),
            mock.patch("hgfleet.bundles.steps.pipeline.ThreadPoolExecutor", Serial),
            mock.patch("hgfleet.bundles.stores.parallel.ThreadPoolExecutor", Serial),
            mock.patch("hgfleet.bundles.stores.purging.subprocess.run", purge),
        ]
        for patch in self.patches:
            patch.start()
        carry_out(site, ("create", 0, 1, () if private else "public"))
        carry_out(site, ("push", 0, 0, ()))
        self.is_left = True
        """Whether a whole run was killed or disturbed, and no whole run has ended since."""
        self._run([], None, only_withdraw=False)

    @rule(
        made=st.lists(changes(), min_size=1, max_size=4),
        strips=st.booleans(),
        during=st.lists(st.tuples(moments, changes(DURING)), min_size=1, max_size=3),
        kill_at=st.sampled_from([False, False, True]).flatmap(
            lambda is_killed: moments if is_killed else st.none()
        ),
        only_withdraw=st.sampled_from([False, False, True]),
        wait=st.sampled_from(WAITS),
        rests=st.booleans(),
    )
    def people_and_a_run(
        self,
        made: list[Change],
        strips: bool,
        during: list[tuple[Moment, Change]],
        kill_at: Moment | None,
        only_withdraw: bool,
        wait: int,
        rests: bool,
    ) -> None:
        """Change repositories before a run and during it; a run without a fault may follow."""
        site = self.site
        for change in made:
            carry_out(site, change)
            site.ask()
        # Something to do for the run.
        carry_out(site, ("push", wait, 0, ()))
        if strips and site.in_service():
            site.strip(site.in_service()[0])
        site.now += wait
        site.ask()
        self._run(during, kill_at, only_withdraw=only_withdraw)
        if rests:
            self._run([], None, only_withdraw=only_withdraw)
            if strips and site.in_service():
                site.strip(site.in_service()[-1])
            self._run([], None, only_withdraw=True)

    def _run(
        self,
        during: list[tuple[Moment, Change]],
        kill_at: Moment | None,
        *,
        only_withdraw: bool,
    ) -> None:
        site, is_disturbed = self.site, False

        def change(wanted: Change) -> None:
            nonlocal is_disturbed
            is_disturbed = True
            kind, number, other, read = wanted
            # Changes matter most for the repository that the run works on.
            paths = sorted(site.folders) if kind.startswith("delete") else site.in_service()
            if site.at_work in paths:
                number = paths.index(site.at_work)
            carry_out(site, (kind, number, other, read))

        site.meanwhile = {at: lambda wanted=wanted: change(wanted) for at, wanted in during}  # type: ignore[misc]
        site.kill_at = kill_at
        try:
            site.run(only_withdraw=only_withdraw)
        except KilledError:
            is_disturbed = True
        site.meanwhile, site.kill_at = {}, None
        site.ask()
        if is_disturbed:
            # A pass that only withdraws leaves its rest to the next pass of either kind.
            self.is_left = self.is_left or not only_withdraw
        elif not only_withdraw or not self.is_left:
            site.require_rest(after_all=not only_withdraw)
            self.is_left = self.is_left and only_withdraw

    def teardown(self) -> None:
        if not hasattr(self, "site"):
            return
        try:
            self._run([], None, only_withdraw=False)
        finally:
            for patch in self.patches:
                patch.stop()
            shutil.rmtree(self.root)


@pytest.mark.parametrize("kill_at", [("known", 1), ("list", 1), ("delete", 1), ("deleted", 1)])
def test_what_a_killed_pass_withdrew_is_deleted_by_the_next_one(kill_at: Moment) -> None:
    """Its entries left the manifest, and no pass finds the objects by that any more."""
    model = Bundles()
    model.begin(private=False)
    try:
        model.site.set("a", read=())
        model._run([], kill_at, only_withdraw=True)
        model._run([], None, only_withdraw=True)
        model.site.require_rest(after_all=True)
        assert not unfinished.names(model.site.config.state)
    finally:
        model.teardown()


TestBundles = Bundles.TestCase
TestBundles.settings = settings(
    max_examples=100,
    stateful_step_count=8,
    deadline=None,
    # The same runs each time, so that a failure comes again.
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
