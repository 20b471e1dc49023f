"""TLS with the certificates of the site's hosts, which the role `base` renews."""

from __future__ import annotations

import ssl
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hgfleet.replication.protocol.settings import Settings


class Certificates:
    """The TLS context of this host, made again when the certificate, key or CA was replaced.

    `purpose` says which side it authenticates: a server, or clients by their certificates. Safe in
    threads.
    """

    def __init__(self, settings: Settings, purpose: ssl.Purpose) -> None:
        self.files = settings.ca, settings.certificate, settings.key
        self._purpose = purpose
        self._lock = threading.Lock()
        self._made: tuple[object, ssl.SSLContext] | None = None

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection. Raises OSError."""
        stats = [file.stat() for file in self.files]
        stamp = [(status.st_ino, status.st_mtime_ns, status.st_size) for status in stats]
        with self._lock:
            if self._made is None or self._made[0] != stamp:
                ca, certificate, key = self.files
                context = ssl.create_default_context(self._purpose, cafile=str(ca))
                context.minimum_version = ssl.TLSVersion.TLSv1_3
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_cert_chain(certificate, key)
                self._made = stamp, context
            return self._made[1]
