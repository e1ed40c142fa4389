"""`kill -9` during maintenance of memory: nothing is lost or done twice, and the next run
continues.
"""

import json
import threading
import time

import pytest
from fakes.classifier import add
from fakes.model_server import Reply
from fakes.stored_sessions import old_session

from ouro.memory.long_term.notes.note import Note, note_text, parse_note
from ouro.memory.long_term.store import repo_store
from ouro.messages import assistant, user
from ouro.utils.ouro_paths import get_history_dir

PAIRS = {
    "pytest": ("Run the tests with pytest -q.", "Tests are run with pytest -q in this project."),
    "ruff": ("Format all code with ruff format.", "All code here is formatted with ruff format."),
    "staging": ("Deploy to staging with make ship.", "One deploys to staging with make ship."),
}


class Work:
    """A subcommand and the notes in the folder. Its model answers the first request and delays the
    second answer.
    """

    def __init__(self, ouro, answer, *command):
        self.ouro, self.command = ouro, ["memory", *command, "--yes"]
        self.folder = ouro.folder / ".ouro" / "memory"
        self.held = threading.Event()
        self.asked: list[str] = []
        """The subjects of the requests, in order."""

        def talk(request):
            about = next(word for word in PAIRS if word in request.prompt)
            self.asked.append(about)
            return Reply(
                json.dumps(answer(about)), hold=self.held if len(self.asked) == 2 else None
            )

        ouro.server.script(talk)

    def kill(self, moment):
        """Run it and kill it, while it waits for the second answer or when it writes that answer."""
        process = self.ouro.begin(*self.command)
        self.ouro.server.wait_asked(2)
        if moment == "writing":
            before = {*self.folder.iterdir()}
            self.held.set()
            while {*self.folder.iterdir()} == before:
                time.sleep(0.0005)
        process.kill()
        process.wait()
        self.held.set()
        self.asked.clear()

    def run(self):
        done = self.ouro.headless(*self.command)
        assert done.code == 0, done.err
        return done.out

    def texts(self, *, archived=False, heads=False):
        """The texts of notes: active notes, archived notes, or only the newest versions."""
        paths = (self.folder / "archive" if archived else self.folder).glob("mem_*.md")
        found = [parse_note(path.name, path.read_text()).note for path in paths]
        superseded = {note.supersedes for note in found} if heads else set()
        return [note.text for note in found if note.id not in superseded]


@pytest.fixture
def similar_notes(ouro):
    """Three pairs of notes with the same meaning."""
    store = repo_store(ouro.folder, get_history_dir(), lambda _text: "")
    for number, text in enumerate(text for pair in PAIRS.values() for text in pair):
        note = Note(
            id=f"mem_{number:08x}",
            text=text,
            category="corrections",
            updated_at=f"2026-11-{number + 1:02}",
        )
        store.save_and_commit({note.file_name: note_text(note)}, "Add", {"Ouro-Origin": "capture"})


@pytest.mark.parametrize("moment", ["thinking", "writing"])
def test_killed_note_merging_continues_without_loss(ouro, similar_notes, moment):
    merged = {about: f"{old} {new}" for about, (old, new) in PAIRS.items()}
    work = Work(
        ouro,
        lambda about: {"op": "supersede", "target": 1, "text": merged[about]},
        "consolidate",
        "--notes",
    )
    work.kill(moment)

    every = {text for pair in PAIRS.values() for text in pair}
    assert every <= {*work.texts(), *work.texts(archived=True)}
    work.run()
    assert len(work.asked) in ((2,) if moment == "thinking" else (1, 2))
    assert sorted(work.texts(heads=True)) == sorted(merged.values())
    assert {new for _, new in PAIRS.values()} <= set(work.texts())
    assert sorted(work.texts(archived=True)) == sorted(old for old, _ in PAIRS.values())
    assert work.run() == "No notes say the same.\n"


@pytest.mark.parametrize("moment", ["thinking", "writing"])
def test_killed_reading_of_old_sessions_continues_without_repeats(ouro, moment):
    for number, (about, (text, _)) in enumerate(PAIRS.items(), 1):
        old_session(
            ouro.folder,
            number,
            40 - number,
            user(f"keep in mind: {text}"),
            assistant(f"I will: {about}."),
        )
    work = Work(ouro, lambda about: [add(PAIRS[about][0], "patterns")], "crystallize")
    work.kill(moment)

    work.run()
    assert work.asked[-1] == "staging"
    assert "pytest" not in work.asked
    assert sorted(work.texts()) == sorted(text for text, _ in PAIRS.values())
    assert work.run() == "Every old session here was already read.\n"
