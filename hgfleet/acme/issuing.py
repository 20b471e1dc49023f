"""The folder of ACME: lego's run, and the certificate that is served (I/O).

lego/               accounts and certificates as lego keeps them, only for the user of the unit
issued/TIME/        cert.pem with its chain, key.pem, request.json (what was asked for)
served              link to the folder of the certificate in use; before the first certificate to
                    /etc/hgfleet/tls, the certificate of the site's CA
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hgfleet.acme import renewal
from hgfleet.acme.renewal import Issued
from hgfleet.core import certificate, files
from hgfleet.core.errors import HostError, UnavailableError

if TYPE_CHECKING:
    from hgfleet.acme.settings import Settings

LEGO: Final = "/usr/bin/lego"
LEGO_SECONDS: Final = 600
"""Time for a run of lego: each name has 60 s for its challenge, in parallel."""

ACCOUNTS: Final = "lego"
ISSUED: Final = "issued"
SERVED: Final = "served"
CERTIFICATE: Final = "cert.pem"
KEY: Final = "key.pem"
REQUEST: Final = "request.json"


def served(folder: Path) -> Issued | None:
    """Read the certificate in use; None if it is damaged or not from the CA."""
    used = folder / SERVED
    try:
        request: Any = json.loads((used / REQUEST).read_text("utf-8"))
        # The host's own certificate comes first, then its chain.
        not_before, not_after = certificate.validities((used / CERTIFICATE).read_text("ascii"))[0]
        return Issued(request["directory"], frozenset(request["names"]), not_before, not_after)
    except (FileNotFoundError, ValueError, TypeError, KeyError, IndexError):
        return None


def issue(settings: Settings, folder: Path, lego: str = LEGO) -> None:
    """Have the CA issue a certificate. lego writes to stdout and stderr.

    Raises UnavailableError where lego ends with an error, HostError where it cannot run.
    """
    environment = {**os.environ, "LEGO_CA_CERTIFICATES": str(settings.directory_ca)}
    command = [lego, *renewal.arguments(settings, folder / ACCOUNTS)]
    try:
        done = subprocess.run(command, env=environment, check=False, timeout=LEGO_SECONDS)
    except OSError as error:
        raise HostError(f"{lego}: {error.strerror}; the role `acme` installs it") from error
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"lego has not ended after {LEGO_SECONDS} s") from error
    if done.returncode != 0:
        raise UnavailableError(
            f"lego ended with the exit code {done.returncode}, and its lines above say why; the "
            f"certificate in use stays, and the next run of the timer tries again"
        )


def install(settings: Settings, folder: Path, renewed: Path, now: float) -> Path:
    """Put lego's newest certificate into use; return its folder.

    `renewed` is a file that announces the swap to the unit that runs next, which reloads the
    servers. It is written before the swap: a run that is killed in between causes a superfluous
    reload, never a missing reload.
    """
    made = folder / ACCOUNTS / "certificates"
    pair = {CERTIFICATE: made / f"{settings.names[0]}.crt", KEY: made / f"{settings.names[0]}.key"}
    check(pair[CERTIFICATE], pair[KEY], now)
    above = folder / ISSUED
    above.mkdir(exist_ok=True)
    above.chmod(0o755)
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    new = Path(tempfile.mkdtemp(prefix=f"{moment}-", dir=above))
    new.chmod(0o755)
    files.replace(new / CERTIFICATE, pair[CERTIFICATE].read_bytes())
    files.replace(new / KEY, pair[KEY].read_bytes(), mode=0o640)
    request = {"directory": settings.directory, "names": list(settings.names)}
    files.replace(new / REQUEST, f"{json.dumps(request)}\n")
    files.replace(renewed, "", durable=False)
    with files.open_folder(folder) as opened:
        files.replace_link_at(opened, SERVED, str(new))
        os.fsync(opened)
    # The certificate before, and leftovers of killed runs.
    for former in above.iterdir():
        if former != new:
            shutil.rmtree(former)
    # The copy of the key that is in use is the only copy.
    for left in pair.values():
        with suppress(FileNotFoundError):
            left.unlink()
    return new


def check(chain: Path, key: Path, now: float) -> None:
    """Raise HostError unless servers can use certificate and key, now."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain, key)
        not_before, not_after = certificate.validities(chain.read_text("ascii"))[0]
    except (OSError, ValueError, IndexError) as error:
        raise HostError(f"{chain} and its key cannot be used: {error}") from error
    if not not_before - renewal.DAY_SECONDS < now < not_after:
        raise HostError(f"{chain} is not valid now; is the clock of this host right?")
