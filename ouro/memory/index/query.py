"""Text for the word index: passages and their hashes, the words of a query, and the days and
speaker that it names.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from datetime import date, timedelta

import msgspec

from ouro.utils.late_pattern import late_pattern

STOP_WORDS = frozenset(
    (
        "a",
        "about",
        "all",
        "also",
        "am",
        "an",
        "and",
        "any",
        "are",
        "as",
        "at",
        "be",
        "been",
        "but",
        "by",
        "can",
        "could",
        "d",
        "did",
        "do",
        "does",
        "doing",
        "don",
        "for",
        "from",
        "had",
        "has",
        "have",
        "having",
        "he",
        "her",
        "here",
        "him",
        "his",
        "how",
        "i",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "just",
        "ll",
        "m",
        "may",
        "me",
        "might",
        "must",
        "my",
        "no",
        "not",
        "of",
        "on",
        "or",
        "our",
        "re",
        "s",
        "shall",
        "she",
        "should",
        "so",
        "some",
        "t",
        "than",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "those",
        "to",
        "too",
        "us",
        "ve",
        "very",
        "was",
        "we",
        "were",
        "what",
        "when",
        "where",
        "which",
        "who",
        "whom",
        "whose",
        "why",
        "will",
        "with",
        "would",
        "you",
        "your",
    )
)
_FAMILIES = (
    "become became",
    "begin began begun",
    "break broke broken",
    "bring brought",
    "build built",
    "buy bought",
    "catch caught",
    "child children",
    "choose chose chosen",
    "come came",
    "deal dealt",
    "draw drew drawn",
    "drive drove driven",
    "eat ate eaten",
    "fall fell fallen",
    "feed fed",
    "feel felt",
    "fight fought",
    "find found",
    "fly flew flown",
    "foot feet",
    "forget forgot forgotten",
    "freeze froze frozen",
    "get got gotten",
    "give gave given",
    "go went gone",
    "grow grew grown",
    "hang hung",
    "hear heard",
    "hide hid hidden",
    "hold held",
    "index indices indexes",
    "keep kept",
    "know knew known",
    "lead led",
    "leave left",
    "lend lent",
    "lose lost",
    "make made",
    "man men",
    "matrix matrices",
    "mean meant",
    "meet met",
    "mouse mice",
    "pay paid",
    "person people",
    "ride rode ridden",
    "ring rang rung",
    "rise rose risen",
    "run ran",
    "say said",
    "see saw seen",
    "sell sold",
    "send sent",
    "shoot shot",
    "sing sang sung",
    "sit sat",
    "sleep slept",
    "speak spoke spoken",
    "spend spent",
    "stand stood",
    "steal stole stolen",
    "swim swam swum",
    "take took taken",
    "teach taught",
    "tell told",
    "think thought",
    "throw threw thrown",
    "understand understood",
    "wake woke woken",
    "wear wore worn",
    "win won",
    "woman women",
    "write wrote written",
)
FORMS = {word: tuple(family.split()) for family in _FAMILIES for word in family.split()}
"""A word and all the forms of it."""


_THAI = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0edf\u1000-\u109f\u1780-\u17d3"
"""Thai, Lao, Burmese, Khmer: these are letters, so groups of three are indexed."""
_KANA = "\u3041-\u309f"
_IDEAS = (
    "\u3005-\u3007\u30a1-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003fffd"
)
"""Chinese characters, and Katakana."""
_HANGUL = "\u1100-\u11ff\uac00-\ud7a3"
_SIGN = late_pattern(f"[{_THAI}{_KANA}{_IDEAS}{_HANGUL}]")
_WORD = late_pattern(r"[^\W_]+")
_RUN = late_pattern(
    f"(?P<thai>[{_THAI}]+)|(?P<kana>[{_KANA}]+)|(?P<signs>[{_IDEAS}]+|[{_HANGUL}]+)"
    f"|[^\\W_{_THAI}{_KANA}{_IDEAS}{_HANGUL}]+"
)
_CAMEL = late_pattern(r"[A-Za-z0-9]*(?:[a-z0-9][A-Z]|[A-Z]{2}[a-z])[A-Za-z0-9]*")
_PART = late_pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_MAX_NAME = 60
"""A longer word is not a name, but data written in letters."""
_APART = r" \g<0> "
_GRAMMAR = late_pattern(
    "[的了是在和与與及或吗嗎呢吧啊呀我你您他她它们們这這那哪有不就也都把被让讓请請很会會要能个個为為怎么麼什]+"
)
"""Function characters of Chinese; they do not name a subject."""


def findable(text: str) -> str:
    """`text` in the form of the word index; most texts stay unchanged."""
    if not text.isascii():
        text = _SIGN.sub(_APART, unicodedata.normalize("NFC", text))
    parts: list[str] = []
    for name in _CAMEL.findall(text):
        if len(name) <= _MAX_NAME:
            parts += [part for part in _PART.findall(name) if len(part) > 1]
    return f"{text}\n{' '.join(parts)}" if parts else text


def quote_word(word: str) -> str:
    """A query word, quoted for SQLite; several tokens form a phrase."""
    return '"' + (word if word.isascii() else _SIGN.sub(_APART, word)) + '"'


def words_in(text: str) -> list[str]:
    """The words of a query, lower case, in order; text without spaces becomes groups of characters."""
    if text.isascii():
        return _WORD.findall(text.lower())
    found: list[str] = []
    kana: list[str] = []
    for run in _RUN.finditer(unicodedata.normalize("NFC", text).lower()):
        if run["kana"]:
            kana += _groups(run[0], 2)
        elif run["thai"] or run["signs"]:
            size = 3 if run["thai"] else 2
            for part in _GRAMMAR.split(run[0]):
                found += _groups(part, size)
        else:
            found.append(run[0])
    return found or kana  # Hiragana is mostly grammar


def word_starts(text: str) -> set[str]:
    """The first five letters of each word of a text, or its groups of characters, to compare it
    with another.
    """
    words = words_in(text) if _SIGN.search(text) else re.findall(r"\w{3,}", text.casefold())
    return {word[:5] for word in words}


def _groups(run: str, size: int) -> list[str]:
    """The groups of `size` neighbouring characters of a text without spaces, overlapping; a shorter
    text is one group.
    """
    signs: list[str] = []  # each letter with its combining marks, which SQLite ignores
    for letter in run:
        if signs and unicodedata.category(letter).startswith("M"):
            signs[-1] += letter
        else:
            signs.append(letter)
    return ["".join(signs[at : at + size]) for at in range(max(1, len(signs) - size + 1)) if signs]


MAX_PASSAGE = 1_000
"""Maximum characters of a passage; the local embedding model reads about so much of a text."""
MAX_PASSAGES = 60
"""Maximum passages of one message; the rest of a longer message cannot be found."""
SHIFT = 20
"""The id of a passage: the `seq` of its session and, in so many bits, its position. Neighbours have
adjacent ids.
"""

_BORDERS = (
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"(?<=[.!?:;])\s"),
    re.compile(r"\s"),
)


def split_passages(text: str) -> list[str]:
    """`text` cut at paragraphs, else lines, sentences, words, into pieces of at most `MAX_PASSAGE`
    characters.
    """
    text = text.strip()
    found: list[str] = []
    while text and len(found) < MAX_PASSAGES:
        end = len(text) if len(text) <= MAX_PASSAGE else _end_of_piece(text)
        found.append(text[:end].rstrip())
        text = text[end:].lstrip()
    return found


def _end_of_piece(text: str) -> int:
    """The end of the first piece: the last border of the best kind that uses at least a third of
    the length.
    """
    for border in _BORDERS:
        ends = [found.end() for found in border.finditer(text, MAX_PASSAGE // 3, MAX_PASSAGE)]
        if ends:
            return ends[-1]
    return MAX_PASSAGE


def content_hash(text: str) -> int:
    """A 64-bit hash of a text: the key of its vector."""
    return int.from_bytes(
        hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big", signed=True
    )


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
_MONTH = "|".join(
    [*_MONTHS, "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sept?", "oct", "nov", "dec"]
)
_ISO = late_pattern(r"\b((?:19|20)\d\d)-(\d\d)(?:-(\d\d))?\b")
_NAMED = late_pattern(
    rf"\b(?:(?P<first>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? )?(?P<month>{_MONTH})\b\.?"
    r"(?: (?P<day>\d{1,2})(?:st|nd|rd|th)?\b)?(?:,? (?P<year>(?:19|20)\d\d)\b)?"
)
_SAID_AS_A_MONTH = late_pattern(
    r"\b(?:in|on|of|by|early|mid|late|last|this|before|after|during|since|until|\d\d?(?:st|nd|rd|th)?)"
    r" (?:may|march)\b"
    r"|\b(?:may|march),? \d"
)
"""Matches `may` and `march` as months, not verbs."""
_YEAR = late_pattern(r"\b(?:in|of|during|since) ((?:19|20)\d\d)\b")
_AGO = late_pattern(
    r"\b(\d{1,3}|an?|two|three|four|five|six|a few|a couple of) (day|week|month|year)s? ago\b"
)
_RECENT = late_pattern(r"\b(?:(today|yesterday)|(last|this) (week|month|year))\b")
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKDAY = late_pattern(rf"\b(?:on|last|since) ({'|'.join(_WEEKDAYS)})\b")
_COUNTS = {
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
_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}
SPEAKERS = ("user", "assistant")
_USER = frozenset(("i", "me", "my", "mine", "myself"))
_ASSISTANT = frozenset(("you", "your", "yours", "yourself"))


class ParsedQuery(msgspec.Struct, frozen=True):
    words: tuple[tuple[str, ...], ...]
    """Each word with its other forms (`went`, `go`, `gone`)."""
    speaker: str = ""
    """The speaker, if the query names exactly one."""
    days: tuple[tuple[str, str], ...] = ()
    """The spans of days that the query names: first and last day, as `2026-11-21`."""
    spoken: str = ""
    """The query as the speaker would say it, for vectors."""


def parse_query(
    text: str, speakers: Sequence[str] = SPEAKERS, today: date | None = None
) -> ParsedQuery:
    """Parse a query. Partial or relative dates mean the last such days before `today`."""
    speaker = _only_speaker(text, speakers)
    names: set[str] = set()
    for speaker_name in speakers:
        names.update(word.lower() for word in _WORD.findall(speaker_name))
    days, rest = _spans_of_days(text, today)
    found: dict[tuple[str, ...], None] = {}
    for word in words_in(rest):
        if word not in STOP_WORDS and word not in names:
            found[FORMS.get(word, (word,))] = None
        if len(found) == MAX_WORDS:
            break
    return ParsedQuery(tuple(found), speaker, days, _as_speaker_says(text, speaker))


def _as_speaker_says(text: str, speaker: str) -> str:
    """A query with `I` and `my` instead of the name of its speaker: it is nearer to what was said."""
    if speaker in ("", "user"):
        return text
    possessive, name = f"{re.escape(speaker)}['’]s", re.escape(speaker)
    if speaker == "assistant":
        possessive, name = "your", "you"
    spoken = re.sub(rf"\b{possessive}\b", "my", text, flags=re.IGNORECASE)
    return re.sub(rf"\b{name}\b", "I", spoken, flags=re.IGNORECASE)


def _only_speaker(text: str, speakers: Sequence[str]) -> str:
    """The speaker that a query names; empty if it names none, or several. In a session `I` is the
    user, and `you` the assistant.
    """
    said = set(_WORD.findall(text.lower()))
    if tuple(speakers) == SPEAKERS:
        words_of = {"user": _USER, "assistant": _ASSISTANT}
        named = [name for name, words in words_of.items() if said & words]
    else:
        named = [name for name in speakers if name.lower() in said]
    return named[0] if len(named) == 1 else ""


def _named_span(found: re.Match[str], today: date | None) -> Sequence[tuple[date, date]]:
    """The span of a day or month that is named in words; without a year the last one of it."""
    beginnings = [name[:3] for name in _MONTHS]
    month = beginnings.index(found["month"][:3]) + 1
    day = int(found["day"] or found["first"] or 0)
    if found["year"]:
        return _calendar_span(int(found["year"]), month, day)
    if today is None:
        return ()
    is_to_come = (month, day) > (today.month, today.day)
    return _calendar_span(today.year - is_to_come, month, day)


def _spans_of_days(text: str, today: date | None) -> tuple[tuple[tuple[str, str], ...], str]:
    """The named spans of days, and the text without them."""
    lowered = text.lower()
    spans: list[tuple[date, date]] = []
    for found in _ISO.finditer(lowered):
        spans += _calendar_span(int(found[1]), int(found[2]), int(found[3] or 0))
    for found in _NAMED.finditer(lowered):
        if found["month"] not in ("may", "march") or _SAID_AS_A_MONTH.search(lowered):
            spans += _named_span(found, today)
    if not spans and (year := _YEAR.search(lowered)):
        spans += _calendar_span(int(year[1]), 0, 0)
    if today:
        spans += _relative_spans(lowered, today)
    rest = _NAMED.sub(" ", _ISO.sub(" ", lowered)) if spans else lowered
    return tuple((first.isoformat(), last.isoformat()) for first, last in spans), rest


def _calendar_span(year: int, month: int, day: int) -> list[tuple[date, date]]:
    """The span of a year, month or day (0: not given); empty for a date that does not exist."""
    try:
        if day:
            return [(date(year, month, day),) * 2]
        first = date(year, month or 1, 1)
    except ValueError:
        return []
    following = date(year + 1, 1, 1) if month in (0, 12) else date(year, month + 1, 1)
    return [(first, following - timedelta(days=1))]


def _relative_spans(text: str, today: date) -> list[tuple[date, date]]:
    """Days relative to today, with a margin: users remember them roughly."""
    spans: list[tuple[date, date]] = []
    for found in _AGO.finditer(text):
        length = _DAYS[found[2]]
        away = length * (_COUNTS.get(found[1]) or int(found[1]))
        spans.append(
            (today - timedelta(days=away + length // 2), today - timedelta(days=away - length // 2))
        )
    for found in _WEEKDAY.finditer(text):
        day = today - timedelta(days=(today.weekday() - _WEEKDAYS.index(found[1]) - 1) % 7 + 1)
        spans.append((day, day))
    return [*spans, *(_recent_span(found, today) for found in _RECENT.finditer(text))]


def _recent_span(found: re.Match[str], today: date) -> tuple[date, date]:
    """The span of `today`, `yesterday`, or this or the last week, month or year."""
    if found[1]:
        day = today - timedelta(days=found[1] == "yesterday")
        return day, day
    first = _first_day_of(found[3], today)
    if found[2] == "this":
        return first, today
    last = first - timedelta(days=1)
    return _first_day_of(found[3], last), last


def _first_day_of(period: str, day: date) -> date:
    """The first day of the week, month or year of a day."""
    if period == "week":
        return day - timedelta(days=day.weekday())
    if period == "month":
        return day.replace(day=1)
    return day.replace(month=1, day=1)
