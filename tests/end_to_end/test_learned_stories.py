"""The use cases of notes: stated in one session, captured automatically, and sent to the model in a
later one.
"""

import subprocess

import pytest
from fakes.classifier import TwoVoices, add, content, place
from fakes.model_server import Call
from fakes.ouro_program import Talk

from ouro.memory.long_term.notes.note import parse_note

SUMMARY = "## Decisions\nHow user updates lock was decided, and why it changed."


@pytest.fixture
def voices(ouro):
    """The main model, which agrees to everything, and the classifier."""
    voices = TwoVoices(talk=lambda _request: "Understood.")
    ouro.server.script(voices)
    return voices


def open_wide_screen(ouro):
    """A screen on which the message about a note is one line."""
    return ouro.screen(size=(30, 140))


def cadence(ouro, turns):
    (ouro.home / "config.yaml").write_text(f"memory: {{cadence_turns: {turns}}}\n")


def last_words(request):
    return content(request.messages[-1])


def notes(folder):
    """The notes of a folder, by text."""
    found = [parse_note(path.name, path.read_text()).note for path in folder.glob("mem_*.md")]
    return {note.text: note for note in found}


def of_user(ouro):
    return notes(ouro.home / "memory")


def of_repository(folder):
    return notes(folder / ".ouro" / "memory")


def test_preference_captured_in_one_repository_is_known_in_another(ouro, voices, tmp_path):
    """Captured after a turn. A later session shows its source, also in another repository."""
    cadence(ouro, 1)
    text = "Answers in German, code comments in English."
    voices.answer = [add(text, "coding-preferences")]
    screen = open_wide_screen(ouro)
    screen.say("please answer in german but keep the code comments in english")
    screen.until_shows(f"Remembered (user): {text} · /memory undo ")
    screen.leave()

    screen = open_wide_screen(ouro)
    screen.say("what is a closure?")
    screen.until_shows("Understood.")
    assert f"- {text}" in content(voices.said[-1].messages[0])
    screen.send("\x19")
    screen.until_shows("Answers in German", "user/preferences.md")
    screen.send("\x1b")
    screen.until_gone("[receipt]")
    assert screen.leave() == 0
    assert (of_user(ouro), (ouro.home / "memory" / "preferences.md").read_text()) == (
        {},
        f"- {text}\n",
    )

    first, ouro.folder = ouro.folder, tmp_path / "other"
    ouro.folder.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=ouro.folder, check=True)
    ouro.headless("-p", "write a function")
    assert f"- {text}" in content(voices.said[-1].messages[0])
    assert (of_repository(first), of_repository(ouro.folder)) == ({}, {})


def test_project_convention_is_captured_later_and_recalled(ouro, voices):
    """Stated in a run that captures nothing; the next session captures it, and the one after that
    recalls it.
    """
    text = "Every handler in api.py is tested by `pytest tests/test_api.py`."
    voices.answer = [add(text)]
    assert (
        ouro.headless(
            "-p", "in this repo every handler in api.py is tested by tests/test_api.py"
        ).code
        == 0
    )
    assert voices.asked == []

    screen = open_wide_screen(ouro)
    screen.say("good morning")
    screen.until_shows(f"): remembered (repo): {text.replace('`', '')}", "/memory undo")
    screen.leave()
    talk = Talk(ouro)
    note = of_repository(ouro.folder)[text]
    assert talk.say("add a handler for goodbye to api.py") == {note.id: "loaded"}
    talk.end()

    assert note.trigger == "session-end"
    assert f"[{note.id}] (repo · project-conventions · " in voices.last
    assert text in voices.last


def test_twice_reversed_decision_is_recalled_with_its_versions(ouro, voices):
    """Captured from an earlier session, reversed before a compaction, and reversed again before the
    end.
    """
    first = "User updates in users.py take row locks."
    second = "User updates use optimistic locking: row locks timed out under load."
    third = "User updates take row locks again, with a timeout of 50 ms: retries starved."

    def answer(asked):
        said = asked.partition("The session, quoted")[2]
        if "retries starved" in said:
            return [
                {
                    "op": "supersede",
                    "target": place(asked, second),
                    "text": third,
                    "said_by": "user",
                }
            ]
        if "timed out" in said:
            return [
                {
                    "op": "supersede",
                    "target": place(asked, first),
                    "text": second,
                    "said_by": "user",
                }
            ]
        return [add(first, "architectural-decisions")]

    voices.answer = answer
    asks_for_summary = "Write a summary that replaces it"
    voices.talk = lambda request: (
        SUMMARY if asks_for_summary in last_words(request) else "Understood. " * 300
    )
    ouro.headless("-p", "we decided it: user updates in users.py take row locks")
    screen = open_wide_screen(ouro)
    screen.say("good morning")
    screen.until_shows(f"): remembered (repo): {first}")
    screen.say(
        "row locks of user updates timed out under load. so optimistic locking for user updates"
    )
    screen.until(lambda: len(voices.said) == 3)
    screen.until_shows("↑300")
    screen.say("/compact")
    screen.until_shows("Use this summary instead of the older messages?", "❯ 1 Use it")
    screen.press("\r", lambda: not screen.shows("❯ 1 Use it"))
    screen.until_shows(
        "Remembered, replaced (repo): User updates use optimistic locking", "/memory undo"
    )
    screen.say(
        "retries starved user updates. so row locks for user updates again, with a timeout of 50 ms"
    )
    screen.until(lambda: len(voices.said) == 5)
    screen.leave()

    screen = open_wide_screen(ouro)
    screen.say("good morning again")
    screen.until_shows(
        "): remembered, replaced (repo): User updates take row locks again", "/memory undo"
    )
    screen.leave()
    talk = Talk(ouro)
    now = of_repository(ouro.folder)[third]
    assert talk.say("which locking do user updates use?") == {now.id: "loaded"}
    talk.end()

    sent = voices.last
    assert [
        note.trigger
        for note in sorted(of_repository(ouro.folder).values(), key=lambda note: note.version)
    ] == [
        "session-end",
        "compaction",
        "session-end",
    ]
    assert sent.count("[mem_") == 1
    assert f"[{now.id}] (repo · architectural-decisions · the user said, " in sent
    assert f"changed 2 times) {third}" in sent
    assert sent.index(third) < sent.index(f"): {second}") < sent.index(f"): {first}")


def test_a_correction_is_applied_in_a_later_session(ouro, voices):
    """The model edits a generated file and the user corrects it; in a later session the model uses
    the generator.
    """
    (ouro.folder / "schema.py").write_text("TABLES = []\n")
    text = "Do not edit schema.py by hand: it is generated by `make schema`."
    voices.answer = lambda asked: [add(text, "corrections")] if "never edit" in asked else []

    def talk(request):
        if request.results or "column" not in last_words(request):
            return "Understood."
        if text in str(request.messages):
            return Call("shell", {"command": "echo made by make schema"})
        return Call("shell", {"command": "echo by hand > schema.py"})

    voices.talk = talk
    session = Talk(ouro, "--mode", "auto")
    session.say("add a column to schema.py")
    assert "by hand" in (ouro.folder / "schema.py").read_text()
    session.say("no, never edit schema.py by hand, it is generated by make schema")
    session.end()
    (ouro.folder / "schema.py").write_text("TABLES = []\n")

    screen = open_wide_screen(ouro)
    screen.say("good morning")
    screen.until_shows(f"): remembered (repo): {text.replace('`', '')}", "/memory undo")
    screen.leave()
    session = Talk(ouro, "--mode", "auto")
    session.say("add another column to schema.py")
    session.end()

    assert f"| - {text} ⟨" in str(voices.said[-1].messages)  # a line of the core
    assert voices.said[-1].results[0].startswith("made by make schema")
    assert "by hand" not in (ouro.folder / "schema.py").read_text()


def test_contradiction_can_apply_to_this_project_only(ouro, voices, tmp_path):
    cadence(ouro, 1)
    old, new = "Writes commit messages in German.", "Writes commit messages in English."

    def answer(asked):
        if target := place(asked, old):
            return [{"op": "contradict", "target": target, "text": new, "said_by": "user"}]
        return [add(old, "coding-preferences")]

    voices.answer = answer
    screen = open_wide_screen(ouro)
    screen.say("i write commit messages in german")
    screen.until_shows(f"Remembered (user): {old} · /memory undo ")
    screen.say("now commit messages in english please")
    screen.until_shows("Which one holds?", "the new one is for this project")
    screen.press("4", lambda: not screen.shows("Which one holds?"))
    screen.until_shows(f"preferences.md: + {new}")
    assert screen.leave() == 0

    here, everywhere = ouro.folder / ".ouro" / "memory", ouro.home / "memory"
    lines = [(folder / "preferences.md").read_text() for folder in (here, everywhere)]
    assert (lines, notes(here), notes(everywhere)) == ([f"- {new}\n", f"- {old}\n"], {}, {})
    said = {}
    for name in ("here", "elsewhere"):
        ouro.headless("-p", "in which language are commit messages written?")
        said[name] = content(voices.said[-1].messages[0])
        ouro.folder = tmp_path / "elsewhere"
        ouro.folder.mkdir(exist_ok=True)
    assert (new in said["here"], new in said["elsewhere"], old in said["elsewhere"]) == (
        True,
        False,
        True,
    )
