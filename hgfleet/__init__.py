"""Daemons and commands that run beside Mercurial on the hosts of a hosted service.

Every part is a package of its own, and `core` has what all of them use. Parts meet on a host in the
compiled registry on disk, and in the files that `docs/architecture.md` names.
"""

from __future__ import annotations

__version__ = "0.1.0"
