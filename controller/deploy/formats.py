"""Whether a release reads the files that another release wrote on a host's disk. Pure.

A release declares in `formats.json` each state that outlives it: the format that it writes, and the
formats that it reads (`hgfleet/core/formats.py`). A deploy begins only where the new release reads
the state of the present release, and the present release reads the state of the new release: else
there is no way back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controller.deploy.decide import DeployError

if TYPE_CHECKING:
    from collections.abc import Mapping


def unread(writer: Mapping[str, Any], reader: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each state of the writer that the reader cannot read.

    A state that the reader does not declare is unknown to it, and so is not touched.
    """
    return [
        f"{state}: format {declared['writes']} is written, expected one of"
        f" {', '.join(map(str, reader[state]['reads']))}"
        for state, declared in sorted(writer.items())
        if state in reader and declared["writes"] not in reader[state]["reads"]
    ]


def require_way(
    present: Mapping[str, Mapping[str, Any]], version: str, new: Mapping[str, Any]
) -> None:
    """Refuse a change of release that could not go on from, or back to, the present release.

    `present` has the declarations by version; empty declarations, of a release from before there
    were any, refuse nothing.
    """
    lines = []
    for name, declared in present.items():
        lines += [f"  | {version} cannot read {text} by {name}" for text in unread(declared, new)]
        lines += [f"  | {name} cannot read {text} by {version}" for text in unread(new, declared)]
    if lines:
        raise DeployError(
            f"There is no way to {version} and back:\n" + "\n".join(sorted(set(lines))),
            "Nothing was changed. Deploy a release in between that reads both formats and writes"
            " the former one.",
        )
