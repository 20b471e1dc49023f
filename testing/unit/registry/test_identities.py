from __future__ import annotations

import pytest

from hgfleet.registry.provision.identities import Found, decide

ONE, TWO, NEW = "1" * 32, "2" * 32, "f" * 32


def decided(**repositories: Found) -> tuple[dict[str, str], dict[str, str]]:
    return decide(repositories, lambda: NEW)


@pytest.mark.parametrize(
    ("repository", "given"),
    [
        (Found(), NEW),
        (Found(registered=ONE), ONE),
        (Found(stored=ONE), ONE),
        (Found(logged=ONE), ONE),
        (Found(ONE, ONE, ONE), ONE),
    ],
)
def test_a_repository_keeps_the_identity_that_something_names(
    repository: Found, given: str
) -> None:
    assert decided(a=repository) == ({"a": given}, {})


@pytest.mark.parametrize(
    ("repository", "said"),
    [
        (Found(ONE, TWO), f"the registry says {ONE}, .hg/store/identity says {TWO}"),
        (Found(ONE, "", TWO), f"the registry says {ONE}, .hg/store/pushlog says {TWO}"),
        (Found(TWO, ONE, TWO), ".hg/store/identity says"),
    ],
)
def test_a_repository_that_is_another_one_has_a_problem(repository: Found, said: str) -> None:
    given, problems = decided(a=repository)
    assert given == {}
    assert said in problems["a"]


@pytest.mark.parametrize("copy", [Found(stored=ONE, logged=ONE), Found(logged=ONE)])
def test_a_copied_folder_is_no_second_repository_of_its_identity(copy: Found) -> None:
    for names in (("a", "b"), ("b", "a")):
        original, copied = names
        given, problems = decide({original: Found(ONE, ONE), copied: copy}, lambda: NEW)
        assert given == {original: ONE}
        assert f"a copy of {original}" in problems[copied]


def test_two_entries_of_one_identity_are_one_repository_and_a_problem() -> None:
    given, problems = decided(a=Found(ONE, ONE), b=Found(ONE))
    assert len(given) == len(problems) == 1


@pytest.mark.parametrize("registered", ["", ONE])
def test_a_log_that_a_session_of_the_release_before_began_has_the_identity(registered: str) -> None:
    assert decided(a=Found(registered, ONE, TWO)) == ({"a": TWO}, {})
    # Not of a folder with the log of another repository.
    given, problems = decided(a=Found(registered, ONE, TWO), b=Found(TWO, TWO, TWO))
    assert given == {"b": TWO}
    assert "it is another repository" in problems["a"]
