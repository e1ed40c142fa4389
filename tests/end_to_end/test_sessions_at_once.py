"""Three processes use one home while notes are captured, edited and pulled, and the cache is
deleted.
"""

import shutil

from fakes.classifier import TwoVoices, add
from fakes.files import git
from fakes.ouro_program import Talk

from ouro.memory.long_term.notes.note import Note, note_text

NOW = "2026-11-01T10:00:00Z"
BREAD = Note(
    id="mem_00000001",
    created_at=NOW,
    scope="user",
    text="Sourdough loaves rise for fourteen hours.",
)
LOCKS = Note(
    id="mem_00000002",
    created_at=NOW,
    scope="user",
    text="Optimistic locking for user updates everywhere.",
)
TOX = "Runs the tests of this project with tox."


def delete(folder):
    """Delete a folder, even if a process writes into it."""
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


def test_concurrent_processes_recall_correct_notes_at_the_next_turn(ouro, tmp_path):
    (ouro.home / "config.yaml").write_text("memory: {cadence_turns: 1}\n")
    voices = TwoVoices(talk=lambda _request: "Understood.")
    voices.answer = lambda asked: [add(TOX, "patterns")] if "tox for the tests" in asked else []
    ouro.server.script(voices)
    own, cache = ouro.home / "memory", ouro.home / "cache"
    own.mkdir(mode=0o700)
    screen, talks = ouro.screen(), [Talk(ouro), Talk(ouro)]

    def send_to_all(question):
        """The requests of the three processes with this question."""
        found = []
        for talk in talks:
            talk.say(question)
            found.append(voices.last)
        count = len(voices.said)
        screen.say(question)
        screen.until(lambda: len(voices.said) > count)
        return [*found, voices.last]

    send_to_all("hello there")
    screen.say("we use tox for the tests of this project")
    screen.until_shows(f"Remembered (repo): {TOX}")  # captured by one of them
    (own / BREAD.file_name).write_text(note_text(BREAD))  # written by hand
    assert all(BREAD.text in each for each in send_to_all("how long do sourdough loaves rise?"))
    delete(cache)  # no note has changed since
    assert all(TOX in each for each in send_to_all("how are the tests of this project run?")[:2])

    git(tmp_path, "clone", "-q", own, "elsewhere")
    (tmp_path / "elsewhere" / LOCKS.file_name).write_text(note_text(LOCKS))
    git(tmp_path / "elsewhere", "add", "-A")
    git(tmp_path / "elsewhere", "commit", "-q", "-m", "learned elsewhere")
    git(own, "pull", "-q", str(tmp_path / "elsewhere"), "HEAD")
    (own / BREAD.file_name).write_text(note_text(BREAD).replace("fourteen", "twenty"))
    delete(cache)
    assert all(LOCKS.text in each for each in send_to_all("optimistic locking for user updates?"))
    for each in send_to_all("sourdough loaves, how long do they rise now?"):
        assert ("rise for twenty hours" in each, "fourteen" in each) == (True, False)

    (own / BREAD.file_name).unlink()
    assert not any(
        "Sourdough" in each
        for each in send_to_all("do sourdough loaves rise at all, and how long?")
    )
    for talk in talks:
        talk.end()
    assert screen.leave() == 0
