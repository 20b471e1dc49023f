from __future__ import annotations

import pytest

from hgfleet.core.errors import UsageError
from hgfleet.pushlog.log_file import Tip
from hgfleet.replication.documents.documents import Document
from hgfleet.replication.terms.losses import (
    Accepted,
    Known,
    Loss,
    incomplete,
    losses,
    missing_documents,
    named,
    parse_accepted,
    refused,
    sentence,
    unknown,
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


def test_what_is_parked_or_has_no_log_is_not_known_to_be_whole() -> None:
    paths = {TOOL: "team/new", OTHER: "team/other"}
    doubtful = incomplete([TOOL], paths, {TOOL: ("team/tool", "poison")}, ())
    assert doubtful[TOOL] == ("team/new", "poison")
    assert doubtful[OTHER][0] == "team/other"
    assert "is in the registry" in doubtful[OTHER][1]
    # A purged repository is deleted, and a repository that has its log is whole.
    assert incomplete([TOOL], paths, {TOOL: ("team/tool", "poison")}, {TOOL, OTHER}) == {}
    assert incomplete([TOOL, OTHER], paths, {}, ()) == {}
    # A repository that the registry does not name any more, and that was not deleted.
    assert incomplete([], {}, {TOOL: ("team/tool", "poison")}, ()) == {
        TOOL: ("team/tool", "poison")
    }


def test_pushes_that_nobody_tells_of_any_more_are_lost() -> None:
    doubtful = {TOOL: ("team/tool", "poison"), OTHER: ("team/other", "")}
    lost = unknown(TIPS, doubtful, ())
    assert [(loss.path, loss.first, loss.last) for loss in lost] == [
        ("team/tool", 7, 7),
        ("team/other", 1, 1),
    ]
    assert unknown(TIPS, doubtful, {TOOL, OTHER}) == []
    assert "push 7 and later pushes may be lost; --accept-loss team/tool@7" in sentence(lost[0])
    assert refused(lost, [parse_accepted("team/tool@7"), parse_accepted("team/other@1")]) == []
