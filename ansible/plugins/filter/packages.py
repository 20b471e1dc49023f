"""The filter that says whether apt has anything to do, from what the role `base` has read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def any_missing(names: Iterable[str], installed: Mapping[str, Any] | None) -> bool:
    """Whether any of these packages is not installed, or nothing is known of them.

    `installed` is the result of `dpkg-query` with lines such as "ii nginx": wanted, and installed.
    A name with a version, such as nginx=1.26, is left to apt.
    """
    present = {
        line.split()[1]
        for line in (installed or {}).get("stdout", "").splitlines()
        if line.startswith(("ii ", "hi "))
    }
    return not present.issuperset(names)


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return the filters by name."""
        return {"any_missing": any_missing}
