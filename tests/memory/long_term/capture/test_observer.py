"""Messages become notes some turns later, in the background, and no turn waits for it."""

from __future__ import annotations

import asyncio
import subprocess
from types import SimpleNamespace

import pytest
from fakes.classifier import Two, add, say, unread_events, wait_until_quiet
from fakes.waiting import until

from ouro.errors import ModelUnavailable, NoteError
from ouro.events import NoteKept, Notice, QuestionAsked, Reply
from ouro.llm import ScriptedReply, call
from ouro.memory.backend import CapturedRecord, CostRecord
from ouro.memory.long_term.capture.observer import CaptureObserver
from ouro.memory.long_term.capture.session_notes import OutdatedNotes
from ouro.memory.long_term.notes.note import Note, parse_note
from ouro.memory.long_term.notes.notebook import WrittenNote
from ouro.utils.ouro_paths import get_config_path, get_memory_dir

TESTS = "Run the tests with pytest -q."
SUMMARY = "## Goal\nRun the tests."


def notes(folder) -> list[Note]:
    found = [parse_note(path.name, path.read_text()).note for path in folder.glob("mem_*.md")]
    return sorted(found, key=lambda note: (note.created_at, note.text))


@pytest.fixture
def repo_notes(repository):
    return lambda: notes(repository / ".ouro" / "memory")


@pytest.fixture
def user_notes():
    return lambda: notes(get_memory_dir())


@pytest.fixture
def settings(home):
    def write(text):
        get_config_path().parent.mkdir(parents=True, exist_ok=True)
        get_config_path().write_text(text)

    write("memory: {cadence_turns: 2}\n")
    return write


async def captured(session) -> list[int]:
    await session.close()
    loaded = await session.memory._store.load_session(session.id, read_only=True)
    return [each.message for each in loaded.records if isinstance(each, CapturedRecord)]


async def test_note_is_captured_after_some_turns_and_reported_with_undo(
    repository, settings, repo_notes
):
    two = Two([add(TESTS, "patterns")])
    session = await two.open(repository)
    await say(session, "hello there, good morning", "run the tests with pytest -q here, always")
    await wait_for_captures(session, two)

    [note] = repo_notes()
    assert (note.text, note.source, note.turn, note.trigger, note.session_id) == (
        TESTS,
        "user",
        2,
        "cadence",
        session.id,
    )
    [told] = [each for each in unread_events(session) if isinstance(each, NoteKept)]
    assert told.session == ""
    assert (told.operation, told.note_id, told.text, told.scope) == ("add", note.id, TESTS, "repo")
    await session.session_memory.manager.undo(told.undo)
    assert repo_notes() == []
    assert await captured(session) == [4]


async def wait_for_captures(session, two, count=1):
    """Wait until the classifier has got `count` requests and no capture is running."""
    await until(lambda: len(two.captures) >= count and not _at_work(session))


def _at_work(session) -> bool:
    return any(each.get_name() == "capture" for each in session.turn.tasks._background)


async def test_what_is_said_after_memory_off_is_not_captured(repository, settings):
    two = Two([add(TESTS, "patterns")])
    session = await two.open(repository)
    session.memory.set_private(is_private=True)
    await say(session, "from now on the tests run with tox", "and so on", "and on")
    session.memory.set_private(is_private=False)
    await say(session, "run the tests with pytest -q here, always", "that is all")
    await wait_for_captures(session, two)
    await session.close()
    said = two.captures[0].partition("The session, quoted")[2]
    assert ("pytest" in said, "tox" in said, len(two.captures)) == (True, False, 1)


async def test_capture_reads_only_new_messages_and_records_its_cost(repository, settings):
    two = Two([add(TESTS, "patterns")])
    session = await two.open(repository)
    await say(session, "run the tests with pytest -q", "thank you very much")
    await wait_for_captures(session, two)
    await say(session, "another thing: the tests with pytest need redis", "and that is all")
    await wait_for_captures(session, two, 2)

    assert ("pytest -q" in two.captures[0], "another thing" in two.captures[0]) == (True, False)
    said = two.captures[1].partition("The session, quoted")[2]
    assert ("pytest -q" in said, "another thing" in said) == (False, True)
    assert TESTS in two.captures[1].partition("The session, quoted")[0]
    await session.close()
    records = (await session.memory._store.load_session(session.id, read_only=True)).records
    assert [each.purpose for each in records if isinstance(each, CostRecord)] == [
        "capture",
        "capture",
    ]
    assert [each.message for each in records if isinstance(each, CapturedRecord)] == [4, 8]


LONG = f"Use pnpm, never npm:{' its cache is old' * 11}"


@pytest.mark.parametrize(
    ("text", "is_note"),
    [
        ("Use pnpm, never npm.", False),
        ("Use pnpm in app.json, never npm.", False),
        (LONG, True),
    ],
)
async def test_repeated_correction_is_offered_as_a_check(
    repository, settings, repo_notes, text, is_note
):
    two = Two([add(text, "corrections")], [{"op": "confirm", "target": 1}])
    session = await two.open(repository)
    await say(session, "no, use pnpm, never npm", "thank you very much")
    await wait_for_captures(session, two)
    [stated] = [event for event in unread_events(session) if isinstance(event, Notice)]
    assert stated.text.startswith(f"Remembered as a prohibition: {text[:100]}")
    await say(session, "again: use pnpm, never npm", "and that is all")
    await wait_for_captures(session, two, 2)
    [offer] = [event for event in unread_events(session) if isinstance(event, Notice)]
    assert len(repo_notes()) == is_note
    command = f"/check {repo_notes()[0].id[:12] if is_note else text}"
    assert offer.text.startswith(f"You have corrected this before: {text[:100]}")
    assert offer.text.endswith(f" · To have it enforced: {command}")
    await session.close()


async def test_lasting_rule_is_captured_right_after_its_turn(repository, settings, repo_notes):
    settings("memory: {cadence_turns: 5}\n")
    two = Two([add(TESTS, "patterns")])
    session = await two.open(repository)
    await say(session, "fix the login test, it must never call the network", "why is it slow?")
    assert two.order == ["talk", "talk"]
    await say(session, "add a test. From now on run the tests with pytest -q.")
    await wait_for_captures(session, two)
    assert [note.text for note in repo_notes()] == [TESTS]
    await say(session, "thank you")
    await wait_for_captures(session, two)
    assert two.order == ["talk", "talk", "talk", "capture", "talk"]
    await session.close()


async def test_hanging_classifier_does_not_delay_the_session(repository, settings):
    held = asyncio.Event()
    two = Two(always=lambda _asked: ScriptedReply("[]", hold=held.wait))
    session = await two.open(repository)
    for number in range(6):
        await say(session, f"this is turn number {number}")
        if number == 1:
            await until(lambda: two.captures)

    assert two.order == ["talk", "talk", "capture", "talk", "talk", "talk", "talk"]
    assert [each for each in unread_events(session) if isinstance(each, NoteKept)] == []
    await session.close()
    assert session.memory.transcript.captured == 0


@pytest.mark.parametrize("bad", [ModelUnavailable("down"), "I am a teapot.", '{"a": ['])
async def test_failures_are_silent_and_the_next_good_answer_catches_up(
    repository, settings, repo_notes, bad, caplog, monkeypatch
):
    monkeypatch.setattr("ouro.llm.model_call.ATTEMPTS", 1)
    two = Two(always=bad)
    session = await two.open(repository)
    await say(session, "run the tests with pytest -q", "thanks")
    await wait_for_captures(session, two)
    await say(session, "one more turn")
    await wait_for_captures(session, two, 2)
    asked = len(two.captures)
    await say(session, "this trigger is passed over")
    assert (len(two.captures), repo_notes(), session.memory.transcript.captured) == (
        asked,
        [],
        0,
    )
    assert unread_events(session) == []
    assert "capture:" in caplog.text

    two.always = [add(TESTS, "patterns")]
    await say(session, "now it works again")
    await wait_for_captures(session, two, asked + 1)
    assert [each.text for each in repo_notes()] == [TESTS]
    assert "run the tests" in two.captures[-1]
    assert await captured(session) == [10]


async def test_failure_without_a_text_is_logged_by_its_name(repository, settings, caplog):
    two = Two()
    session = await two.open(repository)

    def time_out():
        raise TimeoutError

    session.session_memory.capture.make = time_out
    await say(session, "run the tests with pytest -q", "thanks")
    await until(lambda: "capture: " in caplog.text)

    assert "capture: TimeoutError" in caplog.text
    await session.close()


async def test_compaction_captures_the_covered_messages_first(repository, repo_notes):
    two = Two([add(TESTS, "patterns")], replies=["Yes, of course. " * 400, "Yes.", "Yes.", SUMMARY])
    session = await two.open(repository)
    await say(session, "run the tests with pytest -q", "go on", "and on")
    async for _ in session.window.compact(""):
        pass
    await wait_for_captures(session, two)

    [note] = repo_notes()
    assert (note.text, note.trigger) == (TESTS, "compaction")
    await session.close()


async def test_uncaptured_messages_are_captured_at_the_next_start(repository, repo_notes):
    two = Two([add(TESTS, "patterns")])
    first = await two.open(repository)
    await say(first, "run the tests with pytest -q")
    await first.close()
    before = [each.updated_at for each in await first.session_catalog.store.list_sessions()]
    assert two.order == ["talk"]

    second = await two.open(repository)
    await asyncio.sleep(0.05)
    assert two.order == ["talk"]
    await say(second, "hello again, and now the docs")
    await wait_until_quiet(second)

    assert two.order == ["talk", "talk", "capture"]
    [note] = repo_notes()
    assert (note.session_id, note.trigger, note.turn) == (first.id, "session-end", 1)
    [told] = [each for each in unread_events(second) if isinstance(each, NoteKept)]
    assert (told.text, told.session) == (TESTS, first.id)
    assert [each.updated_at for each in await first.session_catalog.store.list_sessions()][
        1:
    ] == before
    assert await captured(first) == [2]
    await second.close()

    third = await two.open(repository)
    await say(third, "and again")
    await wait_until_quiet(third)
    assert "hello again, and" in two.captures[-1]
    assert len(two.captures) == 2
    await third.close()


async def test_at_most_three_closed_sessions_are_caught_up(repository):
    two = Two()
    open_ = await two.open(repository)
    await say(open_, "this one is open in another window")
    for number in range(4):
        one = await two.open(repository, interactive=False)
        await say(one, f"session number {number} has something to say")
        await one.close()
    last = await two.open(repository)
    await say(last, "hello there")
    await wait_until_quiet(last)

    assert [f"number {n}" in text for text, n in zip(two.captures, (3, 2, 1), strict=True)] == [
        True
    ] * 3
    await last.close()
    await open_.close()


@pytest.mark.parametrize(
    "options", [{"memory": False}, {"ephemeral": True}, {"interactive": False}]
)
async def test_nothing_is_captured_without_memory_or_a_user(repository, settings, options):
    two = Two([add(TESTS, "patterns")])
    session = await two.open(repository, **options)
    await say(session, "run the tests with pytest -q", "thanks a lot", "and more")
    await wait_until_quiet(session)
    await session.close()

    assert (session.session_memory.capture, two.captures) == (None, [])


async def test_a_session_without_memory_is_not_captured_later(repository):
    two = Two([add(TESTS, "patterns")])
    private = await two.open(repository, memory=False)
    await say(private, "this is between the two of us")
    await private.close()
    session = await two.open(repository)
    await say(session, "hello")
    await wait_until_quiet(session)
    await session.close()

    assert two.captures == []


async def test_backlog_skips_the_part_said_without_memory(
    repository,
):
    two = Two()
    session = await two.open(repository, memory=False)
    await say(session, "this is between the two of us")
    await session.close()
    session = await two.open(repository, session.id)
    await say(session, "from here on it may be remembered")
    await session.close()
    later = await two.open(repository)
    await say(later, "hello")
    await wait_until_quiet(later)
    await later.close()

    [asked] = two.captures
    assert ["between" in asked, "from here on" in asked] == [False, True]


async def test_only_messages_said_without_memory_are_left_out(repository):
    two = Two()
    ways = [
        ("this may be remembered", True),
        ("this is between the two of us", False),
        ("and this may be again", True),
    ]
    session_id = ""
    for text, memory in ways:
        session = await two.open(repository, session_id, memory=memory, interactive=False)
        session_id = session.id
        await say(session, text)
        await session.close()
    session = await two.open(repository)
    await say(session, "hello")
    await wait_until_quiet(session)
    await session.close()

    [asked] = two.captures
    assert [text in asked for text, _ in ways] == [True, False, True]


async def test_messages_from_before_memory_was_on_are_not_captured(repository, settings):
    two = Two()
    session = await two.open(repository, memory=False)
    await say(session, "this is between the two of us")
    await session.close()
    session = await two.open(repository, session.id)
    await say(session, "from here on it may be remembered", "all that is said here")
    await wait_for_captures(session, two)
    await session.close()

    assert ["between" in two.captures[0], "from here on" in two.captures[0]] == [False, True]


async def test_external_content_makes_proposals_reported_in_one_line(
    repository, settings, repo_notes
):
    concluded = [add("api.py says hello.", by="assistant"), add("It has no tests.", by="assistant")]
    two = Two([], concluded, replies=[call("read", path="api.py"), "It says hello."])
    session = await two.open(repository)
    await say(session, "look at api.py for me please", "thank you for that")
    await wait_for_captures(session, two, 2)

    assert repo_notes() == []
    [told] = [each for each in unread_events(session) if isinstance(each, NoteKept)]
    assert (told.operation, told.text, told.undo) == (
        "propose",
        "api.py says hello. (and 1 more)",
        "",
    )
    first, second = session.session_memory.manager.proposals()
    assert first.sources == ("read api.py",)
    assert first.reason == "“api.py says hello.” was concluded after material from outside was read"
    await session.session_memory.manager.accept(first.id)
    await session.session_memory.manager.reject(second.id)
    assert [each.text for each in repo_notes()] == ["api.py says hello."]
    await session.close()
    again = await two.open(repository)
    assert again.session_memory.manager.proposals() == ()
    await again.close()


@pytest.mark.parametrize(
    ("write", "told", "waiting"), [("ask", ["propose"], 1), ("silent", [], 0), ("tell", ["add"], 0)]
)
async def test_write_setting_tells_asks_or_stays_silent(
    repository, settings, repo_notes, write, told, waiting
):
    settings(f"memory: {{cadence_turns: 1, write: {write}}}\n")
    two = Two([add(TESTS, "patterns")])
    session = await two.open(repository)
    await say(session, "run the tests with pytest -q")
    await wait_for_captures(session, two)

    assert [each.operation for each in unread_events(session) if isinstance(each, NoteKept)] == told
    assert (len(session.session_memory.manager.proposals()), len(repo_notes())) == (
        waiting,
        1 - waiting,
    )
    await session.close()


async def test_later_turn_neither_reports_nor_reverts_a_captured_note(
    repository, settings, repo_notes
):
    settings("memory: {cadence_turns: 1, write: tell}\n")
    wrote = call(
        "write", path=str(get_memory_dir() / "preferences.md"), content="- Answer in German.\n"
    )
    two = Two([add(TESTS, "patterns")], replies=["Yes.", wrote, "Noted."])
    session = await two.open(repository)
    await say(session, "run the tests with pytest -q")
    await wait_for_captures(session, two)
    await say(session, "answer in German from now on")
    await session.session_memory.wait_until_settled()

    changed = [each for each in unread_events(session) if type(each).__name__ == "CoreChanged"]
    assert [each.summary for each in changed] == ["preferences.md: + Answer in German."]
    assert [each.text for each in repo_notes()] == [TESTS]
    assert TESTS not in two.prompts[1][-1].text
    await session.close()


@pytest.mark.parametrize(
    ("answer", "left", "chain"),
    [
        ("keep both", ["Tests run with tox.", TESTS], None),
        ("the new one replaces it", ["Tests run with tox.", TESTS], "old"),
        ("the old one stays", [TESTS], None),
    ],
)
async def test_contradiction_asks_the_user(repository, settings, repo_notes, answer, left, chain):
    settings("memory: {cadence_turns: 1}\n")
    two = Two(
        [add(TESTS, "patterns")],
        [{"op": "contradict", "target": 1, "text": "Tests run with tox.", "said_by": "user"}],
    )
    session = await two.open(repository)
    await say(session, "run the tests with pytest -q")
    await wait_for_captures(session, two)
    [old] = repo_notes()
    await say(session, "in this project the tests run with tox")
    await wait_for_captures(session, two, 2)
    async with asyncio.timeout(30):
        while not (
            asked := [each for each in unread_events(session) if isinstance(each, QuestionAsked)]
        ):
            await asyncio.sleep(0.01)
    assert (asked[0].of_turn, TESTS in asked[0].question.details) == (False, True)
    session.answer(asked[0].question_id, Reply((answer,)))
    await until(lambda: not session.turn.tasks._background)

    assert sorted(each.text for each in repo_notes()) == sorted(left)
    new = [each for each in repo_notes() if each.id != old.id]
    assert [each.supersedes for each in new] == ([old.id if chain else None] if new else [])
    assert not any(edge.relationship == "contradicts" for each in new for edge in each.related)
    await session.close()


async def test_archived_notes_are_shown_if_others_cannot_be_shared():
    note = Note(id="mem_00000001", text=TESTS)

    def share(*_):
        raise NoteError("There is no note `mem_00000002`.")

    async def run(act):
        return act()

    notebook = SimpleNamespace(
        archive=lambda *_: [WrittenNote("archive", note, note.scope)], share=share
    )
    notes = SimpleNamespace(
        find_outdated=lambda: OutdatedNotes([note.id], ["mem_00000002"]),
        relate_core=lambda: None,
        notebook=notebook,
    )
    shown = []
    observer = CaptureObserver(
        memory=None,
        manager=SimpleNamespace(run_under_lock=run),
        make=None,
        session_catalog=None,
        channel=SimpleNamespace(emit=shown.append),
    )
    with pytest.raises(NoteError):
        await observer._archive_and_share(SimpleNamespace(notes=notes))
    assert [event.note_id for event in shown] == [note.id]


async def test_captured_notes_are_undone_with_their_turns(repository, home, settings, repo_notes):
    preferences = home / ".ouro" / "memory" / "preferences.md"
    two = Two([add("I like tabs.", "coding-preferences"), add(TESTS, "patterns")])
    session = await two.open(repository)
    await say(session, "i like tabs, mind you", "run the tests with pytest -q")
    await wait_for_captures(session, two)
    assert (preferences.read_text(), len(repo_notes())) == ("- I like tabs.\n", 1)

    last = session.rewind.points()[-1].number
    assert await session.rewind.describe_undoable(last) == {"memory": "1 change"}
    await session.rewind.rewind(last, ("conversation", "memory"))
    assert (preferences.read_text(), repo_notes()) == ("- I like tabs.\n", [])
    await say(session, "hello again to you", "this is something else")
    await wait_for_captures(session, two, 2)
    assert "pytest" not in two.captures[-1]
    await session.close()


async def test_note_of_a_branch_applies_everywhere_once_merged(repository, settings, repo_notes):
    def git(*arguments):
        subprocess.run(["git", *arguments], cwd=repository, check=True, capture_output=True)

    settings("memory: {cadence_turns: 1}\n")
    git("switch", "-qc", "feature")
    two = Two([add(TESTS, "patterns")])
    session = await two.open(repository)
    await say(session, "run the tests with pytest -q")
    await wait_for_captures(session, two)
    await session.close()
    assert [each.branch for each in repo_notes()] == ["feature"]

    git("commit", "-q", "--allow-empty", "-m", "work")
    git("switch", "-q", "main")
    for is_merged in (False, True):
        if is_merged:
            git("merge", "-q", "feature")
        session = await two.open(repository)
        await say(session, "hello")
        await wait_until_quiet(session)
        told = [
            each
            for each in unread_events(session)
            if isinstance(each, NoteKept) and each.operation == "share"
        ]
        assert ([each.branch for each in repo_notes()], len(told)) == (
            [None if is_merged else "feature"],
            is_merged,
        )
        if told:
            await session.session_memory.manager.undo(told[0].undo)
            assert [each.branch for each in repo_notes()] == ["feature"]
        await session.close()


async def test_unconfirmed_conclusion_is_archived_but_user_note_stays(
    repository, settings, repo_notes
):
    settings("memory: {cadence_turns: 1}\n")
    two = Two([add(TESTS, "patterns"), add("The api is old.", by="assistant")])
    session = await two.open(repository)
    await say(session, "run the tests with pytest -q")
    await wait_for_captures(session, two)
    await session.close()
    folder = repository / ".ouro" / "memory"
    for path in folder.glob("mem_*.md"):
        path.write_text(path.read_text().replace("2026-", "2020-"))
    session = await two.open(repository)
    for each in session.session_memory.manager.proposals():
        await session.session_memory.manager.accept(each.id)
    await say(session, "hello")
    await wait_until_quiet(session)

    assert [each.text for each in repo_notes()] == [TESTS]
    assert [each.text for each in notes(folder / "archive")] == ["The api is old."]
    [told] = [
        each
        for each in unread_events(session)
        if isinstance(each, NoteKept) and each.operation == "archive"
    ]
    assert told.text == "1 note that nothing has confirmed for long: The api is old."
    await session.session_memory.manager.undo(told.undo)
    assert len(repo_notes()) == 2
    await session.close()


async def test_categories_of_the_settings_are_offered_with_their_scopes(
    repository, settings, user_notes
):
    settings("memory: {cadence_turns: 1, categories: {api quirks: [user]}}\n")
    two = Two(
        [
            {
                "op": "add",
                "text": "The billing api wants cents.",
                "category": "API quirks",
                "said_by": "user",
            }
        ]
    )
    session = await two.open(repository)
    await say(session, "note that the billing api wants cents")
    await wait_for_captures(session, two)

    assert "api-quirks" in two.model.requests[-1].messages[0].text
    assert [(each.category, each.scope) for each in user_notes()] == [("api-quirks", "user")]
    await session.close()


async def test_the_settings_can_turn_capture_off(repository, settings):
    settings("memory: {cadence_turns: 1, capture: false}\n")
    two = Two([add(TESTS, "patterns")])
    session = await two.open(repository)
    await say(session, "run the tests with pytest -q")
    assert session.session_memory.capture is None
    assert await captured(session) == []
    assert two.captures == []
