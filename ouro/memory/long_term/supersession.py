"""Which entries are on the subject of a statement, and which it replaces: decided by rules, without
a model.

A correction must not be weaker than what it corrects: it is written to the same place, and the old
entry is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import NamedTuple, TypeVar

from ouro.memory.index import find_stems, parse_query, write_out
from ouro.memory.long_term.entry_lookup import MemoryEntry
from ouro.memory.long_term.notes.note import Note
from ouro.memory.long_term.statement_patterns import has, pattern_of_group
from ouro.utils.late_pattern import late_pattern

_WORD = late_pattern(r"[^\W_]+[+#%]*|[<>]=?|!=|&&|\|\||(?<!\w)-(?=\d)")
"""A word, or a sign that changes what a statement says: `C++`, `C#`, `< 30`, `-1`."""
_MIN_SHARED = 0.5
"""Two statements are on one subject if they share this part of the words of the shorter one."""
_MIN_REPLACED = 0.6
"""The same for a statement that does not name what it replaces."""
_MIN_COPY = 0.75
"""Two entries with this share of common words count as copies."""
_WORD_OF_FRAME = late_pattern(
    r"(?<![\w+#/-])(?!(?:always|the|an?|called|named|of (?:this|our) \w+)\b)[\w+#/-]+(?:\.\w+)*"
)
"""A word by which it is compared how two statements begin: articles and some others are left out."""
_BEFORE_VALUE = {"is", "are", "was", "were", "at", "by", "from", "in", "on", "to", "with"}
"""Words after which a statement names a value: `The port is 8080`."""
_RELATIONS = _BEFORE_VALUE | {
    "must",
    "should",
    "may",
    "can",
    "will",
    "has",
    "have",
    "need",
    "needs",
    "require",
    "requires",
    "take",
    "takes",
    "for",
    "of",
}
"""Words between the subject of a statement and the rest: they name the aspect."""
_PARTICIPLE = late_pattern(r"\w+(?:ed|[dktv]en)|built|held|kept|made|read|run|sent|set")
_NUMBER = late_pattern(r"\d+|one|two|three|four|five|six|seven|eight|nine|ten|twelve")
"""A common number does not make a common aspect: `Reviews need two people`, `Reviews take two
days`.
"""
_LAST_CLAUSE = late_pattern(r"[,;:]\s+([^,;:]+)$")
_CUES = """
    actually agree always anymore change changed chose choose correction decide decided deprecate dont drop
    favor favour gone instead long longer migrate mind mistake move must need never now please prefer project
    rather remember remove replace should stop switch true use want wrong
    """.split()
"""Words that say that something changes, and not what: they are no subject."""

_ONE_OF = (
    "bun npm pnpm yarn",
    "conda pdm pip pipenv poetry uv",
    "jest mocha vitest",
    "nose nox pytest tox unittest",
    "flake8 pylint ruff",
    "biome eslint oxlint",
    "mypy pyright",
    "just make",
    "docker podman",
    "gradle maven mvn",
    "esbuild parcel rollup vite webpack",
    "spaces tabs",
)
"""Programs of one kind: who uses one of them uses none of the others for the same work."""
_Item = TypeVar("_Item")
_Entry = TypeVar("_Entry", Note, MemoryEntry)
_Pair = tuple[str, _Item]
"""A text to compare, and what has it."""


def fold_words(text: str) -> str:
    """The words of a statement in lower case, without punctuation and without usual abbreviations:
    equal for statements that say the same.
    """
    return " ".join(map(write_out, _WORD.findall(text.casefold())))


def strip_introduction(text: str) -> str:
    """The statement without an introduction such as `No, that is wrong:`, beginning with a capital
    letter. Unchanged if what is left is no statement: a single word.
    """
    introduction = pattern_of_group("introduction").match(text)
    rest = text[introduction.end() :].strip() if introduction else ""
    rest = rest.removeprefix("that ").strip()
    # In scripts without blanks a statement is one long word.
    is_statement = len(rest.split()) > 1 or (not rest.isascii() and len(rest) > 3)
    return rest[0].upper() + rest[1:] if is_statement else text


def denies(text: str) -> bool:
    """Whether a statement says that something else is wrong."""
    return has("replaces", text) or has("contradicts", text)


def corrects(text: str) -> bool:
    """Whether a statement may say that something else no longer holds."""
    return denies(text) or has("changes", text)


def find_on_subject(text: str, entries: Sequence[_Entry]) -> list[_Entry]:
    """The entries that are on the subject of a statement: they share enough of its subject words.
    Those that share most come first.
    """
    pairs = [(entry.text, entry) for entry in entries]
    return [entry for _, entry in _rank(text, pairs, _MIN_SHARED)]


def find_replaced(text: str, entries: Sequence[_Entry], said: str = "") -> list[_Entry]:
    """The entry that a statement replaces, with its copies, best first. Empty if the statement
    corrects nothing, or it is unclear what it corrects.

    Three ways are tried, one after the other: the statement names what it replaces; it announces a
    change, and an entry says the changed thing; it has the same words as an entry, and one of the
    two negates them. `said` are the original words with their introduction; empty if they are the
    same as `text`.
    """
    said = said or text
    reason = pattern_of_group("reason")
    text = reason.sub("", text)
    pairs = [(reason.sub("", entry.text), entry) for entry in entries]
    replaced_names = _replaced_names(said)
    ranked: list[tuple[float, _Entry]] = []
    if replaced_names:
        ranked = _rank(text, _affirming_pairs(text, pairs, replaced_names), _MIN_SHARED)
    announces_change = not replaced_names and has("changes", said) and not has("adds", said)
    if not ranked and (announces_change or has("contradicts", said)):
        ranked = _rank_by_change(text, pairs)
    if not ranked:
        with_same_words = _rank(text, pairs, 1.0)
        ranked = [
            (share, entry) for share, entry in with_same_words if _is_opposite(text, entry.text)
        ]
    return _choose_best(ranked, pairs) if ranked else []


def _replaced_names(text: str) -> frozenset[str]:
    """The stems of the names of what a statement says is replaced: `redis` in `RabbitMQ replaces
    Redis`, `Redis is gone` and `Redis was too slow, so we use RabbitMQ`; empty if it names nothing.
    """
    names: set[str] = set()
    for match in pattern_of_group("replaces").finditer(text):
        names |= subject_words(match["name"] or match["gone"] or match["failed"])
    return frozenset(names)


def _affirming_pairs(
    text: str, pairs: Sequence[_Pair[_Entry]], names: frozenset[str]
) -> list[_Pair[_Entry]]:
    """The pairs whose text affirms one of `names` (`use tox`, not `never use tox`), and is about
    the same use of it as the statement `text`, which replaces the named thing.
    """
    return [
        (old, entry)
        for old, entry in pairs
        if _affirms(old, names) and _is_same_use(text, old, names)
    ]


def _rank_by_change(text: str, pairs: Sequence[_Pair[_Entry]]) -> list[tuple[float, _Entry]]:
    """The entries that a statement about a change may replace, with their ranks. First those are
    looked for that say something else about the same aspect. If there are none, those are looked
    for that differ from the statement in one value; then those that name another program of the
    same kind.
    """
    # The clause before may be a reason: `They asked for more, the rate is 500 Hz now`.
    last_clauses: list[str] = [match[1] for match in _LAST_CLAUSE.finditer(text)]
    texts_to_compare = [text, *(clause for clause in last_clauses if has("changes", clause))]
    ranked = [
        (share, entry)
        for share, entry in _rank(text, pairs, _MIN_SHARED)
        if any(_is_same_aspect(compared_text, entry.text) for compared_text in texts_to_compare)
    ]
    if ranked:
        return ranked
    words = subject_words(text)
    similar_pairs = _preselect(words, pairs)
    ranked = [(1.0, entry) for old, entry in similar_pairs if _is_other_value(text, old)]
    return ranked or [(1.0, entry) for entry in _find_peers(words, pairs)]


def _choose_best(
    ranked: Sequence[tuple[float, _Entry]], pairs: Sequence[_Pair[_Entry]]
) -> list[_Entry]:
    """The first of the ranked entries, with those of its copies that are ranked. No entry if
    another one, which is no copy, has the same rank: then it is unclear which one is meant.
    """
    best_rank: float = ranked[0][0]
    best: _Entry = ranked[0][1]
    chosen_ids = {best.id, *(entry.id for _, entry in _rank(best.text, pairs, _MIN_COPY))}
    other_ranks = [rank for rank, entry in ranked if entry.id not in chosen_ids]
    if best_rank in other_ranks:
        return []
    return [entry for _, entry in ranked if entry.id in chosen_ids]


def _rank(
    text: str, pairs: Iterable[tuple[str, _Item]], min_share: float
) -> list[tuple[float, _Item]]:
    """The items whose text has enough subject words in common with `text`, each with its rank, the
    highest first. The common words must be at least the share `min_share` of the words of the
    shorter text. The rank is this share; among equal shares more common words rank higher.
    """
    words_of_text = subject_words(text)
    ranked = []
    for item_text, item in _preselect(words_of_text, pairs):
        words = subject_words(item_text)
        common_count = len(words_of_text & words)
        shorter_count = min(len(words_of_text), len(words))
        # One common word is enough only for a very short text.
        if not common_count or (common_count == 1 and shorter_count > 2):
            continue
        share = common_count / shorter_count
        if share >= min_share:
            ranked.append((share + common_count / 1_000, item))
    return sorted(ranked, key=lambda pair: -pair[0])


def _preselect(words: Set[str], pairs: Iterable[tuple[str, _Item]]) -> Iterator[tuple[str, _Item]]:
    """Yield the pairs whose text may have one of the words: it has the first four letters of one.
    This is fast, and leaves few of 10,000 notes for the comparison of whole words.
    """
    starts = {word[:4] for word in words}
    for item_text, item in pairs:
        folded = item_text.casefold()
        if any(start in folded for start in starts):
            yield item_text, item


def _is_opposite(text: str, old: str) -> bool:
    """Whether one statement negates the other: they have the same subject words, and only one is
    negative. `Always squash commits`, `Don't squash commits`.
    """
    words = subject_words(text)
    if not words or words != subject_words(old):
        return False
    return has("negative", text) != has("negative", old)


def _is_other_value(text: str, old: str) -> bool:
    """Whether two statements begin with the same subject and then differ in a value: `Prices are
    integers`, `Prices are decimals`. The word before the value is one of `_BEFORE_VALUE`.
    """
    beginning, new_rest, old_rest = _common_beginning(text, old)
    if not beginning or beginning[-1] not in _BEFORE_VALUE:
        return False
    next_words = {*new_rest[:1], *old_rest[:1]}
    # Another word must follow in each statement, and none of these words may name a relation.
    if len(next_words) != 2 or next_words & _RELATIONS:
        return False
    has_participle = any(map(_PARTICIPLE.fullmatch, next_words))
    return not has_participle and bool(subject_words(" ".join(beginning)))


def _is_same_aspect(text: str, old: str) -> bool:
    """Whether a statement may change what another one says, and both cannot hold."""
    return _may_change(text, old) and not _is_other_aspect(text, old)


def _is_other_aspect(text: str, old: str) -> bool:
    """Whether two statements on one subject say different things about it, so that both may hold:
    `Messages must name a ticket`, `Messages are in German`. Both must begin with the same words,
    which name a subject. Then the first words in which they differ decide: here `must` and `are`,
    which name a relation. If the rest of both is on one subject too, they say different things only
    if `of` is one of these words.
    """
    beginning, new_rest, old_rest = _common_beginning(text, old)
    next_words = {*new_rest[:1], *old_rest[:1]}
    common_words = (word for word in {*new_rest} & {*old_rest} if not _NUMBER.fullmatch(word))
    has_common_subject = bool(subject_words(" ".join(common_words)))
    if has_common_subject and "of" not in next_words:
        return False  # the rest is about the same thing, too
    # An owner may have several things: `The app has a codename`, `The app has a changelog`.
    names_number = any(map(_NUMBER.fullmatch, next_words))
    if beginning and beginning[-1] in {"has", "have"} and not names_number:
        return True
    has_relation = bool(next_words & _RELATIONS) or any(map(_PARTICIPLE.fullmatch, next_words))
    return has_relation and bool(subject_words(" ".join(beginning)))


class _CommonBeginning(NamedTuple):
    """How far two statements have the same words."""

    words: list[str]
    """The words with which both begin."""
    new_rest: list[str]
    """The remaining words of the new statement."""
    old_rest: list[str]
    """The remaining words of the old one."""


def _common_beginning(text: str, old: str) -> _CommonBeginning:
    """Compare word by word how two statements begin. Introductions, articles and words that announce
    a change are left out.
    """
    words_of_texts: list[list[str]] = []
    for statement in (text, old):
        plain = pattern_of_group("changes").sub("", strip_introduction(statement))
        words_of_texts.append(_WORD_OF_FRAME.findall(plain.casefold()))
    words, old_words = words_of_texts
    length = 0
    while length < min(len(words), len(old_words)) and words[length] == old_words[length]:
        length += 1
    return _CommonBeginning(words[:length], words[length:], old_words[length:])


def _is_same_use(text: str, old: str, names: frozenset[str]) -> bool:
    """Whether two statements are about the same use of the thing with these names: they share
    another word, or one of them says nothing else.

    `RabbitMQ replaces Redis for the job queue` and `We use Redis for the cache` are about different
    uses.
    """
    words, old_words = subject_words(text) - names, subject_words(old) - names
    # A single word of the new statement is the name of what replaces the thing.
    names_no_use = len(words) <= 1 or not old_words
    return names_no_use or bool(words & old_words)


def _find_peers(words: Set[str], pairs: Iterable[tuple[str, _Item]]) -> Iterator[_Item]:
    """Yield the items that differ from a statement only in the program: they have the same words,
    and affirm another program of the same kind (`_ONE_OF`). `Use npm here` is a peer of `Use pnpm`.
    """
    kinds = [kind for kind in _PEERS if words & kind]
    if not kinds:
        return
    for old, item in pairs:
        old_words = subject_words(old)
        for kind in kinds:
            names_same_program = bool(words & old_words & kind)
            has_other_words = words - kind <= old_words
            if not names_same_program and has_other_words and _affirms(old, kind):
                yield item
                break


def _may_change(text: str, old: str) -> bool:
    """Whether a statement may change another one. They must share enough of the subject words
    of the shorter one. They must also begin with the same word, or differ in only one word, which
    is not the first. In a statement about a role (`Priya owns billing`) it may be the first.

    `The admin API listens on 9090 now` and `The API listens on 8080` fulfil neither.
    """
    words, old_words = _subject(text), _subject(old)
    if not words or not old_words:
        return False  # nothing but a cue, such as `from now on`
    common_words = set(words) & set(old_words)
    new_words, removed_words = set(words) - common_words, set(old_words) - common_words
    if len(common_words) < _MIN_REPLACED * min(len(set(words)), len(set(old_words))):
        return False
    if words[0] == old_words[0]:
        return True
    differs_in_one_word = len(new_words) == len(removed_words) == 1
    differs_in_first_word = words[0] in new_words and old_words[0] in removed_words
    return differs_in_one_word and (not differs_in_first_word or has("role", text))


def subject_words(text: str) -> frozenset[str]:
    """The stems of the words that say what a statement is about."""
    return frozenset(_subject(text))


def _subject(text: str) -> list[str]:
    """The stems of the words of a statement, in order, without introduction and cues such as
    `always` or `use`.
    """
    forms_by_word = parse_query(strip_introduction(text)).words
    stems = find_stems(forms[0] for forms in forms_by_word)  # the first is the word itself
    return [word for word in stems if word not in _CUE_STEMS]


def _affirms(text: str, names: frozenset[str]) -> bool:
    """Whether a text has one of these names before its first negative word: `never with tox` does
    not affirm tox.
    """
    negative = pattern_of_group("negative").search(text)
    affirmed = text[: negative.start()] if negative else text
    return bool(names & subject_words(affirmed))


_PEERS = tuple(frozenset(find_stems(line.split())) for line in _ONE_OF)
_CUE_STEMS = frozenset(find_stems(_CUES))
