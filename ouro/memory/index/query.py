"""Prepares texts for the index (their words, passages and hashes), and parses a query: its words,
and the days and the speaker that it names.
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
_WORD_FORMS = (
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
FORMS = {word: tuple(family.split()) for family in _WORD_FORMS for word in family.split()}
"""A word and all the forms of it."""


_THAI = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0edf\u1000-\u109f\u1780-\u17d3"
"""Thai, Lao, Burmese, Khmer: these are letters, so groups of three are indexed."""
_KANA = "\u3041-\u309f"
"""Hiragana, which is mostly grammar."""
_IDEOGRAPHS = (
    "\u3005-\u3007\u30a1-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003fffd"
)
"""Chinese characters, and Katakana."""
_HANGUL = "\u1100-\u11ff\uac00-\ud7a3"
_CHARACTER_WITHOUT_SPACES = late_pattern(f"[{_THAI}{_KANA}{_IDEOGRAPHS}{_HANGUL}]")
_WORD = late_pattern(r"[^\W_]+")
_RUN_OF_SCRIPT = late_pattern(
    f"(?P<thai>[{_THAI}]+)|(?P<kana>[{_KANA}]+)|(?P<signs>[{_IDEOGRAPHS}]+|[{_HANGUL}]+)"
    f"|[^\\W_{_THAI}{_KANA}{_IDEOGRAPHS}{_HANGUL}]+"
)
"""Characters of one script that follow each other; the last alternative is a word of letters and
digits.
"""
_CAMEL_CASE_NAME = late_pattern(r"[A-Za-z0-9]*(?:[a-z0-9][A-Z]|[A-Z]{2}[a-z])[A-Za-z0-9]*")
"""A name such as `findNotes` or `HTTPServer`."""
_PART_OF_NAME = late_pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
"""A word inside of such a name: `find`, `Notes`, `HTTP`."""
_MAX_NAME = 60
"""A longer word is not a name, but data written in letters."""
_WITH_SPACES = r" \g<0> "
_CHINESE_GRAMMAR = late_pattern(
    "[的了是在和与與及或吗嗎呢吧啊呀我你您他她它们們这這那哪有不就也都把被让讓请請很会會要能个個为為怎么麼什]+"
)
"""Function characters of Chinese; they do not name a subject."""


def findable(text: str) -> str:
    """Returns a text as the word index reads it. Most stay unchanged: characters of languages
    without spaces are separated by spaces, and the parts of names such as `findNotes` are added.
    """
    if not text.isascii():
        text = _CHARACTER_WITHOUT_SPACES.sub(_WITH_SPACES, unicodedata.normalize("NFC", text))
    parts: list[str] = []
    for name in _CAMEL_CASE_NAME.findall(text):
        if len(name) <= _MAX_NAME:
            parts += [part for part in _PART_OF_NAME.findall(name) if len(part) > 1]
    return f"{text}\n{' '.join(parts)}" if parts else text


def quote_word(word: str) -> str:
    """Returns a word of a query, quoted for SQLite. One that the index reads as several tokens
    becomes a phrase.
    """
    if not word.isascii():
        word = _CHARACTER_WITHOUT_SPACES.sub(_WITH_SPACES, word)
    return f'"{word}"'


def words_in(text: str) -> list[str]:
    """Returns the words of a query in lower case, in their order. Text of languages without spaces
    becomes groups of two or three characters.
    """
    if text.isascii():
        return _WORD.findall(text.lower())
    words: list[str] = []
    kana_groups: list[str] = []  # used only if there is nothing else: Hiragana is mostly grammar
    for run in _RUN_OF_SCRIPT.finditer(unicodedata.normalize("NFC", text).lower()):
        if run["kana"]:
            kana_groups += _character_groups(run[0], 2)
        elif run["thai"] or run["signs"]:
            size = 3 if run["thai"] else 2
            for part in _CHINESE_GRAMMAR.split(run[0]):
                words += _character_groups(part, size)
        else:
            words.append(run[0])
    return words or kana_groups


def word_starts(text: str) -> set[str]:
    """Returns what a text is compared by with another text: the first five letters of each word
    that has at least three. In a text of a language without spaces, each group of characters counts
    as a word.
    """
    has_spaces = not _CHARACTER_WITHOUT_SPACES.search(text)
    words = re.findall(r"\w{3,}", text.casefold()) if has_spaces else words_in(text)
    return {word[:5] for word in words}


def _character_groups(run: str, size: int) -> list[str]:
    """Returns all groups of `size` neighbouring characters of a text without spaces; `abcd` has the
    groups `ab`, `bc` and `cd`. A shorter text is one group, an empty one has none.
    """
    characters: list[str] = []  # each letter with its combining marks, which SQLite ignores
    for letter in run:
        if characters and unicodedata.category(letter).startswith("M"):
            characters[-1] += letter
        else:
            characters.append(letter)
    if not characters:
        return []
    starts = range(max(1, len(characters) - size + 1))
    return ["".join(characters[start : start + size]) for start in starts]


MAX_PASSAGE = 1_000
"""Maximum characters of a passage; the local embedding model reads about so much of a text."""
MAX_PASSAGES = 60
"""Maximum passages of one message; the rest of a longer message cannot be found."""
POSITION_BITS = 20
"""The id of a passage: the `seq` of its session and, in so many bits, its position. Neighbours have
adjacent ids.
"""

_PASSAGE_BORDERS = (
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"(?<=[.!?:;])\s"),
    re.compile(r"\s"),
)
"""Where a text may be cut, the best kind first."""


def split_passages(text: str) -> list[str]:
    """Returns a text cut into passages of at most `MAX_PASSAGE` characters: between paragraphs if
    possible, otherwise between lines, sentences or words. At most `MAX_PASSAGES`.
    """
    text = text.strip()
    passages: list[str] = []
    while text and len(passages) < MAX_PASSAGES:
        end = len(text) if len(text) <= MAX_PASSAGE else _end_of_piece(text)
        passages.append(text[:end].rstrip())
        text = text[end:].lstrip()
    return passages


def _end_of_piece(text: str) -> int:
    """Returns the end of the first passage of a long text: the last border of the best kind that
    leaves it at least a third of the maximum length.
    """
    for border in _PASSAGE_BORDERS:
        ends = [match.end() for match in border.finditer(text, MAX_PASSAGE // 3, MAX_PASSAGE)]
        if ends:
            return ends[-1]
    return MAX_PASSAGE


def searched_text(text: str, search_words: Sequence[str]) -> str:
    """Returns what is searched of a note: its text, and on the next line its search words. The SQL
    of `schema.searched_column` makes the same.
    """
    return f"{text}\n{', '.join(search_words)}" if search_words else text


def content_hash(text: str) -> int:
    """Returns a hash of a text, by which its vector is stored: a signed number of 64 bits."""
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


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
        names.update(word.lower() for word in _WORD.findall(speaker_name))
    days, text_without_days = _spans_of_days(text, today)
    words: dict[tuple[str, ...], None] = {}
    for word in words_in(text_without_days):
        if word not in STOP_WORDS and word not in names:
            words[FORMS.get(word, (word,))] = None
        if len(words) == MAX_WORDS:
            break
    return ParsedQuery(tuple(words), speaker, days, spoken=_as_speaker_says(text, speaker))


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
    words = set(_WORD.findall(text.lower()))
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
