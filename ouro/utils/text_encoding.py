"""The encoding of a text that is not UTF-8: what a file or its project declares, else a guess.

The guess is a naive Bayes classifier: for each language and encoding, the probability of the
decoded letters. Encodings that fit nearly as well are its rivals.
"""

from __future__ import annotations

import codecs
import locale
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain, pairwise
from pathlib import Path

import msgspec

from ouro.utils.declared_text import editorconfig_value, git_attribute
from ouro.utils.files import open_regular
from ouro.utils.late_pattern import late_pattern

_MAX_SCORED = 1 << 16
"""Bytes that are scored, of the lines outside of ASCII; the whole file must be decodable."""
_MARGIN = 5.0
"""Encodings within this distance of the best log-probability are its rivals (odds of 150 to 1)."""
_BONUS_OF_LOCALE, _BONUS_OF_NEIGHBOUR, _BONUS_OF_WORD = 3.0, 6.0, 1.0
"""What the language of the locale, a file beside it and a frequent word add to the score."""
_COST_OF_RANK = 1.5
"""Subtracted for each more frequent encoding of the language."""
_MAX_WORDS = 10
"""Maximum frequent words that count."""
_MAX_NEIGHBOURS = 8
"""Other files in the folder of a file whose encodings are guessed."""
_MAX_NEIGHBOUR_BYTES = 1 << 16
"""Bytes of such a file that are read."""
# The log-probability of a character that is no letter of the language.
_SCORE_OF_SYMBOL, _SCORE_OF_STRANGE_LETTER, _SCORE_OF_STRANGE, _SCORE_OF_CONTROL = map(
    math.log, (1e-2, 1e-4, 1e-5, 1e-7)
)
_SCORE_OF_RARE_IDEOGRAPH = _SCORE_OF_STRANGE - 3.0
_SCORE_OF_CAPITAL = math.log(0.04)
"""Added for a capital to the score of the small letter."""
# Added for each such letter or change of case inside of a word: see `_score_neighbours`.
_SCORE_AMONG_ASCII, _SCORE_BESIDE_EACH_OTHER, _SCORE_OF_CASE_CHANGE = -4.0, -1.5, -3.0
_COMMON_SHARE, _FREQUENT_SHARE = math.log(0.5), math.log(0.3)
"""The shares of a text in an East Asian language that are its common characters (the listed ones),
and its frequent ones (the others in the first level of its character set). The rest is rare.
"""
_FREQUENT_IDEOGRAPHS = 3_000
"""About how many characters are in the first level of a character set."""
_SYMBOLS = frozenset("«»“”„‘’‚–—…•°§©®™€£¥¿¡×·±µ²³ªº\u00a0№、。，！？：；（）「」『』・《》")
_ENCODING_NAME = late_pattern(
    rb"""(?:coding[:=]\s*|charset\s*=?\s*["']?|encoding\s*=\s*["']?)([A-Za-z][\w.:-]{1,30})""",
    re.IGNORECASE,
)
"""`coding: latin-1`, `charset="cp1252"`, `encoding='UTF-16'`."""
_DECLARING_LINE = late_pattern(
    rb"^(?:\s*<\?xml|.*<meta\b|\s*@charset|[ \t\f]*(?:#|//|;|%|/\*|\"|<!--))"
)
"""The beginning of a line that may declare an encoding: markup, or a comment."""
_ASCII_WORD = late_pattern(r"[a-z]+")
_LETTER_RUN = late_pattern(r"[^\W\d_]+")


class Language(msgspec.Struct, frozen=True):
    """What a text of a language looks like in its old encodings."""

    encodings: tuple[str, ...]
    """Its encodings, the most frequent first."""
    letters: str
    """Its letters outside of ASCII, the most frequent first."""
    words: frozenset[str] = frozenset()
    """Frequent words in ASCII and without it; only those in ASCII are counted."""
    is_latin: bool = True
    prior: float = 0.0
    """Added to the score, because files in this language are frequent."""
    common: int = 0
    """For East Asian languages: how many of `letters` count as common; the rest is not listed."""


_WEST = ("cp1252", "iso8859-15", "mac-roman", "cp850")
_CENTRAL = ("cp1250", "iso8859-2", "cp852")
_BALTIC = ("cp1257", "iso8859-13")
_TURKISH = ("cp1254", "iso8859-9")
_CYRILLIC = ("cp1251", "koi8-r", "iso8859-5", "cp866", "mac-cyrillic")
_GREEK = ("cp1253", "iso8859-7")


def _latin(encodings: Sequence[str], letters: str, words: str, prior: float = 0.0) -> Language:
    """A language in Latin letters: `letters` are those that ASCII lacks, `words` frequent words
    with blanks between them.
    """
    return Language(tuple(encodings), letters, frozenset(words.split()), prior=prior)


def _script(encodings: Sequence[str], letters: str) -> Language:
    return Language(tuple(encodings), letters, is_latin=False)


def _asian(encodings: Sequence[str], letters: str) -> Language:
    return Language(tuple(encodings), letters, is_latin=False, common=len(letters))


@cache
def _languages() -> Mapping[str, Language]:
    """The languages, each by the language code of a locale: its letters, the most frequent one first,
    its frequent words, and how much more likely a text is in it than in others (`prior`).
    """
    return {
        "fr": _latin(_WEST, "éàèêçùôîâûëïœüæÿ", "le la les des et une pour dans est que", 2.0),
        "de": _latin(_WEST, "üäößé", "der die das und ist nicht mit ein für auf", 2.0),
        "es": _latin(_WEST, "óíáéñúü", "el los las que una para por con del se", 2.0),
        "pt": _latin(_WEST, "ãçáéíóõêúâàôü", "de do da que para uma com os não em", 2.0),
        "it": _latin(_WEST, "àèùòéìî", "il di che per una sono della con del le", 2.0),
        "sv": _latin(_WEST, "äåöéü", "och att det som en den av till med för", 2.0),
        "da": _latin(_WEST, "øåæéö", "og at det som en den af til med er", 2.0),
        "nb": _latin(_WEST, "øåæéòô", "og at det som en den av til med er", 2.0),
        "fi": _latin(_WEST, "äöå", "ja on ei että se tai oli kun joka", 2.0),
        "nl": _latin(_WEST, "ëéïöèüê", "de het een van en is dat op te voor", 1.0),
        "is": _latin(_WEST, "íáðóúþéæýö", "og er sem að til um en fyrir", 0.0),
        "ca": _latin(_WEST, "óàèéíçòïúü", "el les que per una amb del és", 0.0),
        "en": _latin(_WEST, "éèïöüñç", "the of and to in is that for it with", 1.0),
        "pl": _latin(_CENTRAL, "ąęłóśżćńź", "nie jest się na do że dla w z i"),
        "cs": _latin(_CENTRAL, "íáéěřšýčžůúóťňď", "je se na že pro v s do to a"),
        "sk": _latin(_CENTRAL, "áíéčýžšúľťôňóďäĺŕ", "je sa na že pre v s do to a"),
        "hu": _latin(_CENTRAL, "éáöóőüíűú", "az egy nem és hogy ez van de a"),
        "ro": _latin(_CENTRAL, "ăîţşâ", "de la nu este pentru cu un din o pe"),
        "hr": _latin(_CENTRAL, "šžčćđ", "je se na da za u i ne od s"),
        "lt": _latin(_BALTIC, "ėšųūįžčąę", "ir yra kad su tai iš ne už"),
        "lv": _latin(_BALTIC, "āīēšņūžļčģķ", "un ir ka no uz ar par nav"),
        "et": _latin(_BALTIC, "äõüöšž", "ja on ei et see kui oma mis"),
        "tr": _latin(_TURKISH, "ıüşğçöİâîû", "ve bir bu için ile da de olarak"),
        "ru": _script(_CYRILLIC, "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё"),
        "uk": _script(("cp1251", "koi8-u", "iso8859-5"), "оаниівтрекслдмупзьбягхчйїжшцюєщфґ"),
        "bg": _script(("cp1251", "iso8859-5", "cp866"), "аиоентрсвлпкдмзгяъубчцжщхшфйюь"),
        "sr": _script(("cp1251", "iso8859-5"), "аиоенртсвкдмлупјзгбчцшхжљњћђфџ"),
        "el": _script(_GREEK, "αοιετσνηυρπκμλςωόίγδήάέθχύφβξώζψϊ"),
        "he": _script(("cp1255", "iso8859-8"), "יוהלאמתרבשנעדחקפמסטזצגכךםןףץ"),
        "ar": _script(("cp1256", "iso8859-6"), "اليمنورتبةعدسفهكقحجشطصخضذزغثءأإآؤئظى"),
        "th": _script(("cp874",), "านรอกเงมยล่วดท้สตะปบคหแจพขใชไโซผฟถศธณ"),
        "ja": _asian(
            ("cp932", "euc_jp"),
            "のいるにをはとたがでしてなりれすらかまもこっさあくそんきうえお"
            "みけせよだどつやわへほぼばべびねちろめげむふずアイウエオカキクケコサシスセソタチツテトナニネノハヒフヘホ"
            "マミムメモラリルレロンーッャュョドデプグバパビブ",
        ),
        "zh": _asian(
            ("gb18030",),
            "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之"
            "年过发后作里用道行所然家种事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理"
            "心本前开但因只从想实文件数据函返回值名参设置户使输入错误处初始化码类型新加请",
        ),
        "zh_TW": _asian(
            ("cp950",),
            "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之"
            "年過發後作裡用道行所然家種事成方多經麼去法學如都同現當沒動面起看定天分還進好小部其些主樣理"
            "心本前開但因只從想實文件數據函返回值名參設置戶使輸入錯誤處初始化碼類型新加請檔資料",
        ),
        "ko": _asian(
            ("cp949",),
            "이다는을에의가고하지로기사한그도어리인대나자를시아서수정있스해보일으라제은니과장전게부들성오"
            "주마안구조용내여상원와만비무동연관공신적문선미실화방세모요경파소중체행업",
        ),
    }


class EncodingGuess(msgspec.Struct, frozen=True):
    encoding: str
    rivals: tuple[str, ...] = ()
    """Other encodings that fit nearly as well."""


def guess_legacy_encoding(data: bytes, neighbours: Iterable[str] = ()) -> EncodingGuess | None:
    """The most probable encoding of `data`; None if no encoding fits. `neighbours`: the encodings of
    files in the same folder.
    """
    scores = _score_encodings(data, frozenset(neighbours))
    if not scores:
        return None
    best = max(scores, key=lambda name: scores[name])
    near_best = [name for name in scores if scores[name] > scores[best] - _MARGIN]
    return EncodingGuess(best, tuple(name for name in near_best if name != best))


def _score_encodings(data: bytes, neighbours: frozenset[str]) -> dict[str, float]:
    """The encodings that can decode all bytes, each with its score: how likely the text is, as a
    logarithm, in the best language of the encoding.
    """
    language_here = _locale_language()
    lines = b"\n".join(line for line in data.splitlines() if not line.isascii())[:_MAX_SCORED]
    fitting = {name for name in _all_encodings() if _fits(data, name)}
    scores: dict[str, float] = {}
    for code, language in _languages().items():
        bonus = language.prior + (_BONUS_OF_LOCALE if language_here in (code, code[:2]) else 0.0)
        for rank, encoding in enumerate(language.encodings):
            if encoding not in fitting:
                continue
            text = lines.decode(encoding, "ignore")
            near = _BONUS_OF_NEIGHBOUR if encoding in neighbours else 0.0
            score = _score_text(text, language) + bonus + near - rank * _COST_OF_RANK
            scores[encoding] = max(score, scores.get(encoding, -math.inf))
    return scores


@cache
def _all_encodings() -> tuple[str, ...]:
    """The encodings of all languages, each once."""
    groups = [language.encodings for language in _languages().values()]
    return tuple(dict.fromkeys(chain.from_iterable(groups)))


def _fits(data: bytes, encoding: str) -> bool:
    """Whether bytes can be decoded, and the text becomes the same bytes again."""
    try:
        return data.decode(encoding).encode(encoding) == data
    except (UnicodeError, LookupError):
        return False


def _score_text(text: str, language: Language) -> float:
    """How likely a text is in a language, as a logarithm. It counts the characters outside of ASCII,
    which of them stand beside each other, and frequent words; for East Asian languages only the
    characters.
    """
    counts = Counter(char for char in text if char > "\x7f")
    letter_scores = _letter_scores(language)
    score = sum(
        count * _score_char(char, letter_scores, language) for char, count in counts.items()
    )
    if language.common:
        return score
    score += _score_neighbours(text, language)
    if language.is_latin:
        words = Counter(_ASCII_WORD.findall(text[:65536].lower()))
        hits = sum(words[word] for word in language.words)
        score += min(_MAX_WORDS, hits) * _BONUS_OF_WORD
    return score


@cache
def _letter_scores(language: Language) -> Mapping[str, float]:
    """The natural logarithm of how likely each letter of a language is. The common characters of an
    East Asian language are equally likely. Of another language `letters` begin with the most
    frequent one, and each later letter is less likely.
    """
    if language.common:
        return dict.fromkeys(language.letters, _COMMON_SHARE - math.log(len(language.letters)))
    weights = [1 / (rank + 2) for rank in range(len(language.letters))]
    total = sum(weights)
    pairs = zip(language.letters, weights, strict=True)
    return {letter: math.log(weight / total) for letter, weight in pairs}


def _score_char(char: str, letter_scores: Mapping[str, float], language: Language) -> float:
    """How likely a character is in a text of the language, as a logarithm."""
    if (letter_score := letter_scores.get(char)) is not None:
        return letter_score
    if char in _SYMBOLS:
        return _SCORE_OF_SYMBOL
    if (letter_score := letter_scores.get(char.lower())) is not None:
        return letter_score + _SCORE_OF_CAPITAL
    if char < "\xa0":
        return _SCORE_OF_CONTROL
    if language.common:
        return _score_ideograph(char, language)
    return _SCORE_OF_STRANGE_LETTER if char.isalpha() else _SCORE_OF_STRANGE


def _score_ideograph(char: str, language: Language) -> float:
    """The logarithm of how likely a character is that is not among the common ones of its East Asian
    language: it is frequent if it is in the first level of the character set, else rare.
    """
    code = char.encode(language.encodings[0], "replace")
    # The first and the last value of the first byte.
    first_level = {
        "cp932": (0x88, 0x97),
        "gb18030": (0xB0, 0xD7),
        "cp950": (0xA4, 0xC6),
        "cp949": (0xB0, 0xC8),
    }[language.encodings[0]]
    is_frequent = len(code) == 2 and first_level[0] <= code[0] <= first_level[1]
    # These two also have rare characters with such a first byte; their second byte is lower.
    is_second_byte_high = language.encodings[0] not in ("gb18030", "cp949") or code[-1] >= 0xA1
    if is_frequent and is_second_byte_high:
        return _FREQUENT_SHARE - math.log(_FREQUENT_IDEOGRAPHS)
    return _SCORE_OF_RARE_IDEOGRAPH


def _score_neighbours(text: str, language: Language) -> float:
    """The penalty, a negative number or 0, for letters that do not stand beside each other in words
    of the language: letters of another script, several accented letters alone, and a capital after
    a small letter.
    """
    score = 0.0
    for word in _LETTER_RUN.findall(text):
        if word.isascii():
            continue
        ascii_letters = sum(letter < "\x80" for letter in word)
        others = len(word) - ascii_letters
        if not language.is_latin and ascii_letters:
            score += _SCORE_AMONG_ASCII * min(ascii_letters, others)
        if language.is_latin and not ascii_letters and others > 1:
            score += _SCORE_BESIDE_EACH_OTHER * others
        case_changes = sum(one.islower() and other.isupper() for one, other in pairwise(word))
        score += _SCORE_OF_CASE_CHANGE * case_changes
    return score


def _locale_language() -> str:
    """The language of the user's locale: `pl` for LANG=pl_PL.UTF-8, `zh_TW` for traditional Chinese;
    empty if none is set.
    """
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        if value := os.environ.get(name, ""):
            code = locale.normalize(value).partition(".")[0]
            return code if code == "zh_TW" else code[:2]
    return ""


def find_declared_encoding(start: bytes) -> str:
    """The encoding that the first two lines of a file name (PEP 263, CSS, an editor's mode line), or any
    line at the start of XML or HTML; empty if they name none that is known.
    """
    lines = start[:1024].splitlines()
    has_markup = start.lstrip()[:1] == b"<"
    declaring_lines = lines if has_markup else lines[:2]
    for line in declaring_lines:
        match = _ENCODING_NAME.search(line) if _DECLARING_LINE.match(line) else None
        if match and (name := known_encoding(match[1].decode())):
            return name
    return ""


def known_encoding(name: str) -> str:
    """Python's name of an encoding of text; empty if it knows none of this name."""
    # What is called Latin-1 often has the quotation marks of cp1252. All printable characters of
    # Latin-1 are the same in cp1252.
    name = "cp1252" if name.lower() == "latin1" else name
    try:
        info = codecs.lookup(name)
        "".encode(info.name)  # fails for a codec that is not of text, such as `hex`
    except (LookupError, TypeError, UnicodeError, ValueError):
        return ""
    return info.name


def list_declared_encodings(path: Path, start: bytes) -> list[str]:
    """The encodings that the file itself, `.editorconfig` and git's attributes name, in this order.
    Names of unknown encodings are left out.
    """
    charset = editorconfig_value(path, "charset")
    names = [find_declared_encoding(start), charset, git_attribute(path, "working-tree-encoding")]
    return [known_name for known_name in map(known_encoding, filter(None, names)) if known_name]


def guess_neighbour_encodings(path: Path) -> list[str]:
    """The guessed encodings of at most _MAX_NEIGHBOURS other files in the folder of a file. Only
    files with the same ending count; those in UTF-8 are left out. Empty for a file without an
    ending.
    """
    encodings: list[str] = []
    try:
        entries = sorted(os.scandir(path.parent), key=lambda entry: entry.name)
    except OSError:
        return encodings
    if not path.suffix:
        return encodings
    same = [Path(entry) for entry in entries if entry.name.endswith(path.suffix)]
    for other in [near for near in same if near != path][:_MAX_NEIGHBOURS]:
        try:
            data = _start_of(other)
            data.decode()
        except OSError:
            continue
        except UnicodeDecodeError:
            if guessed := guess_legacy_encoding(data):
                encodings.append(guessed.encoding)
    return encodings


def _start_of(path: Path) -> bytes:
    """The first bytes of a file. Raises OSError, also for a link."""
    with open_regular(path, os.O_NOFOLLOW) as file:
        return file.read(_MAX_NEIGHBOUR_BYTES)
