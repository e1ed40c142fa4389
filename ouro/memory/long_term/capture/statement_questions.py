"""What a statement does to what is remembered: a model is asked, one question at a time.

A model of 1.5 billion parameters that is asked `replaces or adds?` says the same to every pair.
Asked to name what two statements are about, it names the same subject for 6 of 8 corrections and
for none of 8 pairs that both hold, in six languages: so the subjects are compared here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Literal, NamedTuple

import msgspec

from ouro.memory.index import STOP_WORDS, find_stems, is_function_word, word_starts
from ouro.memory.long_term.git.values import Scope
from ouro.memory.long_term.notes.entities import has_names_of
from ouro.memory.long_term.statement_patterns import has
from ouro.memory.long_term.supersession import corrects, subject_words
from ouro.memory.side_calls import AskModel
from ouro.messages import assistant, system, user
from ouro.utils.lenient_json import decode_answer, schema_of
from ouro.utils.text import cut_middle

MAX_NEAR = 6
"""The entries that a statement is compared with, at most."""
_MIN_DENIED = 0.6
"""The share of the subject words of an entry that a denial of it has."""
_MIN_SHORT_FORM = 3
"""The least letters of a short form: `Jon` for `Jonathan`."""
_MAX_TEXT = 400
_Name = Annotated[str, msgspec.Meta(max_length=80)]
_WORD = re.compile(r"[^\W_]+")
_WITHOUT_BLANKS = r"\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff"
"""The characters of Thai, Japanese and Chinese, which are written without blanks."""
_WORD_OR_CHARACTER = re.compile(rf"[{_WITHOUT_BLANKS}]|[^\W_{_WITHOUT_BLANKS}]+")
"""A word; in these scripts a character."""
_NUMBER = re.compile(r"\d+")
_CLAUSE_END = re.compile(r"[,;]\s|[，；、،]")
_FILLER_WORDS = frozenset(
    "a an and at by be does for from how in is of on or that the to used what when where which who"
    " whom whose with".split()
)
_ASK_SUBJECT = """\
Name the subject of each of two notes: what it says something about, in two to five English words, without the value. \
Use the same words if both are about the same thing."""
_SUBJECT_EXAMPLES = (
    ("Invoices are sent by post", "We mail invoices as PDF now.", "how invoices are sent", ""),
    (
        "Invoices are sent by post",
        "Invoices have seven digits.",
        "how invoices are sent",
        "number of an invoice",
    ),
    (
        "Der Chef heißt Karl",
        "Die Kantine öffnet um elf.",
        "name of the boss",
        "opening hours of the canteen",
    ),
    ("Call the helper foo", "Better call it bar.", "name of the helper", ""),
    ("The cat eats fish", "The dog eats meat.", "food of the cat", "food of the dog"),
    ("La boutique ferme à 18 h", "La boutique ferme à 20 h.", "closing time of the shop", ""),
    (
        "Prettier formats the pages",
        "We put the cart into Pinia.",
        "formatter of the pages",
        "place of the cart",
    ),
    ("Ich mag lange Berichte", "Lieber kurze Berichte.", "length of reports", ""),
    ("菜单用英文", "菜单改成用法文。", "language of the menu", ""),
    ("菜单用英文", "菜单每周一更新。", "language of the menu", "update day of the menu"),
    ("部屋は2階", "部屋の鍵は受付にある。", "floor of the room", "place of the room key"),
    ("Pintamos con azul", "El azul salió caro, pintamos con gris.", "colour of the paint", ""),
    (
        "Soup is in the pot",
        "Paint the door after lunch, I just saw it.",
        "place of the soup",
        "time of painting the door",
    ),
    (
        "Parcels are kept for 9 days",
        "The boss wants 5 days for parcels.",
        "days to keep parcels",
        "",
    ),
    ("Vendemos pão", "Já não vendemos pão.", "goods of the shop", ""),
)
"""Two notes, and the subject of each; empty: the same as of the first."""
_ASK_STATE = """\
A user said two things, one after the other. Write what holds now, in one line: all that is still true of both, \
nothing that was changed. Use the user's words."""
_STATE_EXAMPLES = (
    ("The cat eats fish.", "The cat gets chicken now.", "The cat eats chicken."),
    (
        "Karl cleans the windows.",
        "Olga cleans the windows on Sundays.",
        "Karl cleans the windows; Olga cleans them on Sundays.",
    ),
    (
        "Die Kantine öffnet um elf.",
        "Die Kantine öffnet erst um zwölf.",
        "Die Kantine öffnet um zwölf.",
    ),
    (
        "Die Kantine öffnet um elf.",
        "Die Kantine hat sonntags zu.",
        "Die Kantine öffnet um elf; sonntags hat sie zu.",
    ),
    ("Pintamos con azul.", "El azul salió caro, pintamos con gris.", "Pintamos con gris."),
    ("菜单用英文。", "酒单用法文。", "菜单用英文；酒单用法文。"),
    (
        "Parcels are kept for 9 days.",
        "Customers in Norway have 20 days.",
        "Parcels are kept for 9 days; in Norway for 20 days.",
    ),
    ("Invoices are sent by post.", "We mail invoices as PDF.", "Invoices are mailed as PDF."),
    (
        "We sing in the hall.",
        "Besides the hall we sing in the park.",
        "We sing in the hall and in the park.",
    ),
    ("部屋の鍵は受付にある。", "鍵は今は事務室にある。", "部屋の鍵は事務室にある。"),
    ("Vendemos pão e queijo.", "Já não vendemos pão.", "Vendemos queijo, e já não vendemos pão."),
    ("Цветы поливает Карл.", "Карл больше не поливает цветы.", "Карл больше не поливает цветы."),
    ("दुकान में रोटी मिलती है।", "दुकान में अब रोटी नहीं मिलती।", "दुकान में अब रोटी नहीं मिलती।"),
)
"""Two statements, and what holds after both."""
_ASK_PART = """\
The second statement changes the first one. Name what is new in it. Then say whether it changes all of the first \
one, or only a part: some people, one place, one time, one kind. Name this part; "all" if there is none. Use words \
of the second statement."""
_PART_EXAMPLES = (
    ("The cat eats fish.", "The cat gets chicken now.", "chicken", "all"),
    ("Karl cleans the windows.", "Olga cleans the windows on Sundays.", "Olga", "on Sundays"),
    ("Die Kantine öffnet um elf.", "Die Kantine öffnet erst um zwölf.", "um zwölf", "all"),
    ("Die Kantine öffnet um elf.", "Für Gäste öffnet die Kantine um zehn.", "um zehn", "Gäste"),
    ("Parcels are kept for 9 days.", "The boss wants 5 days for parcels.", "5 days", "all"),
    (
        "Parcels are kept for 9 days.",
        "Parcels from Norway stay for 20 days.",
        "20 days",
        "parcels from Norway",
    ),
    ("Pintamos con azul.", "El azul salió caro, pintamos con gris.", "gris", "all"),
    ("La boutique ferme à 18 h.", "En août, la boutique ferme à 16 h.", "16 h", "en août"),
    ("菜单用英文。", "菜单改成用法文。", "法文", "all"),
    ("部屋の鍵は受付にある。", "二階の部屋の鍵は事務室にある。", "事務室", "二階の部屋"),
    (
        "Invoices are sent by post.",
        "The post lost too many of them, we mail invoices.",
        "mail",
        "all",
    ),
    ("A soup costs 5 euros.", "Small soups cost 3 euros.", "3 euros", "small soups"),
    ("Мы пьём чай.", "Теперь мы пьём кофе, а не чай.", "кофе", "all"),
    ("Karl owns the keys.", "Karl gave the keys to Anna.", "Anna", "all"),
    ("We sing in the hall.", "If it rains, we sing in the barn.", "barn", "if it rains"),
    ("The choir meets at 6.", "The choir meets at 7 these days.", "7", "all"),
)
"""Two statements, what is new in the second, and the part of the first that it changes. Asked only for
the part, a small model likes to name what is new.
"""
_WHOLE = "all"
"""What a model names if a statement changes no mere part."""
_ASK_VALUES = """\
Two notes are about one subject. Name what each of them says about it: the value, in one to five English words. Use \
the same words only if both say the same."""
_VALUE_EXAMPLES = (
    ("colour of the paint", "Pintamos con azul.", "We paint in blue.", "blue", "blue"),
    ("food of the cat", "The cat eats fish.", "The cat gets chicken.", "fish", "chicken"),
    (
        "closing time of the shop",
        "La boutique ferme à 18 h.",
        "The shop is open until 6 p.m.",
        "6 p.m.",
        "6 p.m.",
    ),
    ("keys", "Karl has the keys.", "The keys open the barn.", "Karl has them", "open the barn"),
    ("length of reports", "Ich mag lange Berichte.", "Lieber kurze Berichte.", "long", "short"),
    (
        "window cleaner",
        "Karl cleans the windows.",
        "Our window cleaner is called Karl.",
        "Karl",
        "Karl",
    ),
    (
        "parcels",
        "Parcels are kept for 9 days.",
        "Parcels are sent on Fridays.",
        "kept for 9 days",
        "sent on Fridays",
    ),
    ("language of the menu", "菜单用英文。", "The menu is in English.", "English", "English"),
    ("soup", "The soup is in the pot.", "The soup is for guests.", "in the pot", "for guests"),
    (
        "opening time of the canteen",
        "Die Kantine öffnet um elf.",
        "Die Kantine macht um 12 auf.",
        "11",
        "12",
    ),
)
"""The subject of two notes, the notes, and the value that each of them has for it."""
_ASK_SCOPE = """\
A user of a coding assistant states something. "user": it is about the user, or how the assistant talks \
to the user; it holds in every project. "project": it is about the code, the servers, the team or the work of one \
project."""
_SCOPE_EXAMPLES = (
    ("Sag mir immer erst das Ergebnis.", "user"),
    ("Der Kalender liegt auf einem eigenen Server.", "project"),
    ("Je débute en SQL.", "user"),
    ("Les images sont dans un dossier à part.", "project"),
    ("别给我看长代码。", "user"),
    ("支付由外部公司处理。", "project"),
)
"""A statement, and what it is about."""


class _Subjects(msgspec.Struct):
    first: _Name
    second: _Name


class _Part(msgspec.Struct):
    new: _Name
    part: _Name


class _Values(msgspec.Struct):
    first: _Name
    second: _Name


class _State(msgspec.Struct):
    now: Annotated[str, msgspec.Meta(max_length=400)]


class _About(msgspec.Struct):
    about: Literal["user", "project"]


class NearEffect(NamedTuple):
    """What a statement does to one of the entries near to it."""

    verb: Literal["supersede", "confirm"]
    entry_index: int


async def find_effect_by_model(
    ask: AskModel, statement: str, near: Sequence[str]
) -> NearEffect | None:
    """What a statement does to the first entry in `near` that it replaces or repeats; None if it adds
    to all of them. Only the first `MAX_NEAR` are compared. Raises ModelError.

    Two facts on one subject may both hold, so a model says what holds after the statement, and
    whether it changes only a part of the entry.

    Two sentences of one form that differ in two places (`Lena owns billing`, `Omar owns search`)
    both hold: no model is asked.
    """
    if has("adds", statement):
        return None
    is_denial = corrects(statement) or has("negative", statement)
    says_change = is_denial or has("henceforth", statement) or has("switched", statement)
    compared = near[:MAX_NEAR]
    shares = [_share_of_common_words(text, statement) for text in compared]
    # A denial has words of what it denies. A small model gives it the subject of any other text.
    needs_common_word = is_denial and any(shares)
    for index, (text, share) in enumerate(zip(compared, shares, strict=True)):
        if is_parallel(text, statement) or (needs_common_word and not share):
            continue
        verb = await _ask_effect(
            ask,
            text,
            statement,
            says_change=says_change,
            is_denied=is_denial and share >= _MIN_DENIED,
        )
        if verb:
            return NearEffect(verb, index)
    return None


async def _ask_effect(
    ask: AskModel, text: str, statement: str, *, says_change: bool, is_denied: bool
) -> Literal["supersede", "confirm"] | None:
    """What a later statement does to a text, by a model; None if both hold. Raises ModelError.

    Args:
        says_change: the statement says that something changes.
        is_denied: it denies most words of the text. Asked for the subjects, a small model may name
            what was left and what comes instead.
    """
    subject = await _name_common_subject(ask, text, statement)
    if not subject and not is_denied:
        return None
    # What says itself that something changes needs no further question: a small model writes the
    # earlier and the later statement, one after the other.
    says_over = bool(subject) and says_change
    is_over = says_over or not await ask_if_still_holds(ask, text, statement)
    # A small model likes to write only the later statement. A duplicate is better than a loss.
    if is_over and not await ask_if_partial(ask, text, statement):
        return "supersede"
    return await _ask_if_repeated(ask, subject, text, statement) if subject else None


async def _name_common_subject(ask: AskModel, first: str, second: str) -> str:
    """The subject of two statements if a model names the same for both, in both orders; else empty.
    Raises ModelError.
    """
    subjects = await _name_subjects(ask, first, second)
    if subjects is None or not _is_same_name(subjects.first, subjects.second):
        return ""
    # A small model likes to repeat a name: asked in the reverse order, it rarely does so again. A
    # word in common was not enough: `format of invoices`, `time of sending invoices`.
    reverse = await _name_subjects(ask, second, first)
    if reverse is None or not _is_same_name(reverse.first, reverse.second):
        return ""
    return subjects.first


def _share_of_common_words(text: str, statement: str) -> float:
    """The share of the subject words of a text that a statement has; 0 without any."""
    words = subject_words(text)
    return len(words & subject_words(statement)) / len(words) if words else 0.0


async def ask_if_partial(ask: AskModel, text: str, statement: str) -> bool:
    """Whether a later statement changes only a part of what a text says (`The limit is 5`, `For
    guests the limit is 9`): a model names the part, with a word that is in the statement, and
    neither in the text nor in what it says is new. False without a usable answer. Raises ModelError.
    """
    messages = [system(_ASK_PART)]
    for first, second, new, part in _PART_EXAMPLES:
        answer = msgspec.json.encode(_Part(new, part)).decode()
        messages += [user(_quote_pair(first, second)), assistant(answer)]
    messages.append(user(_quote_pair(text, statement)))
    answer_of_model = decode_answer(await ask(messages, schema_of(_Part)), _Part)
    if answer_of_model is None:
        return False
    part = answer_of_model.part
    if part.casefold() == _WHOLE:
        return False  # also if the statement has this word: `All pages are in Svelte`
    # `From now on` and `has moved` name no part of what holds.
    if any(has(group, part) for group in ("changes", "henceforth", "switched")):
        return False
    named_words = words_and_numbers(part) & words_and_numbers(statement)
    return bool(named_words - words_and_numbers(text) - words_and_numbers(answer_of_model.new))


async def _ask_if_repeated(
    ask: AskModel, subject: str, text: str, statement: str
) -> Literal["supersede", "confirm"] | None:
    """Whether a statement on the subject of a text says the same in other words, by a model that
    names the value of each: "confirm" if the values are equal; "supersede" if one is a short form
    of the other (`Postgres`, `PostgreSQL`), which may be a correction. None if it says something
    else or more. Raises ModelError.
    """
    says_more = (
        not has_names_of(text, statement)
        or has("negative", text) != has("negative", statement)
        or _count_clauses(statement) > _count_clauses(text)
    )
    messages = [system(_ASK_VALUES)]
    for about, first, second, value, other_value in _VALUE_EXAMPLES:
        answer = msgspec.json.encode(_Values(value, other_value)).decode()
        messages += [user(_quote_values(about, first, second)), assistant(answer)]
    messages.append(user(_quote_values(subject, text, statement)))
    values = decode_answer(await ask(messages, schema_of(_Values)), _Values)
    if values is None:
        return None
    if not says_more and _name_words(values.first) == _name_words(values.second) != set():
        return "confirm"
    return "supersede" if _is_short_form(values.first, values.second) else None


def _is_short_form(first: str, second: str) -> bool:
    """Whether two values differ only in words that begin another one: `Jon Hall`, `Jonathan Hall`."""
    first_words, second_words = (_WORD.findall(value.casefold()) for value in (first, second))
    if first_words == second_words or len(first_words) != len(second_words):
        return False
    return all(map(_is_same_or_shorter, first_words, second_words))


def _is_same_or_shorter(word: str, other: str) -> bool:
    """Whether two words are equal, or one, of at least `_MIN_SHORT_FORM` letters, begins the other."""
    if word == other:
        return True
    shorter, longer = sorted((word, other), key=len)
    return shorter.isalpha() and len(shorter) >= _MIN_SHORT_FORM and longer.startswith(shorter)


def _count_clauses(text: str) -> int:
    return len(_CLAUSE_END.split(text))


def _quote_values(subject: str, first: str, second: str) -> str:
    return f"Subject: {subject}\n{_quote_pair(first, second)}"


async def ask_if_still_holds(ask: AskModel, earlier: str, later: str) -> bool:
    """Whether all of an earlier statement still holds after a later one on its subject (`We deploy
    to Rome`, `For customers in Asia we deploy to Osaka`): a model that writes what holds now uses
    all its words, and more than the later one says. False without a usable answer. Raises
    ModelError.

    Asked `does it still hold?`, a model of 1.5 billion parameters says the same to every pair.
    """
    messages = [system(_ASK_STATE)]
    for first, second, now in _STATE_EXAMPLES:
        answer = msgspec.json.encode(_State(now)).decode()
        messages += [user(_quote_pair(first, second)), assistant(answer)]
    messages.append(user(_quote_pair(earlier, later)))
    state = decode_answer(await ask(messages, schema_of(_State)), _State)
    if state is None:
        return False
    # A denial has the words of what it denies (`não usamos mais o Redis`): a model that only
    # repeats the later statement says that it alone holds.
    if _says_no_more(state.now, later):
        return False
    return words_and_numbers(earlier) <= words_and_numbers(state.now)


def _says_no_more(text: str, other: str) -> bool:
    """Whether a text has only words of another one, and not more of them."""
    is_longer = len(_WORD_OR_CHARACTER.findall(text)) > len(_WORD_OR_CHARACTER.findall(other))
    return not is_longer and words_and_numbers(text) <= words_and_numbers(other)


def words_and_numbers(text: str) -> set[str]:
    """What a text is compared by with another text: its words (`word_starts`), and its numbers, also
    those of one or two digits.
    """
    return word_starts(text) | set(_NUMBER.findall(text))


async def _name_subjects(ask: AskModel, first: str, second: str) -> _Subjects | None:
    """The subjects of two statements, named by a model; None without a usable answer. Raises
    ModelError.
    """
    messages = [system(_ASK_SUBJECT)]
    for one, other, subject, other_subject in _SUBJECT_EXAMPLES:
        # An example with one subject only: both statements are on that subject.
        answer = _Subjects(subject, other_subject or subject)
        messages += [
            user(_quote_pair(one, other)),
            assistant(msgspec.json.encode(answer).decode()),
        ]
    messages.append(user(_quote_pair(first, second)))
    return decode_answer(await ask(messages, schema_of(_Subjects)), _Subjects)


async def ask_scope(ask: AskModel, statement: str) -> Scope | None:
    """Whether a statement belongs to the memory of the user or of the repository, by a model; None
    without a usable answer. Raises ModelError.
    """
    messages = [system(_ASK_SCOPE)]
    for example, about in _SCOPE_EXAMPLES:
        messages += [user(example), assistant(msgspec.json.encode(_About(about)).decode())]  # type: ignore[arg-type]
    messages.append(user(cut_middle(statement, _MAX_TEXT)))
    answer = decode_answer(await ask(messages, schema_of(_About)), _About)
    if answer is None:
        return None
    return "user" if answer.about == "user" else "repo"


def rank_near(statement: str, texts: Sequence[str]) -> list[int]:
    """The indexes of the texts to compare a statement with, at most `MAX_NEAR`; texts with the most
    words in common come first.

    Texts without a common word follow while there is room: they may be in another language, or have
    other words for the same thing.
    """
    words = word_starts(statement)
    shared = [len(words & word_starts(text)) for text in texts]
    return sorted(range(len(texts)), key=lambda index: -shared[index])[:MAX_NEAR]


def is_parallel(first: str, second: str) -> bool:
    """Whether two sentences have one form, in any language, and say it of two things: `Lena owns
    billing`, `Omar owns search`. Only their first clauses are compared: `Omar owns search, by the
    way`.

    They have as many words, three or more; in scripts without blanks, characters. They differ in
    the first word, which is no function word in both, and in another place, with a common word
    between. Each common word is in the same place in both: otherwise they have different forms, and
    the second may be a correction (`The jobs run on Celery`, `We replaced Celery on Monday`).
    """
    first_words, second_words = (
        _WORD_OR_CHARACTER.findall(_CLAUSE_END.split(text, maxsplit=1)[0].casefold())
        for text in (first, second)
    )
    if len(first_words) < 3 or not _have_one_form(first_words, second_words):
        return False
    # `Our pages are in Angular`, `The pages were in Svelte`: the first words name nothing.
    start, other_start = first_words[0], second_words[0]
    if start == other_start or (_names_nothing(start) and _names_nothing(other_start)):
        return False
    differing = [index for index, word in enumerate(first_words) if word != second_words[index]]
    return any(after - before > 1 for before, after in pairwise(differing))


def _have_one_form(words: Sequence[str], other_words: Sequence[str]) -> bool:
    """Whether two sentences have as many words, and each common word is in the same place in both."""
    common_words = set(words) & set(other_words)
    is_in_place = all(_places(word, words) == _places(word, other_words) for word in common_words)
    return is_in_place and len(words) == len(other_words)


def _names_nothing(word: str) -> bool:
    """Whether a word in lower case is a function word of any language."""
    return word in STOP_WORDS or is_function_word(word)


def _places(word: str, words: Sequence[str]) -> list[int]:
    return [place for place, other_word in enumerate(words) if other_word == word]


def _quote_pair(first: str, second: str) -> str:
    return f"First: {cut_middle(first, _MAX_TEXT)}\nSecond: {cut_middle(second, _MAX_TEXT)}"


def _is_same_name(first: str, second: str) -> bool:
    """Whether two names mean one subject: they have the same words, or all words of the shorter
    name, at least two, are in the longer one. Names without words mean none.
    """
    first_words, second_words = _name_words(first), _name_words(second)
    if first_words == second_words:
        return bool(first_words)
    shorter, longer = sorted((first_words, second_words), key=len)
    return len(shorter) > 1 and shorter <= longer


def _name_words(name: str) -> set[str]:
    """The stems of the words in the name of a subject, without `_FILLER_WORDS`."""
    words = _WORD.findall(name.casefold())
    return set(find_stems(word for word in words if word not in _FILLER_WORDS))
