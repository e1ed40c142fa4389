"""Requests to forget something in plain prose (`Forget that I work from home on Fridays`): which entries
they mean, by rules, in several languages.
"""

from __future__ import annotations

from collections.abc import Sequence

from ouro.memory.long_term.capture.session_parts import Spoken
from ouro.memory.long_term.capture.small_model import split_sentences
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entry_lookup import MemoryEntry, all_entries
from ouro.memory.long_term.forget import forget_entries
from ouro.memory.long_term.statement_patterns import has, pattern_of_group
from ouro.memory.long_term.supersession import subject_words

_MIN_NAMED = 0.75
"""The share of the subject words of an entry that a request to forget it has."""
_MIN_COMMON = 2
"""The words in common from which on a request names an entry: one word names a subject only."""
_COMPARED_LETTERS = 5
"""The letters that are compared at the start of a word: its ending may be another one."""


def find_requests(spoken: Sequence[Spoken]) -> list[str]:
    """What the user asks to forget, in messages that they certainly wrote: each sentence without the
    words that ask.
    """
    asks = pattern_of_group("forgets")
    sentences: list[str] = []
    for message in spoken:
        if message.is_own:
            sentences += split_sentences(message.text)
    return [asks.sub(" ", sentence) for sentence in sentences if asks.search(sentence)]


def forget_requested(editor: MemoryEditor, requests: Sequence[str]) -> None:
    """Forget the entries that the requests name. Blocks; raises as `MemoryEditor.write`."""
    entries = [entry for entry in all_entries(editor, sources=False) if not entry.archived]
    named: dict[str, MemoryEntry] = {}
    for request in requests:
        named |= {entry.id: entry for entry in find_named(request, entries)}
    if named:
        forget_entries(editor, [*named.values()])


def find_named(request: str, entries: Sequence[MemoryEntry]) -> list[MemoryEntry]:
    """The entries that a request names: it has most of their subject words, and both or
    neither are negative. Only those with the highest share; empty if these do not say the same.
    """
    words = _starts(request)
    shares: dict[str, float] = {}
    for entry in entries:
        entry_words = _starts(entry.text)
        common = entry_words & words
        is_opposite = has("negative", request) != has("negative", entry.text)
        if len(common) >= _MIN_COMMON and not is_opposite:
            shares[entry.id] = len(common) / len(entry_words)
    best_share = max(shares.values(), default=0.0)
    if best_share < _MIN_NAMED:
        return []
    best = [entry for entry in entries if shares.get(entry.id) == best_share]
    say_the_same = all(_starts(entry.text) == _starts(best[0].text) for entry in best)
    return best if say_the_same else []


def is_forgotten(text: str, own_messages: Sequence[Spoken]) -> bool:
    """Whether the last of the user's messages that names a text asks to forget it: a request in it
    names the text, too, or names nothing (`forget that I said this`).
    """
    words = _starts(text)
    named_in = [message for message in own_messages if _names(_starts(message.text), words)]
    requests = [_starts(request) for request in find_requests(named_in[-1:])]
    return any(_names(request, words) or len(request) < _MIN_COMMON for request in requests)


def _names(words: set[str], words_of_text: set[str]) -> bool:
    """Whether these words name a text: they are most of its words, and at least `_MIN_COMMON`."""
    common = words & words_of_text
    return len(common) >= max(_MIN_COMMON, _MIN_NAMED * len(words_of_text))


def _starts(text: str) -> set[str]:
    return {word[:_COMPARED_LETTERS] for word in subject_words(text)}
