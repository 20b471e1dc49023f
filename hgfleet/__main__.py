"""`python -m hgfleet` is `hgfleet`."""

from __future__ import annotations

import sys

from hgfleet.cli import main

if __name__ == "__main__":
    sys.exit(main())
