"""Daemons and commands that run beside Mercurial on the hosts of a hosted service.

Every part is a module or package of its own: `registry` (what repositories there are and who may
do what), `access` (the decisions), `shell` and `keys` (SSH), `web` (HTTPS), `bundles` (clone
bundles). They meet in the compiled registry on disk and nowhere else.
"""

from __future__ import annotations

__version__ = "0.1.0"
