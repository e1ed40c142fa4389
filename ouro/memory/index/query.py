"""Parses a query: its words, and the days and the speaker that it names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, timedelta

import msgspec

from ouro.memory.index.function_words import is_function_word, is_in_english
from ouro.memory.index.words import FORMS, STOP_WORDS, WORD, abbreviate_phrases, words_in
from ouro.utils.late_pattern import late_pattern

MAX_WORDS = 48
"""The maximum words of a long query; the first ones are used."""
_MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_MONTH_NAME = "|".join(
    [*_MONTHS, "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sept?", "oct", "nov", "dec"]
)
_ISO_DATE = late_pattern(r"\b((?:19|20)\d\d)-(\d\d)(?:-(\d\d))?\b")
_DATE_IN_WORDS = late_pattern(
    rf"\b(?:(?P<first>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? )?(?P<month>{_MONTH_NAME})\b\.?"
    r"(?: (?P<day>\d{1,2})(?:st|nd|rd|th)?\b)?(?:,? (?P<year>(?:19|20)\d\d)\b)?"
)
"""A date such as `3rd of May 2026`, `May 3` or `May`."""
_SAID_AS_A_MONTH = late_pattern(
    r"\b(?:in|on|of|by|early|mid|late|last|this|before|after|during|since|until|\d\d?(?:st|nd|rd|th)?)"
    r" (?:may|march)\b"
    r"|\b(?:may|march),? \d"
)
"""Matches `may` and `march` as months, not verbs."""
_YEAR = late_pattern(r"\b(?:in|of|during|since) ((?:19|20)\d\d)\b")
_TIME_AGO = late_pattern(
    r"\b(?P<number>\d{1,3}|an?|two|three|four|five|six|a few|a couple of)"
    r" (?P<period>day|week|month|year)s? ago\b"
)
_RECENT_PERIOD = late_pattern(r"\b(?:(today|yesterday)|(last|this) (week|month|year))\b")
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKDAY = late_pattern(rf"\b(?:on|last|since) (?P<day>{'|'.join(_WEEKDAYS)})\b")
_NUMBER_WORDS = {
    "a": 1,
    "an": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "a few": 3,
    "a couple of": 2,
}
_DAYS_OF_PERIOD = {"day": 1, "week": 7, "month": 30, "year": 365}
SPEAKERS = ("user", "assistant")
_WORDS_OF_USER = frozenset(("i", "me", "my", "mine", "myself"))
_WORDS_OF_ASSISTANT = frozenset(("you", "your", "yours", "yourself"))


class ParsedQuery(msgspec.Struct, frozen=True):
    """A query, as a search uses it."""

    words: tuple[tuple[str, ...], ...]
    """Each word with its other forms (`went`, `go`, `gone`)."""
    is_in_english: bool = True
    """False: the words are also found with other endings (`Endpunkt`, `Endpunkte`)."""
    speaker: str = ""
    """The speaker, if the query names exactly one."""
    days: tuple[tuple[str, str], ...] = ()
    """The spans of days that the query names: first and last day, as `2026-11-21`."""
    spoken: str = ""
    """The query as the speaker would say it, for vectors."""


def parse_query(
    text: str, speakers: Sequence[str] = SPEAKERS, today: date | None = None
) -> ParsedQuery:
    """Parse a query.

    Args:
        speakers: the names of those who may have said what is searched for. Their names are not
            among the words of the query.
        today: the day from which relative dates (`yesterday`) and dates without a year (`in May`)
            are counted back. None: such dates are ignored.
    """
    speaker = _only_speaker(text, speakers)
    names: set[str] = set()
    for speaker_name in speakers:
        names.update(word.lower() for word in WORD.findall(speaker_name))
    days, text_without_days = _spans_of_days(text, today)
    words: dict[tuple[str, ...], None] = {}
    searched_words = words_in(abbreviate_phrases(text_without_days))
    for word in _without_function_words(searched_words, is_in_english(text)):
        if word not in names:
            words[FORMS.get(word, (word,))] = None
        if len(words) == MAX_WORDS:
            break
    spoken = _as_speaker_says(text, speaker)
    return ParsedQuery(tuple(words), is_in_english(text), speaker, days, spoken)


def _without_function_words(words: Sequence[str], is_english: bool) -> list[str]:
    """Returns the words that are no function words of English; and, if the text is not in English,
    none of another language, unless it has no others.
    """
    searched = [word for word in words if word not in STOP_WORDS]
    if is_english:
        return searched
    return [word for word in searched if not is_function_word(word)] or searched


def _as_speaker_says(text: str, speaker: str) -> str:
    """Returns a query with `I` and `my` instead of the name of the speaker that it names, so that
    its vector is nearer to those of what the speaker said. Unchanged for the user, and without a
    speaker.
    """
    if speaker in ("", "user"):
        return text
    possessive, name = f"{re.escape(speaker)}['’]s", re.escape(speaker)
    if speaker == "assistant":
        possessive, name = "your", "you"
    spoken = re.sub(rf"\b{possessive}\b", "my", text, flags=re.IGNORECASE)
    return re.sub(rf"\b{name}\b", "I", spoken, flags=re.IGNORECASE)


def _only_speaker(text: str, speakers: Sequence[str]) -> str:
    """Returns the speaker that a query names; empty if it names none, or several. If the speakers
    are the user and the assistant, `I` names the first and `you` the second.
    """
    words = set(WORD.findall(text.lower()))
    if tuple(speakers) == SPEAKERS:
        words_of = {"user": _WORDS_OF_USER, "assistant": _WORDS_OF_ASSISTANT}
        named_speakers = [name for name, own_words in words_of.items() if words & own_words]
    else:
        named_speakers = [name for name in speakers if name.lower() in words]
    return named_speakers[0] if len(named_speakers) == 1 else ""


def _span_in_words(match: re.Match[str], today: date | None) -> Sequence[tuple[date, date]]:
    """Returns the span of a day or month that is named in words, as a sequence of at most one.
    Without a year it is the last such day or month before `today`. Empty if `today` is needed and
    None, or if there is no such day.

    Args:
        match: of `_DATE_IN_WORDS`. The day is in the group `day` or `first`: after or before the
            month.
    """
    month_starts = [name[:3] for name in _MONTHS]
    month = month_starts.index(match["month"][:3]) + 1
    day = int(match["day"] or match["first"] or 0)
    if match["year"]:
        return _calendar_span(int(match["year"]), month, day)
    if today is None:
        return ()
    is_later_in_year = (month, day) > (today.month, today.day)
    year = today.year - 1 if is_later_in_year else today.year
    return _calendar_span(year, month, day)


def _spans_of_days(text: str, today: date | None) -> tuple[tuple[tuple[str, str], ...], str]:
    """Returns the spans of days that a text names, each as its first and last day; and the text in
    lower case without the dates. A year alone counts if there is no other date. Without `today`,
    relative dates such as `yesterday` are not read.
    """
    lowered = text.lower()
    spans: list[tuple[date, date]] = []
    for match in _ISO_DATE.finditer(lowered):
        spans += _calendar_span(int(match[1]), int(match[2]), int(match[3] or 0))
    for match in _DATE_IN_WORDS.finditer(lowered):
        is_often_a_verb = match["month"] in ("may", "march")
        if not is_often_a_verb or _SAID_AS_A_MONTH.search(lowered):
            spans += _span_in_words(match, today)
    if not spans and (year := _YEAR.search(lowered)):
        spans += _calendar_span(int(year[1]), month=0, day=0)
    if today:
        spans += _relative_spans(lowered, today)
    rest = _DATE_IN_WORDS.sub(" ", _ISO_DATE.sub(" ", lowered)) if spans else lowered
    return tuple((first.isoformat(), last.isoformat()) for first, last in spans), rest


def _calendar_span(year: int, month: int, day: int) -> list[tuple[date, date]]:
    """Returns the first and the last day of a year, a month or a day, in a list; `month` and `day`
    are 0 if they are not given. Empty for a date that does not exist.
    """
    try:
        if day:
            only_day = date(year, month, day)
            return [(only_day, only_day)]
        first = date(year, month or 1, 1)
    except ValueError:
        return []
    following = date(year + 1, 1, 1) if month in (0, 12) else date(year, month + 1, 1)
    return [(first, following - timedelta(days=1))]


def _relative_spans(text: str, today: date) -> list[tuple[date, date]]:
    """Returns the spans that a text names relative to today: `three weeks ago`, `on Monday`, `last
    month`. Those with `ago` have a margin of half a period on each side, because users remember
    such times roughly.
    """
    spans: list[tuple[date, date]] = []
    for match in _TIME_AGO.finditer(text):
        period_days = _DAYS_OF_PERIOD[match["period"]]
        number = _NUMBER_WORDS.get(match["number"]) or int(match["number"])
        days_ago = period_days * number
        margin = period_days // 2
        first = today - timedelta(days=days_ago + margin)
        last = today - timedelta(days=days_ago - margin)
        spans.append((first, last))
    for match in _WEEKDAY.finditer(text):
        # The last such day before today: 1 to 7 days ago.
        days_ago = (today.weekday() - _WEEKDAYS.index(match["day"]) - 1) % 7 + 1
        day = today - timedelta(days=days_ago)
        spans.append((day, day))
    return [*spans, *(_recent_span(match, today) for match in _RECENT_PERIOD.finditer(text))]


def _recent_span(match: re.Match[str], today: date) -> tuple[date, date]:
    """Returns the first and the last day of `today`, `yesterday`, or of this or the last week,
    month or year.
    """
    named_day, which, period = match.groups()
    if named_day:
        day = today - timedelta(days=1) if named_day == "yesterday" else today
        return day, day
    first = _first_day_of(period, today)
    if which == "this":
        return first, today
    last = first - timedelta(days=1)
    return _first_day_of(period, last), last


def _first_day_of(period: str, day: date) -> date:
    """Returns the first day of the week, month or year that a day is in."""
    if period == "week":
        return day - timedelta(days=day.weekday())
    if period == "month":
        return day.replace(day=1)
    return day.replace(month=1, day=1)
