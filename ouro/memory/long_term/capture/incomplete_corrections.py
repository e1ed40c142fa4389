"""A correction that names no subject (`No, it listens on 8417`) or only the change (`not with -x,
with -q`), completed from the note that it corrects.

On its own such a sentence says nothing in a later session. A model writes the note as it holds now;
what it writes is used only if it has the values of the correction and most words of the note.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from typing import Annotated

import msgspec

from ouro.memory.index import word_starts
from ouro.memory.long_term.notes.note import Note
from ouro.memory.long_term.statement_patterns import has, pattern_of_group
from ouro.memory.long_term.supersession import (
    denies,
    fold_words,
    strip_introduction,
    subject_words,
)
from ouro.memory.side_calls import AskModel
from ouro.messages import assistant, system, user
from ouro.utils.lenient_json import decode_answer, schema_of
from ouro.utils.text import cut_middle

MAX_NEAR = 3
"""The notes that a correction without a subject is compared with, at most."""
_MAX_TEXT = 300
_MIN_KEPT = 0.5
"""The share of the words of a note that its new text must have."""
_CORRECTED_VALUE = re.compile(
    r"`[^`]+`|(?<![\w-])--?[A-Za-z][\w-]*|\w*\d[\w.:/-]*\w|\d|(?<=\W)(?<![.!?] )[A-Z]\w+"
)
"""A number, a name, an option (`-q`) or code: what a correction is about."""
_CLAUSE_END = re.compile(r"[,;.!?]\s+|[，；：、。！？]")
_QUOTE_START = " (before: "
_INSTRUCTIONS = """\
You see a note of a user, and what the user says later. Write the note as it holds now: one whole sentence in the \
language of the note. If the user speaks about something else, repeat the note unchanged."""
_EXAMPLES = (
    (
        "The museum opens at nine.",
        "No, that changed. It opens at ten.",
        "The museum opens at ten.",
    ),
    (
        "The soup is in the blue pot.",
        "They are painted in red now.",
        "The soup is in the blue pot.",
    ),
    ("Der Bus fährt um 8.", "Stimmt nicht mehr, er fährt um 9.", "Der Bus fährt um 9."),
    (
        "La boutique ferme le lundi",
        "Non, c'était avant. Elle ferme le mardi.",
        "La boutique ferme le mardi",
    ),
    (
        "Black cats sleep in the barn",
        "No, it is 20 minutes, not 10.",
        "Black cats sleep in the barn",
    ),
    ("El tren sale de la vía 2", "Eso era antes, ahora es la 5.", "El tren sale de la vía 5"),
    ("会议在三楼", "不对,现在在五楼。", "会议在五楼"),
    ("鍵は机の上にある", "違います、今は棚にあります。", "鍵は棚にある"),
    ("Anna feeds the birds", "It's Tom, not Anna.", "Tom feeds the birds"),
    (
        "Print labels with the red printer, and file a copy",
        "Nicht mehr mit dem roten, sondern mit dem blauen.",
        "Print labels with the blue printer, and file a copy",
    ),
)
"""A note, what the user says later, and the note as it holds then."""


class _CompletedNote(msgspec.Struct):
    note: Annotated[str, msgspec.Meta(max_length=_MAX_TEXT)]


def is_incomplete(sentence: str, before: str) -> bool:
    """Whether a sentence is a correction that says only `it`, and not what it is about. The
    sentence `before` it may announce the correction (`That is wrong. It is 8417.`); `before` is
    empty if there is no such sentence.
    """
    # `No, that is wrong: use tabs` names what it is about after its introduction.
    introduction = pattern_of_group("introduction").match(sentence)
    rest = sentence[introduction.end() :] if introduction else sentence
    if not has("pronoun", rest):
        return False
    return any(denies(text) or has("contradicts", text) for text in (sentence, before) if text)


def says_only_the_change(statement: str, note: str) -> bool:
    """Whether a statement that replaces a note says less than the note, of which it has at least one
    word on the subject. `Not with -x any more, with -q` says this of `run tests with pytest -x, and
    answer in one sentence`.

    It is not longer than the note, and has less than half of these words. Or, however long it is, it
    says nothing of a clause of the note, or little of it and much of another one: `Python 3.12 is
    out of support, we use 3.13` of `the backend is FastAPI, Python 3.12`.
    """
    words = subject_words(statement)
    if not words & subject_words(note):
        return False
    is_longer = len(statement.split()) > len(note.split())
    if not is_longer and _says_little_of(note, words):
        return True
    clauses = [clause for clause in _CLAUSE_END.split(note) if subject_words(clause)]
    says_nothing = any(words.isdisjoint(subject_words(clause)) for clause in clauses)
    says_little = {_says_little_of(clause, words) for clause in clauses}
    return says_nothing or len(says_little) > 1


def _says_little_of(text: str, words: Set[str]) -> bool:
    """Whether less than half of the subject words of a text are among `words`."""
    words_of_text = subject_words(text)
    return len(words & words_of_text) < _MIN_KEPT * len(words_of_text)


def quote_changed_note(statement: str, note: str) -> str:
    """A statement that says only the change, with the note that it changes: alone it would say nothing
    in a later session. If the note quotes another one, only that is quoted.
    """
    if _QUOTE_START in note:
        note = note.rpartition(_QUOTE_START)[2].removesuffix(")")
    return f"{statement}{_QUOTE_START}{note})"


async def complete_correction(
    ask: AskModel, said: str, sentence: str, notes: Sequence[Note]
) -> tuple[str, Note] | None:
    """The new text of the first of `notes` that a correction is about, and that note. The model is
    asked about one note after the other, at most `MAX_NEAR`. None if it is about none of them.
    Raises ModelError.

    Args:
        said: the correction, with the sentence before it.
        sentence: the sentence with the new value.
    """
    for note in notes[:MAX_NEAR]:
        messages = [system(_INSTRUCTIONS)]
        for example, later_words, new_text in _EXAMPLES:
            answer = msgspec.json.encode(_CompletedNote(new_text)).decode()
            messages += [user(_quote(example, later_words)), assistant(answer)]
        # With `from now on` a small model takes the note for what the user says.
        messages.append(user(_quote(strip_introduction(note.text), said)))
        completed = decode_answer(await ask(messages, schema_of(_CompletedNote)), _CompletedNote)
        if completed and _is_usable(completed.note, note.text, sentence):
            return completed.note.strip(), note
    return None


def _is_usable(text: str, before: str, sentence: str) -> bool:
    """Whether the new text of a note may be used. It must differ from the text `before`, have
    enough of its words, and have all values that are new in the correcting `sentence`.
    """
    if fold_words(text) == fold_words(before):
        return False
    words = word_starts(before)
    is_kept = len(words & word_starts(text)) >= _MIN_KEPT * len(words)
    return is_kept and all(value in text.casefold() for value in find_new_values(sentence, before))


def find_new_values(statement: str, note: str) -> set[str]:
    """The numbers, names, options and code in a statement that are not in a note, in lower case."""
    values = {value.casefold() for value in _CORRECTED_VALUE.findall(statement)}
    return {value for value in values if value not in note.casefold()}


def _quote(note: str, said: str) -> str:
    return f"Note: {cut_middle(note, _MAX_TEXT)}\nUser: {cut_middle(said, _MAX_TEXT)}"
