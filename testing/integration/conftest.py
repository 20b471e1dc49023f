"""Tests with a real hg."""

from __future__ import annotations

from mercurial import initialization

# Mercurial cannot be completed in a process that has opened a repository, and some tests of these
# processes open one without the rest.
initialization.init()
