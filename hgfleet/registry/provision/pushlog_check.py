"""Begin and verify push logs, by hg in this process."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import HostError, PushlogError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

USER: Final = "operator:pushlog"


def run(places: Mapping[str, Path], action: str, hgrc: str, *, named: bool) -> None:
    """Adopt, accept or verify repositories by their path, and print the result of each.

    A repository that this host does not have is skipped, unless it was `named` (HostError).
    Raises PushlogError if a log has problems.
    """
    wrong = 0
    for path, place in places.items():
        if not (place / ".hg").is_dir():
            if named:
                raise HostError(f"{path}: this host does not have it; run `hgfleet registry apply`")
            continue
        problems = list(_debugpushlog(place, action, hgrc))
        wrong += bool(problems)
        print("\n".join(f"{path}: {problem}" for problem in problems or ["ok"]), flush=True)
    if wrong:
        raise PushlogError(
            f"{wrong} push logs have problems; docs/runbooks/pushlog.md has the repairs"
        )


def _debugpushlog(place: Path, action: str, hgrc: str) -> Iterator[str]:
    """Run hg; yield the problems that it prints, a line each."""
    # hg reads its environment when it is imported.
    os.environ |= {"HGRCPATH": hgrc, "HGPLAIN": "1", "HGENCODING": "utf-8", "HGFLEET_USER": USER}
    from mercurial import dispatch, main_script

    said, errors = io.BytesIO(), io.BytesIO()
    words = [b"-R", os.fsencode(place), b"debugpushlog", b"--" + action.encode()]
    request = main_script.request(words, fin=io.BytesIO(), fout=said, ferr=errors)
    code = dispatch.dispatch(request)
    text = (said.getvalue() + errors.getvalue()).decode("utf-8", "replace")
    if code:
        yield from [line for line in text.splitlines() if line] or [f"hg ends with code {code}"]
