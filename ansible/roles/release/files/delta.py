"""Make the difference between the archives of two releases, on the controller.

    delta.py FORMER_ARCHIVE ARCHIVE

Prints JSON: `delta`, the file for `apply.py` on the host, and `sha256`, the checksum of the new
archive without its compression. `delta` is empty where the whole archive has to be copied, and
`reason` says why. A difference is made once, and kept beside the archive.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW = "--long=27"
"""128 MiB, so that any place of the former release is in reach (zstd(1), --patch-from)."""

WORTH = 0.5
"""A difference above this share of the archive is not worth the work on the host."""


def name_of(former: Path, archive: Path) -> str:
    """Return the name of a difference."""
    names = [path.name.removesuffix(".tar.gz") for path in (former, archive)]
    return f"{names[0]}-to-{names[1]}.delta"


def obstacle(former: Path, archive: Path, zstd: str | None) -> str:
    """Return why the whole archive has to be copied; empty if a difference can be made."""
    if not zstd:
        return "the controller has no zstd"
    missing = [path for path in (former, archive) if not path.is_file()]
    return f"{missing[0]} is not on the controller" if missing else ""


def is_worth(delta_bytes: int, archive_bytes: int) -> bool:
    """Whether a difference saves enough of the transfer."""
    return delta_bytes <= archive_bytes * WORTH


def make(former: Path, archive: Path, zstd: str) -> dict[str, str]:
    """Make the difference, or find it. Raises OSError and CalledProcessError."""
    delta = archive.with_name(name_of(former, archive))
    told = delta.with_suffix(".json")
    # Each host of a batch asks at the same time.
    with archive.with_name("delta.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (told.exists() and delta.exists()):
            with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
                checksum = _write(former, archive, zstd, Path(scratch))
                Path(scratch, "delta").replace(delta)
                # Last: a difference counts when it is complete.
                Path(scratch, "checksum").write_text(json.dumps(checksum))
                Path(scratch, "checksum").replace(told)
        checksum = json.loads(told.read_text())
    if not is_worth(delta.stat().st_size, archive.stat().st_size):
        return {"delta": "", "sha256": "", "reason": "the difference is nearly as large"}
    return {"delta": str(delta), "sha256": checksum, "reason": ""}


def _write(former: Path, archive: Path, zstd: str, scratch: Path) -> str:
    """Write the difference into a folder, as `delta`; return the checksum of the new archive."""
    before, after = _unpacked(former, scratch / "before"), _unpacked(archive, scratch / "after")
    words = [zstd, "-q", "-3", WINDOW, f"--patch-from={before}", str(after)]
    subprocess.run([*words, "-o", str(scratch / "delta")], check=True, capture_output=True)
    with after.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unpacked(archive: Path, target: Path) -> Path:
    with gzip.open(archive) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file)
    return target


def main(words: Sequence[str]) -> None:
    """Print the result; the whole archive is always a way, so no failure is one of the run."""
    former, archive = map(Path, words)
    zstd = shutil.which("zstd")
    reason = obstacle(former, archive, zstd)
    found = {"delta": "", "sha256": "", "reason": reason}
    if zstd and not reason:
        try:
            found = make(former, archive, zstd)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            found["reason"] = str(error)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
