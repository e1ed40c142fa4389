"""Whether a sentence is the user's own statement: not a draft, an example, a quotation, an
assumption, nor for now only.

Signs of writing show a doubt in any language: a sentence after a colon may be a draft, one before a
question an assumption. Then a model is asked; without its answer the user decides.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from ouro.memory.long_term.patterns import compiled
from ouro.memory.side_calls import AskModel
from ouro.messages import assistant, system, user
from ouro.utils.json_types import decode_answer, schema_of
from ouro.utils.text import cut_middle

_MAX_TEXT = 600
_MIN_QUOTED = 0.4
"""The share of a sentence from which on a quotation is all that it states."""
_CODE = re.compile(r"`[^`\n]{0,200}`|https?://\S{1,200}")
_COLON = re.compile(r"[^\s:：][:：](?:\s|(?=[^\x00-\x7f]))|[^\s:：] [:：]\s")
_QUOTATION = re.compile(
    r'"[^"]{0,400}"|“[^”]{0,400}”|„[^“”]{0,400}[“”]|«[^»]{0,400}»|「[^」]{0,400}」'
)
_QUESTION = re.compile(r"[?？؟][\s\"'”»)]*$")
_ELLIPSIS = re.compile(r"(?:\.{3}|…)\W*$")
_ASK = """\
A user writes a message to a coding assistant. One sentence of it is quoted. Label this sentence:
"own": the user states it himself as true, or wants it so
"text": words to write, translate or use in a text, or an example
"other": what another person, a page, a file or a log says
"supposed": only imagined, asked or considered
"once": only for now: today, this time, this session, this commit
"undone": the user takes it back"""
_EXAMPLES = (
    ("Fix the menu. Note: the shop closes at six.", "Note: the shop closes at six.", "own"),
    ("Add to the letter: we always pay on time.", "Add to the letter: we always pay.", "text"),
    ("Peter sagt, man soll nie Eis essen. Stimmt das?", "Peter sagt, man soll nie Eis.", "other"),
    ("Ich lese am Handy, bitte kurz.", "Ich lese am Handy, bitte kurz.", "own"),
    (
        "Imagine that the shop is always open. Who pays?",
        "Imagine that the shop is open.",
        "supposed",
    ),
    ("这次不用检查。", "这次不用检查。", "once"),
    ("Toujours en rouge. Ah non, oublie.", "Toujours en rouge.", "undone"),
    ("Los lunes cierra el museo. Cambia el cartel.", "Los lunes cierra el museo.", "own"),
    ("Beispiel einer Regel: nie rennen.", "Beispiel einer Regel: nie rennen.", "text"),
    ("箱は青いです。ラベルを直して。", "箱は青いです。", "own"),
)


class _SentenceKind(msgspec.Struct):
    label: Literal["own", "text", "other", "supposed", "once", "undone"]


def is_in_doubt(sentence: str, after: str) -> bool:
    """Whether signs show that a sentence may not be the user's own statement; `after` is the next
    sentence of the message.
    """
    plain = _CODE.sub("", sentence)
    known = compiled("introduction").match(plain)
    rest = plain[known.end() :] if known else plain
    quoted = sum(len(found[0]) for found in _QUOTATION.finditer(plain))
    is_quoted = quoted >= _MIN_QUOTED * len(plain)
    # With an introduction (`No, that is wrong:`) the user states it; the question is another one.
    is_asked = bool(_QUESTION.search(sentence) or (not known and _QUESTION.search(after)))
    is_cut = bool(_ELLIPSIS.search(sentence))
    return is_quoted or is_asked or is_cut or bool(_COLON.search(rest))


async def ask_own(ask: AskModel, message: str, sentence: str) -> bool | None:
    """Whether a model says that a sentence is the user's own statement; None without a usable
    answer. Raises ModelError.
    """
    messages = [system(_ASK)]
    for said, quoted, label in _EXAMPLES:
        messages += [user(_quote(said, quoted)), assistant(f'{{"label": "{label}"}}')]
    messages.append(user(_quote(message, sentence)))
    found = decode_answer(await ask(messages, schema_of(_SentenceKind)), _SentenceKind)
    return None if found is None else found.label == "own"


def _quote(message: str, sentence: str) -> str:
    return f"Message: {cut_middle(message, _MAX_TEXT)}\nSentence: {cut_middle(sentence, _MAX_TEXT)}"
