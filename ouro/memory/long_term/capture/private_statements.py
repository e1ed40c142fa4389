"""Whether a sentence is to be kept out of memory: the user says so, or it tells something private
about a colleague.

What a user confides while they work is true and lasts, so that nothing else in capture leaves it
out. The words for it are endless in each language: a small model is asked.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ouro.memory.side_calls import AskModel
from ouro.messages import assistant, system, user
from ouro.utils.lenient_json import decode_answer, schema_of
from ouro.utils.text import cut_middle

_MAX_TEXT = 400
_Answer = Literal["yes", "no"]
_INSTRUCTIONS = """\
May a coding assistant write what a user says into its notes?
"no": the user wants it kept out of notes or between the two; or it is about the health, family, pregnancy, pay or \
dismissal of a colleague, or where a private person lives
"yes": all else: work, rules, wishes, tools, servers, who does what"""
_EXAMPLES: tuple[tuple[str, _Answer], ...] = (
    ("Otto runs the payment team.", "yes"),
    ("Between you and me, the shop will close.", "no"),
    ("The shop closes at six.", "yes"),
    ("Anna had an operation, so she is slow.", "no"),
    ("Never paint on Mondays.", "yes"),
    ("Dies bleibt unter uns: Otto hört auf.", "no"),
    ("Otto ist nicht mehr im Team, frag Lena.", "yes"),
    ("I am colour-blind, use symbols.", "yes"),
    ("别记下来：店要关了。", "no"),
    ("报告保留三十天后删除。", "yes"),
    ("Pierre se sépare de sa femme, sois patient.", "no"),
    ("Les factures partent le lundi.", "yes"),
    ("Forget the old hall, we meet in the new one.", "yes"),
    ("Eso no lo apuntes, Ana cobra menos que Luis.", "no"),
    ("Ya no vendemos pan, ahora vendemos té.", "yes"),
    ("メモしないで、来週引っ越します。", "no"),
    ("在庫は毎朝6時に更新されます。", "yes"),
    ("Kasada artık Ayşe duruyor.", "yes"),
    ("Don't write this down, the hall is sold in May.", "no"),
    ("The hall is sold in May.", "yes"),
    ("Off the record: Uma moves out.", "no"),
    ("Uma moves the boxes on Mondays.", "yes"),
    ("Ivo is on sick leave with his heart.", "no"),
    ("Ivo is off on Fridays.", "yes"),
    ("これは書かなくていいです、店を閉めます。", "no"),
    ("店は6時に閉まります。", "yes"),
    ("Die Anleitung liegt bei Uwe.", "yes"),
    ("Mrs Bell lives at 3 Mill Road, her phone is 0199 5550.", "no"),
    ("The office is at 3 Mill Road.", "yes"),
    ("My pay is in group nine, do not keep that.", "no"),
)
"""What a user says, and whether it may become a note."""


class _MayKeep(msgspec.Struct):
    answer: _Answer


async def may_keep(ask: AskModel, sentence: str) -> bool:
    """Whether a model says that a sentence may be kept; also without a usable answer. Raises
    ModelError.
    """
    messages = [system(_INSTRUCTIONS)]
    for example, label in _EXAMPLES:
        answer = msgspec.json.encode(_MayKeep(label)).decode()
        messages += [user(example), assistant(answer)]
    messages.append(user(cut_middle(sentence, _MAX_TEXT)))
    decoded = decode_answer(await ask(messages, schema_of(_MayKeep)), _MayKeep)
    return decoded is None or decoded.answer == "yes"
