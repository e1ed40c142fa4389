"""Parse a search query: its words, and the days and the speaker that it names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, timedelta

import msgspec

from ouro.memory.index.tokenizer import FORMS, STOP_WORDS, words_in

MAX_WORDS = 48
"""The maximum words of a long query; the first ones are used."""
_WORD = re.compile(r"[^\W_]+")
_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
           "november", "december")  # fmt: skip
_MONTH = "|".join([*_MONTHS, "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sept?", "oct", "nov", "dec"])
_ISO = re.compile(r"\b((?:19|20)\d\d)-(\d\d)(?:-(\d\d))?\b")
_NAMED = re.compile(
    rf"\b(?:(?P<first>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? )?(?P<month>{_MONTH})\b\.?"
    r"(?: (?P<day>\d{1,2})(?:st|nd|rd|th)?\b)?(?:,? (?P<year>(?:19|20)\d\d)\b)?"
)
_SAID_AS_A_MONTH = re.compile(
    r"\b(?:in|on|of|by|early|mid|late|last|this|before|after|during|since|until|\d\d?(?:st|nd|rd|th)?) (?:may|march)\b"
    r"|\b(?:may|march),? \d"
)
"""Matches `may` and `march` as months, not verbs."""
_YEAR = re.compile(r"\b(?:in|of|during|since) ((?:19|20)\d\d)\b")
_AGO = re.compile(r"\b(\d{1,3}|an?|two|three|four|five|six|a few|a couple of) (day|week|month|year)s? ago\b")
_RECENT = re.compile(r"\b(?:(today|yesterday)|(last|this) (week|month|year))\b")
_COUNTS = {"a": 1, "an": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "a few": 3, "a couple of": 2}
_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}
SPEAKERS = ("user", "assistant")
_USER = frozenset(("i", "me", "my", "mine", "myself"))
_ASSISTANT = frozenset(("you", "your", "yours", "yourself"))


class ParsedQuery(msgspec.Struct, frozen=True):
    text: str
    words: tuple[tuple[str, ...], ...]
    """Each word with its other forms (`went`, `go`, `gone`)."""
    speaker: str = ""
    """The speaker, if the query names exactly one."""
    days: tuple[tuple[str, str], ...] = ()
    """Named spans of days, first and last, as `2026-11-21`."""
    spoken: str = ""
    """The query from the speaker's point of view, for vectors."""


def question_of(text: str, speakers: Sequence[str] = SPEAKERS, today: date | None = None) -> ParsedQuery:
    """Parse a query. Partial or relative days mean the last such days before `today`."""
    speaker = _speaker(text, speakers)
    names = {word.lower() for name in speakers for word in _WORD.findall(name)}
    days, rest = _days(text, today)
    found: dict[tuple[str, ...], None] = {}
    for word in words_in(rest):
        if word not in STOP_WORDS and word not in names:
            found[FORMS.get(word, (word,))] = None
        if len(found) == MAX_WORDS:
            break
    return ParsedQuery(text, tuple(found), speaker, days, _in_first_person(text, speaker))


def _speaker(text: str, speakers: Sequence[str]) -> str:
    """The only speaker that is named; the user is `I`, the assistant `you`."""
    words = set(_WORD.findall(text.lower()))
    named = [name for name in speakers if name.lower() in words]
    if tuple(speakers) == SPEAKERS:
        named = ["user"] * bool(words & _USER) + ["assistant"] * bool(words & _ASSISTANT)
    return named[0] if len(named) == 1 else ""


def _in_first_person(text: str, speaker: str) -> str:
    if speaker == "assistant":
        return re.sub(r"\byou\b", "I", re.sub(r"\byour\b", "my", text, flags=re.IGNORECASE), flags=re.IGNORECASE)
    if speaker in ("", "user"):
        return text
    name = re.escape(speaker)
    return re.sub(
        rf"\b{name}\b", "I", re.sub(rf"\b{name}['’]s\b", "my", text, flags=re.IGNORECASE), flags=re.IGNORECASE
    )


def _days(text: str, today: date | None) -> tuple[tuple[tuple[str, str], ...], str]:
    """The named spans of days, and the text without them."""
    lowered = text.lower()
    spans: list[tuple[date, date]] = []
    for found in _ISO.finditer(lowered):
        spans += _calendar(int(found[1]), int(found[2]), int(found[3] or 0))
    for found in _NAMED.finditer(lowered):
        if found["month"] not in ("may", "march") or _SAID_AS_A_MONTH.search(lowered):
            spans += _named(found, today)
    if not spans and (year := _YEAR.search(lowered)):
        spans += _calendar(int(year[1]), 0, 0)
    if today:
        spans += _relative(lowered, today)
    rest = _NAMED.sub(" ", _ISO.sub(" ", lowered)) if spans else lowered
    return tuple((first.isoformat(), last.isoformat()) for first, last in spans), rest


def _named(found: re.Match[str], today: date | None) -> list[tuple[date, date]]:
    month = next(number for number, name in enumerate(_MONTHS, 1) if name.startswith(found["month"][:3]))
    day = int(found["day"] or found["first"] or 0)
    if found["year"]:
        return _calendar(int(found["year"]), month, day)
    if today is None:
        return []
    return _calendar(today.year - ((month, day) > (today.month, today.day)), month, day)


def _calendar(year: int, month: int, day: int) -> list[tuple[date, date]]:
    """The span of a year, month or day (0: all); None for a date that does not exist."""
    try:
        if day:
            return [(date(year, month, day),) * 2]
        first = date(year, month or 1, 1)
    except ValueError:
        return []
    following = date(year + 1, 1, 1) if month in (0, 12) else date(year, month + 1, 1)
    return [(first, following - timedelta(days=1))]


def _relative(text: str, today: date) -> list[tuple[date, date]]:
    """Days relative to today, with a margin: users remember them roughly."""
    spans: list[tuple[date, date]] = []
    for found in _AGO.finditer(text):
        length = _DAYS[found[2]]
        away = length * (_COUNTS.get(found[1]) or int(found[1]))
        spans.append((today - timedelta(days=away + length // 2), today - timedelta(days=away - length // 2)))
    return [*spans, *(_recent(found, today) for found in _RECENT.finditer(text))]


def _recent(found: re.Match[str], today: date) -> tuple[date, date]:
    if found[1]:
        day = today - timedelta(days=found[1] == "yesterday")
        return day, day
    if found[3] == "week":
        first = today - timedelta(days=today.weekday())
        return (first, today) if found[2] == "this" else (first - timedelta(days=7), first - timedelta(days=1))
    first = today.replace(day=1) if found[3] == "month" else today.replace(month=1, day=1)
    if found[2] == "this":
        return first, today
    last = first - timedelta(days=1)
    return last.replace(day=1) if found[3] == "month" else last.replace(month=1, day=1), last
