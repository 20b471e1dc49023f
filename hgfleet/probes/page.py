"""The status page: how clones and pushes go now, in a day and in 90 days, and incidents. Pure.

The page needs no script and loads nothing, and its Content-Security-Policy allows only its own
style. It shows no name of a host, and no reason of a failure.
"""

from __future__ import annotations

import base64
import hashlib
import html
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Final

from hgfleet.probes.result_history import CLONE, DAY_SECONDS, DAYS, PUSH, Sum, date, sum_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hgfleet.probes.result_history import History, Result

INDEX: Final = "index.html"
CONTENT_TYPE: Final = "text/html; charset=utf-8"
MAX_AGE: Final = 30
"""Seconds for which a cache may keep the page, which is replaced each minute."""

BAR_SECONDS: Final = 900
"""Span of a bar of the last day."""

RECENT: Final = 5
"""Number of results that decide the current state of a probe."""

OUTAGE: Final = 3
"""Failures in a row that are an outage; a single failure may be a restart."""

MOST_BAD: Final = 0.5
"""Share of failures from which a span is shown as an outage."""


@dataclass(frozen=True, slots=True)
class Incident:
    """An incident or announced work, as the operators describe it; without an end it is ongoing."""

    begun: datetime
    ended: datetime | None
    title: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """A span of time on the page."""

    name: str
    sum: Sum


UNKNOWN: Final = "none"
GOOD: Final = "good"
SOME: Final = "some"
BAD: Final = "bad"

PLURALS: Final = {CLONE: "clones", PUSH: "pushes"}
"""Titles of the probes."""


def headline(probe: str, results: Sequence[Result]) -> str:
    """Return the current state of a probe in words."""
    many = PLURALS[probe]
    return {
        UNKNOWN: f"No {probe} was tried yet",
        GOOD: f"{many.capitalize()} work",
        SOME: f"Some {many} fail",
        BAD: f"{many.capitalize()} fail",
    }[state(results)]


def state(results: Sequence[Result]) -> str:
    """Return the current state of a probe, from its newest results."""
    recent = [result.seconds is None for result in results[-RECENT:]]
    if not recent:
        return UNKNOWN
    if all(recent[-OUTAGE:]):
        return BAD if len(recent) >= OUTAGE else SOME
    return SOME if any(recent) else GOOD


def state_of(tally: Sum) -> str:
    """Return the state of a probe in a span of time."""
    if not tally.attempts:
        return UNKNOWN
    if not tally.failed:
        return GOOD
    return BAD if tally.failed >= MOST_BAD * tally.attempts else SOME


def share(tally: Sum) -> str:
    """Return the share of succeeded attempts; 100 % means that every attempt succeeded."""
    if not tally.attempts:
        return "no data"
    hundredths = tally.succeeded * 10_000 // tally.attempts
    return f"{hundredths / 100:g} %"


def of_day(history: History, now: float) -> list[Bar]:
    """Return a bar for each quarter of an hour of the last day, the oldest first."""
    last = int(now // BAR_SECONDS)
    first = last - DAY_SECONDS // BAR_SECONDS + 1
    tallies = {
        key: sum(map(sum_of, group), Sum())
        for key, group in groupby(history.results, lambda result: int(result.time // BAR_SECONDS))
    }
    return [
        Bar(f"{datetime.fromtimestamp(key * BAR_SECONDS, UTC):%H:%M}", tallies.get(key, Sum()))
        for key in range(first, last + 1)
    ]


def of_days(history: History, now: float) -> list[Bar]:
    """Return a bar for each of the last 90 days, the oldest first."""
    today = datetime.fromtimestamp(now, UTC)
    names = [date((today - timedelta(days=ago)).timestamp()) for ago in reversed(range(DAYS))]
    return [Bar(name, history.days.get(name, Sum())) for name in names]


def shown_incidents(incidents: Sequence[Incident], now: float) -> list[Incident]:
    """Return the incidents of the last 90 days and announced work, the newest first."""
    oldest = datetime.fromtimestamp(now, UTC) - timedelta(days=DAYS)
    shown = [
        incident for incident in incidents if incident.ended is None or incident.ended >= oldest
    ]
    return sorted(shown, key=lambda incident: incident.begun, reverse=True)


def total(bars: Sequence[Bar]) -> Sum:
    """Return the sum of all bars."""
    return sum((bar.sum for bar in bars), Sum())


_STYLE: Final = """
:root {
  color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif;
  --good: light-dark(#2a8f5b, #49b97d); --some: light-dark(#b97a00, #e0a63a);
  --bad: light-dark(#c0343c, #ef6a70); --none: #8884; --line: #8883;
}
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
h1 { font-size: 1.2rem; font-weight: 600; margin: 0 0 1rem; }
h2 { display: flex; font-size: 1rem; font-weight: 600; justify-content: space-between;
  margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 0; }
.now { border-left: .4rem solid var(--state); padding: .2rem 1rem; }
.now strong { display: block; font-size: 1.8rem; line-height: 1.3; }
.now p, article p { margin: 0; }
.now + .now { margin-top: 1rem; }
.bars { align-items: end; border-bottom: 1px solid var(--line); display: flex; gap: 1px;
  height: 3rem; list-style: none; margin: 0; padding: 0; }
.bars li { background: var(--state); border-radius: 2px 2px 0 0; flex: 1; }
.good { --state: var(--good); height: 100%; }
.some { --state: var(--some); height: 65%; }
.bad { --state: var(--bad); height: 30%; }
.none { --state: var(--none); height: 8%; }
div.now { height: auto; }
.ends { display: flex; font-size: .8rem; justify-content: space-between; opacity: .75; }
article { border-top: 1px solid var(--line); padding: .6rem 0; }
.when, footer { font-size: .85rem; opacity: .75; }
footer { margin-top: 3rem; }
code { overflow-wrap: anywhere; }
"""

POLICY: Final = (
    "default-src 'none'; style-src 'sha256-"
    + base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    + "'; base-uri 'none'; form-action 'none'"
)


def render(
    title: str,
    clone_url: str,
    histories: Mapping[str, History],
    incidents: Sequence[Incident],
    now: float,
) -> bytes:
    """Render the page of a moment, of the probes of a host. Texts of the inventory are escaped."""
    heading = html.escape(title)
    words = "; ".join(headline(probe, history.results) for probe, history in histories.items())
    pushes = " It also pushes a small change over SSH." if PUSH in histories else ""
    lines = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(POLICY)}">',
        '<meta http-equiv="refresh" content="60">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{words} - {heading}</title>",
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{heading}</h1>",
        *(line for probe, history in histories.items() for line in _now(probe, history)),
        *(line for probe, history in histories.items() for line in _past(probe, history, now)),
        "<h2>Incidents</h2>",
        *_incidents(shown_incidents(incidents, now), now),
        f"<footer>As of {_time(now)}. Each minute a program clones",
        f"<code>{html.escape(clone_url)}</code> as every client does.{pushes}",
        "If this page is older than some minutes, the program is away, and the page says nothing",
        "about the service.</footer>",
        "</body>\n</html>\n",
    ]
    return "\n".join(lines).encode()


def _now(probe: str, history: History) -> Iterator[str]:
    current = state(history.results)
    yield f'<div class="now {current}"><strong>{headline(probe, history.results)}</strong>'
    if history.results:
        last = history.results[-1]
        how = "failed" if last.seconds is None else f"took {last.seconds:.1f} s"
        yield f"<p>The last {probe}, at {_time(last.time)}, {how}.</p>"
    yield "</div>"


def _past(probe: str, history: History, now: float) -> Iterator[str]:
    many = PLURALS[probe]
    day, days = of_day(history, now), of_days(history, now)
    title = many.capitalize()
    yield from _bars(f"{title}, last 24 hours", many, day, f"{day[0].name} UTC, yesterday", "now")
    yield from _bars(f"{title}, last 90 days", many, days, days[0].name, "today")


def _bars(title: str, many: str, bars: Sequence[Bar], first: str, last: str) -> Iterator[str]:
    yield f"<section><h2>{title} <span>{share(total(bars))}</span></h2>"
    label = f"{title}: {share(total(bars))}"
    shown = "".join(_bar(bar, many) for bar in bars)
    yield f'<ol class="bars" role="img" aria-label="{label}">{shown}</ol>'
    yield f'<div class="ends"><span>{first}</span><span>{last}</span></div></section>'


def _bar(bar: Bar, many: str) -> str:
    text = f"{bar.name}: {share(bar.sum)}"
    if bar.sum.failed:
        text += f", {bar.sum.failed:,} of {bar.sum.attempts:,} {many} failed"
    return f'<li class="{state_of(bar.sum)}" title="{text}"></li>'


def _incidents(incidents: Sequence[Incident], now: float) -> Iterator[str]:
    if not incidents:
        yield "<p>None in 90 days.</p>"
    for incident in incidents:
        yield f"<article><h3>{html.escape(incident.title)}</h3>"
        yield f'<p class="when">{_span(incident, now)}</p>'
        if incident.text:
            yield f"<p>{html.escape(incident.text)}</p>"
        yield "</article>"


def _span(incident: Incident, now: float) -> str:
    begun = incident.begun.timestamp()
    announced = "announced for " if begun > now else ""
    if incident.ended is not None:
        return f"{announced}{_time(begun)} to {_time(incident.ended.timestamp())}"
    return f"{announced or 'since '}{_time(begun)}"


def _time(time: float) -> str:
    moment = datetime.fromtimestamp(time, UTC)
    return f'<time datetime="{moment:%Y-%m-%dT%H:%M:%SZ}">{moment:%Y-%m-%d %H:%M} UTC</time>'
