"""How long a provider asks to wait: in a header, or in the words of its error."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
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


def wait_seconds(headers: Mapping[str, str], text: str = "") -> float | None:
    """The seconds that a provider asks to wait; None if its answer does not say. NO_WAIT_HELPS for a
    limit of hours or days without a time.

    Args:
        headers: those of the answer, with names in lower case.
        text: the keys and values of its body.
    """
    seconds = _wait_in_headers(headers)
    return _wait_in_text(text) if seconds is None else seconds


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
    return max(0.0, (date.astimezone(UTC) - datetime.now(UTC)).total_seconds())


def _wait_in_text(text: str) -> float | None:
    """The wait that a text asks for, in seconds; NO_WAIT_HELPS for a limit of hours or
    days without a time. None if it asks for none.
    """
    asked = _ASKED_WAIT.search(text)
    if asked:
        spans = _SPAN.findall(asked[1])
        return sum(float(number) * _unit_seconds(unit) for number, unit in spans)
    field = _WAIT_FIELD.search(text)
    if field:
        unit_of_name, number, unit_of_value = field.groups()
        return float(number) * _unit_seconds(unit_of_value or unit_of_name or "s")
    return NO_WAIT_HELPS if _LONG_LIMIT.search(text) else None


def _unit_seconds(unit: str) -> float:
    """The seconds of a unit, which may be a whole word: `minutes`."""
    unit = unit.lower()
    return _SECONDS["ms"] if unit.startswith(("ms", "milli")) else _SECONDS[unit[0]]
