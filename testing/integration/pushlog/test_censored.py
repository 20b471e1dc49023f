"""Commands of core that change content behind changesets are refused, and so are their results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testing.integration.pushlog.site import OPERATOR

if TYPE_CHECKING:
    from testing.integration.pushlog.site import PushlogSite

CENSOR = ("--config", "extensions.censor=")
COMMANDS = {
    "`hg censor` replaces the content of a file in unchanged changesets": (
        "censor",
        *("-r", "1", "secret"),
        *CENSOR,
    ),
    "mirrors would keep obsolescence markers": ("debugobsolete", "--delete", "0"),
    "mirrors have, or will have, the push": ("rollback", "--config", "ui.rollback=yes"),
}


@pytest.fixture
def removed(site: PushlogSite) -> PushlogSite:
    """Alice commits a secret, and removes it again, after a push."""
    site.change()
    site.push()
    site.change("secret", "a password\n")
    site.at_work("remove", "--cwd", site.work, "secret")
    site.at_work("commit", "--cwd", site.work, "-m", "remove")
    return site


@pytest.mark.parametrize("told", COMMANDS)
def test_a_command_that_no_record_can_tell_of_is_refused(removed: PushlogSite, told: str) -> None:
    removed.push()
    content, place = removed.log().read_bytes(), removed.path("server")
    done = removed.start("-R", place, "--cwd", place, *COMMANDS[told], **OPERATOR)
    assert done.returncode == 255
    assert f"server: nothing was changed: {told}" in done.stderr
    assert removed.log().read_bytes() == content
    assert removed.hg("cat", "-R", place, "--cwd", place, "-r", "1", "secret") == "a password\n"
    # A clone of a person has no log.
    removed.at_work("censor", "--cwd", removed.work, "-r", "1", "secret", *CENSOR)


def test_a_censored_history_is_refused_with_the_way_out(removed: PushlogSite) -> None:
    removed.at_work("censor", "--cwd", removed.work, "-r", "1", "secret", *CENSOR)
    said = removed.push(code=255)
    assert "has a revision of secret whose content was removed with hg censor: expected" in said
    assert "push from a clone that is not censored, or a history without the file" in said
    assert "operator" not in said
    assert [record.kind for record in removed.records()] == ["push"]
