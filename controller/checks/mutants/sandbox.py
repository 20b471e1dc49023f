"""A copy of the checkout, and a process that can write to nothing else.

A mutated decision may delete files or kill processes that it should spare. So mutants run in
a mount namespace whose file systems are read-only but for the copy and the results, and in a
namespace of processes. That takes root, or a kernel that gives user namespaces to all users.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

INSIDE: Final = "HGFLEET_MUTANTS_SANDBOX"
"""Variable of the environment that names the folder of the copy to the process inside."""

SCRIPT: Final = """\
mount --make-rprivate /
for folder in "$1" "$2"; do mount --bind "$folder" "$folder"; done
findmnt --raw --noheadings --output TARGET | while read -r target; do
    case $target in
        "$1" | "$2" | /proc | /proc/* | /sys/* | /dev | /dev/pts | /dev/mqueue) ;;
        *) mount -o remount,bind,ro "$target" ;;
    esac
done
shift 2
exec "$@"
"""


def command(folder: Path, results: Path, words: Sequence[str], *, root: bool) -> list[str]:
    """Return the command line that runs `words` where only two folders can be written."""
    own = [] if root else ["--map-root-user"]
    spaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    shell = ["sh", "-ec", SCRIPT, "sh", str(folder), str(results)]
    return ["unshare", *own, *spaces, *shell, *words]


def make_copy(checkout: Path, names: Iterable[str], folder: Path) -> Path:
    """Copy the files of a checkout; the environment of the controller stays where it is."""
    copy = folder / "copy"
    for name in names:
        place = copy / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(checkout / name, place, follow_symlinks=False)
    (copy / ".venv").symlink_to((checkout / ".venv").resolve())
    (folder / "tmp").mkdir()
    return copy


def is_shut(places: Iterable[Path]) -> bool:
    """Whether none of these folders can be written; root has no more rights than that here."""
    return not any(os.access(place, os.W_OK) for place in places)
