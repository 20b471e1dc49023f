"""Whether a host may be put back after a change. Pure, but for the end: it reads standard input.

`playbooks/roll/check.yml` gives the figures of `look.py` and `probe.py` to this program as JSON; it
prints JSON: `problems`, a sentence each, `held_seconds`, for which sessions were held when the host
got its release, and `notes`: what the check did without.
"""

from __future__ import annotations

import json
import statistics
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SLOW_FACTOR = 2.0
"""A page may take so many times as long as on the hosts that have not changed ..."""

SLOW_SECONDS = 0.25
"""... and this much longer: a host that has just started has empty caches, and machines stall."""


def problems(host: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each problem of a host, in the order of their weight.

    `host` has `expected` (the release, empty where the host has none), `look`, and for a web host
    `web` (figures) and `before` (seconds of its pages before the change, without a peer), for an
    ssh host `ssh` (the answer of `ssh_probe.py`).
    """
    look: Mapping[str, Any] = host["look"]
    sentences = list(look["inactive"])
    expected = host["expected"]
    if expected and look["release"] != expected:
        sentences.append(f"its release is {look['release'] or 'none'}, expected {expected}")
    elif expected:
        sentences += [
            f"{unit} still runs {release}, expected {expected}"
            for unit, release in look["running"].items()
            if release != expected
        ]
    sentences += host.get("ssh", {}).get("problems", [])
    web = host.get("web")
    return sentences + (web_problems(web, host.get("before") or ()) if web else [])


def web_problems(web: Mapping[str, Any], before: Sequence[float]) -> list[str]:
    """Return the problems that clients of a web host would meet."""
    sentences = [f"wrong data: {text}" for text in web["wrong"]]
    sentences += web["errors"][:3]
    # 404: the host is drained and well; 0: the request failed, and is among the errors.
    if web["health"] not in (0, 200, 404):
        sentences.append(f"/healthz says {web['health']}: {web['problem'] or 'no reason'}")
    if web["clone"]:
        sentences.append(f"a clone through it failed: {web['clone']}")
    slow = slowness(web["seconds"], web["peers"] or ([before] if before else []))
    return sentences + ([slow] if slow else [])


def held_seconds(host: Mapping[str, Any]) -> float | None:
    """Return for how long sessions were held at the change to this release, None if not at all."""
    held = host["look"]["held"]
    return held["seconds"] if held.get("release") == host["look"]["release"] else None


def slowness(own: Sequence[float], others: Sequence[Sequence[float]]) -> str:
    """Compare the median time of pages with the other hosts' medians; return the problem."""
    medians = [statistics.median(times) for times in others if times]
    if not own or not medians:
        return ""
    mine, most = statistics.median(own), max(medians)
    if mine <= max(most * SLOW_FACTOR, most + SLOW_SECONDS):
        return ""
    return f"a page takes {mine:.2f} s, where it took {most:.2f} s before or on unchanged hosts"


if __name__ == "__main__":
    figures = json.load(sys.stdin)
    verdict = {
        "problems": problems(figures),
        "held_seconds": held_seconds(figures),
        "notes": figures.get("notes", []),
    }
    print(json.dumps(verdict))
