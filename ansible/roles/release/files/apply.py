"""Unpack a release from one that the host has and the difference between them.

    apply.py FORMER_VERSION SHA256 DELTA [FOLDER]

tar makes the archive of the former release anew, zstd puts the difference on it, and the result
counts only with this checksum: a release that was changed on the host leads to another one. Prints
JSON: `unpacked`, and `reason` if the whole archive has to be copied. It uses nothing but Python's
own modules.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = "/opt/hgfleet"

PACKED = ("--create", "--owner", "0", "--group", "0", "--sort", "name")
"""The options of docker/release/assemble.sh, so that the same files give the same bytes."""


def unpack(folder: Path, former: str, sha256: str, delta: Path) -> str:
    """Unpack into `incoming`; return why not, if so. Raises OSError and CalledProcessError."""
    with tempfile.TemporaryDirectory(dir=folder / "incoming") as scratch:
        before, after = Path(scratch, "before"), Path(scratch, "after")
        releases = str(folder / "releases")
        _run("tar", *PACKED, "--file", str(before), "--directory", releases, former)
        _run(
            "zstd", "-q", "-d", "--long=27", f"--patch-from={before}", str(delta), "-o", str(after)
        )
        with after.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != sha256:
            return f"the result has the checksum {found[:16]}, expected {sha256[:16]}"
        _run("tar", "--extract", "--file", str(after), "--directory", str(folder / "incoming"))
    return ""


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


def main(words: Sequence[str]) -> None:
    """Print the result; the whole archive is always a way, so no failure is one of the run."""
    former, sha256, delta, *folder = words
    try:
        reason = unpack(Path(*folder or [FOLDER]), former, sha256, Path(delta))
    except subprocess.CalledProcessError as error:
        reason = f"{error.cmd[0]}: {error.stderr.strip()[-200:]}"
    except OSError as error:
        reason = str(error)
    print(json.dumps({"unpacked": not reason, "reason": reason}))


if __name__ == "__main__":
    main(sys.argv[1:])
