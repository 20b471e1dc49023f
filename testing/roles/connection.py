"""The connection of testinfra to a container of this machine: fast, where this is possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from testinfra.backend.docker import DockerBackend

from testing.e2e.container import entering

if TYPE_CHECKING:
    from testinfra.backend.base import CommandResult


class EnteringBackend(DockerBackend):
    """Runs commands in the namespaces of a container, without the engine."""

    def run(self, command: str, *args: str, **kwargs: Any) -> CommandResult:
        """Return the result of a shell command, with the quoted arguments."""
        if self.user is not None:
            return super().run(command, *args, **kwargs)
        script = self.get_command(command, *args)
        words = [*entering(self.name), "/bin/sh", "-c", script]
        done = self.run_local(" ".join(["%s"] * len(words)), *words)
        done.command = self.encode(script)
        return done
