"""The lists of repositories: the index of a folder in HTML, and /api/repositories in JSON."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from hgfleet.hg.fingerprint import CHANGELOG
from hgfleet.registry.permissions import may_read
from hgfleet.web import headers, pages
from hgfleet.web.exchange import not_found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hgfleet.core.principal import Principal
    from hgfleet.hg.fingerprint import Fingerprint
    from hgfleet.registry.model import Registry
    from hgfleet.web.exchange import Exchange
    from hgfleet.web.headers import Headers
    from hgfleet.web.responses import Responses
    from hgfleet.web.settings import Settings

API: Final = "/api/repositories"


class Listing:
    """Lists the repositories that a client may read. Safe in threads."""

    def __init__(
        self,
        settings: Settings,
        responses: Responses,
        fingerprint: Callable[[str], Fingerprint],
        *,
        has_sign_in: bool,
    ) -> None:
        """`fingerprint` reads the fingerprint of a repository, given its path."""
        self._settings = settings
        self._responses = responses
        self._fingerprint = fingerprint
        self._has_sign_in = has_sign_in
        # With sign-in, the same address lists other repositories for each person.
        self._vary: Headers = (headers.DEPENDS_ON_WHO,) if has_sign_in else ()

    def index(
        self, exchange: Exchange, registry: Registry, folder: str, principal: Principal | None
    ) -> Iterable[bytes]:
        """Send the index of a folder, "" for the top."""
        exchange.entry["command"] = "index"
        body = pages.index_html(
            self._settings.title,
            exchange.base_url(self._settings.public_url),
            self._settings.ssh_url,
            folder,
            registry,
            self._rows(registry, folder, principal),
            principal.name if principal else "" if self._has_sign_in else None,
        )
        final = (
            headers.HTML,
            ("Content-Security-Policy", pages.CONTENT_SECURITY_POLICY),
            headers.REVALIDATE,
            *self._vary,
            *headers.FOR_PAGES,
        )
        return self._responses.send(exchange, HTTPStatus.OK, final, body, headers.etag(body))

    def api(
        self, exchange: Exchange, registry: Registry, principal: Principal | None
    ) -> Iterable[bytes]:
        """Send the same list as JSON; raises RefusedError for a folder without any."""
        exchange.entry["command"] = "api"
        folder = exchange.path.removeprefix(API).strip("/")
        listed = self._rows(registry, folder, principal)
        if folder and not listed:
            raise not_found()
        base_url = exchange.base_url(self._settings.public_url)
        body = pages.index_json(base_url, self._settings.ssh_url, registry, listed)
        final = (headers.JSON, headers.REVALIDATE, *self._vary)
        return self._responses.send(exchange, HTTPStatus.OK, final, body, headers.etag(body))

    def _rows(
        self, registry: Registry, folder: str, principal: Principal | None
    ) -> list[pages.Row]:
        changed: dict[str, int | None] = {}
        for path, repository in registry.repositories.items():
            if may_read(repository, principal):
                changelog = self._fingerprint(path).signatures[CHANGELOG]
                changed[path] = changelog[2] // 1_000_000_000 if changelog else None
        return pages.rows(registry, folder, changed, principal)


def is_api(path: str) -> bool:
    """Whether a path is the API, or a folder in it."""
    return path == API or path.startswith(f"{API}/")
