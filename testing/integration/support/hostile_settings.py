"""Settings in a repository that run code; `hg`, which owns the file, could write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_HOOKS: Final = (
    *("changegroup", "commit", "incoming", "outgoing", "preoutgoing", "prechangegroup", "pretag"),
    *("pretxnchangegroup", "pretxnopen", "pretxnclose", "txnclose", "prelistkeys", "listkeys"),
    *("prepushkey", "pushkey", "update", "preupdate"),
    *(f"{when}-{what}" for when in ("pre", "post", "fail") for what in ("log", "verify", "serve")),
    *(f"{when}-{what}" for when in ("pre", "post", "fail") for what in ("pull", "clone", "bundle")),
)

_ALIASES: Final = ("log", "verify", "bundle", "pull", "clone", "unbundle", "heads", "debugbundle")

_EXTENSION: Final = """\
from pathlib import Path
def ran(how):
    (Path({folder!r}) / how).touch()
ran("import")
def uisetup(ui):
    ran("uisetup")
def extsetup(ui):
    ran("extsetup")
def reposetup(ui, repo):
    ran("reposetup")
def hook(**kwargs):
    ran("hook")
"""


class HostileSettings:
    """Settings of a repository, each of which leaves a file when it is followed."""

    def __init__(self, folder: Path, repository: Path) -> None:
        """Write them into a repository; `folder` gets the files."""
        self._folder = folder / "ran"
        self._folder.mkdir()
        extension = folder / "hostile.py"
        extension.write_text(_EXTENSION.format(folder=str(self._folder)))
        text = f"[extensions]\nhostile = {extension}\n[hooks]\n"
        for name in _HOOKS:
            text += f"{name}.python = python:{extension}:hook\n"
            text += f"{name}.shell = touch {self._folder}/shell-{name}\n"
        text += "[alias]\n"
        text += "".join(f"{name} = !touch {self._folder}/alias-{name}\n" for name in _ALIASES)
        text += f"[ui]\nssh = touch {self._folder}/ssh\neditor = touch {self._folder}/editor\n"
        text += f"merge = hostile\n[merge-tools]\nhostile.executable = {extension}\n"
        text += "[phases]\npublish = no\n"
        for name in ("hgrc", "hgrc-not-shared"):
            (repository / ".hg" / name).write_text(text)

    def followed(self) -> list[str]:
        """Return which of them were followed."""
        return sorted(path.name for path in self._folder.iterdir())
