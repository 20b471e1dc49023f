"""Python files that belong to no package: plugins of Ansible, programs of roles, hg extensions."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from controller.bootstrap import ROOT


def module(path: str) -> Any:
    """Load a file, by its path below the top of the repository, as a module of its own."""
    name = "loaded_" + path.removesuffix(".py").replace("/", "_")
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    # A dataclass looks up its module in sys.modules.
    sys.modules[name] = loaded
    spec.loader.exec_module(loaded)
    return loaded
