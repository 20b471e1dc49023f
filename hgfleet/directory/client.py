"""LDAP client of the operators' commands: search, read an entry, apply a change."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, Final, Protocol

from hgfleet.core.errors import (
    AccessDeniedError,
    HgfleetError,
    UnavailableError,
)
from hgfleet.directory import connection
from hgfleet.directory.entries import texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hgfleet.directory.entries import Attributes
    from hgfleet.directory.entry_changes import Change

LOCAL: Final = "ldapi:///"
"""The server of this host through its socket, where root is the administrator."""

TIMEOUT_S: Final = 30
PAGE: Final = 500
"""Entries a page; many servers give no more than 500 or 1000 entries at once."""


class DirectoryError(HgfleetError):
    """The directory has unexpected content, or refuses a change."""

    exit_code = 65


class Directory(Protocol):
    """A bound connection."""

    def suffix(self) -> str:
        """Return the top of the directory."""

    def search(
        self, base: str, filter_: str, attributes: Sequence[str], *, deep: bool = False
    ) -> Iterator[tuple[str, Attributes]]:
        """Yield the entries below `base` that match, page by page; none without a `base`."""

    def get(self, dn: str, attributes: Sequence[str]) -> Attributes | None:
        """Return an entry, or None."""

    def apply(self, change: Change) -> None:
        """Carry out a change; raise DirectoryError."""


class Connection:
    """A connection through python-ldap."""

    def __init__(
        self, uri: str, bind_dn: str = "", password_file: str = "", ca_file: str = ""
    ) -> None:
        connection.isolate()
        # Imported here: the controller has no python-ldap, and tests there cover all but this
        # class.
        import ldap

        self._ldap: Any = ldap
        self._uri = uri
        trusted = ca_file or ssl.get_default_verify_paths().openssl_cafile
        self._connection = connection.connect(ldap, uri, ca_file=trusted, timeout=TIMEOUT_S)
        try:
            if bind_dn:
                self._connection.simple_bind_s(bind_dn, connection.read_password(password_file))
            else:
                self._connection.sasl_external_bind_s()
        except ldap.LDAPError as error:
            raise self._error("log in", error) from error

    def suffix(self) -> str:
        """Return the first of the server's naming contexts."""
        root = self.get("", ["namingContexts"])
        names = texts(root or {}, "namingContexts")
        if not names:
            raise DirectoryError(f"{self._uri} has no database of its own")
        return names[0]

    def search(
        self, base: str, filter_: str, attributes: Sequence[str], *, deep: bool = False
    ) -> Iterator[tuple[str, Attributes]]:
        """Yield entries, page by page."""
        from ldap.controls import SimplePagedResultsControl

        ldap = self._ldap
        scope = ldap.SCOPE_SUBTREE if deep else ldap.SCOPE_ONELEVEL
        page = SimplePagedResultsControl(True, size=PAGE, cookie="")
        while True:
            try:
                message = self._connection.search_ext(
                    base, scope, filter_, list(attributes), serverctrls=[page], timeout=TIMEOUT_S
                )
                _, results, _, controls = self._connection.result3(message)
            except ldap.NO_SUCH_OBJECT:
                return
            except ldap.LDAPError as error:
                raise self._error(f"search {base}", error) from error
            for dn, entry in results:
                if dn is not None:  # a referral
                    yield dn, entry
            cookies = [c.cookie for c in controls if c.controlType == page.controlType]
            if not cookies or not cookies[0]:
                return
            page.cookie = cookies[0]

    def get(self, dn: str, attributes: Sequence[str]) -> Attributes | None:
        """Return an entry, or None."""
        ldap = self._ldap
        try:
            entries = self._connection.search_s(
                dn, ldap.SCOPE_BASE, "(objectClass=*)", list(attributes)
            )
        except ldap.NO_SUCH_OBJECT:
            return None
        except ldap.LDAPError as error:
            raise self._error(f"read {dn or 'the root entry'}", error) from error
        return entries[0][1] if entries else None

    def apply(self, change: Change) -> None:
        """Carry out a change."""
        ldap = self._ldap
        operations = {"add": ldap.MOD_ADD, "delete": ldap.MOD_DELETE, "replace": ldap.MOD_REPLACE}
        try:
            if change.kind == "add":
                entry = [(edit.attribute, list(edit.values)) for edit in change.edits]
                self._connection.add_s(change.dn, entry)
            elif change.kind == "delete":
                self._connection.delete_s(change.dn)
            else:
                edits = [
                    (operations[edit.do], edit.attribute, list(edit.values) or None)
                    for edit in change.edits
                ]
                self._connection.modify_s(change.dn, edits)
        except ldap.LDAPError as error:
            raise self._error(f"change {change.dn}", error) from error

    def _error(self, what: str, error: Any) -> HgfleetError:
        ldap = self._ldap
        details = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
        said = ": ".join(str(details[key]) for key in ("desc", "info") if details.get(key))
        text = f"cannot {what} at {self._uri}: {said or type(error).__name__}"
        if details.get("info") == "Permission denied":
            return AccessDeniedError(f"{text}. The socket is root's: run it with sudo")
        if isinstance(error, ldap.SERVER_DOWN | ldap.TIMEOUT | ldap.BUSY | ldap.UNAVAILABLE):
            way_out = " (is slapd running on this host?)" if self._uri.startswith("ldapi:") else ""
            return UnavailableError(text + way_out)
        if isinstance(error, ldap.REFERRAL | ldap.UNWILLING_TO_PERFORM):
            return DirectoryError(f"{text}. A replica takes no changes: do it on the provider")
        if isinstance(
            error, ldap.INSUFFICIENT_ACCESS | ldap.INVALID_CREDENTIALS | ldap.INAPPROPRIATE_AUTH
        ):
            return AccessDeniedError(f"{text}. On the directory's host root may do this")
        return DirectoryError(text)
