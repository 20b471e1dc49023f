"""What Mercurial 5.9 knows as `mercurial.zstd`: it has a copy of this package in C."""

import sys

import zstandard

sys.modules[__name__] = zstandard
