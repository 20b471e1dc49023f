"""Write the effective configuration of the running cluster into this folder."""

from __future__ import annotations

from testing.e2e.cluster import Cluster
from testing.e2e.conftest import environment
from testing.effective.reading import FOLDER, pages


def main() -> None:
    """Write every page, and remove pages that no host has any more."""
    texts = pages(Cluster(environment()))
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    for name, text in texts.items():
        (FOLDER / name).write_text(text)
    print(f"{len(texts)} pages in {FOLDER}")


if __name__ == "__main__":
    main()
