"""Malformed parts of a push, which core cannot decode: their refusal, and the place for the log.

Core (bundle2.py, bundle2_part_handlers.py, 7.2) reads a part with `assert`, `int` and `struct`, and
looks up phases and changesets in tables. Malformed data ends there in an exception of Python. While
parts are processed, no hook of this service runs: the transaction is opened before, and closed
afterwards. So such an exception comes from the data of the client.

Only extensions import this module; it needs Mercurial.
"""

from __future__ import annotations

import os
import re
import struct
import traceback
from typing import Final

from mercurial import error, mdiff

from hgfleet.hg.hooks import MAX_MESSAGE, fitting

ERRORS: Final = (
    # Numbers, UTF-8, a name that begins with no letter.
    ValueError,
    # A parameter of the bundle without a value.
    TypeError,
    AssertionError,
    # Less data than a field has, or a number that is too large for its field.
    struct.error,
    # A phase that does not exist, a parameter that is missing, a changeset that is not here.
    LookupError,
    # The name ffff... of the working directory.
    error.WdirUnsupported,
    # A delta that ends in the middle, or lies outside of its base.
    mdiff.mpatch.mpatchError,
)
"""Exceptions that core 7.2 raises for such data."""

UNKNOWN: Final = error.BundleValueError
"""The exception that core raises for unknown parts and parameters, and answers itself.

It is also in `ERRORS`.
"""

STORAGE: Final = error.StorageError
"""The exception that core raises for a changeset with a wrong hash, and for a corrupt store."""

SENTENCES: Final = (error.Abort, error.PushRaced)
"""Sentences of core for the client, some with a name that the client sent."""


_WRONG_HASH: Final = re.compile(rb"integrity check failed on 00changelog:([0-9]{1,12})")
"""The message of revlog.checkhash."""


def sentence(part: str | None, problem: BaseException) -> str:
    """Return the refusal of a push because of the named part, None before the first part."""
    what = "this push" if part is None else f"the part {part} of this push"
    if isinstance(problem, (error.LookupError, error.WdirUnsupported)):
        # Happens to an honest client too, if the changeset was removed after the client asked for
        # heads.
        return (
            f"{what} names a revision that is not here, expected revisions of this repository or "
            "of the push; nothing was changed, pull, then push again"
        )
    if isinstance(problem, STORAGE):
        return (
            f"{what} has a changeset whose text does not fit its hash; nothing was changed, run hg "
            "verify in your repository, and tell the operators if it finds nothing"
        )
    return (
        f"{what} is malformed: got data that cannot be decoded, expected what hg sends; nothing "
        "was changed, use an unchanged hg push"
    )


def is_of_push(problem: BaseException, first: int) -> bool:
    """Whether core's error is about a changeset that is new with this push.

    Any other revision may be in the store already, and corrupt. So may the older changeset that
    a new changeset is a delta of: hgfleet-verify finds that.
    """
    match = _WRONG_HASH.fullmatch(getattr(problem, "message", None) or b"")
    return match is not None and int(match[1]) >= first


def fit(problem: BaseException) -> None:
    """Shorten the texts of an exception of core, so that they fit into the answer."""
    if isinstance(problem, error.BundleUnknownFeatureError):
        if len(b"\0".join(problem.params)) > MAX_MESSAGE:
            problem.params = tuple(map(fitting, problem.params[:1]))
    elif isinstance(problem, error.Abort):
        problem.message = fitting(problem.message)
        problem.hint = None if problem.hint is None else fitting(problem.hint)
    elif isinstance(problem, error.PushRaced):
        problem.args = tuple(map(fitting, problem.args))


def place(problem: BaseException) -> str:
    """Return the class of an exception and where it was raised, for operators."""
    last = traceback.extract_tb(problem.__traceback__)[-1]
    name = os.path.basename(last.filename)  # noqa: PTH119  (slow import)
    return f"{type(problem).__name__} at {name}:{last.lineno}"
