"""The push log over HTTP: a real repository, real hg, the queries of the public documentation."""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ET
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.pushlog import index, index_step, view
from hgfleet.web.pushlog import query as pushlog_query
from testing.integration.web.support import PROJECT, Reply, Site, ask, last, settle
from testing.support.pushlog_lines import IDENTITY, START_MS, Chain, node_of

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.web.app import Application

REPOSITORY = "team/project"
START = START_MS // 1000
ADDRESS = "192.0.2.77"
HTML = {"Accept": "text/html"}


@dataclass
class Logged:
    """A site with pushes: an adoption of two changesets, then twelve pushes of up to three."""

    site: Site
    chain: Chain
    nodes: dict[int, list[str]]
    web: Application

    def get(self, query: str = "", command: str = "json-pushes") -> Reply:
        return ask(self.web, f"{PROJECT}/{command}", query)

    def pushes(self, query: str) -> list[int]:
        """The ids of an answer in version 2; the pushes in it are as recorded."""
        reply = self.get(query + "&version=2")
        assert reply.status == 200, reply.text
        assert reply.headers["Content-Type"] == "application/json"
        document = json.loads(reply.body)
        assert set(document) == {"lastpushid", "pushes"}
        assert document["lastpushid"] == self.chain.id
        for number, push in document["pushes"].items():
            assert push["changesets"] == self.nodes[int(number)]
            assert push["date"] == START + 60 * (int(number) - 1)
            assert push["user"] == user_of(int(number))
        return [int(number) for number in document["pushes"]]

    @property
    def store(self) -> Path:
        return self.site.path(REPOSITORY) / ".hg/store"

    @property
    def index(self) -> Path:
        return self.store.parent / "cache" / index_step.NAME


def user_of(push: int) -> str:
    return "operator" if push == 1 else ("bob@example.org", "alice")[push % 2]


@pytest.fixture(scope="module")
def logged_template(template: Site, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A copy of the site whose repository has 24 changesets more; the log comes with each copy."""
    folder = tmp_path_factory.mktemp("logged")
    shutil.copytree(template.folder, folder, dirs_exist_ok=True)
    site = replace(template, folder=folder)
    patches = folder / "patches"
    patches.write_text("".join(patch(number) for number in range(24)))
    site.hg(REPOSITORY, "import", "-q", str(patches))
    return site


def patch(number: int) -> str:
    return (
        f"# HG changeset patch\n# User test <test@example.org>\n# Date 0 0\n{message(number)}\n\n"
        f"diff --git a/f{number} b/f{number}\nnew file mode 100644\n"
        f"--- /dev/null\n+++ b/f{number}\n@@ -0,0 +1,1 @@\n+{number}\n"
    )


def message(number: int) -> str:
    return f"change {number} <b>&amp;</b>\n\nmore about {number}"


@pytest.fixture
def logged(logged_template: Site, tmp_path: Path) -> Logged:
    shutil.copytree(logged_template.folder, tmp_path, dirs_exist_ok=True)
    site = replace(logged_template, folder=tmp_path)
    all_nodes = site.hg(REPOSITORY, "log", "-r", "all()", "-T", "{node}\n").split()
    chain = Chain(site.path(REPOSITORY) / ".hg/store/pushlog")
    chain.push(kind="adoption", user="operator", key="", client="")
    nodes: dict[int, list[str]] = {1: []}
    rest = all_nodes[2:]
    for number in range(2, 14):
        nodes[number], rest = rest[: 1 + number % 3], rest[1 + number % 3 :]
        chain.push(*nodes[number], user=user_of(number), client=ADDRESS)
    assert not rest
    settle()
    return Logged(site, chain, nodes, site.application())


def ids(first: int, final: int) -> list[int]:
    return list(range(first, final + 1))


DOCUMENTED = [
    ("", ids(4, 13)),
    ("startID=0", ids(2, 13)),
    ("startID=0&empty=1", ids(1, 13)),
    ("startID=5", ids(6, 13)),
    ("startID=13", []),
    ("startID=99", []),
    ("endID=3", [2, 3]),
    ("startID=5&endID=8", ids(6, 8)),
    ("startID=8&endID=5", []),
    ("startID=2&endID=999999", ids(3, 13)),
    ("fromchange=@4", ids(5, 13)),
    ("tochange=@4", ids(2, 4)),
    ("fromchange=@4&tochange=@6", ids(5, 6)),
    ("fromchange=@4&endID=5", [5]),
    ("startID=4&tochange=@6", ids(5, 6)),
    ("fromchange=adopted", ids(2, 13)),
    ("tochange=adopted", []),
    ("tochange=adopted&empty", [1]),
    ("changeset=@7", [7]),
    ("changeset=@7&changeset=@9", [7, 9]),
    ("changeset=@7&startID=7", []),
    ("changeset=@7~", [7]),
    ("changeset=tip", [13]),
    ("user=alice", [3, 5, 7, 9, 11, 13]),
    ("user=bob%40example.org&endID=5", [2, 4]),
    ("user=alice&user=bob%40example.org&startID=10", [11, 12, 13]),
    ("user=nobody", []),
    (f"startdate={START + 60 * 9}", ids(11, 13)),
    (f"startdate={START + 60 * 9 - 1}", ids(10, 13)),
    (f"enddate={START + 60 * 3}", [2, 3]),
    (f"enddate={START + 60 * 3 + 1}", ids(2, 4)),
    (f"startdate={START}&enddate={START + 121}", ids(2, 3)),
    ("startdate=2023-11-14+22:20:20", ids(9, 13)),
    ("startdate=2023-11-14&enddate=2023-11-15", ids(2, 13)),
    ("startdate=2023-11-15", []),
    ("startdate=2023-11-14T22:20:20Z&endID=9", [9]),
    ("startID=11&unknown=1&branch=default", [12, 13]),
]


@pytest.mark.parametrize("indexed", ["log", "index", "both"])
def test_every_combination_of_the_public_documentation(logged: Logged, indexed: str) -> None:
    if indexed != "log":
        whole = logged.chain.file.read_bytes()
        if indexed == "both":
            logged.chain.file.write_bytes(b"".join(whole.splitlines(keepends=True)[:6]))
        index.update(logged.chain.file, logged.index)
        logged.chain.file.write_bytes(whole)
    adopted = logged.site.hg(REPOSITORY, "log", "-r", "1", "-T", "{node}")

    def filled(query: str) -> str:
        query = re.sub(r"@(\d+)~", lambda match: logged.nodes[int(match[1])][-1][:10], query)
        query = re.sub(r"@(\d+)", lambda match: logged.nodes[int(match[1])][0], query)
        return query.replace("=adopted", f"={adopted}")

    for query, expected in DOCUMENTED:
        assert logged.pushes(filled(query)) == expected, query


def test_the_adoption_lists_the_changesets_that_a_query_names(logged: Logged) -> None:
    first, second = logged.site.hg(REPOSITORY, "log", "-r", "0:1", "-T", "{node}\n").split()
    for query, changesets in (
        (f"changeset={first}", [first]),
        (f"changeset={second}&changeset={first}&tipsonly=0", [second, first]),
        (f"changeset={second[:8]}&tipsonly=1", [second]),
    ):
        pushes = json.loads(logged.get(query).body)
        assert pushes == {"1": {"changesets": changesets, "date": START, "user": "operator"}}
    both = json.loads(logged.get(f"changeset={first}&changeset={logged.nodes[5][0]}&full").body)
    assert [changeset["node"] for changeset in both["1"]["changesets"]] == [first]
    assert len(both["5"]["changesets"]) == len(logged.nodes[5])


def test_a_push_of_phases_alone_is_left_out_for_clients_that_take_its_last_changeset(
    logged: Logged,
) -> None:
    logged.nodes[14] = []
    logged.chain.push(user=user_of(14), phases=((logged.nodes[13][0], "draft", "public"),))
    assert logged.pushes("startID=12") == [13]
    assert logged.pushes("startID=12&endID=14") == [13]
    assert logged.pushes("") == ids(4, 13)
    assert logged.pushes("startID=12&empty=1") == [13, 14]
    assert "no changesets" in logged.get("startID=13", "pushloghtml").text


def test_version_1_is_the_default_and_has_the_pushes_alone(logged: Logged) -> None:
    expected = {
        str(number): {
            "changesets": logged.nodes[number],
            "date": START + 60 * (number - 1),
            "user": user_of(number),
        }
        for number in (6, 7)
    }
    for query in ("startID=5&endID=7", "startID=5&endID=7&version=1"):
        assert json.loads(logged.get(query).body) == expected
        assert json.loads(logged.get(query, "json-pushes/").body) == expected


def test_only_tips(logged: Logged) -> None:
    pushes = json.loads(logged.get("startID=1&tipsonly=1").body)
    assert {int(number): push["changesets"] for number, push in pushes.items()} == {
        number: logged.nodes[number][-1:] for number in range(2, 14)
    }


def test_full_has_the_changesets_themselves(logged: Logged) -> None:
    answer = json.loads(logged.get("startID=7&endID=8&full=1&version=2").body)
    push = answer["pushes"]["8"]
    assert [changeset["node"] for changeset in push["changesets"]] == logged.nodes[8]
    first = push["changesets"][0]
    assert set(first) == {"author", "branch", "desc", "files", "node", "parents", "tags"}
    assert first["author"] == "test <test@example.org>"
    assert first["branch"] == "default"
    assert first["parents"] == [logged.nodes[7][-1]]
    assert first["desc"].startswith("change ")
    assert "\n\nmore about " in first["desc"]
    assert len(first["files"]) == 1
    tip = json.loads(logged.get("changeset=tip&full&tipsonly=1").body)["13"]["changesets"]
    assert [changeset["tags"] for changeset in tip] == [["tip"]]


def test_the_worker_answers_from_the_index_and_a_renderer_what_needs_hg(
    logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered = []
    rendering = logged.web._rendering
    original = rendering.execution

    def execution(exchange: Any, kind: Any, *rest: Any) -> Any:
        rendered.append(kind.value)
        return original(exchange, kind, *rest)

    monkeypatch.setattr(rendering, "execution", execution)
    assert logged.get("startID=1&endID=5").status == 200
    assert logged.get(f"changeset={logged.nodes[4][0]}&version=2").status == 200
    assert logged.get("startID=x").status == 400
    assert rendered == []
    assert logged.get("changeset=tip").status == 200
    assert logged.get("startID=1&full=1").status == 200
    assert logged.get("", "pushloghtml").status == 200
    assert rendered == ["page", "dear", "page"]


def test_an_answer_is_kept_until_the_next_push(logged: Logged) -> None:
    assert logged.pushes("startID=12") == [13]
    assert last(logged.site)["cache"] == "miss"
    assert logged.pushes("startID=12") == [13]
    assert last(logged.site)["cache"] == "hit"
    logged.nodes[14] = [logged.nodes[13][0]]
    logged.chain.push(*logged.nodes[14], user=user_of(14))
    assert logged.pushes("startID=12") == [13, 14]


def test_the_push_of_a_running_transaction_is_not_announced(logged: Logged) -> None:
    size = logged.chain.file.stat().st_size
    (logged.store / "journal").write_bytes(b"pushlog\x00%d\n" % size)
    before = logged.chain.id
    logged.chain.push(user="carol")
    document = json.loads(logged.get("startID=12&version=2").body)
    assert (document["lastpushid"], list(document["pushes"])) == (before, ["13"])


def test_an_obsolete_changeset_is_named_apart_and_a_secret_one_not_at_all(logged: Logged) -> None:
    secret = logged.nodes[13][-1]
    logged.site.hg(REPOSITORY, "phase", "--force", "--secret", "-r", secret)
    reply = logged.get("startID=12&version=2")
    assert secret not in reply.text
    assert json.loads(reply.body)["pushes"]["13"]["changesets"] == logged.nodes[13][:-1]
    unknown = logged.get(f"changeset={secret}")
    assert (unknown.status, json.loads(unknown.body)) == (
        404,
        {"error": f"unknown revision '{secret}'"},
    )
    logged.site.hg(REPOSITORY, "phase", "--force", "--draft", "-r", secret)
    logged.site.hg(REPOSITORY, "update", "-q", "-r", "0")
    logged.site.hg(REPOSITORY, "--config", "experimental.evolution=all", "debugobsolete", secret)
    push = json.loads(logged.get("startID=12&version=2").body)["pushes"]["13"]
    assert push["obsoletechangesets"] == [secret]
    assert push["changesets"] == logged.nodes[13][:-1]
    assert logged.get(f"changeset={secret}").status == 200
    assert list(json.loads(logged.get(f"changeset={secret[:12]}").body)) == ["13"]
    full = json.loads(logged.get("startID=12&full=1").body)["13"]
    assert [entry["node"] for entry in full["obsoletechangesets"]] == [secret]
    page = logged.get("startID=12", "pushloghtml")
    assert f"<code>{secret[:12]}</code><span>obsolete</span>" in page.text
    assert f"rev/{secret}" not in page.text


@pytest.mark.parametrize("command", ["json-pushes", "pushloghtml", "pushlog", "json-repoinfo"])
def test_an_empty_repository_has_no_pushes(logged: Logged, command: str) -> None:
    logged.site.create("team/new")
    web = logged.site.application()
    reply = ask(web, f"/team/new/{command}", "version=2")
    assert reply.status == 200
    if command == "json-pushes":
        assert json.loads(reply.body) == {"lastpushid": 0, "pushes": {}}
    if command == "json-repoinfo":
        assert json.loads(reply.body)["lastpushid"] == 0


def test_a_page_for_people(logged: Logged) -> None:
    reply = logged.get("", "pushloghtml")
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
    assert "script" not in reply.headers["Content-Security-Policy"]
    assert "bob@example.org with an SSH key" in reply.text
    assert "All changesets from before the push log" in reply.text
    assert f'href="{PROJECT}/rev/{logged.nodes[5][0]}"' in reply.text
    assert "change 3 &lt;b&gt;&amp;amp;&lt;/b&gt;" in reply.text
    assert "<b>" not in reply.text
    assert "more about" not in reply.text
    order = [int(number) for number in re.findall(r'id="push(\d+)"', reply.text)]
    assert order == ids(1, 13)[::-1]


def test_pages_follow_each_other(logged: Logged) -> None:
    for number in range(14, 50):
        logged.nodes[number] = []
        logged.chain.push(user="carol")
    seen: list[int] = []
    for page in (1, 2, 3):
        reply = logged.get("user=carol&user=alice", f"pushloghtml/{page}")
        seen += [int(number) for number in re.findall(r'id="push(\d+)"', reply.text)]
        follows = f'href="{PROJECT}/pushloghtml/{page + 1}?user=carol&amp;user=alice" rel="next"'
        assert (follows in reply.text) is (page < 3)
    assert seen == [*ids(14, 49)[::-1], 13, 11, 9, 7, 5, 3]
    assert logged.get("user=carol&user=alice", "pushloghtml/4").status == 404


@pytest.mark.parametrize("command", ["pushlog", "atom-pushlog"])
def test_a_feed(logged: Logged, command: str) -> None:
    logged.chain.push(user="carol", key="certificate:carol")
    reply = logged.get("startID=5", command)
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/atom+xml; charset=utf-8"
    atom = "{http://www.w3.org/2005/Atom}"
    root = ET.fromstring(reply.text)  # noqa: S314  (made by the code under test)
    assert root.tag == f"{atom}feed"
    for name in ("id", "title", "updated"):
        assert root.findtext(f"{atom}{name}")
    entries = root.findall(f"{atom}entry")
    assert len(entries) == 9
    assert entries[0].findtext(f"{atom}title") == "push 14 by carol: no changesets"
    assert entries[1].findtext(f"{atom}author/{atom}name") == "alice"
    assert entries[1].findtext(f"{atom}updated") == "2023-11-14T22:25:20Z"
    content = entries[1].findtext(f"{atom}content")
    assert content is not None
    assert content.splitlines()[0].startswith(logged.nodes[13][-1] + " change 23 <b>&amp;</b>")
    links = [link.get("href") for link in root.iter(f"{atom}link")]
    base = f"https://hg.example.org{PROJECT}"
    assert links[:2] == [f"{base}/atom-pushlog", f"{base}/pushloghtml"]
    identities = [entry.findtext(f"{atom}id") for entry in entries]
    assert len(set(identities)) == len(identities)
    assert identities[0] == f"{base}/pushloghtml?startID=13&endID=14"


def test_about_a_repository(logged: Logged) -> None:
    about = json.loads(logged.get("", "json-repoinfo").body)
    tip = logged.site.hg(REPOSITORY, "log", "-r", "tip", "-T", "{node}")
    assert about == {
        "repository": REPOSITORY,
        "identity": IDENTITY,
        "lastpushid": 13,
        "lastpushdate": START + 60 * 12,
        "changesets": 26,
        "heads": 1,
        "tip": tip,
        "publishing": False,
    }


def test_the_page_of_a_changeset_tells_who_pushed_it_and_when(logged: Logged) -> None:
    logged.chain.push(node_of(1), user="carol")
    for number, by in ((8, "by bob@example.org with an SSH key"), (9, "by alice with an SSH key")):
        node = logged.nodes[number][0]
        page = ask(logged.web, f"{PROJECT}/rev/{node}", headers=HTML)
        assert page.status == 200
        row = re.search(r'<th class="date">pushed</th>\s*<td[^>]*>(.*?)</td>', page.text, re.DOTALL)
        assert row is not None
        assert by in row[1]
        assert f'href="{PROJECT}/pushloghtml?changeset={node}">push {number}</a>' in row[1]
        assert "14 Nov 2023" in row[1]
        link = re.search(r'href="([^"?]+)\?([^"]+)"', row[1])
        assert link is not None
        assert ask(logged.web, link[1], link[2]).status == 200
    adopted = ask(logged.web, f"{PROJECT}/rev/0", headers=HTML)
    assert "push 1</a> or before it" in adopted.text


def test_a_changeset_without_a_log_has_a_page_without_a_push(site: Site) -> None:
    page = ask(site.application(), f"{PROJECT}/rev/tip", headers=HTML)
    assert page.status == 200
    assert ">pushed<" not in page.text
    raw = ask(site.application(), f"{PROJECT}/raw-rev/tip")
    assert raw.status == 200


def test_no_address_no_key_and_no_hash_of_a_record_leaves_the_host(logged: Logged) -> None:
    record = logged.chain.push(user="carol", client=ADDRESS)
    for command, query in (
        ("json-pushes", "startID=0&full=1&version=2"),
        ("json-pushes", "startID=0&version=2"),
        ("pushloghtml", ""),
        ("atom-pushlog", ""),
        ("json-repoinfo", ""),
        (f"rev/{logged.nodes[8][0]}", ""),
        (f"json-rev/{logged.nodes[8][0]}", ""),
    ):
        reply = logged.get(query, command)
        assert reply.status == 200
        for private in (
            ADDRESS,
            record.key,
            record.key[:10],
            record.previous,
            logged.chain.previous,
        ):
            assert private not in reply.text


def test_a_long_log_without_index_is_a_503_with_a_sentence(
    logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "TAIL", 1000)
    logged.web = logged.site.application()
    reply = logged.get("startID=1")
    assert reply.status == 503
    assert "try again later" in json.loads(reply.body)["error"]
    assert ask(logged.web, f"{PROJECT}/rev/tip", headers=HTML).status == 200
    index.update(logged.chain.file, logged.index)
    assert logged.pushes("startID=11") == [12, 13]


def test_a_damaged_log_is_a_503_with_a_sentence(logged: Logged) -> None:
    with logged.chain.file.open("ab") as file:
        file.write(b'{"v":1}\n')
    reply = logged.get("startID=1")
    assert reply.status == 503
    assert str(logged.site.folder) not in reply.text
    assert ask(logged.web, f"{PROJECT}/rev/tip", headers=HTML).status == 200


@pytest.mark.parametrize("limit", ["MOST_PUSHES", "MOST_CHANGESETS", "MOST_FULL"])
def test_an_answer_has_an_end(logged: Logged, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(pushlog_query, limit, 5)
    logged.web = logged.site.application()
    full = "&full=1" if limit == "MOST_FULL" else ""
    reply = logged.get("startID=0" + full)
    assert reply.status == 400
    assert "startID and endID" in json.loads(reply.body)["error"]
    assert logged.get("startID=10&endID=11" + full).status == 200


def test_a_private_repository_is_not_found(logged: Logged) -> None:
    for command in ("json-pushes", "pushloghtml", "pushlog", "atom-pushlog", "json-repoinfo"):
        private = ask(logged.web, f"/team/secret/{command}")
        missing = ask(logged.web, f"/team/missing/{command}")
        assert private.status == missing.status == 404
        assert private.body == missing.body


HOSTILE_QUERIES = [
    "version=0", "version=3", "version=-1", "version=1e0", "version=9" + "9" * 400, "version=%00",
    "startID=-1", "startID=", "startID=0x1", "startID=1.5", "startID=" + "9" * 300,
    "startID=%00", "startID=1%0A", "startID=%ff", "startID=1'", "startID=1)+OR+(1=1",
    "startID=1;--", "startID=%2B1", "startID=NaN", "startID=None", "startID=[]",
    "startID=%EF%BC%91",
    "endID=-5", "endID=abc", "endID=" + "9" * 20, "endID=1%00", "endID=1e400",
    "startdate=", "startdate=now", "startdate=2008-02-30", "startdate=99999999999999",
    "startdate=2008-11-20%00", "startdate=-1", "startdate=0000-00-00", "startdate=1e5",
    "startdate=" + "2" * 5000, "startdate=2008-11-20+99:99:99", "startdate=2008-11-20T1",
    "enddate=tomorrow", "enddate=%3Cscript%3E", "enddate=+-1", "enddate=2008/11/20",
    "changeset=", "changeset=%00", "changeset=wdir()", "changeset=all()", "changeset=ffffffffffff",
    "changeset=" + "f" * 40, "changeset=" + "0" * 40, "changeset=null", "changeset=.",
    "changeset=..", "changeset=-1", "changeset=2147483647", "changeset=99999999999999999999",
    "changeset=re:.*", "changeset=file('set:**')", "changeset=%FF%FE", "changeset=a%20or%20b",
    "changeset=" + "a" * 40, "changeset=" + "a" * 12, "changeset=" + "A" * 256,
    "changeset=" + "a" * 257, "changeset=../../etc/passwd", "changeset=%0d%0aSet-Cookie:x",
    "changeset=p1(tip)", "changeset=tip^", "changeset=tip~1", "changeset=0:tip", "changeset=tip::",
    "changeset=_matchfiles('p:x')", "changeset=%22tip%22", "changeset=bookmark(x)",
    "&".join(f"changeset={number:040x}" for number in range(101)),
    "&".join(f"changeset={number:040x}" for number in range(1, 50)),
    "fromchange=", "fromchange=wdir", "fromchange=%F0%9F%92%A9", "fromchange=" + "1" * 40,
    "fromchange=reverse(all())", "fromchange=:", "fromchange=(", "fromchange=)",
    "tochange=", "tochange=fff", "tochange=%C0%80", "tochange=parents()", "tochange=$(id)",
    "tochange=%7B%7Bx%7D%7D", "tochange=a##b", "tochange=" + "%41" * 300,
    "user=", "user=%00", "user=" + "a" * 300, "user=%ff", "user=a%0Ab",
    "&".join(f"user=u{number}" for number in range(101)),
    "&".join(f"a{number}=b" for number in range(300)),
    "%ff=%ff", "startID=1&startID=x", "full=1&changeset=nothing", "full&fromchange=wdir()",
]  # fmt: skip
HOSTILE_PATHS = [
    "json-pushes/x", "json-pushes/1", "json-pushes/..", "json-pushes/%00", "json-pushes/\0",
    "raw-pushes", "pushes", "atom-pushes", "rss-pushlog", "json-pushlog", "json-pushloghtml",
    "pushloghtml/0", "pushloghtml/-1", "pushloghtml/x", "pushloghtml/1/2",
    "pushloghtml/99999999999999999999", "pushloghtml/2", "pushloghtml/1e1", "pushloghtml/ 1",
    "pushlog/2", "repoinfo", "raw-repoinfo", "json-repoinfo/x", "json--pushes", "JSON-pushes",
    "json-Pushes", "json-pushes%2f", "_pushes", "json-_answered", "json-register",
]  # fmt: skip


def test_hostile_queries_are_refused_by_every_command(logged: Logged) -> None:
    for query in HOSTILE_QUERIES:
        for command in ("json-pushes", "pushloghtml", "pushlog"):
            reply = logged.get(query, command)
            assert 400 <= reply.status < 500, (command, query[:60], reply.status, reply.text[:200])
            assert str(logged.site.folder) not in reply.text
            assert "Traceback" not in reply.text
            if command == "json-pushes" and reply.headers["Content-Type"] == "application/json":
                assert set(json.loads(reply.body)) == {"error"}
    assert logged.pushes("startID=12") == [13]


def test_hostile_paths_are_refused(logged: Logged) -> None:
    for path in HOSTILE_PATHS:
        reply = ask(logged.web, f"{PROJECT}/{path}")
        assert 400 <= reply.status < 500, (path, reply.status, reply.text[:200])
    assert ask(logged.web, PROJECT, "cmd=pushes&style=json").status == 404
    assert ask(logged.web, PROJECT, "cmd=pushloghtml").status == 404
    for style in ("json", "raw", "x"):
        assert ask(logged.web, f"{PROJECT}/pushloghtml", f"style={style}").status == 404
    assert ask(logged.web, f"{PROJECT}/json-pushes", method="POST").status == 405
    assert ask(logged.web, f"{PROJECT}/json-pushes", method="HEAD").body == b""
