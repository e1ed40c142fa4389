"""Whether a note is relevant to a question, or was used: by its words, and how near it is in
meaning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import compress

from ouro.memory.index import (
    DAYS_WEIGHT,
    MIN_START,
    MemoryHit,
    find_stems,
    is_foreign_task_word,
    is_function_word,
    is_in_english,
    parse_query,
)
from ouro.memory.long_term.notes.entities import entities_in
from ouro.memory.long_term.statement_patterns import has, pattern_of_group

MIN_SHARE = 0.25
"""Share of the message's words, weighted by rarity, that a note needs to be relevant by words."""
MIN_SHARE_OF_ONE = 0.45
"""The same for a note that has only one word of the message."""
MIN_SHARE_OF_CODE = 0.9
"""The same for a note that has only two words of the message, if both are words of any program."""
STANDING_CATEGORIES = ("coding-preferences", "project-conventions", "corrections")
"""The categories of standing rules."""
STANDING_RULE = "a standing rule for such a task"
MAX_STANDING = 2
_TOPIC_WORDS = 5
"""The first words of a statement, which say what it is about."""
_START_WORDS = 2
"""The first words of a rule about an action."""
MIN_STANDING_SHARE = 0.17
"""Share of the message's words, weighted by rarity, that a standing rule needs."""
MIN_STANDING = 0.4
"""With vectors: the share of words and the cosine together, or the cosine alone."""
# A hit of another project must be stronger (`benchmarks.recall_quality --elsewhere`):
MIN_STRONG_SUM = 2.0
"""With vectors: the weighted sum of `_WEIGHTS` that it needs."""
MIN_STRONG_SHARE = 0.4
"""Without vectors: the share of the message's words that it needs."""
MIN_STRONG_SUBJECTS = 2
"""The words in common that name a subject which it needs."""
NEAR_BEST = 0.6
"""Notes with a smaller share of the best score are not relevant."""
_WEIGHTS = {
    "bias": -6.35,
    "share": 0.91,
    "cosine": 7.11,
    "above": 5.05,
    "subject": 2.37,
    "cover": -19.52,
    "general": -5.26,
    "gap": -11.15,
    "asked": 0.8,
    "both": 26.11,
}
"""Weights of the features of a note and a question: with vectors, a note is relevant if the
weighted sum is above 0.

From a logistic regression on two sets of notes (`benchmarks.recall_quality --fit`); a third set
measures it.
"""
_RELATED_HITS = 5
"""Hits after so many count as unrelated: their mean cosine is the baseline."""
_USUAL_COSINE = 0.2
"""The baseline without such hits."""
MAX_SENTENCES = 4
_MAX_ANSWER_CHARACTERS = 20_000
"""Characters that are read at the end of what was done in a turn."""
_MAX_END_CHARACTERS = 400
"""Characters that are searched for at each end of a long message."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n")
_WORDS_OF_TASKS = """
    add again answer ask be better bit build change check clean code continue create current delete do done edit error
    explain file find fix folder follow function get give go good great help implement keep know last let line list
    look make mean move name need new next nice now ok okay old open plan please print problem proceed put read really
    remove rename replace rewrite right run same save say see set show start step stop sure take tell thank thanks thing
    think time try two understand undo update use want way well what whole why work works write wrong yes
    """.split()
"""Words that say what to do, but do not name a subject."""
_WORDS_OF_CODE = """
    argument array bug case character class command comment compile count dictionary docstring exception fail format
    heading helper hint import input integer item length library loop method module number object only output parameter
    refactor return script short shorter simple size sort split string summarise test tool translate type typo unused
    value variable version word
    """.split()
"""Words that occur in any program: alone they do not name a subject."""
_WORDS_OF_DAYS = """
    ago agree anything april august choose couple day december decide decision discuss february few five four friday
    happen january july june learn march may monday month november october plan remember saturday september settle
    six sunday talk three thursday today tuesday wednesday week year yesterday
    """.split()
"""Words of a question for what was said on a day: they do not name a subject either."""


def questions_in(text: str) -> list[str]:
    """The texts to search for, each once. The first is the whole message. If it has several
    sentences, those that name a subject follow, at most `MAX_SENTENCES`: then the first and the
    last of them are used.

    Of a long message only the end and the start are used, in this order: the question is often
    below pasted text.
    """
    searched_text = text
    if len(text) > 2 * _MAX_END_CHARACTERS:
        searched_text = f"{text[-_MAX_END_CHARACTERS:]}\n\n{text[:_MAX_END_CHARACTERS]}"
    sentences = [sentence.strip() for sentence in _SENTENCE_END.split(searched_text)]
    if len(sentences) == 1:
        return [searched_text]
    with_subject = [
        sentence
        for sentence in sentences
        if has("owned", sentence) or stems(sentence) - _STEMS_OF_TASKS
    ]
    if len(with_subject) > MAX_SENTENCES:
        half = MAX_SENTENCES // 2
        with_subject = [*with_subject[:half], *with_subject[-half:]]
    return list(dict.fromkeys([searched_text, *with_subject]))


def stems(text: str) -> frozenset[str]:
    """The stems of the words of a text that a search uses: no articles and the like, in the
    languages of `function_words`.
    """
    words = [forms[0] for forms in parse_query(text).words]
    return frozenset(find_stems(word for word in words if not is_function_word(word)))


def searched_stems(hit: MemoryHit) -> frozenset[str]:
    """The stems of the words by which a hit is found: those of its text, and its search words."""
    return stems(f"{hit.text}\n{hit.search_words}") if hit.search_words else stems(hit.text)


def common_stems(question: str, hit_stems: frozenset[str]) -> frozenset[str]:
    """The stems of a question that a hit has. In a question that is not in English, also long words
    that the hit has with another ending.
    """
    question_stems = stems(question)
    if is_in_english(question):
        return question_stems & hit_stems
    starts = {stem[:MIN_START] for stem in hit_stems if len(stem) >= MIN_START}
    return frozenset(
        stem for stem in question_stems if stem in hit_stems or stem[:MIN_START] in starts
    )


def is_compared_by_meaning(question: str, hit: MemoryHit) -> bool:
    """Whether a hit has a vector that says something of a question. For a model that knows only
    English both must be in English; search words of a note have its subject in English.
    """
    if "vectors" not in hit.parts or hit.lacks_vector:
        return False
    if not hit.knows_only_english:
        return True
    return is_in_english(question) and (bool(hit.search_words) or is_in_english(hit.text))


def find_relevant(question: str, hits: Sequence[MemoryHit]) -> dict[str, str]:
    """Find the hits that are relevant to a question. Returns the reason by the id of each hit, in
    the order of `hits`.

    A hit that is compared by meaning is relevant by the weighted sum of its features, if the
    question has more than words of tasks (`continue`). Another hit is relevant by its words, unless
    one has far more of them. A question with no subject but a day finds the hits that were noted on
    that day.
    """
    question_stems = stems(question)
    owned_stems = stems(" ".join(pattern_of_group("owned").findall(question)))
    best_share = max(map(_share, hits), default=0.0)
    # Beside the words of days only numbers are left, which belong to a date (`3 May 2026`).
    subjects = question_stems - _STEMS_OF_TASKS - _STEMS_OF_DAYS
    asks_about_days = bool(has("asks", question)) and all(map(str.isdigit, subjects))
    # A word of tasks counts if it is said of something of the user (`my plan`).
    names_subject = bool(question_stems - (_STEMS_OF_TASKS - owned_stems))
    reasons: dict[str, str] = {}
    for hit, hit_features in zip(hits, compute_features(question, hits), strict=True):
        if asks_about_days and hit.parts.get("days", 0.0) >= DAYS_WEIGHT:
            reasons[hit.id] = f"noted on {hit.at[:10]}"
        elif is_compared_by_meaning(question, hit):
            # The weights contain a constant (`bias`): so the limit is 0.
            if names_subject and _weighted_sum(hit_features) > 0:
                reasons[hit.id] = (
                    f"says {_share(hit):.0%} of the words, {_cosine(hit):.2f} close in meaning"
                )
        elif _share(hit) < NEAR_BEST * best_share:
            continue
        elif _is_relevant_by_words(question, owned_stems, hit):
            reasons[hit.id] = f"says {_share(hit):.0%} of the words"
    return reasons


def compute_features(question: str, hits: Sequence[MemoryHit]) -> list[dict[str, float]]:
    """The features of each hit for the question, by the names of their weights (`_WEIGHTS`), in the
    order of `hits`.

    Some compare a hit with the others: `above` with the mean cosine of the unrelated ones, `gap`
    with the best. `subject` counts the subjects in common (at most 3), `asked` those of the
    question (at most 6), and `cover` is the share of the words of the hit's text that the question
    has. `both` is high only if a hit is near by words and in meaning. `general` is 1 for a question
    that the model answers without notes (`what is a mutex?`).
    """
    question_stems = stems(question)
    is_general = float(has("general_question", question))
    owned_stems = stems(" ".join(pattern_of_group("owned").findall(question)))
    general_stems = (_STEMS_OF_TASKS | _STEMS_OF_CODE) - owned_stems
    are_compared = [is_compared_by_meaning(question, hit) for hit in hits]
    baseline = _find_baseline([*compress(hits, are_compared)])
    cosines = [
        _spread(_cosine(hit), baseline) if is_compared else 0.0
        for hit, is_compared in zip(hits, are_compared, strict=True)
    ]
    baseline = min(baseline, _USUAL_COSINE)
    best_nearness = max(
        (_share(hit) + cosine for hit, cosine in zip(hits, cosines, strict=True)), default=0.0
    )
    all_features = []
    for hit, cosine in zip(hits, cosines, strict=True):
        share, hit_stems = _share(hit), stems(hit.text)
        hit_features = {
            "bias": 1.0,
            "share": share,
            "cosine": cosine,
            "above": cosine - baseline,
            "subject": min(len((question_stems & searched_stems(hit)) - general_stems), 3),
            "cover": len(question_stems & hit_stems) / max(1, len(hit_stems)),
            "general": is_general,
            "gap": best_nearness - (share + cosine),
            "asked": min(len(question_stems - general_stems), 6),
            "both": share * cosine,
        }
        all_features.append(hit_features)
    return all_features


def _find_baseline(hits: Sequence[MemoryHit]) -> float:
    """The mean cosine of the hits that are not related to the question: those after the best ones.
    `_USUAL_COSINE` if there are no others.
    """
    unrelated_cosines = sorted(map(_cosine, hits), reverse=True)[_RELATED_HITS:]
    if not unrelated_cosines:
        return _USUAL_COSINE
    return sum(unrelated_cosines) / len(unrelated_cosines)


def _spread(cosine: float, baseline: float) -> float:
    """A cosine as if unrelated texts had the usual one at most.

    The local model knows little but English: for it two Chinese texts are near each other (0.5),
    whatever they say, and French or Spanish ones, too (0.35).
    """
    if baseline <= _USUAL_COSINE:
        return cosine
    return _USUAL_COSINE + (cosine - baseline) * (1 - _USUAL_COSINE) / (1 - baseline)


def find_strong(question: str, hits: Sequence[MemoryHit]) -> list[MemoryHit]:
    """The hits that are worth showing although they are of another project, in the order of `hits`:
    relevant to the question, very near, and with subjects in common.
    """
    relevant_ids = find_relevant(question, hits).keys()
    question_stems = stems(question)
    strong: list[MemoryHit] = []
    for hit, hit_features in zip(hits, compute_features(question, hits), strict=True):
        common_subjects = (question_stems & stems(hit.text)) - _STEMS_OF_TASKS - _STEMS_OF_CODE
        has_subjects = len(common_subjects) >= MIN_STRONG_SUBJECTS
        if hit.id in relevant_ids and has_subjects and _is_very_near(question, hit, hit_features):
            strong.append(hit)
    return strong


def _is_very_near(question: str, hit: MemoryHit, hit_features: Mapping[str, float]) -> bool:
    """Whether a hit is so near that it is shown although it is of another project: by the score of
    words and vectors together, or by the words alone if the hit was found without vectors.
    """
    if is_compared_by_meaning(question, hit):
        return _weighted_sum(hit_features) > MIN_STRONG_SUM
    return _share(hit) >= MIN_STRONG_SHARE


def is_request(text: str) -> bool:
    """Whether a message may ask for work: it does not end with a question mark of any script."""
    return not text.rstrip().endswith(("?", "？", "؟"))


def nearness(hit: MemoryHit) -> float:
    """The share of words and the cosine of a hit, added."""
    return _share(hit) + _cosine(hit)


def is_rule_for(message: str, hit: MemoryHit) -> bool:
    """Whether a rule is near the task of a message: it is about words of the message that are not of
    any task, and is near enough by words and meaning together; or it is near enough in meaning
    alone. Without vectors the words in common alone decide.
    """
    named_stems = _find_named(message, hit) - _STEMS_OF_TASKS
    is_named = bool(_without_task_words(message, named_stems))
    if is_compared_by_meaning(message, hit):
        return nearness(hit) >= MIN_STANDING and (is_named or _cosine(hit) >= MIN_STANDING)
    return is_named and _share(hit) >= MIN_STANDING_SHARE


def _find_named(message: str, hit: MemoryHit) -> frozenset[str]:
    """The stems of a message that a rule is about. A rule names what it is about first (`Log lines
    are JSON`); one that demands or forbids something may name it anywhere (`Never log a name`).

    The first word of a message often is an action: `split this class` has nothing to do with `The
    repository is split`. It counts if the rule begins with it (`commit`, `Commit subjects are …`).
    """
    words = hit.text.split()
    is_demand = has("order", hit.text) or has("wanted", hit.text)
    topic = hit.text if is_demand else " ".join(words[:_TOPIC_WORDS])
    search_words = _find_said_search_words(message, hit)
    named_stems = common_stems(message, stems(topic) | search_words)
    action, _, objects = message.strip().partition(" ")
    start = stems(" ".join(words[:_START_WORDS]))
    is_about_action = bool(common_stems(action, start | search_words))
    return named_stems if is_about_action else named_stems - (stems(action) - stems(objects))


def _find_said_search_words(message: str, hit: MemoryHit) -> frozenset[str]:
    """The stems of the search words of a hit that a message says completely: `node modules` is not
    meant by `move it into its own module`.
    """
    said: set[str] = set()
    for search_word in hit.search_words.split(","):
        word_stems = stems(search_word)
        if len(common_stems(message, word_stems)) >= len(word_stems):
            said |= word_stems
    return frozenset(said)


def is_used(note: str, prompt: str, answer_text: str, *, is_of_file: bool = False) -> bool:
    """Whether a turn used a note: its answers have a name of the note that the prompt has not, or
    half, at least two, of the other words that the prompt has not. Only the end of long answers is
    read.

    If the note was sent because of a file (`is_of_file`), names of files prove nothing: the turn
    works on that file anyway.
    """
    answer_text = answer_text[-_MAX_ANSWER_CHARACTERS:]
    for entity in set(entities_in(note)).difference(entities_in(prompt)):
        kind, _, name = entity.partition(":")
        if is_of_file and kind == "file":
            continue
        if name in answer_text:
            return True
    only_in_note = stems(note) - stems(prompt) - _STEMS_OF_TASKS - _STEMS_OF_CODE
    return len(only_in_note & stems(answer_text)) >= max(2, len(only_in_note) / 2)


def _weighted_sum(hit_features: Mapping[str, float]) -> float:
    """The weighted sum of the features of a hit; above 0 it counts as relevant."""
    return sum(_WEIGHTS[name] * value for name, value in hit_features.items())


def _share(hit: MemoryHit) -> float:
    """The share of the question's words, weighted by rarity, that a hit has; 0 without words."""
    return hit.parts.get("words", 0.0)


def _cosine(hit: MemoryHit) -> float:
    """How near a hit is to the question in meaning: the cosine of their vectors; 0 without vectors."""
    return hit.parts.get("vectors", 0.0)


def _is_relevant_by_words(question: str, owned_stems: frozenset[str], hit: MemoryHit) -> bool:
    """Whether a hit has enough words in common with a question, and one of these words names a
    subject. The share of the question that the common words need is `MIN_SHARE` for several words,
    more for a single one, and most for two words of which none is more than a word of code.

    Words of tasks (`fix`) name no subject. Words of code (`class`) name one, but not as the only
    common word. Words in `owned_stems` always name one: the user speaks of something of their own
    ("my tests").
    """
    share = _share(hit) / _share_of_subjects(question)
    common = common_stems(question, searched_stems(hit))
    subjects = _without_task_words(question, common - (_STEMS_OF_TASKS - owned_stems))
    is_only_code = not subjects - (_STEMS_OF_CODE - owned_stems)
    if len(common) < 2:
        return not is_only_code and share >= MIN_SHARE_OF_ONE
    min_share = MIN_SHARE_OF_CODE if is_only_code and len(common) == 2 else MIN_SHARE
    return bool(subjects) and share >= min_share


def _share_of_subjects(question: str) -> float:
    """The share of the words of a question that may name a subject: 1.0 for one in English, because
    the limits were measured with all words of English.
    """
    question_stems = stems(question)
    subjects = _without_task_words(question, question_stems)
    return len(subjects) / len(question_stems) if subjects else 1.0


def _without_task_words(question: str, found_stems: frozenset[str]) -> frozenset[str]:
    """The stems without those of words of tasks in the other languages, if the question is in one."""
    if is_in_english(question):
        return found_stems
    return frozenset(stem for stem in found_stems if not is_foreign_task_word(stem))


def _stems_of_words(words: Sequence[str]) -> frozenset[str]:
    """The stems of words; a word that a search leaves out (`now`) is its own stem."""
    searched_words: list[str] = []
    unsearched_words: list[str] = []
    for word in words:
        if parsed_words := parse_query(word).words:
            word_as_searched, *_other_forms = parsed_words[0]
            searched_words.append(word_as_searched)
        else:
            unsearched_words.append(word)
    return frozenset([*find_stems(searched_words), *unsearched_words])


_STEMS_OF_TASKS = _stems_of_words(_WORDS_OF_TASKS)
_STEMS_OF_DAYS = _stems_of_words(_WORDS_OF_DAYS)
_STEMS_OF_CODE = frozenset(find_stems(_WORDS_OF_CODE))
