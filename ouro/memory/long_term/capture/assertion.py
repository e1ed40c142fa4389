"""Whether a sentence is the user's own statement: not a draft, an example, a quotation, an
assumption, nor for now only.

Signs of writing show a doubt in any language: a sentence after a colon may be a draft, one before a
question an assumption. Then a model is asked; without its answer the user decides.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from ouro.memory.long_term.statement_patterns import pattern_of_group
from ouro.memory.side_calls import AskModel
from ouro.messages import assistant, system, user
from ouro.utils.lenient_json import decode_answer, schema_of
from ouro.utils.text import cut_middle

_MAX_TEXT = 600
_MIN_QUOTED = 0.4
"""The share of a sentence from which on a quotation is all that it states."""
_CODE_OR_ADDRESS = re.compile(r"`[^`\n]{0,200}`|https?://\S{1,200}")
_COLON_IN_TEXT = re.compile(r"[^\s:：][:：](?:\s|(?=[^\x00-\x7f]))|[^\s:：] [:：]\s")
"""A colon that introduces something, as in `Our rule: use tabs`; not the one of a time or a path.
"""
QUOTATION = re.compile(
    r'"[^"]{0,400}"|“[^”]{0,400}”|„[^“”]{0,400}[“”]|«[^»]{0,400}»|「[^」]{0,400}」'
    r"|‘[^’]{0,400}’|‚[^‘’]{0,400}[‘’]|(?<!\w)'[^'\n]{0,400}'(?!\w)"
)
"""A text in quotation marks, with the marks."""
_WORDS_OF_CLAUSE = 3
"""A quotation of so many words may state something; a shorter one is a name."""
_CHARACTERS_OF_CLAUSE = 6
"""The same in characters, for scripts without blanks."""
_QUESTION_END = re.compile(r"[?？؟][\s\"'”»)]*$")
_ELLIPSIS_END = re.compile(r"(?:\.{3}|…)\W*$")
_OrderKind = Literal["order", "tells"]
_Label = Literal["own", "text", "other", "supposed", "once", "undone"]
_ASK_START = """\
Label the start of a sentence, after which a colon follows, in a message to a coding assistant:
"own": it introduces information, a reason or a rule of the user
"text": it asks to write, translate or improve words, or introduces an example of a text
"other": it introduces what another person, a page or a file says
"supposed": it introduces something imagined
"once": it limits to today, this time or this session
"undone": the user takes something back"""
_START_EXAMPLES: tuple[tuple[str, _Label], ...] = (
    ("Heads-up", "own"),
    ("Add to the letter", "text"),
    ("The sync is slow", "own"),
    ("Hinweis", "own"),
    ("Schreib aufs Schild", "text"),
    ("Our rule", "own"),
    ("Only this week", "once"),
    ("提醒", "own"),
    ("翻译成英文", "text"),
    ("Ne touche pas au four", "own"),
    ("Réponds au client", "text"),
    ("Solo hoy", "once"),
    ("Un ejemplo de aviso", "text"),
    ("El manual dice", "other"),
    ("メモ", "own"),
    ("看板の文", "text"),
    ("A good slogan would be", "text"),
    ("Wrong, it moved", "own"),
    ("Suppose this", "supposed"),
    ("Für alle Texte gilt", "own"),
    ("Titel des Kapitels", "text"),
    ("Anna meint", "other"),
    ("A propos des factures", "own"),
    ("Improve this line", "text"),
    ("关于发票", "own"),
    ("Cuidado", "own"),
    ("Before we begin", "own"),
    ("One more detail", "own"),
    ("And for the next time", "own"),
    ("Ehe wir anfangen", "own"),
    ("Für die Abnahme", "own"),
    ("Never lift the lid", "own"),
    ("Encore un détail", "own"),
    ("Antes de empezar", "own"),
    ("备注", "own"),
    ("前提として", "own"),
    ("It broke because the belt is old", "own"),
    ("Als Überschrift", "text"),
    ("在信里写", "text"),
    ("The old sign said", "other"),
    ("Der Kommentar dazu soll heißen", "text"),
)
_ASK_SENTENCE = """\
Label a sentence of a message to a coding assistant:
"own": what the user knows or wants
"text": words for a text
"other": what another person, page or file says
"supposed": something imagined or considered
"once": only for now: today, this time or this session
"undone": not meant, broken off"""
_SENTENCE_EXAMPLES: tuple[tuple[str, _Label], ...] = (
    ("The shop closes at six.", "own"),
    ("Peter sagt, man soll nie Eis essen.", "other"),
    ("Imagine that the shop is always open.", "supposed"),
    ("Der Lift geht nur bis zum dritten Stock.", "own"),
    ("We label each box, for example `12-blue`.", "own"),
    ("According to the manual, both keys are needed.", "other"),
    ("Los platos llevan siempre un número.", "own"),
    ("如果我们是银行,所有门都要锁。", "supposed"),
    ("我们的箱子都有标签。", "own"),
    ("Never open the...", "undone"),
    ('"We never sleep" as the slogan.', "text"),
    ("Today the door stays open.", "once"),
    ("これからは日本語で書いてください。", "own"),
    ("Luc trouve qu'il faudrait toujours peindre en bleu.", "other"),
    ("Les factures partent le lundi.", "own"),
    ("「夜は走らない」と書いて。", "text"),
    ("We write dates as in `2026-01-31`, the parser wants that.", "own"),
    ("For the night shift the lights stay on, so nobody falls.", "own"),
    ("Die Etiketten beginnen mit der Farbe, z. B. „blau-12“.", "own"),
    ("One should never paint on Mondays, says the forum.", "other"),
    ("Unsere Kisten liegen immer in Halle 3.", "own"),
    ("A rule that I once read: never run.", "other"),
)


_ASK_ORDER = """\
Who does what a sentence says, or what is it about? "you" if it asks the assistant to do something. Then label it:
"order": it tells the assistant to do something
"tells": it says how something is, who someone is, or what people do"""
_ORDER_EXAMPLES: tuple[tuple[str, str, _OrderKind], ...] = (
    ("Change the import in line 3.", "you", "order"),
    ("Otto runs the payment team.", "Otto", "tells"),
    ("I'm Ada and I bake bread.", "I", "tells"),
    ("Please paint the door.", "you", "order"),
    ("Die Fenster putzt Olga.", "Olga", "tells"),
    ("Putz die Fenster.", "you", "order"),
    ("Le pain se vend le lundi.", "le pain", "tells"),
    ("Vends le pain.", "you", "order"),
    ("El pan se vende aquí.", "el pan", "tells"),
    ("Borra el archivo.", "you", "order"),
    ("テストを消して。", "you", "order"),
    ("鍵は棚にあります。", "鍵", "tells"),
    ("把按钮改成红色。", "you", "order"),
    ("报告放在架子上。", "报告", "tells"),
    ("Помой чашки.", "you", "order"),
    ("Чашки моют вечером.", "чашки", "tells"),
    ("Can you close the window?", "you", "order"),
    ("Bread is baked with oven two.", "bread", "tells"),
    ("Run the oven again.", "you", "order"),
    ("Kasada Ayşe duruyor.", "Ayşe", "tells"),
    ("Ekmeği sat.", "you", "order"),
    ("Le carte si trovano nel cassetto.", "le carte", "tells"),
    ("Apri la finestra.", "you", "order"),
    ("Now the second page, with the same colours.", "you", "order"),
)
"""A sentence, who does what it says, and its label. Without naming who, a model of 1.5 billion
parameters takes a statement with a command for an order: `the tests run with make test`.
"""


class _SentenceKind(msgspec.Struct):
    label: _Label


class _Order(msgspec.Struct):
    who: Annotated[str, msgspec.Meta(max_length=40)]
    kind: _OrderKind


def is_in_doubt(sentence: str, after: str) -> bool:
    """Whether a sentence may not be the user's own statement, by signs of writing: much of it is a
    quotation, or it quotes a clause; it breaks off with `…`, or it has a colon; or it is a
    question, or the next sentence `after` is one. `after` is empty if there is no next sentence.
    """
    plain = _CODE_OR_ADDRESS.sub("", sentence)
    introduction = pattern_of_group("introduction").match(plain)
    after_introduction = plain[introduction.end() :] if introduction else plain
    quotations = [quotation[0][1:-1] for quotation in QUOTATION.finditer(plain)]
    quoted_length = sum(map(len, quotations))
    is_quoted = quoted_length >= _MIN_QUOTED * len(plain) or any(map(_is_clause, quotations))
    is_asked = bool(_QUESTION_END.search(sentence))
    # With an introduction (`No, that is wrong:`) the user states it; a question after it is another
    # one.
    if not introduction:
        is_asked = is_asked or bool(_QUESTION_END.search(after))
    is_cut = bool(_ELLIPSIS_END.search(sentence))
    has_colon = bool(_COLON_IN_TEXT.search(_without_quotations(after_introduction)))
    return is_quoted or is_asked or is_cut or has_colon


async def ask_if_order(ask: AskModel, sentence: str) -> bool:
    """Whether a sentence tells the assistant to do something, in any language; True without a usable
    answer. Raises ModelError.
    """
    messages = [system(_ASK_ORDER)]
    for example, who, kind in _ORDER_EXAMPLES:
        answer = msgspec.json.encode(_Order(who, kind)).decode()
        messages += [user(example), assistant(answer)]
    messages.append(user(cut_middle(sentence, _MAX_TEXT)))
    order = decode_answer(await ask(messages, schema_of(_Order)), _Order)
    return order is None or order.kind == "order"


def _is_clause(quoted: str) -> bool:
    """Whether a quoted text may state something, and is not only a name."""
    is_long_word = not quoted.isascii() and len(quoted) >= _CHARACTERS_OF_CLAUSE
    return len(quoted.split()) >= _WORDS_OF_CLAUSE or is_long_word


async def ask_if_own_statement(ask: AskModel, sentence: str) -> bool | None:
    """Whether a model says that a sentence is the user's own statement; None without a usable
    answer. Raises ModelError.

    If the sentence has a colon, the model gets only the words before it. With the whole message, or
    with what follows, a model of 1.5 billion parameters calls every such sentence a text to write.
    """
    colon = _COLON_IN_TEXT.search(_without_quotations(sentence))
    if colon:
        asked, question, examples = sentence[: colon.start() + 1], _ASK_START, _START_EXAMPLES
    else:
        asked, question, examples = sentence, _ASK_SENTENCE, _SENTENCE_EXAMPLES
    messages = [system(question)]
    for example, label in examples:
        messages += [user(example), assistant(f'{{"label": "{label}"}}')]
    messages.append(user(cut_middle(asked.strip(), _MAX_TEXT)))
    sentence_kind = decode_answer(await ask(messages, schema_of(_SentenceKind)), _SentenceKind)
    return None if sentence_kind is None else sentence_kind.label == "own"


def _without_quotations(sentence: str) -> str:
    """The sentence with blanks instead of code, addresses and quotations. Each is replaced by as
    many blanks, so that the positions of other words stay the same.
    """
    for pattern in (_CODE_OR_ADDRESS, QUOTATION):
        sentence = pattern.sub(lambda match: " " * len(match[0]), sentence)
    return sentence
