"""The status page: how it sums results up, and that no text becomes markup."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

from hgfleet.probes import page
from hgfleet.probes.page import BAD, GOOD, SOME, UNKNOWN, Incident
from hgfleet.probes.result_history import DAY_SECONDS, History, Result, Sum, add

NOW = datetime(2026, 11, 25, 9, 16, 25, tzinfo=UTC).timestamp()
URL = "https://hg.example/canary"
HEADLINES = {
    UNKNOWN: "No clone was tried yet",
    GOOD: "Clones work",
    SOME: "Some clones fail",
    BAD: "Clones fail",
}
HOSTILE = '"><script>alert(1)</script>&'


def moment(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}+00:00")


def history_of(*seconds: float | None) -> History:
    """Return a history with a result a minute, the last result now."""
    history = History()
    for index, duration in enumerate(seconds):
        history = add(history, Result(NOW - 60 * (len(seconds) - 1 - index), duration))
    return history


def rendered(history: History, *incidents: Incident, title: str = "Status") -> str:
    return page.render(title, URL, {"clone": history}, incidents, NOW).decode()


@pytest.mark.parametrize(
    ("results", "wanted"),
    [
        ([], UNKNOWN),
        ([1.0], GOOD),
        ([None], SOME),
        ([None, None], SOME),
        ([None, None, None], BAD),
        ([1.0, 1.0, None, None, None], BAD),
        ([None, None, None, 1.0], SOME),
        ([None, 1.0, 1.0, 1.0, 1.0], SOME),
        ([None, 1.0, 1.0, 1.0, 1.0, 1.0], GOOD),
    ],
)
def test_the_newest_results_say_how_clones_go_now(results: list[float | None], wanted: str) -> None:
    history = history_of(*results)
    assert page.state(history.results) == wanted
    text = rendered(history)
    assert f"<strong>{HEADLINES[wanted]}</strong>" in text
    assert f"<title>{HEADLINES[wanted]} - Status</title>" in text


@pytest.mark.parametrize(
    ("total", "text", "state"),
    [
        (Sum(), "no data", UNKNOWN),
        (Sum(5), "100 %", GOOD),
        (Sum(999_999, 1), "99.99 %", SOME),
        (Sum(1439, 1), "99.93 %", SOME),
        (Sum(1, 1), "50 %", BAD),
        (Sum(0, 4), "0 %", BAD),
    ],
)
def test_a_failure_is_never_rounded_away(total: Sum, text: str, state: str) -> None:
    assert page.share(total) == text
    assert page.state_of(total) == state


def test_a_day_has_a_bar_for_each_quarter_of_an_hour() -> None:
    history = history_of(*[1.0] * 14, None, 1.0, 1.0)
    bars = page.of_day(history, NOW)
    assert len(bars) == 96
    assert [bar.name for bar in bars[-2:]] == ["09:00", "09:15"]
    assert bars[-2].sum == Sum(14, 1, 14.0)
    assert bars[-1].sum == Sum(2, 0, 2.0)
    assert page.total(bars) == Sum(16, 1, 16.0)


def test_90_days_have_a_bar_each_also_without_results() -> None:
    history = add(history_of(1.0), Result(NOW, None))
    bars = page.of_days(history, NOW)
    assert (len(bars), bars[0].name, bars[-1].name) == (90, "2026-08-28", "2026-11-25")
    assert bars[-1].sum == Sum(1, 1, 1.0)
    assert page.total(bars) == Sum(1, 1, 1.0)
    text = rendered(history)
    assert 'title="2026-11-25: 50 %, 1 of 2 clones failed"' in text
    assert text.count("<li ") == 96 + 90


def test_the_last_clone_is_told_with_its_time() -> None:
    assert 'at <time datetime="2026-11-25T09:16:25Z">2026-11-25 09:16 UTC</time>, took 0.8 s.' in (
        rendered(history_of(0.8))
    )
    assert "</time>, failed." in rendered(history_of(0.8, None))


def test_pushes_are_shown_beside_clones() -> None:
    histories = {"clone": history_of(0.8), "push": history_of(0.4, None, None, None)}
    text = page.render("Status", URL, histories, [], NOW).decode()
    assert "<title>Clones work; Pushes fail - Status</title>" in text
    assert '<div class="now good"><strong>Clones work</strong>' in text
    assert '<div class="now bad"><strong>Pushes fail</strong>' in text
    assert "<p>The last push, at <time" in text
    assert "<h2>Pushes, last 24 hours <span>25 %</span></h2>" in text
    assert "<h2>Clones, last 90 days <span>100 %</span></h2>" in text
    assert "3 of 4 pushes failed" in text
    assert "It also pushes a small change over SSH." in text
    assert text.count("<li ") == 2 * (96 + 90)


def test_a_page_without_pushes_does_not_name_them() -> None:
    assert "push" not in rendered(history_of(0.8)).lower()
    histories = {"clone": history_of(0.8), "push": History()}
    assert (
        "<strong>No push was tried yet</strong>"
        in page.render("", URL, histories, [], NOW).decode()
    )


def test_incidents_are_told_newest_first_and_leave_after_90_days() -> None:
    past = Incident(moment("2026-11-20T10:00"), moment("2026-11-20T11:00"), "Past", "A disk.")
    now = Incident(moment("2026-11-25T09:00"), None, "Present")
    planned = Incident(moment("2026-12-01T09:00"), moment("2026-12-01T10:00"), "Planned")
    soon = Incident(moment("2026-12-02T09:00"), None, "Open planned")
    old = Incident(moment("2026-08-01T10:00"), moment("2026-08-01T11:00"), "Forgotten")
    text = rendered(history_of(1.0), past, planned, old, now, soon)
    places = [
        text.index(f"<h3>{title}") for title in ("Open planned", "Planned", "Present", "Past")
    ]
    assert places == sorted(places)
    assert "Forgotten" not in text
    assert '<p class="when">since <time datetime="2026-11-25T09:00:00Z">' in text
    assert '<p class="when">announced for <time datetime="2026-12-01T09:00:00Z">' in text
    assert '10:00 UTC</time> to <time datetime="2026-11-20T11:00:00Z">' in text
    assert "<p>A disk.</p>" in text
    assert "None in 90 days." in rendered(history_of(1.0))


def test_no_text_of_the_inventory_becomes_markup() -> None:
    hostile = Incident(moment("2026-11-25T09:00"), None, HOSTILE, HOSTILE)
    text = page.render(
        HOSTILE, f"https://x/{HOSTILE}", {"clone": history_of(1.0)}, [hostile], NOW
    ).decode()
    assert "<script" not in text
    assert text.count(html.escape(HOSTILE)) == 5


def test_the_policy_allows_the_style_of_the_page_and_nothing_else() -> None:
    text = rendered(history_of(1.0))
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1])  # type: ignore[index]
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")
    assert not re.search(r"<(script|link|img|iframe)|\s(on\w+|style|src)=|url\(|@import", text)


class Tags(HTMLParser):
    """Refuses an end tag that closes another element."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag != "script", attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_every_tag_is_closed_in_its_order() -> None:
    incident = Incident(moment("2026-11-20T10:00"), None, "One", "Text")
    history = history_of(*[1.0] * 30, None)
    both = page.render("Status", URL, {"clone": history, "push": history}, [incident], NOW).decode()
    for text in (rendered(History()), rendered(history, incident), both):
        tags = Tags()
        tags.feed(text)
        assert not tags.open


def test_results_of_yesterday_are_no_part_of_today() -> None:
    old = add(History(), Result(NOW - DAY_SECONDS + 1, None))
    assert page.total(page.of_days(old, NOW)).failed == 1
    assert page.total(page.of_days(add(old, Result(NOW, 1.0)), NOW)) == Sum(1, 1, 1.0)
    assert page.of_days(old, NOW)[-2].sum.failed == 1
