"""Touch recall: notes about a file come with the first tool result that used it; commands to a
message.
"""

import asyncio
import itertools
import json
import subprocess

import pytest
from fakes.agents import say

from ouro.assemble import Options, opener
from ouro.events import NotesRecalled
from ouro.llm import ScriptedModel, call
from ouro.memory.long_term.git.files import blob_id
from ouro.memory.long_term.notes.note import Anchor, Note, note_text
from ouro.messages import Context
from ouro.session import OpenRequest
from ouro.utils.ouro_paths import get_command_ledger_dir, get_recall_log_path


@pytest.fixture
def notes(repository):
    """A function that writes notes about api.py into the repository's memory; returns their ids."""
    (repository / "api.py").write_text("PORT = 8080\n")
    folder = repository / ".ouro" / "memory"
    folder.mkdir(parents=True, mode=0o700)

    numbers = itertools.count(1)

    def put(*texts, path="api.py", blob=None):
        ids = []
        for text in texts:
            anchor = Anchor(path, blob or blob_id((repository / path).read_bytes()))
            note = Note(id=f"mem_{next(numbers):08d}", text=text, anchors=(anchor,))
            (folder / note.file_name).write_text(note_text(note))
            ids.append(note.id)
        return ids

    return put


async def opened(repository, *script, **options):
    """A session after its first turn: a note that is written after it counts as the user's."""
    model = ScriptedModel(["Hello.", *script])
    settings = {"permissions.mode": "auto", **options.pop("settings", {})}
    session = await opener(Options(repository, settings, ready_model=model, trust=True, **options))(
        OpenRequest()
    )
    await say(session, "hello there")
    await session.session_memory.wait_until_settled()
    return session, model


async def close_and_wait(session):
    """Close the session, and wait for its background tasks."""
    await session.close()
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)


def added_context(model, request):
    """What ouro appended to the tool results of a request."""
    return "\n".join(
        part.text
        for message in model.requests[request + 1].messages
        for part in message.parts_of(Context)
    )


async def test_notes_about_a_file_come_with_its_first_result_and_receipt(repository, notes):
    edit = call("edit", path="api.py", old_text="8080", new_text="9090")
    session, model = await opened(repository, call("read", path="api.py"), edit, "Done.")
    [port] = notes("The port is fixed by the firewall.")

    receipts = [
        event for event in await say(session, "have a look") if isinstance(event, NotesRecalled)
    ]

    assert "fixed by the firewall" not in added_context(model, 0)
    assert "about files that were just used" in added_context(model, 1)
    assert added_context(model, 2).count("fixed by the firewall") == 1
    [receipt] = receipts
    assert (receipt.way, [(item.id, item.state) for item in receipt.items]) == (
        "touch",
        [(port, "loaded")],
    )
    assert [item.id for item in session.session_memory.recalled.items] == [port]
    assert session.status().memories == 1
    identity = session.id
    await close_and_wait(session)
    resumed = await opener(Options(repository, ready_model=model, trust=True))(
        OpenRequest(resume=identity)
    )
    assert [item.reason for item in resumed.session_memory.recalled.items] == ["about this file"]
    await close_and_wait(resumed)


async def test_a_session_that_is_resumed_in_another_worktree_recalls_by_the_files_there(
    repository, notes, tmp_path
):
    session, _ = await opened(repository)
    notes("The port is fixed by the firewall.")
    await say(session, "hello")
    await close_and_wait(session)
    worktree = tmp_path / "worktree"
    subprocess.run(
        ["git", "-C", str(repository), "worktree", "add", "-q", str(worktree)], check=True
    )
    (worktree / "api.py").write_text("PORT = 8080\n")
    model = ScriptedModel([call("read", path="api.py"), "Done."])
    options = Options(worktree, {"permissions.mode": "auto"}, ready_model=model, trust=True)
    resumed = await opener(options)(OpenRequest(resume=session.id))
    await say(resumed, "have a look")
    assert "fixed by the firewall" in added_context(model, 0)
    await close_and_wait(resumed)


async def test_notes_of_a_turn_share_one_budget(repository, home, notes):
    (home / ".ouro").mkdir(exist_ok=True, mode=0o700)
    (home / ".ouro" / "config.yaml").write_text("memory: {injection_token_budget: 40}\n")
    session, model = await opened(repository, call("read", path="api.py"), "Done.")
    notes("The port is fixed by the firewall.", "The port is in the contract with the shop.")
    [receipt] = [
        event for event in await say(session, "have a look") if isinstance(event, NotesRecalled)
    ]
    assert sorted(item.state for item in receipt.items) == ["cut", "loaded"]
    assert added_context(model, 1).count("mem_0000000") == 2  # the mark, and the note
    await close_and_wait(session)


async def test_other_files_failed_calls_and_untrusted_notes_add_nothing(repository, notes):
    notes("The port is fixed by the firewall.")  # notes that exist at the start are not approved
    script = (
        call("read", path="other.py"),
        call("read", path="gone.py"),
        call("read", path="api.py"),
        "Done.",
    )
    session, model = await opened(repository, *script)
    (repository / "other.py").write_text("x = 1\n")
    notes("The port of gone.py is another.", path="gone.py", blob="0" * 40)
    await say(session, "have a look")
    assert "The port" not in added_context(model, 3)
    await close_and_wait(session)


async def test_use_is_judged_by_the_answer_and_the_file(repository, notes):
    script = call("read", path="api.py"), "It needs optimistic locking and a retry."
    session, model = await opened(repository, *script)
    used, unused = notes("Optimistic locking with a retry.", "The port is agreed with the shop.")
    [stale] = notes("The firewall knows the port.", blob="0" * 40)
    await say(session, "have a look")
    assert added_context(model, 1).count("may be out of date: api.py changed") == 1
    await close_and_wait(session)
    counts = json.loads(get_recall_log_path().read_bytes())
    assert counts["judged"] == {used: 1.5, unused: 1.5, stale: 1.5}
    assert counts["used"] == {used: 1.5, unused: 0.5}


async def test_commands_of_earlier_sessions_are_recalled_when_relevant(repository):
    (repository / "test.sh").write_text("exit 0\n")
    session, _ = await opened(repository, call("shell", command="bash test.sh"), "Done.")
    await say(session, "try it")
    await close_and_wait(session)

    session, model = await opened(repository, "Ok.", "Use it.", "Yes.")
    await say(session, "what a day")
    assert "bash test.sh" not in added_context(model, 0)
    [receipt] = [
        event
        for event in await say(session, "how do I test this?")
        if isinstance(event, NotesRecalled)
    ]
    assert [item.id for item in receipt.items] == ["$ bash test.sh"]
    assert "`bash test.sh` passed 1 time" in added_context(model, 1)
    await say(session, "so how do I test it?")
    assert added_context(model, 2).count("`bash test.sh`") == 1
    await close_and_wait(session)


async def test_setting_disables_recording_commands(repository):
    session, _ = await opened(
        repository,
        call("shell", command="bash --version x.sh"),
        "Done.",
        settings={"memory.commands": False},
    )
    await say(session, "try it")
    await close_and_wait(session)
    assert not get_command_ledger_dir().exists()


async def test_recall_that_is_late_says_so_and_its_notes_come_with_a_tool_result(
    repository, notes, monkeypatch
):
    steps = [call("shell", command="sleep 1"), call("shell", command="sleep 1"), "Done."]
    session, model = await opened(repository, *steps)
    [port] = notes("The port is fixed by the firewall.")
    monkeypatch.setattr("ouro.memory.long_term.recall.turn_recall.LOCAL_TIMEOUT", 0.0)

    said = await say(session, "Which port is fixed by the firewall?")

    receipts = [event for event in said if isinstance(event, NotesRecalled)]
    assert [(receipt.way, len(receipt.items)) for receipt in receipts] == [
        ("timeout", 0),
        ("late", 1),
    ]
    assert "fixed by the firewall.\n" not in model.requests[1].messages[-1].text
    assert added_context(model, 2).count("The port is fixed by the firewall.") == 1
    assert [item.id for item in session.session_memory.recalled.items] == [port]
    await close_and_wait(session)


DEPLOY = "The script scripts/deploy.sh needs the VPN."
TOX = "Run `tox -e unit` before a commit, the other environments take an hour."


def run(line):
    return call("shell", command=line)


async def test_note_that_names_a_script_comes_with_the_result_of_its_run_once(repository, notes):
    (repository / "scripts").mkdir()
    (repository / "scripts" / "deploy.sh").write_text("exit 1\n")
    script = [run("echo scripts/deploy.sh"), run("bash scripts/deploy.sh"), "No VPN."]
    session, model = await opened(repository, *script, run("bash scripts/deploy.sh"), "Again.")
    notes(DEPLOY, TOX)

    events = [e for e in await say(session, "hello again") if isinstance(e, NotesRecalled)]

    assert DEPLOY not in added_context(model, 1)
    assert added_context(model, 2).count(DEPLOY) == 1
    assert "about commands that were just run" in added_context(model, 2)
    [receipt] = events
    assert [item.reason for item in receipt.items] == ["about this command"]
    await say(session, "hello once more")
    assert added_context(model, 4).count(DEPLOY) == 1
    await close_and_wait(session)


async def test_note_about_another_command_of_the_program_stays_away(repository, notes):
    session, model = await opened(repository, run("tox -e docs"), run("tox -e unit -q"), "Done.")
    notes(DEPLOY, TOX)
    await say(session, "hello again")
    assert TOX not in added_context(model, 1)
    assert TOX in added_context(model, 2)
    await close_and_wait(session)
