"""Each policy decides from facts only, and a refusal is made of all findings."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from hgfleet.core.principal import Principal
from hgfleet.policies import bounded, evaluate
from hgfleet.policies.base import Bookmark, BranchMove, Changeset, Entry, Marker, Policy, Push
from hgfleet.policies.catalog import POLICIES
from hgfleet.policies.content import MAX_SEARCHES, candidates, collisions
from hgfleet.policies.evaluate import MAX_SHOWN, Finding
from hgfleet.policies.names import Names
from hgfleet.policies.rule import Rule
from hgfleet.policies.tags import Tag, TagMove

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ALICE = Principal("alice", frozenset({"staff"}))


@dataclass
class Made:
    """A push that a test made up."""

    added: Sequence[Changeset] = ()
    moved: Sequence[Changeset] = ()
    bookmarks: Sequence[Bookmark] = ()
    principal: Principal = ALICE
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Sequence[Entry]] = field(default_factory=dict)
    manifests: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    on_branch: Mapping[str, Sequence[str]] = field(default_factory=dict)
    heads: Mapping[str, Sequence[str]] = field(default_factory=dict)
    before: Mapping[str, int] = field(default_factory=dict)
    begun: Mapping[str, Sequence[str]] = field(default_factory=dict)
    replaced: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    untrue: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    tags: Sequence[Tag] = ()
    branches: Sequence[str] = ()
    appeared: Sequence[Changeset] = ()
    moved_tags: Sequence[Tag] = ()
    given_tags: Sequence[TagMove] = ()
    given_branches: Sequence[BranchMove] = ()
    differing: Sequence[str] = ()
    left: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    repository_tags: Sequence[bytes] = ()
    hashes: Sequence[str] = ()

    @property
    def new_heads(self) -> Sequence[Changeset]:
        return [*self.moved, *self.added][-1:]

    def stored_texts(self) -> Iterable[tuple[str, bytes]]:
        return ()

    def markers(self) -> Iterable[Marker]:
        return ()

    def untrue_files(self, changeset: Changeset) -> Iterable[tuple[str, str]]:
        return self.untrue.get(changeset.node, ())

    def strays(self, branch: str) -> Sequence[str]:
        return self.begun.get(branch, ())

    def replaced_paths(self, branch: str) -> Iterable[tuple[str, str]]:
        return self.replaced.get(branch, ())

    def abandoned(self, branch: str) -> tuple[str, str] | None:
        return self.left.get(branch)

    def differing_paths(self, _former: str, _now: str | None) -> Iterable[str]:
        return self.differing

    def has_tag(self, stored: bytes) -> bool:
        return stored in self.repository_tags

    def is_hash(self, name: str) -> bool:
        return any(digits.startswith(name.lower()) for digits in self.hashes)

    def has_branch(self, name: str) -> bool:
        return name in self.branches

    def has_bookmark(self, stored: bytes) -> bool:
        return any(bookmark.stored == stored for bookmark in self.bookmarks)

    def entries(self, changeset: Changeset) -> Iterable[Entry]:
        return self.files.get(changeset.node, ())

    def arrived(self, changeset: Changeset) -> Iterable[str]:
        return [entry.path for entry in self.entries(changeset)]

    def touched(self, changeset: Changeset) -> Iterable[str]:
        return self.arrived(changeset)

    def touched_on_branch(self, changeset: Changeset) -> Iterable[str]:
        return self.on_branch.get(changeset.node, ())

    def size(self, entry: Entry, limit: int) -> int:
        assert limit > 0
        return self.sizes[entry.path]

    def manifest_text(self, changeset: Changeset) -> bytes:
        return manifest(*self.manifests[changeset.node])

    def branch_heads(self, branch: str) -> Sequence[str]:
        return self.heads[branch]

    def heads_before(self, branch: str) -> int:
        return self.before[branch]


def manifest(*paths: str) -> bytes:
    """Return the text of a manifest with these paths."""
    encoded = sorted(path.encode("utf-8", "surrogateescape") for path in paths)
    return b"".join(path + b"\0" + b"0" * 40 + b"\n" for path in encoded)


def changeset(node: str = "a" * 40, **fields: object) -> Changeset:
    values: dict[str, object] = {"branch": "default", "user": "alice", "message": "work"}
    return Changeset(node, **{**values, **fields})  # type: ignore[arg-type]


def file(path: str, kind: str = "file") -> Entry:
    return Entry(path, b"", kind)  # type: ignore[arg-type]


def problems(name: str, options: Mapping[str, object], push: Made) -> list[str]:
    (policy,) = evaluate.build({name: options}, [])
    return [text for finding in evaluate.evaluate([policy], push) for text in finding.problems]


def ruled(rule: Rule, push: Made) -> list[str]:
    return [
        t
        for finding in evaluate.evaluate(evaluate.build({}, [rule]), push)
        for t in finding.problems
    ]


def test_a_changeset_that_moves_is_compared_as_one_that_is_added() -> None:
    push = Made(
        moved=[changeset()],
        files={"a" * 40: [file("Readme")]},
        manifests={"a" * 40: ["README", "Readme"]},
    )
    (text,) = problems("no-case-collisions", {}, push)
    assert "the same file on Windows" in text


def test_a_made_up_push_keeps_the_contract() -> None:
    push: Push = Made()
    assert not push.added


def test_single_head_refuses_a_branch_that_is_begun_again() -> None:
    push = Made([changeset()], heads={"default": ["a" * 40]}, before={"default": 1})
    assert problems("single-head", {}, push) == []
    push.begun = {"default": ["a" * 40]}
    (text,) = problems("single-head", {}, push)
    assert text.startswith("aaaaaaaaaaaa replaces the head of the branch default without")
    assert "rebase" in text
    assert problems("single-head", {"branches": ["stable"]}, push) == []


def test_a_rule_of_branch_and_path_covers_a_head_that_replaces_the_branch() -> None:
    rule = Rule(("release",), branches=("stable",), paths=("secret",))
    push = Made([changeset(branch="stable")])
    assert ruled(rule, push) == []
    again = ("a" * 40, "secret")
    push.replaced = {"stable": [("a" * 40, "open"), again, again], "default": [again]}
    (text,) = ruled(rule, push)
    assert text.startswith(
        "aaaaaaaaaaaa replaces the head of the branch stable by another secret, where"
    )
    push.principal = Principal("bob", frozenset({"release"}))
    assert ruled(rule, push) == []


def test_a_rule_of_tags_covers_every_name_that_is_taken_for_the_tag() -> None:
    rule = Rule(("release",), tags=("v*",))
    assert ruled(rule, Made([changeset()], tags=[Tag("a" * 40, b"x1")])) == []
    for push, said in (
        (Made([changeset()], tags=[Tag("a" * 40, b"v1")]), "aaaaaaaaaaaa changes the tag v1"),
        (Made([changeset()], tags=[Tag("a" * 40, b"v1", is_removed=True)]), "changes the tag v1"),
        (Made(bookmarks=[Bookmark("v1", (), b"v1")]), "the bookmark v1 has the name of a tag"),
        (Made([changeset(branch="v1", begins_branch=True)]), "the branch v1 has the name of a tag"),
    ):
        (text,) = ruled(rule, push)
        assert f"{said}, where only members of release may push" in text
        push.principal = Principal("bob", frozenset({"release"}))
        assert ruled(rule, push) == []
    assert ruled(rule, Made([changeset(branch="v1")])) == []


def test_a_rule_of_branches_covers_the_tags_of_their_names() -> None:
    push = Made([changeset()], tags=[Tag("a" * 40, b"stable"), Tag("a" * 40, b"other")])
    (text,) = ruled(Rule(("release",), branches=("stable",)), push)
    assert text.startswith("the tag stable has the name of a branch, where only")


def test_a_rule_of_branches_and_paths_covers_the_names_of_branches_that_are_there() -> None:
    rule = Rule(("release",), branches=("stable", "old-*"), paths=("x",))
    names = [Bookmark(name, (), name.encode()) for name in ("stable", "old-1", "other")]
    push = Made([changeset()], tags=[Tag("a" * 40, b"stable")], bookmarks=names)
    assert ruled(rule, push) == []
    push.branches = ["stable", "other"]
    sentences = ruled(rule, push)
    assert [text.partition(" has")[0] for text in sentences] == [
        "the bookmark stable",
        "the tag stable",
    ]
    # A bookmark on the branch does not change the content that its name gives.
    push = Made(bookmarks=[Bookmark("mine", ("stable",), b"mine")], branches=["stable"])
    assert ruled(rule, push) == []


A, B = "a" * 40, "b" * 40


@pytest.mark.parametrize(
    ("paths", "differing", "now", "said"),
    [
        ((), (), A, "the branch stable would give aaaaaaaaaaaa instead of bbbbbbbbbbbb, where"),
        ((), (), None, "the branch stable would give no changeset instead of bbbbbbbbbbbb, where"),
        (("src",), ("src/x",), A, "instead of bbbbbbbbbbbb with another src/x, where"),
        (("src",), ("other",), A, None),
    ],
)
def test_a_rule_covers_what_the_name_of_a_branch_gives(
    paths: tuple[str, ...], differing: tuple[str, ...], now: str | None, said: str | None
) -> None:
    rule = Rule(("release",), branches=("stable",), paths=paths)
    moves = [BranchMove("other", B, now), BranchMove("stable", B, now)]
    push = Made([changeset()], given_branches=moves, differing=differing)
    sentences = ruled(rule, push)
    assert len(sentences) == (said is not None)
    assert said is None or said in sentences[0]
    push.principal = Principal("bob", frozenset({"release"}))
    assert ruled(rule, push) == []


def test_a_change_that_a_rule_covers_is_told_instead_of_what_it_leads_to() -> None:
    moves = [BranchMove("stable", B, A)]
    push = Made([changeset(branch="stable")], given_branches=moves)
    (text,) = ruled(Rule(("release",), branches=("stable",)), push)
    assert text.startswith("aaaaaaaaaaaa is on the branch stable, where only")


def test_a_rule_of_tags_covers_what_the_heads_give_together() -> None:
    rule = Rule(("release",), tags=("v*",))
    push = Made([changeset()], given_tags=[TagMove(b"v1", A, None), TagMove(b"x", None, A)])
    (text,) = ruled(rule, push)
    assert text.startswith("the tag v1 would give no changeset instead of aaaaaaaaaaaa, because")
    push.moved_tags = [Tag(A, b"v1")]
    (text,) = ruled(rule, push)
    assert text.startswith("aaaaaaaaaaaa changes the tag v1, where only")


def test_single_head_refuses_to_go_back_to_an_older_head() -> None:
    push = Made([changeset()], heads={"default": [A]}, before={"default": 2})
    assert problems("single-head", {}, push) == []
    push.left = {"default": (B, A)}
    (text,) = problems("single-head", {}, push)
    assert text.startswith(
        "the branch default would go back to its other head aaaaaaaaaaaa, because bbbbbbbbbbbb"
    )
    # A head that is begun again has its own sentence.
    push.begun = {"default": [A]}
    (text,) = problems("single-head", {}, push)
    assert "without descending" in text


def test_a_new_branch_or_bookmark_with_the_name_of_another_kind_is_refused() -> None:
    push = Made(
        [changeset(branch="v1", stored_branch=b"v1", begins_branch=True)],
        bookmarks=[
            Bookmark("v1", (), b"v1", is_new=True),
            Bookmark("stable", (), b"stable", is_new=True),
            Bookmark("v1", (), b"v1"),
            Bookmark("v1", (), b"v1", is_deleted=True),
        ],
        branches=["stable"],
        repository_tags=[b"v1"],
    )
    assert [text.split(": ")[0] for text in Names({}).check(push)] == [
        "the bookmark v1 has the name of a tag",
        "the bookmark stable has the name of a branch",
        "aaaaaaaaaaaa is on the branch v1, which has the name of a tag",
    ]


def test_a_changeset_that_is_shown_again_brings_its_names() -> None:
    push = Made(
        moved=[changeset(), changeset(B)],
        appeared=[changeset(branch="v1", stored_branch=b"v1", begins_branch=True)],
        moved_tags=[Tag(A, b"stable"), Tag(B, b"stable")],
        branches=["stable"],
        repository_tags=[b"v1"],
    )
    assert [text.split(": ")[0] for text in Names({}).check(push)] == [
        "aaaaaaaaaaaa is on the branch v1, which has the name of a tag",
        "aaaaaaaaaaaa sets the tag stable, which has the name of a branch",
    ]


@pytest.mark.parametrize(
    ("name", "is_refused"),
    [
        ("abcdef", True),
        ("xabcdef", True),
        ("ABCDEF", True),
        ("abc", False),
        ("abcdee", False),
        ("abcdefg", False),
        ("123456789abc", True),
        ("x123456789abc", True),
        ("123456789ABC", True),
        ("a" * 39, True),
    ],
)
def test_a_name_that_is_a_short_hash_is_refused(name: str, is_refused: bool) -> None:
    hashes = ["abcdef" + "0" * 34]
    stored = name.encode()
    branch = changeset(branch=name, stored_branch=stored, begins_branch=True)
    for push in (
        Made(hashes=hashes, bookmarks=[Bookmark(name, (), stored, is_new=True)]),
        Made(hashes=hashes, added=[branch]),
        Made(hashes=hashes, tags=[Tag(A, stored)]),
    ):
        assert len(list(Names({}).check(push))) == is_refused


def test_a_tag_with_the_name_of_a_branch_or_bookmark_is_refused_and_may_be_removed() -> None:
    push = Made(
        [changeset()],
        bookmarks=[Bookmark("mark", (), b"mark")],
        branches=["stable"],
        tags=[Tag("a" * 40, name) for name in (b"stable", b"mark", b"12", b"a\nb", b"fine")],
    )
    sentences = list(Names({}).check(push))
    assert [text.split(": choose")[0] for text in sentences] == [
        "aaaaaaaaaaaa sets the tag stable, which has the name of a branch",
        "aaaaaaaaaaaa sets the tag mark, which has the name of a bookmark",
        "aaaaaaaaaaaa sets the tag 12, which has a name that means something else to hg",
        "aaaaaaaaaaaa sets the tag a\\x0ab, which has a control character in its name",
    ]
    push.tags = [Tag("a" * 40, b"stable", is_removed=True)]
    assert list(Names({}).check(push)) == []


def test_single_head() -> None:
    push = Made([changeset()], heads={"default": ["a" * 40, "b" * 40]}, before={"default": 1})
    (text,) = problems("single-head", {}, push)
    assert text.startswith("the branch default would have 2 heads (aaaaaaaaaaaa, bbbbbbbbbbbb)")
    assert problems("single-head", {"branches": ["stable"]}, push) == []
    push.before = {"default": 2}
    assert problems("single-head", {}, push) == []
    push.heads = {"default": ["a" * 40]}
    assert problems("single-head", {}, push) == []


def test_single_head_also_looks_at_what_appears_by_a_phase() -> None:
    heads = {"default": ["a" * 40, "b" * 40]}
    push = Made(moved=[changeset()], heads=heads, before={"default": 1})
    assert len(problems("single-head", {}, push)) == 1


def test_no_merges() -> None:
    push = Made([changeset(), changeset("b" * 40, is_merge=True, branch="stable")])
    (text,) = problems("no-merges", {}, push)
    assert text == "bbbbbbbbbbbb is a merge on the branch stable: rebase instead (hg rebase)"
    assert problems("no-merges", {"branches": ["default"]}, push) == []


def test_commit_message() -> None:
    options = {"pattern": r"^Bug \d+", "hint": "begin with a bug"}
    push = Made([changeset(message="Bug 1\n\nmore"), changeset("b" * 40, message="fix\nBug 2")])
    (text,) = problems("commit-message", options, push)
    assert text.startswith('bbbbbbbbbbbb has the message "fix": begin with a bug; ')
    assert problems("commit-message", {"pattern": r"(?m)^Bug \d+"}, push) == []


def test_a_message_made_to_hang_the_server_is_a_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "SECONDS", 0.1)
    hostile = [changeset(message="a" * 60 + "!")] * 50
    (text,) = problems("commit-message", {"pattern": "^(a+)+$"}, Made(hostile))
    assert "takes too long" in text


def test_author() -> None:
    push = Made([changeset(user="Alice <alice@example.org>"), changeset("b" * 40, user="bob\x1b")])
    (text,) = problems("author", {"pattern": "<.+@.+>$"}, push)
    assert text.startswith('bbbbbbbbbbbb has the author "bob\\x1b": expected the pattern <.+@.+>$;')


def test_file_size() -> None:
    push = Made([changeset()], files={"a" * 40: [file("x"), file("y")]}, sizes={"x": 100, "y": 101})
    (text,) = problems("file-size", {"max": 100}, push)
    assert text.startswith("aaaaaaaaaaaa has y with 101 bytes, more than 100 bytes: ")


def test_paths() -> None:
    files = [file("a" * 10), file("ä" * 5 + "x"), file("x/KEY"), file("x/key.pem"), file("\udcff")]
    push = Made([changeset()], files={"a" * 40: files})
    sentences = problems("paths", {"max-length": 10, "forbidden": ["*.pem"]}, push)
    assert len(sentences) == 2
    assert "äääääx, a path of 11 bytes, more than 10" in sentences[0]
    assert "x/key.pem, which is forbidden here (*.pem)" in sentences[1]


@pytest.mark.parametrize(
    ("name", "entry", "word"),
    [
        ("no-symlinks", file("l", "link"), "a symbolic link"),
        ("no-subrepositories", file(".hgsub"), ".hgsub"),
        ("no-subrepositories", file(".hgsubstate"), ".hgsubstate"),
    ],
)
def test_what_a_repository_cannot_have(name: str, entry: Entry, word: str) -> None:
    harmless = [file("sub/.hgsub"), file("file")]
    push = Made([changeset()], files={"a" * 40: [*harmless, entry]})
    (text,) = problems(name, {}, push)
    assert word in text
    push.files = {"a" * 40: harmless}
    assert problems(name, {}, push) == []


@pytest.mark.parametrize(
    ("arrived", "others", "expected"),
    [
        (["A"], ["a"], 1),
        (["A"], ["b"], 0),
        (["A", "a"], [], 1),
        (["A", "a"], ["á"], 1),
        (["a/b"], ["A/B"], 1),
        (["a/b"], ["A"], 1),  # a file and a directory
        (["A"], ["a/b"], 1),
        (["a/b"], ["A/c"], 0),  # two directories become one
        (["Straße"], ["STRASSE"], 1),
        (["e\u0301"], ["\u00c9"], 1),  # two ways to write an accent
        (["x"], ["A", "a"], 0),  # a collision that was there before
        (["\udcff"], ["\udcfe"], 0),
    ],
)
def test_collisions(arrived: list[str], others: list[str], expected: int) -> None:
    assert len(list(collisions(arrived, [*arrived, *others]))) == expected


def test_of_a_large_manifest_few_paths_are_looked_at() -> None:
    names = [f"directory-{n % 500}/File-{n}" for n in range(100_000)]
    text = manifest(*names, "DIRECTORY-1/x", "größe", "readme", "README/a", "README/b")
    arrived = ["directory-1/file-501", "Readme", "directory-2/new"]
    text += manifest(*arrived)
    assert sorted(candidates(arrived, text)) == sorted(
        [*arrived, "directory-1/File-501", "readme", "README/a", "größe"]
    )


def test_the_paths_that_are_looked_at_have_every_collision() -> None:
    randomness = random.Random(5)
    names = ["a", "A", "b", "ä", "Ä", "ss", "ß", "\u212a", "k", "\udcff", "x.y"]
    for _ in range(3000):
        paths = {"/".join(randomness.choices(names, k=randomness.randint(1, 3))) for _ in range(12)}
        arrived = randomness.sample(sorted(paths), 3)
        present = sorted(paths, key=lambda path: path.encode("utf-8", "surrogateescape"))
        expected = {path for path, _ in collisions(arrived, present)}
        few = list(candidates(arrived, manifest(*present)))
        assert {path for path, _ in collisions(arrived, few)} == expected, (arrived, present)


def test_many_arrived_paths_are_compared_with_all() -> None:
    arrived = [f"file-{n}" for n in range(MAX_SEARCHES)]
    assert len(list(candidates(arrived, manifest(*arrived, "other")))) == len(arrived) + 1


def test_a_path_that_is_gone_from_the_head_collides_with_nothing() -> None:
    assert list(collisions(["file"], ["File"])) == []
    assert list(collisions(["a/b"], ["A"])) == []


def test_no_case_collisions_looks_at_the_heads() -> None:
    first, second = changeset(), changeset("b" * 40)
    push = Made(
        [first, second],
        files={first.node: [file("A")], second.node: []},
        manifests={second.node: ["a"]},
    )
    assert problems("no-case-collisions", {}, push) == []
    push.manifests = {second.node: ["A", "a"]}
    (text,) = problems("no-case-collisions", {}, push)
    assert text.startswith("bbbbbbbbbbbb has both a and A, the same file on")


def test_a_large_manifest_is_searched_fast() -> None:
    manifest = [f"directory-{n % 500}/File-{n}" for n in range(100_000)]
    start = time.monotonic()
    assert len(list(collisions(["directory-1/file-1"], [*manifest, "directory-1/file-1"]))) == 1
    # Measured: 0.2 s.
    assert time.monotonic() - start < 10


def test_closed_tree() -> None:
    options = {"reason": "the tests are broken.", "except": ["staff", "release"]}
    bob = Principal("bob", frozenset({"others"}))
    push = Made([changeset()], principal=bob, variables={"CLOSED_TREE": "yes"})
    (text,) = problems("closed-tree", options, push)
    assert text == (
        "the tree is closed: the tests are broken; "
        "wait, or ask a member of staff or release to push"
    )
    push.principal = ALICE
    assert problems("closed-tree", options, push) == []
    push.variables = {"CLOSED_TREE": "no"}
    assert "you may push all the same with" in problems("closed-tree", options, push)[0]


@pytest.mark.parametrize(
    "push",
    [
        Made([changeset(branch="stable")]),
        Made(moved=[changeset(branch="stable")]),
        Made(bookmarks=[Bookmark("x", ("stable", "default"))]),
    ],
    ids=["changeset", "phase", "bookmark"],
)
def test_every_change_of_a_closed_branch_is_refused(push: Made) -> None:
    options = {"reason": "frozen", "branches": ["stable"]}
    assert problems("closed-tree", options, push) == [
        "the branch stable is closed: frozen; wait until it opens"
    ]
    assert problems("closed-tree", {**options, "branches": ["s"]}, push) == []


def test_a_closed_tree_also_refuses_a_bookmark_of_an_unknown_changeset() -> None:
    push = Made(bookmarks=[Bookmark("x", ())])
    assert len(problems("closed-tree", {"reason": "frozen"}, push)) == 1
    assert problems("closed-tree", {"reason": "frozen", "branches": ["a"]}, push) == []


def test_rules() -> None:
    push = Made([changeset(branch="stable"), changeset("b" * 40)])
    (text,) = ruled(Rule(("release",), branches=("stable",)), push)
    assert text == (
        "aaaaaaaaaaaa is on the branch stable, where only members of release may push; "
        "ask one of them"
    )
    assert ruled(Rule(("release", "staff"), branches=("stable",)), push) == []
    assert len(ruled(Rule((), branches=("*",)), push)) == 2


def test_rules_with_paths_name_the_path() -> None:
    push = Made([changeset()], files={"a" * 40: [file("a"), file("keys/x")]})
    assert ruled(Rule(("security",), paths=("keys",)), push) == [
        "aaaaaaaaaaaa changes keys/x, where only members of security may push; ask one of them"
    ]
    # A rule with a branch is about the content of the branch.
    rule = Rule(("security",), branches=("default",), paths=("keys",))
    assert ruled(rule, push) == []
    push.on_branch = {"a" * 40: ["keys/y"]}
    assert "changes keys/y on the branch default" in ruled(rule, push)[0]


@pytest.mark.parametrize(
    ("bookmark", "where"),
    [
        (Bookmark("mine", ("default", "stable")), "is on the branch stable"),
        (Bookmark("mine", ("stable",), is_deleted=True), "is on the branch stable"),
        (Bookmark("stable", ("default",)), "has the name of a branch"),
        (Bookmark("stable", (), is_deleted=True), "has the name of a branch"),
    ],
)
def test_rules_of_a_branch_cover_its_bookmarks(bookmark: Bookmark, where: str) -> None:
    push = Made(bookmarks=[bookmark])
    (text,) = ruled(Rule(("release",), branches=("stable",)), push)
    assert text == (
        f"the bookmark {bookmark.name} {where}, where only members of release may push; "
        "ask one of them"
    )
    assert ruled(Rule(("staff",), branches=("stable",)), push) == []
    assert ruled(Rule(("release",), branches=("other",)), push) == []
    # A bookmark changes no path.
    assert ruled(Rule(("release",), branches=("stable",), paths=("src",)), push) == []


def test_rules_without_branches_cover_every_bookmark() -> None:
    assert len(ruled(Rule(()), Made(bookmarks=[Bookmark("x", ())]))) == 1


def test_rules_count_moved_phases() -> None:
    assert len(ruled(Rule((), branches=("*",)), Made(moved=[changeset()]))) == 1


def test_a_policy_is_not_asked_about_what_it_does_not_apply_to() -> None:
    everything: dict[str, Mapping[str, object]] = {
        name: {
            option: {"size": 1, "count": 1, "globs": ["*"], "groups": ["x"]}.get(kind.kind, "x")
            for option, kind in policy.options.items()
        }
        for name, policy in POLICIES.items()
    }
    policies = evaluate.build(everything, [Rule(())])
    assert len(policies) == len(POLICIES) + 1
    asked = [finding.policy for finding in evaluate.evaluate(policies, Made())]
    assert asked == []
    bookmark = Made(bookmarks=[Bookmark("x", ("default",))])
    asked = [finding.policy for finding in evaluate.evaluate(policies, bookmark)]
    assert asked == ["closed-tree", "rules"]
    phase = Made(moved=[changeset()], heads={"default": []}, before={"default": 0})
    asked = [finding.policy for finding in evaluate.evaluate(policies, phase)]
    assert asked == ["single-head", "no-case-collisions", "closed-tree", "rules"]


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ({"no-merge": {}}, "unknown policy 'no-merge'"),
        ({"no-merges": {"branch": ["x"]}}, "unknown option 'branch' of no-merges"),
        ({"file-size": {}}, "bad options of file-size"),
        ({"closed-tree": {"reason": 1}}, "bad options of closed-tree"),
    ],
)
def test_what_cannot_be_checked_is_an_error(
    policies: dict[str, dict[str, object]], expected: str
) -> None:
    with pytest.raises(ValueError, match=expected):
        evaluate.build(policies, [])


def test_a_refusal_names_some_of_each_and_counts_the_rest() -> None:
    findings = [
        Finding("one", tuple(f"a{n}" for n in range(30)), 0.1),
        Finding("fine", (), 0.1),
        Finding("two", ("b0",), 0.1),
        Finding("three", tuple(f"c{n}" for n in range(3)), 0.1),
    ]
    refused = evaluate.refusal(findings, "alice", "team/tool")
    assert refused is not None
    sentence, details = refused
    assert sentence.startswith("alice may not push this to team/tool: 34 problems, named above")
    assert details == [
        *(f"- one: a{n}" for n in range(MAX_SHOWN - 4)),
        "- two: b0",
        *(f"- three: c{n}" for n in range(3)),
        "- and 24 more",
    ]


def test_nothing_wrong_is_no_refusal() -> None:
    assert evaluate.refusal([Finding("one", (), 0.1)], "alice", "x") is None


def test_a_policy_stops_counting() -> None:
    push = Made([changeset(is_merge=True)] * 3000)
    (finding,) = evaluate.evaluate(evaluate.build({"no-merges": {}}, []), push)
    assert len(finding.problems) == evaluate.MAX_COUNTED


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_every_policy_says_what_it_is_for(policy: type[Policy]) -> None:
    assert policy.summary
    assert policy.__doc__
    assert policy.applies_to


# Manifests.


def test_the_push_log_names_the_policies_and_the_rules_that_an_operator_passes_by() -> None:
    policies = {"single-head": object(), "no-merges": object()}
    said = dict.fromkeys(policies, "bypassed")
    assert evaluate.bypassed(policies, []) == said
    assert evaluate.bypassed(policies, [object()]) == {**said, "rules": "bypassed"}
