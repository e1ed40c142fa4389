"""How long a provider asks to wait: in a header, or in the words of its error."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from ouro.utils.late_pattern import late_pattern

NO_WAIT_HELPS = math.inf
"""The wait for a limit of hours or days whose end is not known."""
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
"""A unit -> its seconds."""
_UNIT = r"(?:ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)(?![a-z])"
_SPAN = late_pattern(rf"(\d{{1,9}}(?:\.\d{{1,9}})?)\s{{0,2}}({_UNIT})", re.IGNORECASE)
"""Matches a number with its unit: `8.1s`, `16 days`."""
_ASKED_WAIT = late_pattern(
    r"(?:again|retry|resets?|wait)(?: your request)? (?:in|after|for)(?: about| approximately)? "
    rf"((?:\d{{1,9}}(?:\.\d{{1,9}})?\s{{0,2}}{_UNIT}[\s,]{{0,2}}(?:and )?){{1,4}})",
    re.IGNORECASE,
)
"""Matches a wait in a sentence: `Please try again in 6m0s`."""
_WAIT_FIELD = late_pattern(
    r"(?:retry_?(?:delay|after)|resets?_in)(?:_?(ms|s)\w*)?: (\d{1,12}(?:\.\d{1,9})?)(ms|s)?\b",
    re.IGNORECASE,
)
"""Matches a wait as a field and its value: `retryDelay: 8s`, `resets_in_seconds: 15000`."""
_LONG_LIMIT = late_pattern(
    r"\b(?:usage|monthly|weekly|daily|session|plan|hour)[ _](?:\w{1,12}[ _])?limit"
    r"|(?:limit|quota) will reset|per[ _-](?:day|week|month)\b",
    re.IGNORECASE,
)
"""Matches a limit of hours or days, such as that of a subscription."""
_DAILY_QUOTA = late_pattern(r"(?:Requests|Tokens)PerDay")
"""Matches the name of a quota of Google's: `GenerateRequestsPerDayPerProjectPerModel-FreeTier`."""
MIN_DAILY_WAIT = 3_600
"""Seconds: a shorter wait does not end a quota of a day."""
_ANTHROPIC_RESET = late_pattern(r"(anthropic-ratelimit-[a-z0-9-]{1,60})-reset")
"""Matches Anthropic's headers with the end of a limit, up to the name of the limit."""
_RESET, _REMAINING = "x-ratelimit-reset", "x-ratelimit-remaining"
"""The beginnings of headers with the end of a limit, and with what is left of it."""
_EARLIEST_TIME = 1_000_000_000
"""A number from here on is a point in time, in seconds since 1970; a smaller one is a wait."""
_EARLIEST_MILLISECONDS = 1_000 * _EARLIEST_TIME
"""A number from here on is a point in time in milliseconds (OpenRouter)."""


def wait_seconds(headers: Mapping[str, str], text: str = "") -> float | None:
    """The seconds that a provider asks to wait; None if its answer does not say. NO_WAIT_HELPS for a
    limit of hours or days without a time.

    Args:
        headers: those of the answer, with names in lower case.
        text: the keys and values of its body.
    """
    seconds = _wait_in_headers(headers)
    if seconds is None:
        seconds = _wait_in_text(text)
    return _wait_for_reset(headers) if seconds is None else seconds


def describe_wait(seconds: float) -> str:
    """A wait in its largest whole unit, rounded up: `90 s`, `6 minutes`, `3 hours`, `16 days`."""
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{math.ceil(seconds / size)} {unit}"
    return f"{math.ceil(seconds)} s"


def _wait_in_headers(headers: Mapping[str, str]) -> float | None:
    """The wait in the headers, as a number or as a date; None if there is none."""
    milliseconds, seconds = headers.get("retry-after-ms"), headers.get("retry-after")
    try:
        if milliseconds is not None:
            return max(0.0, float(milliseconds) / 1000)
        return None if seconds is None else max(0.0, float(seconds))
    except ValueError:
        pass  # it is no number, but may be a date
    from email.utils import parsedate_to_datetime  # imported late: 15 modules, for a rare date

    try:
        date = parsedate_to_datetime(seconds or "")
    except ValueError:
        return None
    return _wait_until(date)


def _wait_until(date: datetime) -> float:
    """The seconds until a point in time; 0 if it is over."""
    return max(0.0, (date.astimezone(UTC) - datetime.now(UTC)).total_seconds())


def _wait_for_reset(headers: Mapping[str, str]) -> float | None:
    """The longest wait until a limit of which nothing is left ends; None if no header names it.

    A provider may send one header for each limit: `x-ratelimit-reset-tokens`,
    `x-ratelimit-reset-requests-day`. The others say when a limit is whole again that still has room.
    """
    waits = [
        _wait_until_reset(value)
        for name, value in headers.items()
        if name.startswith((_RESET, "anthropic-ratelimit-")) and _nothing_remains(headers, name)
    ]
    return max((wait for wait in waits if wait is not None), default=None)


def _nothing_remains(headers: Mapping[str, str], reset_name: str) -> bool:
    """Whether the limit to which a header with an end belongs is used up."""
    of_anthropic = _ANTHROPIC_RESET.fullmatch(reset_name)
    if of_anthropic:
        limit = of_anthropic[1]
        is_rejected = headers.get(f"{limit}-status", "") == "rejected"
        return is_rejected or headers.get(f"{limit}-remaining", "").strip() == "0"
    return headers.get(_REMAINING + reset_name.removeprefix(_RESET), "").strip() == "0"


def _wait_until_reset(value: str) -> float | None:
    """The wait in a header with the end of a limit: `12ms`, `6m0s`, `59.5` seconds, a time since 1970,
    or a date such as `2026-01-18T07:44:02Z`. None if it is none of them.
    """
    if "T" in value:
        with suppress(ValueError):
            return _wait_until(datetime.fromisoformat(value))
    spans = _SPAN.findall(value)
    if spans:
        return _sum_spans(spans)
    try:
        number = float(value)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    if number >= _EARLIEST_MILLISECONDS:
        number /= 1_000
    if number >= _EARLIEST_TIME:
        number -= datetime.now(UTC).timestamp()
    return max(0.0, number)


def _wait_in_text(text: str) -> float | None:
    """The wait that a text asks for, in seconds; NO_WAIT_HELPS for a limit of hours or
    days without a time. None if it asks for none.

    Google asks for seconds also if the quota of the day is used up: then a wait below
    MIN_DAILY_WAIT does not count.
    """
    seconds = _asked_wait(text)
    is_short = seconds is None or seconds < MIN_DAILY_WAIT
    return NO_WAIT_HELPS if is_short and _DAILY_QUOTA.search(text) else seconds


def _asked_wait(text: str) -> float | None:
    """The wait that a text asks for, whichever limit it is about; see `_wait_in_text`."""
    asked = _ASKED_WAIT.search(text)
    if asked:
        return _sum_spans(_SPAN.findall(asked[1]))
    field = _WAIT_FIELD.search(text)
    if field:
        unit_of_name, number, unit_of_value = field.groups()
        return float(number) * _unit_seconds(unit_of_value or unit_of_name or "s")
    return NO_WAIT_HELPS if _LONG_LIMIT.search(text) else None


def _sum_spans(spans: Iterable[tuple[str, str]]) -> float:
    """The seconds of numbers with their units."""
    return sum(float(number) * _unit_seconds(unit) for number, unit in spans)


def _unit_seconds(unit: str) -> float:
    """The seconds of a unit, which may be a whole word: `minutes`."""
    unit = unit.lower()
    return _SECONDS["ms"] if unit.startswith(("ms", "milli")) else _SECONDS[unit[0]]
