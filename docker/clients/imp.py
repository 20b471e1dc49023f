"""All that Mercurial 5.9 uses of the module `imp`, which Python 3.12 removed."""


def is_frozen(_name: str) -> bool:
    """Say whether a module is built into the interpreter."""
    return False
