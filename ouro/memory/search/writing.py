"""Words as the index has them: what is written without spaces sign by sign, and beside a camelCase name its parts.

A run of Chinese, Japanese, Korean or Thai is one word to SQLite. Indexed sign by sign, any part of it is found as a
phrase; a question looks for the pairs of neighbouring signs (n-grams, as Lucene's CJKAnalyzer has them). Text in Latin,
Greek or Cyrillic script is indexed as it is.
"""

from __future__ import annotations

import re
import unicodedata

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
_LONGEST_NAME = 60
"""What is longer is no name, but data in letters."""
_APART = r" \g<0> "
_GRAMMAR = re.compile(
    "[的了是在和与與及或吗嗎呢吧啊呀我你您他她它们們这這那哪有不就也都把被让讓请請很会會要能个個为為怎么麼什]+"
)
"""Signs that hold a Chinese sentence together."""


def findable(text: str) -> str:
    """`text` as it goes into the words index; most texts stay as they are."""
    if not text.isascii():
        text = _SIGN.sub(_APART, unicodedata.normalize("NFC", text))
    names = (name for name in _CAMEL.findall(text) if len(name) <= _LONGEST_NAME)
    parts = [part for name in names for part in _PART.findall(name) if len(part) > 1]
    return f"{text}\n{' '.join(parts)}" if parts else text


def phrase(word: str) -> str:
    """A word of a question, quoted for SQLite: of several signs those side by side."""
    return '"' + (word if word.isascii() else _SIGN.sub(_APART, word)) + '"'


def words_in(text: str) -> list[str]:
    """The words of a question, in small letters, in their order; in place of those without spaces, groups of signs."""
    if text.isascii():
        return _WORD.findall(text.lower())
    found: list[str] = []
    kana: list[str] = []
    for run in _RUN.finditer(unicodedata.normalize("NFC", text).lower()):
        if run["kana"]:
            kana += _groups(run[0], 2)
        elif run["thai"] or run["signs"]:
            found += [each for part in _GRAMMAR.split(run[0]) for each in _groups(part, 3 if run["thai"] else 2)]
        else:
            found.append(run[0])
    return found or kana  # Hiragana is mostly grammar


def _groups(run: str, size: int) -> list[str]:
    """So many neighbouring signs each; the whole run where it is shorter."""
    signs = _signs_of(run)
    return ["".join(signs[at : at + size]) for at in range(max(1, len(signs) - size + 1)) if signs]


def _signs_of(run: str) -> list[str]:
    """Each letter with the marks above and below it, which SQLite passes over."""
    signs: list[str] = []
    for letter in run:
        if signs and unicodedata.category(letter).startswith("M"):
            signs[-1] += letter
        else:
            signs.append(letter)
    return signs
