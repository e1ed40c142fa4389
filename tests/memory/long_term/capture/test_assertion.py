"""A sentence that may be a draft, a quotation or an assumption is never kept in silence."""

import json

import pytest

from ouro.memory.long_term import categories_with
from ouro.memory.long_term.capture.assertion import is_in_doubt
from ouro.memory.long_term.capture.operations import OperationLimits
from ouro.memory.long_term.capture.session_parts import Spoken
from ouro.memory.long_term.capture.small_model import find_operations
from ouro.memory.long_term.notes.note import Note


@pytest.mark.parametrize(
    ("sentence", "after"),
    [
        ("Put this on the poster: we always win.", ""),
        ("Setz das in den Brief: wir liefern immer pünktlich.", ""),
        ("Ajoute au courriel : nous livrons avant midi.", ""),
        ("在邮件里写上：我们只支持 Chrome。", ""),
        ("メールにこう書いて:弊社は常に暗号化しています。", ""),
        ("Mi jefa dijo: «nunca despleguemos los viernes».", ""),
        ("Er sagte „nie am Freitag“.", ""),
        ("同僚は「コメントは絶対に書くな」と言った。", ""),
        ("We never deploy on Fridays.", "Is that still true?"),
        ("Ne pousse jamais sur main, d'accord ?", ""),
        ("有人说永远不要用 ORM，你怎么看？", ""),
        ("Never log tokens...", ""),
        ("The new colleague keeps saying 'we write everything in Rust' to all of us here", ""),
        (
            "Jede Woche steht im Protokoll der Runde ‚wir testen nie am Freitag‘, und alle nicken",
            "",
        ),
        ("先週の打ち合わせの議事録には何度も「テストは毎回必要」とあったけれど決定ではない", ""),
        ("Nunca uses tabs…", ""),
    ],
)
def test_signs_of_writing_show_a_doubt_in_any_language(sentence, after):
    assert is_in_doubt(sentence, after)


@pytest.mark.parametrize(
    ("sentence", "after"),
    [
        ("Never deploy on Fridays.", "Fix the parser."),
        ("No, that is wrong: use tabs.", ""),
        ("Übrigens: Preise sind in Cent.", "Danke."),
        ("No, that is wrong: the basket is never empty.", "Which queue do we use?"),
        ("ちなみに、ポートは5173です。", ""),
        ("The key is `user: name` in the YAML.", ""),
        ("The docs are at https://example.org/a:b.", ""),
        ("The standup is at 10:30.", ""),
        ("Images are tagged app:1.2.", ""),
        ("The customers' orders aren't the suppliers' orders in this database.", ""),
        ('We call it "the barn" in all texts about the old warehouse in Oslo.', ""),
    ],
)
def test_plain_statement_is_not_in_doubt(sentence, after):
    assert not is_in_doubt(sentence, after)


class Answers:
    """Labels every sentence as a rule, and answers the question whose it is with `label`."""

    def __init__(self, label):
        self.label, self.asked = label, []

    async def __call__(self, messages, schema=None):
        self.asked.append(messages[-1].text)
        return json.dumps({"kind": "rule", "label": self.label, "about": "project"})


async def operations(said, label):
    limits = OperationLimits((), categories_with({}), ("user", "repo"))
    return await find_operations(Answers(label), [Spoken(1, "user", said)], limits)


@pytest.mark.parametrize(
    ("label", "certainties"),
    [("own", ["stated"]), ("text", []), ("other", []), ("no such label", ["doubtful"])],
)
async def test_model_decides_about_a_doubt_and_else_the_user(label, certainties):
    found = await operations("Setz das in den Brief: wir liefern immer pünktlich.", label)
    assert [operation.certainty for operation in found] == certainties


async def test_words_of_another_in_single_quotes_replace_nothing():
    old = Note(id="mem_00000001", scope="repo", text="We keep the docs in Sphinx")
    said = "Ben keeps saying 'we use Hugo for the docs now' but that is just his wish"
    limits = OperationLimits((old,), categories_with({}), ("user", "repo"))
    assert await find_operations(Answers("other"), [Spoken(1, "user", said)], limits) == ()
    [stated] = await find_operations(Answers("own"), [Spoken(1, "user", said)], limits)
    assert stated.certainty != "doubtful"


async def test_rules_do_not_keep_a_lasting_statement_that_is_in_doubt():
    [found] = await operations("Merk dir das Plakat: ab jetzt immer Tabs!", "no such label")
    assert found.certainty == "doubtful"
    [plain] = await operations("Ab jetzt immer Tabs benutzen!", "no such label")
    assert plain.certainty == "stated"


@pytest.mark.parametrize(
    "said",
    [
        "For this session, skip the slow tests.", "Für diese Sitzung reicht die kurze Ausgabe.",
        "Pour cette session seulement, saute les tests.", "Por esta vez usa la base local.",
        "这次就不用写测试了。", "今回は英語で答えてくれればいいです。",
    ],
)  # fmt: skip
async def test_what_holds_for_one_session_is_not_kept(said):
    assert await operations(said, "own") == ()
