"""The objects of a repository that can be deleted. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.bundles.decide.names import parse_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from hgfleet.objectstore.bucket import StoredObject


def prunable(
    names: Collection[str],
    objects: Iterable[StoredObject],
    named: Collection[str],
    before: datetime,
    unsafe: Collection[str] = (),
) -> list[StoredObject]:
    """Return the objects of a repository that no manifest sends clients to any more.

    `names` are the beginnings of its keys: its identity, and its paths of the release before.
    `named` are the keys in the current manifest and in all manifests of the retention time: a
    client that was sent to such an object may still be downloading it. Objects modified at `before`
    or later stay too: another run may be about to publish them. An object whose key is `unsafe`
    goes at any time. Objects other than bundles of this very repository always stay.
    """
    deletable = []
    for item in objects:
        key = parse_key(item.key)
        ours = key is not None and key.repository in names
        is_old = item.modified < before or item.key in unsafe
        if ours and item.key not in named and is_old:
            deletable.append(item)
    return deletable
