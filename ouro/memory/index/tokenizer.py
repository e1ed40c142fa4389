"""Text for the word index: irregular English forms and stop words, query words, passages, hashes."""

from __future__ import annotations

import hashlib
import re
import unicodedata

STOP_WORDS = frozenset(
    [
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
    ]
)
_FAMILIES = (
    "become became", "begin began begun", "break broke broken", "bring brought", "build built", "buy bought",
    "catch caught", "child children", "choose chose chosen", "come came", "deal dealt", "draw drew drawn",
    "drive drove driven", "eat ate eaten", "fall fell fallen", "feed fed", "feel felt", "fight fought", "find found",
    "fly flew flown", "foot feet", "forget forgot forgotten", "freeze froze frozen", "get got gotten",
    "give gave given", "go went gone", "grow grew grown", "hang hung", "hear heard", "hide hid hidden", "hold held",
    "index indices indexes", "keep kept", "know knew known", "lead led", "leave left", "lend lent", "lose lost",
    "make made", "man men", "matrix matrices", "mean meant", "meet met", "mouse mice", "pay paid", "person people",
    "ride rode ridden", "ring rang rung", "rise rose risen", "run ran", "say said", "see saw seen", "sell sold",
    "send sent", "shoot shot", "sing sang sung", "sit sat", "sleep slept", "speak spoke spoken", "spend spent",
    "stand stood", "steal stole stolen", "swim swam swum", "take took taken", "teach taught", "tell told",
    "think thought", "throw threw thrown", "understand understood", "wake woke woken", "wear wore worn", "win won",
    "woman women", "write wrote written",
)  # fmt: skip
FORMS = {word: tuple(family.split()) for family in _FAMILIES for word in family.split()}
"""A word and all the forms of it."""


_THAI = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0edf\u1000-\u109f\u1780-\u17d3"
"""Thai, Lao, Burmese, Khmer: letters, so that it takes three to tell something."""
_KANA = "\u3041-\u309f"
_IDEAS = (
    "\u3005-\u3007\u30a1-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003fffd"
)
"""Chinese characters, and Katakana."""
_HANGUL = "\u1100-\u11ff\uac00-\ud7a3"
_SIGN = re.compile(f"[{_THAI}{_KANA}{_IDEAS}{_HANGUL}]")
_WORD = re.compile(r"[^\W_]+")
_RUN = re.compile(
    f"(?P<thai>[{_THAI}]+)|(?P<kana>[{_KANA}]+)|(?P<signs>[{_IDEAS}]+|[{_HANGUL}]+)"
    f"|[^\\W_{_THAI}{_KANA}{_IDEAS}{_HANGUL}]+"
)
_CAMEL = re.compile(r"[A-Za-z0-9]*(?:[a-z0-9][A-Z]|[A-Z]{2}[a-z])[A-Za-z0-9]*")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_MAX_NAME = 60
"""What is longer is no name, but data in letters."""
_APART = r" \g<0> "
_GRAMMAR = re.compile(
    "[的了是在和与與及或吗嗎呢吧啊呀我你您他她它们們这這那哪有不就也都把被让讓请請很会會要能个個为為怎么麼什]+"
)
"""Signs that hold a Chinese sentence together."""


def findable(text: str) -> str:
    """`text` in the form of the word index; most texts stay unchanged."""
    if not text.isascii():
        text = _SIGN.sub(_APART, unicodedata.normalize("NFC", text))
    names = (name for name in _CAMEL.findall(text) if len(name) <= _MAX_NAME)
    parts = [part for name in names for part in _PART.findall(name) if len(part) > 1]
    return f"{text}\n{' '.join(parts)}" if parts else text


def phrase(word: str) -> str:
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
            found += [item for part in _GRAMMAR.split(run[0]) for item in _groups(part, 3 if run["thai"] else 2)]
        else:
            found.append(run[0])
    return found or kana  # Hiragana is mostly grammar


def _groups(run: str, size: int) -> list[str]:
    """Groups of adjacent characters; the whole run if it is shorter."""
    signs = _signs_of(run)
    return ["".join(signs[at : at + size]) for at in range(max(1, len(signs) - size + 1)) if signs]


def _signs_of(run: str) -> list[str]:
    """Each letter with its combining marks, which SQLite ignores."""
    signs: list[str] = []
    for letter in run:
        if signs and unicodedata.category(letter).startswith("M"):
            signs[-1] += letter
        else:
            signs.append(letter)
    return signs


LONGEST = 1_000
"""Characters; about what the local embedding model reads of a text."""
MOST = 60
"""Passages of one message; what follows in a longer one is read, but not found."""

_BORDERS = (re.compile(r"\n\s*\n"), re.compile(r"\n"), re.compile(r"(?<=[.!?:;])\s"), re.compile(r"\s"))


def passages(text: str) -> list[str]:
    """`text` cut at paragraphs, else lines, sentences, words, into pieces of at most `LONGEST` characters."""
    text = text.strip()
    found: list[str] = []
    while text and len(found) < MOST:
        cut = len(text) if len(text) <= LONGEST else _cut(text)
        found.append(text[:cut].rstrip())
        text = text[cut:].lstrip()
    return found


def _cut(text: str) -> int:
    """The end of the first piece: the last border of the best kind that uses at least a third of the length."""
    head = text[:LONGEST]
    for border in _BORDERS:
        places = [found.end() for found in border.finditer(head, LONGEST // 3)]
        if places:
            return places[-1]
    return LONGEST


def content_hash(text: str) -> int:
    """A 64-bit hash of a text: the key of its vector."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big", signed=True)
