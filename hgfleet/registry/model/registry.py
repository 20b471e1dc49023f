"""Types of the registry (repositories, namespaces, settings), and the inheritance of settings.

An operator writes the registry as YAML (`registry.yml` in the inventory, read by `schema`). Hosts
read it as compiled JSON (`registry.json`, read by `compiled`), where every value is inherited
already. Each SSH session imports this module, so it imports nothing slow.

People create repositories of their own in the namespaces that are open to them. The inventory does
not list those; the host computes their inherited settings with `effective`, by the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from hgfleet.core.names import parents

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hgfleet.policies.rule import Rule

Read = Literal["public"] | tuple[str, ...]
Policies = Mapping[str, Mapping[str, Any]]
"""The name of each hook policy with its options, as JSON has them; see `hgfleet.policies`."""
_T = TypeVar("_T")

BUNDLE_KINDS: Final = ("stream", "zstd", "gzip")
"""Kinds of clone bundles, in the order a manifest has them unless the registry says otherwise."""

USER_BUNDLES_FROM: Final = 10 * 2**20
"""Bytes of the store from which on a user repository gets clone bundles, unless the registry says
otherwise: bundles of a smaller repository cost the bundle jobs more than they save its clones."""

AcceptDates = Literal["any", "valid"]
"""The dates of pushed changesets that are accepted (hgfleet.policies.metadata)."""

QUOTA: Final = 20
"""Repositories that a person may own below a namespace, unless the namespace says otherwise."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a repository, a namespace or the defaults; None is "inherited".

    `policies` has the options of each policy, or None for a policy that is switched off here.
    `rules` and `read_only` only ever add to the rules and reasons of the namespaces above.
    """

    read: Read | None = None
    push: tuple[str, ...] | None = None
    publishing: bool | None = None
    bundles: tuple[str, ...] | None = None
    policies: Mapping[str, Mapping[str, Any] | None] | None = None
    rules: tuple[Rule, ...] = ()
    read_only: str | None = None
    bundles_from: int | None = None
    accept_dates: AcceptDates | None = None


MAX_FILE_BYTES: Final = 100 * 2**20
"""Largest file of a push unless the registry says otherwise; hg keeps copies of it in memory."""

BUILT_IN: Final = Settings(
    read="public",
    push=(),
    publishing=True,
    bundles=BUNDLE_KINDS,
    policies={"file-size": {"max": MAX_FILE_BYTES}},
    accept_dates="valid",
)
"""The last resort: readable, without groups that may push, and without huge files."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A prefix of paths, and the settings that the repositories below it inherit."""

    path: str
    description: str = ""
    settings: Settings = Settings()
    create: tuple[str, ...] = ()
    """Groups whose members may create repositories below it, over SSH."""
    personal: bool = False
    """Whether repositories below it have to be at NAMESPACE/PERSON/NAME."""
    quota: int = QUOTA
    """How many repositories below it a person may own."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository with every value in effect.

    `read` is "public" or the groups that may read (none: only its owner); `push` the groups that
    may push (none: only an owner may); `bundles` the kinds of clone bundles in manifest order;
    `read_only` the reason why pushes are refused at the moment; `owner` the person who created it,
    None for a repository of the inventory. With a store of less than `bundles_from` bytes it gets
    no clone bundles; 0 for bundles at any size. `accept_dates` is "any" if an operator admits the
    history of another system, whose changesets may have invalid dates.
    """

    path: str
    description: str
    read: Read
    push: tuple[str, ...]
    publishing: bool
    bundles: tuple[str, ...]
    policies: Policies = field(default_factory=dict, hash=False)
    rules: tuple[Rule, ...] = ()
    read_only: str | None = None
    owner: str | None = None
    bundles_from: int = 0
    accept_dates: AcceptDates = "valid"
    identity: str = ""
    """See `hgfleet.core.identity`; empty if the registry of the host does not name it yet."""
    owner_id: str = ""
    """Person id of the owner (`hgfleet.core.principal`); empty if it is not known yet."""
    created: str = ""
    """When a user repository was created; empty for a repository of the inventory."""

    @property
    def is_public(self) -> bool:
        """Whether clients without a name may read it."""
        return self.read == "public"


@dataclass(frozen=True, slots=True)
class Registry:
    """All repositories and namespaces, by path, in the order of their paths."""

    repositories: Mapping[str, Repository]
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    defaults: Settings = Settings()
    read_only: str | None = None
    """The reason why every push is refused at the moment."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """The new path of each user repository that had another path."""

    def paths(self) -> dict[str, str]:
        """Return the path of each repository in service by its identity."""
        return {
            repository.identity: path
            for path, repository in self.repositories.items()
            if repository.identity
        }


def build(
    repositories: Mapping[str, tuple[str, Settings]],
    namespaces: Mapping[str, Namespace],
    defaults: Settings = Settings(),
    read_only: str | None = None,
) -> Registry:
    """Compute the settings in effect of every repository; the input is already checked."""
    above = Registry(
        repositories={},
        namespaces=MappingProxyType({path: namespaces[path] for path in sorted(namespaces)}),
        defaults=defaults,
        read_only=read_only,
    )
    result = {}
    for path in sorted(repositories):
        description, own = repositories[path]
        result[path] = effective(path, own, above, description=description)
    return Registry(
        MappingProxyType(result), above.namespaces, above.defaults, read_only=above.read_only
    )


def effective(
    path: str,
    own: Settings,
    registry: Registry,
    *,
    description: str = "",
    owner: str | None = None,
    identity: str = "",
    owner_id: str = "",
    created: str = "",
) -> Repository:
    """Compute the settings in effect of a repository, below its namespaces and the defaults.

    Most values come from the repository, else from the longest namespace above it that has the
    value, else from the defaults, else they are built in; this holds for each policy by itself.
    Protections add up instead: all rules apply, and of several reasons to be read-only the
    outermost is named.

    The bundle jobs decide where clone bundles are stored, because that depends on who may read the
    repository: a site without a private store has no bundles of repositories that are not public.
    """
    chain = [own]
    chain += [
        registry.namespaces[above].settings
        for above in parents(path)
        if above in registry.namespaces
    ]
    chain += [registry.defaults, BUILT_IN]
    read: Read = _first([settings.read for settings in chain])
    outermost_first = chain[::-1]
    least = USER_BUNDLES_FROM if owner is not None else 0
    reasons = [registry.read_only, *(settings.read_only for settings in outermost_first)]
    return Repository(
        path=path,
        description=description,
        read=read,
        push=_first(settings.push for settings in chain),
        publishing=_first(settings.publishing for settings in chain),
        bundles=_first(settings.bundles for settings in chain),
        policies=_policies(outermost_first),
        rules=tuple(rule for settings in outermost_first for rule in settings.rules),
        read_only=next((reason for reason in reasons if reason), None),
        owner=owner,
        bundles_from=_first([*(settings.bundles_from for settings in chain), least]),
        accept_dates=_first(settings.accept_dates for settings in chain),
        identity=identity,
        owner_id=owner_id,
        created=created,
    )


def _policies(outermost_first: Sequence[Settings]) -> Policies:
    merged: dict[str, Mapping[str, Any] | None] = {}
    for settings in outermost_first:
        merged.update(settings.policies or {})
    return {name: options for name, options in sorted(merged.items()) if options is not None}


def _first(values: Iterable[_T | None]) -> _T:
    return next(value for value in values if value is not None)
