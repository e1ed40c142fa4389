"""The words of a text: as the index reads them, and as a query or a comparison uses them."""

from __future__ import annotations

import unicodedata

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

_ABBREVIATIONS = (
    "accessibility a11y",
    "application applications app apps",
    "administrator administrators admin admins",
    "argument arguments arg args",
    "asynchronous async",
    "authentication auth",
    "certificate certificates cert certs",
    "command commands cmd cmds",
    "configuration configurations config configs",
    "credential credentials creds",
    "database databases db dbs",
    "dependency dependencies dep deps",
    "directory directories dir dirs",
    "documentation doc docs",
    "environment environments env envs",
    "function functions func funcs",
    "implementation implementations impl",
    "infrastructure infra",
    "internationalization internationalisation i18n",
    "kubernetes k8s",
    "localization localisation l10n",
    "message messages msg msgs",
    "package packages pkg pkgs",
    "parameter parameters param params",
    "performance perf",
    "postgresql postgres",
    "production prod",
    "repository repositories repo repos",
    "statistics stats",
    "variable variables var vars",
)
"""What programmers write in short, each with the whole word first. Left out is what has a second
meaning (`spec`, `ref`, `mr`), or is also the ending of file names (`js`, `ts`, `py`).
"""
_ABBREVIATED_PHRASES = {
    "continuous integration": "ci",
    "pull request": "pr",
    "regular expression": "regex",
    "user interface": "ui",
}
_PHRASE = late_pattern(rf"\b({'|'.join(_ABBREVIATED_PHRASES)})(s?)\b")


def _read_forms() -> dict[str, tuple[str, ...]]:
    forms: dict[str, tuple[str, ...]] = {}
    for family in (*_WORD_FORMS, *_ABBREVIATIONS):
        words = tuple(family.split())
        forms |= dict.fromkeys(words, words)
    for phrase, abbreviation in _ABBREVIATED_PHRASES.items():
        all_forms = (abbreviation, f"{abbreviation}s", phrase)
        forms |= dict.fromkeys(all_forms[:2], all_forms)
    return forms


FORMS = _read_forms()
"""A word and all the forms of it: as verbs and nouns have, and what is written in short for it, which
may be a phrase.
"""


def _read_whole_words() -> dict[str, str]:
    whole_words = {abbreviation: phrase for phrase, abbreviation in _ABBREVIATED_PHRASES.items()}
    for family in _ABBREVIATIONS:
        words = family.split()
        whole_words |= dict.fromkeys(words, words[0])
    return whole_words


_WHOLE_WORDS = _read_whole_words()
ABBREVIATED_WORDS = frozenset(" ".join(_WHOLE_WORDS.values()).split())
"""Words for which a text may have an abbreviation."""


def write_out(word: str) -> str:
    """A word in lower case as it is without abbreviation: `database` for `db`, `dbs` and `databases`."""
    return _WHOLE_WORDS.get(word, word)


def abbreviate_phrases(text: str) -> str:
    """A text in lower case with phrases as they are abbreviated: `pr` for `pull request`."""
    return _PHRASE.sub(lambda match: _ABBREVIATED_PHRASES[match[1]], text)


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
_ACCENTS = "\u0300-\u036f"
_SIGNS = (
    "\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u0610-\u061a\u064b-\u065f\u0670"
    "\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963\u0981-\u0983\u09bc-\u09d7\u09e2\u09e3\u0a01-\u0a03"
    "\u0a3c-\u0a51\u0a70\u0a71\u0a81-\u0a83\u0abc-\u0acd\u0ae2\u0ae3\u0b01-\u0b03\u0b3c-\u0b57\u0b82\u0bbe-\u0bd7"
    "\u0c00-\u0c04\u0c3c-\u0c56\u0c81-\u0c83\u0cbc-\u0cd6\u0d00-\u0d03\u0d3b-\u0d57\u0d81-\u0d83\u0dca-\u0df3"
    "\u200c\u200d"
)
"""Vowel signs that are characters of their own (Devanagari, Bengali, Tamil, Arabic …), and the joiners
between letters: they are inside of words. The word index separates words at them.
"""
_MARKS = _ACCENTS + _SIGNS
SIGN = late_pattern(f"[{_SIGNS}]")
WORD = late_pattern(f"[^\\W_](?:[^\\W_]|[{_MARKS}])*")
"""Letters and digits that follow each other, with their marks."""
_LONG_WORD = late_pattern(f"[\\w{_MARKS}]{{3,}}")
_RUN_OF_SCRIPT = late_pattern(
    f"(?P<thai>[{_THAI}]+)|(?P<kana>[{_KANA}]+)|(?P<signs>[{_IDEOGRAPHS}]+|[{_HANGUL}]+)"
    f"|[^\\W_{_THAI}{_KANA}{_IDEOGRAPHS}{_HANGUL}](?:[^\\W_{_THAI}{_KANA}{_IDEOGRAPHS}{_HANGUL}]|[{_MARKS}])*"
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


MIN_START = 6
"""Letters of the start of a word that its forms in other languages share: endings follow
(`Endpunkt`, `Endpunkte`; `calcular`, `calculado`).
"""


def quote_start(word: str) -> str:
    """Returns a query of SQLite for the words that start as this one; for a short word it alone."""
    is_long_word = len(word) > MIN_START and " " not in word
    return f"{quote_word(word[:MIN_START])}*" if is_long_word else quote_word(word)


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
        return WORD.findall(text.lower())
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
    words = _LONG_WORD.findall(text.casefold()) if has_spaces else words_in(text)
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
