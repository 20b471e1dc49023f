"""Daemons and commands that run with Mercurial on the hosts of a hosted service.

Every part is a package of its own, and all parts use `core`. On a host the parts share the compiled
registry on disk, and the files that `docs/architecture.md` names.
"""

from __future__ import annotations

__version__ = "0.1.0"
