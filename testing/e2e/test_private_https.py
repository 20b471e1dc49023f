"""Private repositories over HTTPS: by password and by token, and not without."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, NamedTuple

import pytest

from testing.e2e.command import wait_until
from testing.e2e.host import Journals
from testing.e2e.people import basic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.command import Result
    from testing.e2e.people import Clone, Person
    from testing.e2e.service import Page

PRIVATE = "e2e/private"
# Only a letter differs, so that the answers can be compared.
MISSING = "e2e/pryvate"
PUBLIC = "e2e/push"
SECONDS_UNTIL_OUT = 2
UNIT = "hgfleet-auth.service"


class Token(NamedTuple):
    identity: str
    secret: str


@pytest.fixture(scope="module")
def private(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """Alice's clone over SSH, from which a changeset has been pushed."""
    alice = cluster.person("alice")
    work = alice.clone(alice.ssh_url(PRIVATE), tmp_path_factory.mktemp("private") / "work")
    work.commit("plan.txt", uuid.uuid4().bytes, "make plans")
    work.hg("push").ok()
    return work


@pytest.fixture
def new_token() -> Iterator[Callable[[Person], Token]]:
    """Give a function that makes a token over SSH; all are revoked afterwards."""
    made: list[tuple[Person, str]] = []

    def create(person: Person) -> Token:
        said = person.ssh("token", "create", "--days", "1", "end-to-end", "test").ok().stdout
        match = re.match(r"(hgt_[a-z2-7]{40})\n\nThis is token ([a-z2-7]{8})\.", said)
        assert match, said
        made.append((person, match[2]))
        return Token(match[2], match[1])

    yield create
    for person, identity in made:
        person.ssh("token", "revoke", identity)


@pytest.fixture
def fresh(cluster: Cluster) -> Iterator[None]:
    """Reset the limits before and after a test: all clients here have the same address."""
    for host in cluster.all("web"):
        host.systemctl("restart", UNIT).ok()
    yield
    for host in cluster.all("web"):
        host.systemctl("restart", UNIT).ok()


def heads(cluster: Cluster, name: str, secret: str, repository: str = PRIVATE) -> Page:
    return cluster.get(f"{repository}?cmd=heads", headers=basic(name, secret))


def test_alice_clones_and_pulls_by_password(
    cluster: Cluster, private: Clone, alice: Person, tmp_path: Path
) -> None:
    signed_in = alice.signed_in(alice.password, tmp_path)
    copy = signed_in.clone(cluster.url(PRIVATE), tmp_path / "copy")
    assert copy.heads() == private.heads()

    node = private.commit("plan.txt", uuid.uuid4().bytes, "change plans")
    private.hg("push").ok()
    copy.hg("pull").ok()
    assert node in copy.heads()


@pytest.mark.usefixtures("private")
def test_alice_clones_with_the_name_in_the_address_and_a_token(
    cluster: Cluster,
    alice: Person,
    new_token: Callable[[Person], Token],
    private: Clone,
    tmp_path: Path,
) -> None:
    token = new_token(alice)
    signed_in = alice.signed_in(token.secret, tmp_path)
    named = cluster.url(PRIVATE).replace("https://", "https://alice@")

    assert signed_in.clone(named, tmp_path / "copy").heads() == private.heads()
    assert heads(cluster, "alice", token.secret).status == 200
    assert heads(cluster, "bob", token.secret).status == 401, "a token is its owner's"


@pytest.mark.usefixtures("private")
def test_a_revoked_token_is_refused_at_once(
    cluster: Cluster, alice: Person, new_token: Callable[[Person], Token], tmp_path: Path
) -> None:
    token = new_token(alice)
    assert heads(cluster, "alice", token.secret).status == 200
    assert token.identity in alice.ssh("token", "list").ok().stdout

    alice.ssh("token", "revoke", token.identity).ok()

    assert heads(cluster, "alice", token.secret).status == 401
    signed_in = alice.signed_in(token.secret, tmp_path)
    signed_in.hg("clone", cluster.url(PRIVATE), str(tmp_path / "copy")).refused(
        "authorization failed"
    )


@pytest.mark.usefixtures("private")
def test_bob_gets_the_answer_of_a_missing_one(
    cluster: Cluster, bob: Person, tmp_path: Path
) -> None:
    who = basic("bob", bob.password)
    for rest in ("", "/", "/log", "/raw-file/tip/plan.txt", "?cmd=heads", "?cmd=capabilities"):
        private, missing = (cluster.get(path + rest, headers=who) for path in (PRIVATE, MISSING))
        assert private.status == missing.status == 404, rest
        assert private.body.replace(PRIVATE, "PATH") == missing.body.replace(MISSING, "PATH")
        unlike = {"date", "content-length", "x-request-id"}
        assert {n: v for n, v in private.headers.items() if n not in unlike} == {
            n: v for n, v in missing.headers.items() if n not in unlike
        }

    signed_in = bob.signed_in(bob.password, tmp_path)
    said = {
        path: signed_in.hg("clone", cluster.url(path), str(tmp_path / "copy"))
        .refused("404")
        .output.replace(path, "PATH")
        for path in (PRIVATE, MISSING)
    }
    assert said[PRIVATE] == said[MISSING]


@pytest.mark.alone
@pytest.mark.usefixtures("private", "fresh")
def test_a_wrong_password_is_refused(cluster: Cluster, alice: Person, tmp_path: Path) -> None:
    alice.signed_in("wrong", tmp_path).hg(
        "clone", cluster.url(PRIVATE), str(tmp_path / "copy")
    ).refused("authorization failed")
    page = heads(cluster, "alice", "wrong")
    assert page.status == 401
    assert page.headers["www-authenticate"].startswith("Basic realm=")
    assert page.body == heads(cluster, "nobody", "wrong").body
    assert heads(cluster, "mallory", "anything").status == 401


@pytest.mark.usefixtures("private")
def test_private_answers_are_kept_nowhere_and_lists_differ(
    cluster: Cluster, alice: Person, bob: Person
) -> None:
    for path in (
        f"{PRIVATE}/json-log",
        f"{PRIVATE}?cmd=heads",
        PRIVATE,
        "",
        "api/repositories/e2e",
    ):
        page = cluster.get(path, headers=basic("alice", alice.password))
        assert page.status == 200, path
        assert page.headers["cache-control"] == "private, no-store", path
        assert "Authorization" in page.headers["vary"], path
    assert PRIVATE in page.body
    for who in (None, basic("bob", bob.password)):
        assert PRIVATE not in cluster.get("api/repositories/e2e", headers=who).body


@pytest.fixture
def carol_may_be_disabled(cluster: Cluster) -> Iterator[Callable[[], Result]]:
    """Give a function that disables carol until the test ends."""
    host = cluster.first("directory")
    entry = f"dn: uid=carol,ou=people,{cluster.env['HGFLEET_LDAP_BASE']}\nchangetype: modify\n"
    words = ("ldapmodify", "-Q", "-Y", "EXTERNAL", "-H", "ldapi:///")

    def disable() -> Result:
        locked = "replace: pwdAccountLockedTime\npwdAccountLockedTime: 000001010000Z\n"
        return host.run(*words, stdin=entry + locked).ok()

    yield disable
    host.run(*words, stdin=f"{entry}delete: pwdAccountLockedTime\n")


@pytest.mark.alone
@pytest.mark.usefixtures("fresh")
def test_who_was_disabled_is_refused_within_two_seconds(
    cluster: Cluster,
    carol: Person,
    new_token: Callable[[Person], Token],
    carol_may_be_disabled: Callable[[], Result],
) -> None:
    token = new_token(carol)
    for secret in (carol.password, token.secret):
        assert cluster.get("api/repositories", headers=basic("carol", secret)).status == 200

    carol_may_be_disabled()

    def is_out() -> bool:
        pages = [
            cluster.get("api/repositories", headers=basic("carol", secret))
            for secret in (carol.password, token.secret)
        ]
        return [page.status for page in pages] == [401, 401]

    wait_until("carol is refused", is_out, SECONDS_UNTIL_OUT)


@pytest.mark.alone
@pytest.mark.usefixtures("private", "fresh")
def test_guessing_is_throttled_and_others_are_not(
    cluster: Cluster, alice: Person, bob: Person, new_token: Callable[[Person], Token]
) -> None:
    token = new_token(bob)
    assert heads(cluster, "alice", alice.password).status == 200, "alice works from here"

    guesses = [heads(cluster, "bob", f"guess{number}") for number in range(40)]

    assert guesses[0].status == 401
    assert guesses[-1].status == 429
    assert int(guesses[-1].headers["retry-after"]) >= 1
    assert "Too many refused passwords" in guesses[-1].body
    assert heads(cluster, "alice", alice.password).status == 200
    lists = cluster.get("api/repositories", headers=basic("bob", token.secret))
    assert lists.status == 200, "bob has a token"
    assert cluster.get(f"{PUBLIC}?cmd=heads", headers=basic("bob", "guess")).status == 200


@pytest.mark.disruptive
@pytest.mark.usefixtures("private")
def test_without_the_daemon_what_is_public_is_served(
    cluster: Cluster, alice: Person, stopped: Callable[[str, str], None]
) -> None:
    # The socket stops first; otherwise the next request would start the service again.
    stopped("web", "hgfleet-auth.socket")
    stopped("web", UNIT)

    for path in (PRIVATE, MISSING):
        page = heads(cluster, "alice", alice.password, path)
        assert page.status == 503
        assert "public repositories are served" in page.body
    assert cluster.get(f"{PUBLIC}?cmd=heads").status == 200
    assert cluster.get(f"{PUBLIC}?cmd=heads", headers=basic("alice", "any")).status == 200


@pytest.mark.alone
@pytest.mark.usefixtures("private", "fresh")
def test_nothing_secret_is_written_anywhere(
    cluster: Cluster,
    alice: Person,
    new_token: Callable[[Person], Token],
    tmp_path: Path,
) -> None:
    token = new_token(alice)
    mistyped = f"mistyped-{uuid.uuid4()}"
    groups = ("web", "proxy", "directory", "ssh")
    hosts = list(dict.fromkeys(host for group in groups for host in cluster.all(group)))
    journals = Journals.begin(hosts)
    for number, secret in enumerate((alice.password, token.secret)):
        alice.signed_in(secret, tmp_path).clone(cluster.url(PRIVATE), tmp_path / str(number))
    assert heads(cluster, "alice", mistyped).status == 401
    # Some people type the password into the wrong field.
    assert heads(cluster, mistyped, alice.password).status == 401

    webs = cluster.all("web")
    bind = webs[0].shell("cat /etc/hgfleet/secrets/auth-bind").strip()
    secrets = [alice.password, token.secret, mistyped, bind]
    secrets += [basic("alice", secret)["Authorization"].split()[1] for secret in secrets[:3]]
    said = journals.lines()
    assert any("event=auth" in line and "person=alice" in line for line in said), "no log at all"
    # A web host without any request so far has no log of its workers.
    logs = "find /var/log/hgfleet/web /var/log/nginx -name '*.log' -exec cat {} +"
    written = "".join(host.shell(logs) for host in webs)
    assert '"user":"alice"' in written
    running = "".join(host.shell("ps -eo args --no-headers -ww") for host in hosts)
    for place, text in (("journals", "\n".join(said)), ("logs", written), ("ps", running)):
        for number, secret in enumerate(secrets):
            assert secret not in text, f"secret number {number} is in {place}"
    for web in webs:
        kept = web.shell("cat /var/lib/hgfleet/dynamic/tokens/tokens.json")
        assert token.identity in kept
        assert token.secret.removeprefix("hgt_") not in kept
