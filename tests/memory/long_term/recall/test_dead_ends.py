"""Dead ends: what was tried, failed and was undone is noted after the turn, and comes with the tool
result that repeats it.
"""

import asyncio
from collections import Counter

import pytest

from ouro.assemble import Options, opener
from ouro.display import FileChange
from ouro.errors import ModelError, SecretInMemory
from ouro.events import NoteKept, NotesRecalled, PermissionAsked, Permit
from ouro.llm import ScriptedModel, call
from ouro.memory.long_term.notes.note import DEAD_ENDS, parse_note
from ouro.memory.long_term.recall.attempts import (
    CommandStep,
    DeadEnd,
    EditStep,
    Failure,
    find_undone,
)
from ouro.memory.long_term.recall.dead_ends import DeadEnds, _telling_output_line
from ouro.messages import Context
from ouro.session import OpenRequest

FETCH = "def fetch(url):\n    return get(url)\n"
RETRY = "def fetch(url):\n    for attempt in range(5):\n        return get(url, timeout=attempt)\n"


def run(line):
    return call("shell", command=line)


LOOP = RETRY.partition("\n")[2]


def edit(old="    return get(url)\n", new=LOOP, path="api.py"):
    return call("edit", path=path, old_text=old, new_text=new)


FAIL = run("python check.py")
"""Fails as long as the file has a loop."""


@pytest.fixture
def project(repository, git):
    (repository / "api.py").write_text(FETCH)
    check = "import sys\ntext = open('api.py').read()\nsys.exit('api.py: too slow' if 'range' in text else 0)\n"
    (repository / "check.py").write_text(check)
    git("add", ".")
    git("commit", "-qm", "begin")
    return repository


@pytest.fixture
def git(repository):
    import subprocess

    def run_git(*arguments):
        subprocess.run(["git", "-C", str(repository), *arguments], check=True)

    return run_git


async def opened(project, *script, **options):
    model = ScriptedModel([*script])
    settings = {
        "permissions.mode": "auto",
        "memory.capture": False,
        "sessions.titles": False,
        **options.pop("settings", {}),
    }
    options = {"trust": True, "interactive": True, **options}
    session = await opener(Options(project, settings, ready_model=model, **options))(OpenRequest())
    return session, model


async def settle(session):
    """Wait for what was started in the background."""
    await session.session_memory.wait_until_settled()
    names = {"dead ends", "confirm notes"}
    while busy := [task for task in asyncio.all_tasks() if task.get_name() in names]:
        await asyncio.wait(busy)


def noted(project):
    """The texts of the dead ends in the files."""
    found = []
    for path in sorted((project / ".ouro" / "memory").glob("mem_*.md")):
        note = parse_note(path.name, path.read_text()).note
        if note.category == DEAD_ENDS:
            found.append(note.text)
    return found


async def turn(session, text="go on"):
    events = []
    async for event in session.send(text):
        events.append(event)
        if isinstance(event, PermissionAsked):  # what discards changes is asked about
            session.answer(event.question_id, Permit("yes"))
    await settle(session)
    return events


async def close(session):
    await session.close()
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)


def reminders(model):
    """What ouro added to the tool results of all requests, about dead ends."""
    texts = [
        part.text
        for message in model.requests[-1].messages
        for part in message.parts_of(Context)
        if "was tried before, failed and was undone" in part.text
    ]
    return "\n".join(texts)


UNDONE = "Tried and undone: a change of `api.py`. `python check.py` failed with exit code 1."


@pytest.mark.parametrize(
    "undo",
    [
        run("git checkout -- api.py"),
        run("git restore api.py"),
        run("git reset -q --hard"),
        run("git stash -q"),
        call(
            "edit",
            path="api.py",
            old_text=LOOP,
            new_text="    return get(url)\n",
        ),
        call("write", path="api.py", content=FETCH),
    ],
)
async def test_change_that_failed_and_was_undone_in_the_turn_is_noted(project, undo):
    read = call("read", path="api.py")
    session, _ = await opened(project, read, edit(), FAIL, undo, FAIL, "It did not work.")
    await turn(session)
    assert noted(project) == [UNDONE]
    await close(session)


async def test_change_that_the_next_turn_undoes_is_noted(project):
    read = call("read", path="api.py")
    session, _ = await opened(
        project, read, edit(), FAIL, "It fails.", run("git checkout api.py"), "Undone."
    )
    await turn(session)
    assert noted(project) == []
    await turn(session, "das war falsch, mach es rückgängig")
    assert noted(project) == [UNDONE]
    await close(session)


async def test_new_file_that_is_removed_after_a_failure_is_noted(project):
    write = call("write", path="cache.py", content="def cached():\n    raise SystemError\n")
    failing = run("python -m cache_check")
    session, _ = await opened(project, write, failing, run("rm cache.py"), "Removed.")
    await turn(session)
    assert noted(project) == [
        "Tried and undone: a change of `cache.py`. `python -m cache_check` failed with exit code 1."
    ]
    await close(session)


async def test_ordinary_turns_make_no_dead_end(project):
    """A test that fails and passes after another edit; a lookup that fails; an undone change
    without a failure.
    """
    read, again = call("read", path="api.py"), edit("range(5)", "[1, 2]")
    script = [read, edit(), FAIL, again, FAIL, "It passes now."]
    script += [
        edit("[1, 2]", "[1, 2, 3]"),
        run("grep nothing api.py"),
        edit("[1, 2, 3]", "[1, 2]"),
        "Ok.",
    ]
    script += [edit("[1, 2]", "[4]"), run("git stash -q"), FAIL, run("git stash pop -q"), "Ok."]
    session, _ = await opened(project, *script)
    for _ in range(3):
        await turn(session)
    assert noted(project) == []
    await close(session)


async def test_undo_by_the_user_after_a_failure_or_with_a_reason_is_noted(project):
    read = call("read", path="api.py")
    session, _ = await opened(
        project, read, edit(), FAIL, "It fails.", edit(), "Done.", edit(), "Done."
    )
    await turn(session)
    await session.rewind.undo()
    await settle(session)
    assert noted(project) == [UNDONE]
    await turn(session)
    await session.rewind.undo()
    await settle(session)
    assert len(noted(project)) == 1  # nothing failed, and no reason was given
    await close(session)


async def test_reason_of_the_user_is_kept_in_any_language(project):
    write = call("write", path="neu.py", content="x = 1\n")
    session, _ = await opened(project, write, "Fertig.")
    await turn(session)
    await session.rewind.undo(reason="ログインが遅くなった")
    await settle(session)
    assert noted(project) == [
        "Tried and undone: a change of `neu.py`. The user undid it: “ログインが遅くなった”"
    ]
    await session.rewind.redo()
    await settle(session)
    assert noted(project) == []  # it was done again: no dead end
    await close(session)


def two_found(monkeypatch):
    """Let each search find two dead ends."""
    found = []
    for name in ("one.py", "two.py"):
        edits = (EditStep(0, name, FileChange(name, None, "x = 1\n")),)
        found.append(DeadEnd(1, edits, reason="too slow"))
    monkeypatch.setattr(DeadEnds, "_find_dead_ends", lambda *_, **__: found)
    return found


async def test_dead_end_that_cannot_be_kept_hides_no_other(project, monkeypatch):
    first, _ = two_found(monkeypatch)
    write_note = DeadEnds._write_note

    def refuse_first(dead_ends, dead_end):
        if dead_end is first:
            raise SecretInMemory("one.py holds a secret")
        return write_note(dead_ends, dead_end)

    monkeypatch.setattr(DeadEnds, "_write_note", refuse_first)
    session, _ = await opened(project, "Done.")
    session.session_memory.recall.dead_ends.on_files_undone([], 1, "too slow")
    await settle(session)
    assert len(noted(project)) == 1
    await close(session)


async def test_redo_archives_the_notes_that_are_left(project, monkeypatch):
    two_found(monkeypatch)
    session, _ = await opened(project, "Done.")
    session.session_memory.recall.dead_ends.on_files_undone([], 1, "too slow")
    await settle(session)
    removed, _ = sorted((project / ".ouro" / "memory").glob("mem_*.md"))
    removed.unlink()
    session.session_memory.recall.dead_ends.on_files_redone()
    await settle(session)
    assert noted(project) == []
    await close(session)


async def test_same_change_in_a_later_session_brings_the_note_once_with_its_result(project):
    read = call("read", path="api.py")
    first, _ = await opened(project, read, edit(), FAIL, run("git checkout -q api.py"), "No.")
    await turn(first)
    await close(first)

    other = edit(new="    return get(url) or b''\n")
    again = edit("    return get(url) or b''\n")
    session, model = await opened(
        project,
        FAIL,
        read,
        other,
        again,
        FAIL,
        "Done.",
        run("git checkout -q ."),
        read,
        edit(),
        "Ok.",
    )
    events = await turn(session, "make it faster")

    [receipt] = [event for event in events if isinstance(event, NotesRecalled)]
    [item] = receipt.items
    assert (item.state, item.reason, receipt.way) == ("loaded", "tried before, and undone", "touch")
    before = [
        request
        for request in model.requests[:4]
        for message in request.messages
        if any("was tried before" in part.text for part in message.parts_of(Context))
    ]
    assert before == []  # neither with the message, nor with a test, nor with another change
    assert UNDONE in reminders(model)
    assert not [e for e in await turn(session) if isinstance(e, NotesRecalled)]
    await close(session)


async def test_file_that_is_only_read_or_changed_in_another_way_brings_nothing(project):
    read = call("read", path="api.py")
    first, _ = await opened(project, read, edit(), FAIL, run("git checkout -q api.py"), "No.")
    await turn(first)
    await close(first)
    other = edit(new="    with session() as opened:\n        return opened.get(url)\n")
    session, _ = await opened(project, read, other, FAIL, "Done.")
    events = await turn(session, "how does api.py fetch?")
    assert not [event for event in events if isinstance(event, NotesRecalled)]
    await close(session)


async def test_same_dead_end_a_second_time_confirms_the_note(project):
    read, undo = call("read", path="api.py"), run("git checkout -q api.py")
    for _ in range(2):
        session, _ = await opened(project, read, edit(), FAIL, undo, "No.")
        await turn(session)
        await close(session)
    assert len(noted(project)) == 1


async def test_command_that_changed_a_file_is_noted_and_recognized(project):
    change = run("sed -i 's/get/range/' api.py")
    session, _ = await opened(project, change, FAIL, run("git checkout -q -- api.py"), "No.")
    await turn(session)
    assert noted(project) == [
        "Tried and undone: the command `sed …`. `python check.py` failed with exit code 1."
    ]
    await close(session)
    later, model = await opened(project, change, FAIL, "Again.")
    await turn(later)
    assert "python check.py" in reminders(model)
    await close(later)


BACK = {
    "a copy": ("cp api.py old.txt; python change.py", "cp old.txt api.py; rm old.txt"),
    "a script": ("python change.py", "python change.py back"),
    "git": ("python change.py", "git checkout -q ."),
    "a rename": ("mv api.py old.txt; python change.py old.txt api.py", "mv old.txt api.py"),
}


@pytest.fixture
def changing(project, git):
    """A project with a script that changes `api.py`, so that no command names the file."""
    script = "import sys\nsource, target = [*sys.argv[1:], 'api.py', 'api.py'][:2]\n"
    script += (
        "new = ['get', 'range']\nif sys.argv[1:] == ['back']:\n    source = target = 'api.py'\n"
    )
    script += "    new.reverse()\ntext = open(source).read().replace(*new)\nopen(target, 'w').write(text)\n"
    (project / "change.py").write_text(script)
    git("add", ".")
    git("commit", "-qm", "script")
    return project


@pytest.mark.parametrize("way", BACK)
async def test_change_by_a_command_counts_however_it_went_back(changing, way):
    change, back = BACK[way]
    session, _ = await opened(changing, run(change), FAIL, run(back), FAIL, "It did not work.")
    await turn(session)
    [note] = noted(changing)
    assert note.endswith("`python check.py` failed with exit code 1.")
    assert note.startswith("Tried and undone: the command `")
    await close(session)


async def test_change_by_a_command_that_the_user_undoes_between_turns_is_noted(changing):
    session, model = await opened(changing, run("python change.py"), FAIL, "It fails.", "Ok.")
    await turn(session)
    assert noted(changing) == []
    (changing / "api.py").write_text(FETCH)
    await turn(session)
    assert noted(changing) == [
        "Tried and undone: the command `python change.py`."
        " `python check.py` failed with exit code 1."
    ]
    await close(session)
    later, model = await opened(changing, run("python change.py"), FAIL, "Again.")
    await turn(later)
    assert "python check.py" in reminders(model)
    await close(later)


async def test_commands_that_leave_the_files_or_end_well_are_no_dead_end(changing):
    script = [run("python no_such.py"), FAIL, run("python -m no_such"), "Nothing changed."]
    script += [run("python change.py"), FAIL, run("sed -i 's/range/[1]+/' api.py"), FAIL, "Passes."]
    session, _ = await opened(changing, *script)
    for _ in range(2):
        await turn(session)
    assert noted(changing) == []
    await close(session)


async def test_nothing_is_noted_with_commands_off(project):
    script = [call("read", path="api.py"), edit(), FAIL, run("git checkout -q api.py"), "No."]
    session, _ = await opened(project, *script, settings={"memory.commands": False})
    await turn(session)
    await close(session)
    assert noted(project) == []


async def test_a_session_without_a_user_writes_the_note_before_it_ends(project):
    script = [call("read", path="api.py"), edit(), FAIL, run("git checkout -q api.py"), "No."]
    session, _ = await opened(project, *script, interactive=False)
    async for event in session.send("go on"):
        if isinstance(event, PermissionAsked):
            session.answer(event.question_id, Permit("yes"))
    await session.session_memory.wait_until_settled()  # as `ouro -p` does
    assert noted(project) == [UNDONE]
    await close(session)


@pytest.mark.parametrize(
    ("output", "kept"),
    [
        (
            'Traceback (most recent call last):\n  File "api.py", line 3, in fetch\n'
            "    return get(url)\nTypeError: get() takes no timeout\n",
            "TypeError: get() takes no timeout",
        ),
        ("api.js broke\n    at fetch (api.js:3:9)\n    at run (api.js:9:1)\n", "api.js broke"),
        (
            "error[E0382]: use of moved value\n  --> src/api.rs:3:9\n",
            "error[E0382]: use of moved value",
        ),
        ("api.py:3: AssertionError\n1 failed\n", "api.py:3: AssertionError"),
    ],
)
def test_the_error_is_kept_of_a_traceback_and_not_its_place(output, kept):
    change = FileChange("api.py", "a", "b")
    failure = Failure("python api.py", 1, "python api.py", output)
    dead_end = DeadEnd(1, (EditStep(1, "c1", change),), (), (failure,))
    assert _telling_output_line(dead_end) == kept


PRINTED = "It printed: “api.py: too slow”"


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ('{"why": "api.py: too slow"}', "Why, by a model: “api.py: too slow”"),
        ('{"why": ""}', PRINTED),
        ('{"why": "The database db2 is down."}', PRINTED),
        ('{"why": "too slow', PRINTED),
        ('{"why": "%s"}' % ("too slow " * 20), PRINTED),
        (ModelError("down"), PRINTED),
    ],
    ids=["printed", "nothing", "not printed", "no JSON", "long", "no model"],
)
async def test_the_sentence_of_a_model_waits_for_approval_if_it_is_from_the_output(
    project, answer, kept
):
    script = [call("read", path="api.py"), edit(), FAIL, run("git checkout -q api.py"), "No."]
    session, model = await opened(project, *script, answer, settings={"memory.capture": True})
    seen = []
    listening = asyncio.create_task(_listen(session, seen))
    await turn(session)
    while not (asked := [e for e in seen if isinstance(e, NoteKept) and e.operation == "propose"]):
        await asyncio.sleep(0.01)
    listening.cancel()
    assert noted(project) == [UNDONE]
    assert [event.text for event in asked] == [f"{UNDONE} {kept}"]
    [system, request] = model.requests[-1].messages
    assert "at most 160" in system.text
    assert "api.py: too slow" in request.text
    await close(session)


async def test_note_is_shown_with_its_undo(project):
    script = [call("read", path="api.py"), edit(), FAIL, run("git checkout -q api.py"), "No."]
    session, _ = await opened(project, *script)
    seen = []
    listening = asyncio.create_task(_listen(session, seen))
    await turn(session)
    await asyncio.sleep(0)
    while not [event for event in seen if isinstance(event, NoteKept)]:
        await asyncio.sleep(0.01)
    listening.cancel()
    first = next(event for event in seen if isinstance(event, NoteKept))
    assert (first.operation, first.category, bool(first.undo)) == ("add", DEAD_ENDS, True)
    await close(session)


async def _listen(session, seen):
    async for event in session.events():
        seen.append(event)


@pytest.mark.parametrize("restore", ["true", "git checkout -q api.py"])
def test_lines_of_a_long_turn_are_parsed_once_each(monkeypatch, restore):
    import ouro.safety

    parsed = Counter()
    parse_line = ouro.safety.parse_line

    def count(line):
        parsed[line] += 1
        return parse_line(line)

    lines = [f"echo {number} > made" for number in range(200)]
    steps = [
        CommandStep(1, f"call {number}", line, 0)
        for number, line in enumerate([*lines, *[restore] * 20])
    ]
    monkeypatch.setattr(ouro.safety, "parse_line", count)
    assert find_undone(steps, lambda _: None) == []
    assert max(parsed[line] for line in lines) <= 4
