"""`Forget that …` in plain prose: the entry goes, and does not come back."""

import pytest
from fakes.classifier import Two, add, say
from fakes.knowledge import editor_of
from fakes.waiting import until

from ouro.memory.long_term import all_entries, remember_text
from ouro.memory.long_term.capture.forget_requests import (
    find_requests,
    forget_requested,
    is_forgotten,
)
from ouro.memory.long_term.capture.observer import forget_line
from ouro.memory.long_term.capture.session_parts import Spoken
from ouro.memory.long_term.capture.small_model import statements_in
from ouro.memory.long_term.notes.note import Note
from ouro.utils.ouro_paths import get_memory_dir

REQUESTS = [
    ("I work from home on Fridays.", "Forget that I work from home on Fridays."),
    ("Je travaille à la maison le vendredi.", "Oublie que je travaille à la maison le vendredi."),
    ("Trabajo desde casa los viernes.", "Olvida que trabajo desde casa los viernes."),
    ("Ich arbeite freitags von zu Hause.", "Vergiss, dass ich freitags von zu Hause arbeite."),
    ("Lavoro da casa il venerdì.", "Dimentica che lavoro da casa il venerdì."),
    ("Trabalho de casa às sextas-feiras.", "Esqueça que eu trabalho de casa às sextas-feiras."),
    ("W piątki pracuję z domu.", "Zapomnij, że w piątki pracuję z domu."),
    ("Cuma günleri evden çalışıyorum.", "Cuma günleri evden çalıştığımı unut."),
    ("金曜日は在宅で仕事をします。", "金曜日に在宅で仕事をすることは忘れてください。"),
    ("我周五在家办公。", "忘掉我周五在家办公这件事。"),
    ("मैं शुक्रवार को घर से काम करता हूँ।", "भूल जाओ कि मैं शुक्रवार को घर से काम करता हूँ।"),
]


@pytest.fixture
def editor(home, repository):
    return editor_of(home / ".ouro", repository)


def texts(editor):
    return [entry.text for entry in all_entries(editor)]


@pytest.mark.parametrize(("remembered", "said"), REQUESTS)
def test_entry_that_the_user_asks_to_forget_goes(editor, remembered, said):
    remember_text(editor, f"user {remembered}")
    remember_text(editor, "user I drink tea")

    forget_requested(editor, find_requests([Spoken(1, "user", said)]))

    assert texts(editor) == ["I drink tea"]
    assert list(statements_in(said)) == []
    assert is_forgotten(remembered, [Spoken(1, "user", remembered), Spoken(3, "user", said)])


@pytest.mark.parametrize(
    "said",
    [
        "Forget that.",
        "Forget that I drink coffee at home.",
        "Forget that I never work from home on Fridays.",
        "Don't forget that I work from home on Fridays.",
        "I forgot that I work from home on Fridays.",
    ],
)
def test_other_entries_stay(editor, said):
    remember_text(editor, "user I work from home on Fridays")

    forget_requested(editor, find_requests([Spoken(1, "user", said)]))

    assert texts(editor) == ["I work from home on Fridays"]


def test_entries_that_are_named_equally_and_differ_stay(editor):
    remember_text(editor, "user The red team tests billing on Fridays")
    remember_text(editor, "user The blue team tests billing on Fridays")

    forget_requested(
        editor, find_requests([Spoken(1, "user", "Forget that the team tests billing on Fridays")])
    )

    assert len(texts(editor)) == 2


def test_what_is_said_again_after_the_request_is_not_forgotten():
    fact, request = "I work from home on Fridays.", "Forget that I work from home on Fridays."
    spoken = [Spoken(number, "user", text) for number, text in enumerate([fact, request, fact])]
    assert not is_forgotten(fact, spoken)
    assert is_forgotten(fact, spoken[:2])


def test_line_that_a_statement_replaces_goes_in_its_scope_only(editor):
    editor.write("user", {"facts.md": "- Tabs, not blanks\n"}, "Fill")
    editor.write("repo", {"facts.md": "- Tabs, not blanks\n"}, "Fill")
    forget_line(editor, Note(id="line_1", scope="user", text="Tabs, not blanks"))
    assert [entry.scope for entry in all_entries(editor)] == ["repo"]


def test_statement_beside_a_request_to_forget_something_else_is_captured():
    fact = "Deploy to staging with Fly on Mondays."
    spoken = [Spoken(1, "user", f"Forget that I work from home on Fridays. {fact}")]
    assert not is_forgotten(fact, spoken)
    assert is_forgotten(fact, [Spoken(1, "user", f"{fact} Forget that I said this.")])


async def test_request_in_a_session_removes_the_line_and_capture_does_not_write_it(
    editor, repository
):
    fact, memory = "I work from home on Fridays", get_memory_dir()
    for text in (fact, "I drink tea"):
        remember_text(editor, f"user {text}")
    two = Two([add(fact, "user-facts")])
    session = await two.open(repository)
    await say(session, f"Forget that {fact}.", "From now on always answer in German.")
    await until(lambda: two.captures and fact not in (memory / "facts.md").read_text())
    await session.close()

    assert (memory / "facts.md").read_text() == "- I drink tea\n"
    assert not list(memory.glob("mem_*.md"))


async def test_what_was_said_before_the_request_is_not_captured(home, repository):
    fact = "I work from home on Fridays"
    two = Two([add(fact, "user-facts")])
    session = await two.open(repository)
    await say(session, f"{fact}.", f"Forget that {fact}.", "From now on always answer in German.")
    await until(lambda: two.captures)
    await session.close()

    assert not list(get_memory_dir().glob("*.md"))
