"""The lists of repositories: the index of a folder in HTML, and /api/repositories in JSON."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from hgfleet.web.http import headers, pages
from hgfleet.web.http.exchange import not_found
from hgfleet.web.index import catalogue as catalogues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hgfleet.core.principal import Principal
    from hgfleet.web.http.exchange import Exchange
    from hgfleet.web.http.headers import Headers
    from hgfleet.web.http.settings import Settings
    from hgfleet.web.index.catalogue import Catalogue, Page
    from hgfleet.web.requests.responses import Responses

API: Final = "/api/repositories"

PAGE: Final = 200
"""Repositories on a page for people."""

API_PAGE: Final = 1000
"""Repositories in an answer for programs."""


class Listing:
    """Lists the repositories that a client may read. Safe in threads."""

    def __init__(
        self,
        settings: Settings,
        responses: Responses,
        changed: Callable[[str, str], int | None],
        *,
        has_sign_in: bool,
    ) -> None:
        """`changed` reads the time of the last change of a repository at a path, by identity."""
        self._settings = settings
        self._responses = responses
        self._changed = changed
        self._has_sign_in = has_sign_in
        # With sign-in, each person sees other repositories at the same URL.
        self._vary: Headers = (headers.DEPENDS_ON_WHO,) if has_sign_in else ()

    def index(
        self, exchange: Exchange, catalogue: Catalogue, folder: str, principal: Principal | None
    ) -> Iterable[bytes]:
        """Send a page of the index of a folder, "" for the top; raises RefusedError."""
        exchange.entry["command"] = "index"
        page = _page(exchange, catalogue, folder, principal, PAGE)
        body = pages.index_html(
            self._settings.title,
            exchange.base_url(self._settings.public_url),
            self._settings.ssh_url,
            folder,
            catalogue.registry,
            self._rows(page),
            principal.name if principal else "" if self._has_sign_in else None,
            pages.Paging(page.number, page.count, page.total),
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
        self, exchange: Exchange, catalogue: Catalogue, principal: Principal | None
    ) -> Iterable[bytes]:
        """Send the list as JSON; raises RefusedError for a folder without repositories."""
        exchange.entry["command"] = "api"
        folder = exchange.path.removeprefix(API).strip("/")
        page = _page(exchange, catalogue, folder, principal, API_PAGE)
        if folder and not page.total:
            raise not_found()
        base_url = exchange.base_url(self._settings.public_url)
        following = None
        if page.number < page.count:
            # A folder with a repository in it has no character to escape.
            place = f"{API}/{folder}" if folder else API
            following = f"{base_url}{place}?page={page.number + 1}"
        body = pages.index_json(
            base_url, self._settings.ssh_url, catalogue.registry, self._rows(page), following
        )
        final = (headers.JSON, headers.REVALIDATE, *self._vary)
        return self._responses.send(exchange, HTTPStatus.OK, final, body, headers.etag(body))

    def _rows(self, page: Page) -> list[pages.Row]:
        return [
            pages.Row(
                path=entry.repository.path,
                description=entry.repository.description,
                namespace=entry.namespace,
                changed=self._changed(entry.repository.path, entry.repository.identity),
            )
            for entry in page.entries
        ]


def _page(
    exchange: Exchange,
    catalogue: Catalogue,
    folder: str,
    principal: Principal | None,
    size: int,
) -> Page:
    """The page that the query names; raises RefusedError if there is none."""
    named = parse_qs(exchange.query, keep_blank_values=True).get("page")
    number = catalogues.page_number(named[0] if named else None)
    page = catalogues.page_of(catalogue.listed(folder, principal), size, number)
    if page is None:
        raise not_found()
    return page


def is_api(path: str) -> bool:
    """Whether a path is the API, or a folder in it."""
    return path == API or path.startswith(f"{API}/")
