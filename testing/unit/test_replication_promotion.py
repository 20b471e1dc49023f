from __future__ import annotations

import pytest

from hgfleet.core.errors import UsageError
from hgfleet.pushlog.log_file import Tip
from hgfleet.replication.documents import Document
from hgfleet.replication.promotion import (
    Accepted,
    Known,
    Loss,
    losses,
    missing_documents,
    named,
    parse_accepted,
    refused,
    sentence,
)

TOOL, OTHER = "ab" * 16, "cd" * 16
TIPS = {TOOL: Tip(6, "aa" * 32, TOOL, 600, 1)}


def known(number: int, **more: object) -> Known:
    return Known(**{"where": "the stream", "path": "tool", "repository": TOOL, "id": number} | more)  # type: ignore[arg-type]


def test_documents_of_people_that_the_mirror_does_not_have_are_named() -> None:
    listed = [
        Document("registry", "ab" * 32, 10),
        Document("tokens", "cd" * 32, 10),
        Document("manifests/a.manifest", "ef" * 32, 10),
    ]
    have = {"registry": "ab" * 32, "tokens": "cd" * 32}
    assert missing_documents(have, listed) == []
    assert missing_documents({**have, "tokens": "12" * 32}, listed) == ["the access tokens"]
    assert missing_documents({}, listed[:1]) == ["the list of user repositories"]
    assert missing_documents(have, []) == []


def test_an_operator_reads_the_path_of_now_or_an_identity_that_is_no_other_path() -> None:
    paths = {TOOL: "team/new", OTHER: "team/tool"}
    assert named("team/tool", TOOL, paths) == "team/new"
    assert named("team/gone", "ef" * 16, paths) == "team/gone"
    # Another repository has its path.
    assert named("team/tool", "ef" * 16, paths) == "ef" * 16
    assert parse_accepted(f"{'ef' * 16}@7") == Accepted("ef" * 16, 7, 7)


def test_a_mirror_with_every_push_loses_none() -> None:
    assert losses(TIPS, [known(6), known(5), known(6, hash="aa" * 32)]) == []
    assert losses(TIPS, [known(0, repository=OTHER)]) == []


def test_pushes_that_another_place_has_are_lost() -> None:
    assert losses(TIPS, [known(7), known(9, where="hgweb2"), known(8)]) == [
        Loss("tool", TOOL, 7, 9, "hgweb2")
    ]
    assert losses({}, [known(2)]) == [Loss("tool", TOOL, 1, 2, "the stream")]


def test_another_push_of_the_same_number_is_lost() -> None:
    assert losses(TIPS, [known(6, hash="bb" * 32)]) == [Loss("tool", TOOL, 6, 6, "the stream")]


def test_pushes_that_an_earlier_promotion_gave_up_are_not_lost_again() -> None:
    tips = {TOOL: TIPS[TOOL]._replace(epoch=2)}
    assert losses(tips, [known(9)]) == []
    assert len(losses(tips, [known(9, epoch=2)])) == 1


def test_only_losses_that_are_named_whole_are_accepted() -> None:
    loss = Loss("tool", TOOL, 7, 9, "hgweb2", ("alice",))
    assert refused([loss], [parse_accepted("tool@7-9")]) == []
    for other in ("tool@7", "tool@8-9", "other@7-9"):
        assert refused([loss], [parse_accepted(other)]) == [loss]
    assert "push 7-9 by alice is known to hgweb2" in sentence(loss)
    assert "--accept-loss tool@7-9" in sentence(loss)


def test_the_option_is_read_or_refused() -> None:
    assert parse_accepted("team/tool@7") == Accepted("team/tool", 7, 7)
    for text in ("tool", "tool@", "@7", "tool@x", "tool@7-", "a@b@7"):
        with pytest.raises(UsageError, match="expected PATH@ID"):
            parse_accepted(text)
