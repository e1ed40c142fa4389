"""Relative dates of a statement, written as dates, and the day on which a statement ends.

`yesterday` means another day in each later session. Each language is a row of a table; in any other
language a model, which knows the day, writes the date.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from functools import cache, partial
from types import MappingProxyType
from typing import Literal, NamedTuple

OPEN_END_DAYS = 7
"""A statement that ends with an event (`until the outage is over`) holds for so many days."""
DateOffset = int | Literal["coming", "past"]
"""Days from the day of the statement; or the next or the last weekday of a name."""


class DateWords(NamedTuple):
    """The words of a language with which a statement names a day."""

    language: str
    preposition: str
    """The preposition before a date, with a blank: `on `. Empty for a language without one, which
    is written without blanks, too.
    """
    days: Mapping[str, int]
    """The days from today by the pattern of their words: `yesterday` is -1."""
    coming: str
    """A pattern of a coming weekday; `{name}` stands for its name."""
    past: str
    """A pattern of a past weekday, with `{name}`."""
    weekdays: tuple[str, ...]
    """The names of the weekdays, from Monday."""
    begin: str
    """A pattern before a day from which on something holds."""
    end: str
    """A pattern before a day, or an event, until which something holds."""
    ambiguous_days: Mapping[str, str] = MappingProxyType({})
    """Words of `days` that mean something else in another language, each with a pattern. Only a
    statement that the pattern matches is in this language.
    """


_ENGLISH_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_GERMAN_DAYS = ("Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag")
_FRENCH_DAYS = ("lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi", "dimanche")
_SPANISH_DAYS = ("lunes", "martes", "miércoles", "jueves", "viernes", "sábado", "domingo")
_FRENCH_ONLY_WORDS = (
    r"\b(?:on|les?|la|une|nous|vous|ils?|elles|est|sont|ont|avons|ce|cette|pas|que|qui|pour|dans"
    r"|avec|sur|aux?|depuis)\b|\b(?:qu|[cdjlmnst])['’]"
)
"""Matches a frequent word of French that German and Dutch do not have."""
# fmt: off
LANGUAGES = (
    DateWords("English", "on ",
        {"the day before yesterday": -2, "yesterday": -1, "the day after tomorrow": 2,
         "tomorrow": 1, "today": 0, "tonight": 0},
        r"\b(?:next|this|(?:(?<=until )|(?<=till )|(?<=by )))\s*{name}\b",
        r"\b(?:last|(?<=since ))\s*{name}\b", _ENGLISH_DAYS,
        r"\b(?:from|as of|since|starting)\s*$", r"\b(?:un)?till?\s"),
    DateWords("German", "am ",
        {"vorgestern": -2, "gestern": -1, "übermorgen": 2, "(?<!heute )(?<!gestern )(?-i:morgen)": 1,
         "heute": 0},
        r"\b(?:nächste[nmrs]?|kommende[nmrs]?|diese[nmrs]?|(?<=bis )) ?{name}\b",
        r"\b(?:letzte[nmrs]?|vorige[nmrs]?|(?<=seit )) ?{name}\b", _GERMAN_DAYS,
        r"\b(?:ab|seit|von)\s*$", r"\bbis\s"),
    DateWords("French", "le ",
        {"avant-hier": -2, "hier": -1, "après-demain": 2, "demain": 1, "aujourd['’]hui": 0},
        r"\b(?:{name} prochain|ce {name}|(?<=jusqu'à ){name}|(?<=jusqu’à ){name})\b",
        r"\b{name} dernier\b", _FRENCH_DAYS,
        r"(?:\bd[èe]s|\bdepuis|\b[àa] partir d['’e])\s*$", r"\bjusqu['’](?:[àa]|au)x?\s",
        {"hier": _FRENCH_ONLY_WORDS}),  # in German and Dutch it means: here
    DateWords("Spanish", "el ",
        {"anteayer": -2, "ayer": -1, "pasado mañana": 2, "(?<!la )(?<!pasado )mañana": 1, "hoy": 0},
        r"\b(?:el )?(?:próximo {name}|{name} que viene|este {name}|(?<=hasta el ){name})\b",
        r"\b(?:el )?{name} pasado\b", _SPANISH_DAYS,
        r"\b(?:desde|a partir de)\s*$", r"\bhasta\s"),
    DateWords("Chinese", "", {"前天": -2, "昨天": -1, "后天": 2, "明天": 1, "今天": 0},
        r"(?:下|本|这)个?(?:周|星期){name}", r"上个?(?:周|星期){name}",
        ("一", "二", "三", "四", "五", "六", "[日天]"), r"(?:从|自)$", r"直到|到(?=\S{1,12}(?:为止|之前))"),
    DateWords("Japanese", "", {"一昨日": -2, "昨日": -1, "明後日": 2, "明日": 1, "今日": 0},
        r"(?:来週|今週)の?{name}曜日?", r"先週の?{name}曜日?",
        ("月", "火", "水", "木", "金", "土", "日"), r"(?!)", r"(?!)"),
)
# fmt: on


class _DatePattern(NamedTuple):
    """A pattern of a relative date in one language."""

    pattern: re.Pattern[str]
    offset: DateOffset
    """The day that it means."""
    only_in: re.Pattern[str] | None
    """Matches the texts in which it counts: see `DateWords.ambiguous_days`. None: all texts."""


_WORD_START, _WORD_END = r"(?<![\w./`-])", r"(?![\w/`-]|\.\w)"
"""The edges of a word that is no part of a name, such as `today.sh`."""
_BEGIN_AFTER_DATE = re.compile(r"\s*(?:on(?:wards?)?\b|起|开始|から|以降)")
_END_AFTER_DATE = re.compile(r"\s*(?:まで|为止|之前)")
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_PREPOSITION_AT_END = re.compile(
    r"\b(?:on|until|till|by|since|from|of|before|after|am|bis|ab|seit|vor|nach|le|à|jusqu['’]à"
    r"|dès|depuis|d['’]|el|hasta|desde|de)\s*$",
    re.IGNORECASE,
)
_UNTIL_EVENT = re.compile(
    r"\b(?:until|till|while)\s+(?:the|it|this|that|we|they|our)\b|\b(?:bis|solange)\s+(?:der|die|das|wir|es)\b"
    r"|\b(?:jusqu['’][àa] ce qu|tant que)\b|\bhasta que\b|直到|までは?(?:、|$|使|触|待)",
    re.IGNORECASE,
)


def local_day(at: str = "") -> date:
    """The local day of an ISO timestamp; today if it is empty or cannot be read."""
    try:
        return datetime.fromisoformat(at).astimezone().date()
    except ValueError:
        return date.today()  # noqa: DTZ011  # the user's own calendar


def write_dates(text: str, day: date) -> str:
    """Replace the relative dates in a statement that was made on `day`, such as `yesterday`, by
    absolute ones: `on 2026-11-27`.
    """
    for words in LANGUAGES:
        for pattern, offset in _patterns_in(text, words):
            write = partial(_date_text, words=words, day=day, offset=offset)
            text = pattern.sub(write, text)
    return text


def find_end(text: str, day: date, *, is_change: bool) -> date | None:
    """The last day on which a statement that was made on `day` holds; None if it names no end.

    The end is the date that the statement names as its end. A statement that ends with an event
    ends after OPEN_END_DAYS, and one about today ends today. A statement that holds from today on
    has no end.

    `is_change`: the statement is about a change, which has no end, although it happened today.
    """
    dated = write_dates(text, day)
    for match in _ISO_DATE.finditer(dated):
        before, after = dated[: match.start()], dated[match.end() :]
        if _is_end(before, after) and (end := _parse_date(match[0])) and end >= day:
            return end
    if _UNTIL_EVENT.search(text):
        return day + timedelta(days=OPEN_END_DAYS)
    return day if not is_change and _names_today(text) else None


def _is_end(before: str, after: str) -> bool:
    """Whether the text before or after a date makes it an end: `until …`, `…まで`."""
    ends = (
        rf"(?:{words.end})(?:{re.escape(words.preposition)})?$" for words in LANGUAGES if words.end
    )
    is_before = any(re.search(end, before, re.IGNORECASE) for end in ends)
    return is_before or _END_AFTER_DATE.match(after) is not None


def _names_today(text: str) -> bool:
    """Whether a text says that something holds today only. A text that says `from today on` does
    not.
    """
    for words in LANGUAGES:
        for pattern, offset in _patterns_in(text, words):
            if offset != 0:
                continue
            for match in pattern.finditer(text):
                begins = re.search(words.begin, text[: match.start()], re.IGNORECASE)
                if not begins and not _BEGIN_AFTER_DATE.match(text[match.end() :]):
                    return True
    return False


def _date_text(match: re.Match[str], words: DateWords, day: date, offset: DateOffset) -> str:
    """What replaces the match of a relative date: the date, with a preposition if none precedes it.

    `offset`: days from `day`, or `coming` or `past` for the next or the last such weekday.
    """
    if isinstance(offset, int):
        target = day + timedelta(days=offset)
    else:
        weekday = next(
            number
            for number in range(7)
            if re.search(words.weekdays[number], match[0], re.IGNORECASE)
        )
        days_ahead = (weekday - day.weekday()) % 7 or 7  # `next Friday`, said on a Friday
        days_ago = (day.weekday() - weekday) % 7 or 7
        target = day + timedelta(days=days_ahead if offset == "coming" else -days_ago)
    before = match.string[: match.start()]
    preposition = "" if _PREPOSITION_AT_END.search(before) else words.preposition
    begins_sentence = not before.strip() or before.rstrip().endswith((".", "!", "?", ":"))
    if preposition and begins_sentence:
        preposition = preposition[0].upper() + preposition[1:]
    return f"{preposition}{target.isoformat()}"


def _parse_date(text: str) -> date | None:
    """The date that an ISO date names; None if there is no such day."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _patterns_in(text: str, words: DateWords) -> Iterator[tuple[re.Pattern[str], DateOffset]]:
    """Yield the patterns of the relative dates of a language, each with its offset as in
    `_date_text`; the pattern of an ambiguous word only if the text is in this language.
    """
    # By its name, because a DateWords holds dictionaries, which no cache can have as a key.
    for row in _compile_patterns(words.language):
        if row.only_in is None or row.only_in.search(text):
            yield row.pattern, row.offset


@cache
def _compile_patterns(language: str) -> tuple[_DatePattern, ...]:
    """The patterns of the relative dates of a language, compiled once."""
    words = next(row for row in LANGUAGES if row.language == language)
    names = "|".join(words.weekdays)
    # Chinese and Japanese are written without blanks: there is no edge between two words.
    has_word_edges = words.preposition != ""
    start, end = (_WORD_START, _WORD_END) if has_word_edges else ("", "")
    patterns: list[_DatePattern] = []
    for word, offset in words.days.items():
        language_pattern = words.ambiguous_days.get(word)
        only_in = re.compile(language_pattern, re.IGNORECASE) if language_pattern else None
        pattern = re.compile(f"{start}{word}{end}", re.IGNORECASE)
        patterns.append(_DatePattern(pattern, offset, only_in))
    weekdays: tuple[tuple[str, DateOffset], ...] = ((words.coming, "coming"), (words.past, "past"))
    for weekday, direction in weekdays:
        pattern = re.compile(weekday.replace("{name}", f"(?:{names})"), re.IGNORECASE)
        patterns.append(_DatePattern(pattern, direction, only_in=None))
    return tuple(patterns)
