"""The mark that a restore keeps of its steps, and the data of a host that a restore would harm.

Runs on the host to restore (`internal/tasks/restore_mark.yml`), which may be blank, and uses
nothing but Python's own modules. The argument is a request in base64 and JSON; it prints a line of
JSON.

| request | does |
| --- | --- |
| `begin` | look at the host; mark that a restore begins, unless that is refused |
| `step` | mark the step that is done |

| step | means | a further run |
| --- | --- | --- |
| `begun` | nothing, or a part, is restored | goes on, while the host serves nothing |
| `restored` | files and repositories are in their places | restores nothing again, goes on |
| `finished` | the restore is over | is refused |

A host without a mark that has repositories with changesets was never restored, and lost nothing: it
is refused, because a restore would stop it and put back keys and tokens of the backup.
`restore_over` with the name of the host is the operator's word for each refusal.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MARK = Path("/var/lib/hgfleet-deploy/restore.json")
REPOSITORIES = Path("/srv/hg/repos")
SYSTEMD = Path("/run/systemd/system")
"""There while systemd runs, sd_booted(3)."""

CHANGELOG = ".hg/store/00changelog.i"
SERVING = ("hgfleet-sshd*", "hgfleet-web*", "nginx*", "hgfleet-relay*", "hgfleet-source*")
"""Units that serve, as `restored_host.yml` stops them before it restores."""

BEGUN, RESTORED, FINISHED = "begun", "restored", "finished"
SHOWN = 3


def refusal(
    mark: Mapping[str, Any] | None, asked: Mapping[str, Any], has: list[str], serving: list[str]
) -> str:
    """Return why a host is not restored, empty if it may be.

    `has` are its repositories with changesets, `serving` its units at work, `asked` the request:
    `host`, `over` (of the operator) and `at` (the time of the backup).
    """
    host, over = asked["host"], asked["over"]
    if over and over != host:
        return f"restore_over is {over}, expected {host}, the host to restore, or nothing"
    if over:
        return ""
    way = f"nothing was changed; -e restore_over={host} restores over what is there"
    if mark is None and has:
        named = ", ".join(has[:SHOWN]) + (", ..." if len(has) > SHOWN else "")
        return (
            f"{host} has {len(has)} repositories with changesets ({named}), expected a host that "
            f"lost its disk: is another one meant? {way}, and puts back keys and tokens of the "
            "backup, revoked ones too"
        )
    if mark is None:
        return ""
    if mark["host"] != host:
        return f"this host was restored as {mark['host']}, got {host}: is another one meant? {way}"
    if mark["step"] == FINISHED:
        return f"the restore of {host} was finished on {mark['time']}: {way}"
    if mark["at"] != asked["at"]:
        return (
            f"the restore of {host} that is not finished has restore_at {mark['at'] or 'not set'}, "
            f"got {asked['at'] or 'none'}: give the same to go on; {way}"
        )
    if mark["step"] == BEGUN and serving:
        return (
            f"the restore of {host} was not finished, and the host serves meanwhile "
            f"({', '.join(serving)}): {way}"
        )
    return ""


def step_of(mark: Mapping[str, Any] | None, asked: Mapping[str, Any], has: list[str]) -> str:
    """Return the step after which an accepted run goes on, BEGUN for a new restore.

    Also with `over`: a repeated command means the same restore, unless the host has no repository
    with changesets (`has`). Then the restored repositories are lost again.
    """
    if mark is None or mark["step"] == FINISHED:
        return BEGUN
    if asked["over"] and not has:
        return BEGUN
    is_same = (mark["host"], mark["at"]) == (asked["host"], asked["at"])
    return str(mark["step"]) if is_same else BEGUN


def begin(file: Path, root: Path, asked: Mapping[str, Any], serving: list[str]) -> dict[str, Any]:
    """Mark that a restore begins or goes on, and return its step; or return the refusal."""
    mark = read(file)
    has = with_changesets(root)
    if reason := refusal(mark, asked, has, serving):
        return {"refusal": reason}
    step = step_of(mark, asked, has)
    if not asked.get("dry"):
        write(file, {**_mark(asked), "step": step})
    return {"step": step}


def note(file: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Mark a step that is done."""
    write(file, {**_mark(asked), "step": asked["step"]})
    return {"step": asked["step"]}


def _mark(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"host": asked["host"], "at": asked["at"], "time": asked["time"]}


def with_changesets(root: Path) -> list[str]:
    """Return the paths of repositories that have changesets."""
    paths = []
    for above, folders, _ in os.walk(root):
        if ".hg" not in folders:
            folders[:] = [name for name in folders if name[0] != "."]
            continue
        folders.clear()
        try:
            if (Path(above) / CHANGELOG).stat().st_size:
                paths.append(str(Path(above).relative_to(root)))
        except OSError:
            continue
    return sorted(paths)


def read(file: Path) -> dict[str, Any] | None:
    """Read the mark; if it cannot be read, return an unfinished restore of another host."""
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        return None
    try:
        mark = json.loads(text)
        return {name: str(mark[name]) for name in ("host", "at", "time", "step")}
    except (ValueError, KeyError, TypeError):
        return {"host": "a host that its mark does not tell", "at": "", "time": "", "step": BEGUN}


def write(file: Path, content: Mapping[str, Any]) -> None:
    """Replace the mark; it is on the disk at the return."""
    file.parent.mkdir(mode=0o755, exist_ok=True)
    fresh = file.with_suffix(".new")
    with fresh.open("w", encoding="utf-8") as opened:
        opened.write(json.dumps(content) + "\n")
        opened.flush()
        os.fsync(opened.fileno())
    fresh.replace(file)


def units() -> list[str]:
    """Return the units at work that serve; none where no systemd runs."""
    if not SYSTEMD.exists():
        return []
    command = ["systemctl", "list-units", "--plain", "--no-legend", "--state=active", *SERVING]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.split()[0] for line in done.stdout.splitlines() if line.strip()]


if __name__ == "__main__":
    os.umask(0o022)
    request = json.loads(base64.b64decode(sys.argv[1]))
    place = Path(request.get("mark", MARK))
    if request["action"] == "begin":
        print(json.dumps(begin(place, Path(request.get("root", REPOSITORIES)), request, units())))
    else:
        print(json.dumps(note(place, request)))
