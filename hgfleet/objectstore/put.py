"""Upload of a small object with a single request (I/O).

`Bucket` does everything else. Its client costs 0.1 s of processor time and 14 MiB, mostly for
operations of S3 that this upload does not need.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING
from urllib.parse import quote

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import BotoCoreError
from botocore.httpsession import URLLib3Session

from hgfleet.core.errors import UnavailableError
from hgfleet.core.text import shown
from hgfleet.objectstore.bucket import error_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hgfleet.objectstore.settings import Credentials, Store


def put(
    store: Store,
    credentials: Credentials,
    ca: Path,
    seconds: float,
    key: str,
    body: bytes,
    headers: Mapping[str, str],
) -> None:
    """Create or replace an object of a bucket; `seconds` bounds the connect, and each read.

    Raises UnavailableError if the store does not answer, and the errors of `error_of`.
    """
    checksum = base64.b64encode(hashlib.sha256(body).digest()).decode()
    request = AWSRequest(
        "PUT",
        f"{store.endpoint}/{store.bucket}/{quote(key)}",
        headers={**headers, "x-amz-checksum-sha256": checksum},
        data=body,
    )
    signer = ReadOnlyCredentials(credentials.access_key_id, credentials.secret_access_key, None)
    S3SigV4Auth(signer, "s3", store.region).add_auth(request)
    session = URLLib3Session(verify=str(ca), timeout=(seconds, seconds))
    try:
        answer = session.send(request.prepare())
    except BotoCoreError as error:
        raise UnavailableError(f"{store.endpoint}: cannot upload {key}: {error}") from error
    finally:
        session.close()
    if answer.status_code != 200:
        # S3 describes an error in a document of some hundred bytes.
        reply = shown(answer.content[:1000].decode("utf-8", "replace"), 1000)
        error_class = error_of(answer.status_code)
        raise error_class(
            f"{store.endpoint}: cannot upload {key}: HTTP {answer.status_code}: {reply}"
        )
