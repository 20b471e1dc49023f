"""Names: of people and groups, and the paths of repositories and namespaces.

Key lookup and every SSH session import this module, so it imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

MAX_SEGMENTS: Final = 8
MAX_PATH_LENGTH: Final = 200

RESERVED_SEGMENTS: Final = frozenset(
    {
        # Names that the web part answers itself, before it looks for a repository.
        "api",
        "favicon.ico",
        "healthz",
        "json",
        "metrics",
        "readyz",
        "robots.txt",
        "static",
        # Kept free for future pages of the service: taking a name back from a repository breaks
        # every clone of it.
        "admin",
        "bundles",
        "help",
        "login",
        "status",
    }
)
"""First segments of a URL that can never be a repository or namespace."""

# .hg and .git would make a clone URL look like another tool's; .lock and .manifest are names of
# files next to a repository (`<path>.manifest` is the clone bundle manifest of `<path>`).
_REFUSED_SUFFIXES: Final = (".git", ".hg", ".lock", ".manifest")

_LOWER: Final = frozenset("abcdefghijklmnopqrstuvwxyz")
_FIRST: Final = _LOWER | frozenset("0123456789")
_NAME: Final = _FIRST | frozenset("._-")
_HEX: Final = frozenset("0123456789abcdef")


def is_person(name: str) -> bool:
    """Whether this can be the name of a person: [a-z][a-z0-9._-]{0,31}.

    Names of people and groups end up in a command line inside double quotes inside an
    authorized_keys line.
    """
    return 0 < len(name) <= 32 and name[0] in _LOWER and _NAME.issuperset(name)


def is_person_id(text: object) -> bool:
    """Whether this can be the id of a person: an entryUUID of the directory (RFC 4530).

    It ends up in the same command line as the name.
    """
    if not isinstance(text, str):
        return False
    parts = text.split("-")
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and _HEX.issuperset("".join(parts))


def is_group(name: str) -> bool:
    """Whether this can be the name of a group: [a-z0-9][a-z0-9._-]{0,63}.

    "public" is the registry's word for every reader; a group of that name has no meaning.
    """
    return len(name) <= 64 and _is_segment(name) and name != "public"


def group_problem(name: str) -> str | None:
    """Return the expected form of a group's name, or None if the name has it."""
    if name == "public":
        return "the name of a group ('public' is not one; it is only a value of read)"
    if not is_group(name):
        return "the name of a group: a-z 0-9 . _ -, at most 64, beginning with a letter or digit"
    return None


def path_problem(path: str) -> str | None:
    """Return the expected form of a repository's or namespace's path, or None if the path fits."""
    if len(path) > MAX_PATH_LENGTH:
        return f"a path of at most {MAX_PATH_LENGTH} characters"
    segments = path.split("/")
    if not all(_is_segment(segment) for segment in segments):
        return (
            "a path like 'team/project': segments of a-z 0-9 . _ - that begin with a letter "
            "or digit, joined by single slashes"
        )
    if len(segments) > MAX_SEGMENTS:
        return f"a path of at most {MAX_SEGMENTS} segments"
    for segment in segments:
        if segment.endswith(_REFUSED_SUFFIXES):
            return f"a path whose segments do not end in {', '.join(_REFUSED_SUFFIXES)}"
    if segments[0] in RESERVED_SEGMENTS:
        return f"another first segment ('{segments[0]}' belongs to the web part)"
    return None


def parents(path: str) -> list[str]:
    """Return the proper prefixes of a path, nearest first: a/b/c gives a/b, a."""
    segments = path.split("/")
    return ["/".join(segments[:end]) for end in range(len(segments) - 1, 0, -1)]


def _is_segment(text: str) -> bool:
    return bool(text) and text[0] in _FIRST and _NAME.issuperset(text)
