"""Whether a sentence is to be kept out of memory: the user says so, or it tells something private
about a colleague.

What a user confides while they work is true and lasts, so that nothing else in capture leaves it
out. The words for it are endless in each language: a small model is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec

from ouro.memory.side_calls import AskModel
from ouro.messages import assistant, system, user
from ouro.utils.lenient_json import decode_answer, schema_of
from ouro.utils.text import cut_middle

_MAX_TEXT = 400
_Decoded = TypeVar("_Decoded", bound=msgspec.Struct)
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


_ASK_ABOUT = """\
Whom or what does a sentence tell something about?
"person": one person: a colleague, a friend, a relative of someone, by name or by role
"thing": all else: the user ("I"), code, data, programs, rules, plans, products, customers and groups of people"""
_About = Literal["person", "thing"]
_ABOUT_EXAMPLES: tuple[tuple[str, _About], ...] = (
    ("Otto runs the payment team.", "person"),
    ("The family plan has two seats.", "thing"),
    ("Our tester is in love.", "person"),
    ("The health page is red.", "thing"),
    ("Die Löhne stehen in Tabelle 3.", "thing"),
    ("Uwe verdient mehr als Jan.", "person"),
    ("Les dossiers des malades sont chiffrés.", "thing"),
    ("Pierre attend un enfant.", "person"),
    ("La directora está enferma.", "person"),
    ("El formulario pide la religión.", "thing"),
    ("Anna's father is in hospital.", "person"),
    ("Parent nodes hold their children.", "thing"),
    ("小王怀孕了。", "person"),
    ("工资表每月更新。", "thing"),
    ("花子は入院しています。", "person"),
    ("患者の記録は十年保存します。", "thing"),
    ("The address form has a field for the home.", "thing"),
    ("Someone in sales is getting divorced.", "person"),
    ("I am colour-blind, use symbols.", "thing"),
    ("I prefer short answers.", "thing"),
)
"""What a sentence says, and whether it is about one person. Asked for a topic at once, a model of 1.5
billion parameters names one by a word alone: "health" for `Health checks run every minute`.
"""
_ASK_TOPIC = """\
What does a sentence tell about one person? Answer with one word:
"health": the illness, disability, body, pregnancy, addiction, mood or therapy of someone, or of their family
"family": the marriage, love, children or parents of someone
"belief": the religion, politics or origin of someone
"salary": what someone earns, their debts, warnings or dismissal
"home": where someone lives, a private phone number
"work": what someone does, knows or decides at work, and when they are at work"""
_Topic = Literal["health", "family", "belief", "salary", "home", "work"]
_TOPIC_EXAMPLES: tuple[tuple[str, _Topic], ...] = (
    ("Otto runs the payment team.", "work"),
    ("Karl has asthma and stays at home in winter.", "health"),
    ("Olga gets a divorce.", "family"),
    ("Uwe verdient mehr als Jan.", "salary"),
    ("Die Fenster putzt Olga, nicht mehr Jan.", "work"),
    ("Ali prays at noon.", "belief"),
    ("Ivo is off on Fridays.", "work"),
    ("Karl's daughter is deaf, so he works at night.", "health"),
    ("Pierre attend un enfant.", "family"),
    ("Eva decide los colores.", "work"),
    ("A Ana la despidieron.", "salary"),
    ("Ana toma pastillas para dormir.", "health"),
    ("Our tester marries in May.", "family"),
    ("Mrs Bell lives at 3 Mill Road.", "home"),
    ("Lena knows SQL best.", "work"),
    ("Jan ist in der Gewerkschaft.", "belief"),
    ("花子は入院しています。", "health"),
    ("小王怀孕了。", "health"),
    ("小王负责测试。", "work"),
    ("Anna liegt im Krankenhaus.", "health"),
    ("Ayşe kasada duruyor.", "work"),
    ("Mia's new baby keeps her up.", "family"),
    ("Otto is from a family of Jews.", "belief"),
    ("Jana is the deputy of Otto.", "work"),
)
"""What a sentence about one person says, and its topic. Asked only `may it be kept?`, a model of 1.5
billion parameters kept the diabetes, the pregnancy and the pay of a colleague.
"""


class _MayKeep(msgspec.Struct):
    answer: _Answer


class _TopicOfSentence(msgspec.Struct):
    topic: _Topic


class _AboutOfSentence(msgspec.Struct):
    about: _About


async def may_keep(ask: AskModel, sentence: str) -> bool:
    """Whether a model says that a sentence may be kept, and that it tells nothing private about one
    person; also without usable answers. Raises ModelError.
    """
    permission = await _ask(ask, _INSTRUCTIONS, "answer", _EXAMPLES, sentence, _MayKeep)
    if permission is not None and permission.answer == "no":
        return False
    subject = await _ask(ask, _ASK_ABOUT, "about", _ABOUT_EXAMPLES, sentence, _AboutOfSentence)
    if subject is not None and subject.about == "thing":
        return True
    told = await _ask(ask, _ASK_TOPIC, "topic", _TOPIC_EXAMPLES, sentence, _TopicOfSentence)
    return told is None or told.topic == "work"


async def _ask(
    ask: AskModel,
    instructions: str,
    field: str,
    examples: Sequence[tuple[str, str]],
    sentence: str,
    answer_type: type[_Decoded],
) -> _Decoded | None:
    """The answer of a model about a sentence; None without a usable one. Raises ModelError.

    Args:
        field: the only field of the answer.
        examples: sentences, and the value of the field for each.
    """
    messages = [system(instructions)]
    for example, label in examples:
        messages += [user(example), assistant(msgspec.json.encode({field: label}).decode())]
    messages.append(user(cut_middle(sentence, _MAX_TEXT)))
    return decode_answer(await ask(messages, schema_of(answer_type)), answer_type)
