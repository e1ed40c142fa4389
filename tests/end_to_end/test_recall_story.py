"""Notes are recalled for messages that need them, written by any program: an editor, git, a
package.
"""

import itertools
import json
from datetime import UTC, datetime

import pytest
from fakes.ouro_program import Talk
from msgspec.structs import replace

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
    text="Optimistic locking for user updates, for row locks timed out.",
)


def put(folder, note: Note) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / note.file_name).write_text(note_text(note))


def words(request) -> str:
    """The last message of a request."""
    return json.dumps(request.messages[-1])


@pytest.fixture
def user_folder(ouro):
    """The folder of the user's notes."""
    return ouro.home / "memory"


@pytest.fixture
def repo_folder(ouro):
    """The folder of the repository's notes."""
    return ouro.folder / ".ouro" / "memory"


def test_each_turn_recalls_current_notes_and_keeps_the_prefix(ouro, user_folder):
    talk = Talk(ouro)
    assert talk.say("say: how long do sourdough loaves rise?") == {}

    put(user_folder, BREAD)
    assert talk.say("say: how long do sourdough loaves rise?") == {BREAD.id: "loaded"}
    assert "Sourdough loaves rise for fourteen hours." in words(ouro.server.requests[-1])
    assert talk.say("say: and sourdough loaves of rye?") == {BREAD.id: "skipped"}
    assert "fourteen" not in words(ouro.server.requests[-1])

    (user_folder / BREAD.file_name).write_text(note_text(BREAD).replace("fourteen", "twenty"))
    assert talk.say("say: sourdough loaves, how long do they rise?") == {BREAD.id: "loaded"}
    assert "rise for twenty hours" in words(ouro.server.requests[-1])

    (user_folder / BREAD.file_name).unlink()
    assert talk.say("say: sourdough loaves, how long do they rise?") == {}
    talk.end()

    sent = [json.dumps(request.messages)[:-1] for request in ouro.server.requests]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(sent))


def test_notes_of_the_last_message_are_shown_also_after_a_resume(ouro, user_folder):
    screen = ouro.screen()
    screen.say("say: hello there")
    screen.until_shows("  hello there")
    put(user_folder, BREAD)
    screen.say("say: how long do sourdough loaves rise?")
    screen.until_shows("1 memory · Ctrl+Y")
    screen.until_shows("1 memory", "ask")
    screen.send("\x19")
    screen.until_shows("loaded with the last message", "Sourdough loaves rise", "says")
    screen.send("\x1b")
    screen.until_gone("[receipt]")
    screen.leave()

    again = ouro.screen("--resume", "latest")
    again.until_shows("1 memory · Ctrl+Y")
    again.say("say: sourdough loaves of rye, how long do they rise?")
    again.until_shows("  sourdough loaves of rye, how long do they rise?", "ask")
    again.leave()


def test_notes_that_a_package_planted_wait_for_approval(ouro, repo_folder):
    put(repo_folder, LOCKS)
    talk = Talk(ouro, "--trust")
    assert (
        talk.say("say: optimistic locking for user updates?").get(LOCKS.id, "skipped") == "skipped"
    )
    assert "timed out" not in words(ouro.server.requests[-1])
    talk.say('call: memory_search {"query": "optimistic locking user updates row locks"}')
    assert "row locks timed out" not in words(ouro.server.requests[-1])
    talk.end()


def test_the_tool_finds_notes_and_their_newer_versions(ouro, user_folder):
    talk = Talk(ouro)
    talk.say("say: hello there")
    newer = Note(
        id="mem_00000003",
        created_at=NOW,
        scope="user",
        text="Sourdough loaves rise a day.",
        supersedes=BREAD.id,
    )
    put(user_folder, BREAD)
    put(user_folder, newer)
    talk.say("say: hello again")
    talk.say('call: memory_search {"query": "sourdough loaves rise fourteen hours"}')
    found = words(ouro.server.requests[-1])
    assert "replaced by mem_00000003" in found
    assert "changed 1 time" in found
    talk.end()


def test_a_tentative_note_is_sent_and_listed_as_such(ouro, user_folder):
    talk = Talk(ouro)
    talk.say("say: hello there")
    today = datetime.now(UTC).date().isoformat()
    note = replace(BREAD, source="assistant", confidence=0.5, tentative=today, created_at=today)
    put(user_folder, note)
    assert talk.say("say: how long do sourdough loaves rise?") == {BREAD.id: "loaded"}
    assert f"tentative since {today}" in words(ouro.server.requests[-1])
    talk.end()
    listed = ouro.headless("memory", "list", "tentative")
    assert ("Sourdough loaves rise" in listed.out, "tentative" in listed.out) == (True, True)
    assert ouro.headless("memory", "confirm", BREAD.id).code == 0
    assert "Sourdough" not in ouro.headless("memory", "list", "tentative").out


def test_note_without_search_words_gets_them_in_a_session_and_is_then_found_by_them(
    ouro, user_folder
):
    kept = ouro.headless(
        "memory", "remember", "--scope", "user", "jobs/nacht.sh läuft um drei Uhr früh."
    )
    assert kept.code == 0, kept.err
    [note_file] = user_folder.glob("mem_*.md")
    question = "when is the nightly backup due?"
    assert Talk(ouro).say(f"say: {question}") == {}

    asked = []

    def answer(request):
        system_text = json.dumps(request.messages[0])
        if "Name the search words" not in system_text:
            return "Understood."
        asked.append(json.dumps(request.messages[-1], ensure_ascii=False))
        words_of_note = {"number": 1, "search_words": ["nightly backup", "backup schedule"]}
        return json.dumps({"notes": [words_of_note]})

    ouro.server.script(answer)
    screen = ouro.screen()
    screen.say("good morning")
    screen.until_shows("that lacked them")
    screen.say("and now?")
    screen.until(lambda: screen.text().count("Understood.") == 2)
    assert screen.leave() == 0
    assert "nightly backup" in note_file.read_text()

    # It is found by them, also in a later session, which asks for none again.
    assert Talk(ouro).say(question) == {note_file.stem: "loaded"}
    screen = ouro.screen()
    screen.say("good evening")
    screen.until_shows("Understood.")
    assert screen.leave() == 0
    assert len(asked) == 1
    assert "jobs/nacht.sh läuft um drei Uhr früh." in asked[0]
