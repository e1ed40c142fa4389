"""One session, assembled as in the program, with a scripted model."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from itertools import chain
from pathlib import Path

import pytest
from fakes.waiting import until
from PIL import Image as Pillow

from ouro.assemble import Options, opener
from ouro.display import CommandOutput, Display, Plain, Todo
from ouro.errors import SessionInUse, SessionNotFound, TrustNeeded, UsageError
from ouro.events import (
    Notice,
    PermissionAsked,
    Permit,
    Prompted,
    QuestionAsked,
    QuestionClosed,
    Replied,
    Reply,
    TodosChanged,
    ToolFinished,
    ToolProgress,
    ToolRunning,
    ToolStarted,
    TurnFinished,
)
from ouro.frontends.file_index import FileIndex
from ouro.llm import ScriptedModel, ScriptedReply, call
from ouro.messages import Context, Image, ToolReply
from ouro.session import Draft, OpenRequest


def make(repository, *script, **options):
    model = ScriptedModel(script)
    return opener(Options(repository, ready_model=model, **options)), model


async def collect(events):
    return [event async for event in events]


async def test_session_is_restored_on_resume(repository):
    open_session, _ = make(
        repository,
        call("todo", todos=[{"text": "look", "state": "done"}, {"text": "mend"}]),
        "Done.",
    )
    session = await open_session(OpenRequest())
    seen = await collect(session.send("plan it"))
    assert TodosChanged((Todo("look", "done"), Todo("mend"))) in seen
    session.rename("the plan")
    await session.close()
    again = await open_session(OpenRequest("latest"))
    assert (again.id, again.title, again.todos) == (
        session.id,
        "the plan",
        (Todo("look", "done"), Todo("mend")),
    )
    shown = [
        type(event)
        for event in again.scrollback.shown_events()
        if not isinstance(event, ToolFinished | ToolStarted)
    ]
    assert shown[0] is Prompted
    assert shown.count(Replied) == 2
    await again.close()


async def test_a_session_can_be_resumed_before_the_index_of_memory_is_up_to_date(
    repository, monkeypatch
):
    open_session, _ = make(repository, "Hello.")
    session = await open_session(OpenRequest())
    await collect(session.send("hi"))
    steps = []

    async def close_index():
        steps.append("the index")

    async def resume():
        again = await open_session(OpenRequest("latest"))
        steps.append(again.id)
        await again.close()

    monkeypatch.setattr(session.session_memory.lookup, "close", close_index)
    await session.close(resume)
    assert steps == [session.id, "the index"]


async def test_an_open_session_cannot_be_opened_twice(repository):
    open_session, _ = make(repository, "Hello.")
    session = await open_session(OpenRequest())
    await collect(session.send("hi"))
    with pytest.raises(SessionInUse):
        await open_session(OpenRequest("latest"))
    await session.close()


async def test_resume_without_a_session_raises(repository):
    open_session, _ = make(repository)
    with pytest.raises(SessionNotFound):
        await open_session(OpenRequest("latest"))


async def test_instructions_are_sent_only_after_the_folder_is_trusted(repository):
    (repository / "AGENTS.md").write_text("Use tabs.")
    open_session, model = make(repository, "Hello.", "Hello.", "Hello.")
    with pytest.raises(TrustNeeded) as raised:
        await open_session(OpenRequest())
    assert raised.value.files == (repository / "AGENTS.md",)
    doubtful = await open_session(OpenRequest(trust="no"))
    await collect(doubtful.send("hi"))
    assert "Use tabs." not in model.requests[-1].messages[0].text
    await doubtful.close()
    for request in (OpenRequest(trust="yes"), OpenRequest()):
        session = await open_session(request)
        await collect(session.send("hi"))
        assert "Use tabs." in model.requests[-1].messages[0].text
        await session.close()


async def test_permission_question_shows_the_diff(repository):
    edit = call("edit", path="api.py", edits=[{"old_text": "'hello '", "new_text": "'hi '"}])
    open_session, _ = make(repository, call("read", path="api.py"), edit, "Done.")
    session = await open_session(OpenRequest())
    asked = []
    async for event in session.send("say hi"):
        if isinstance(event, PermissionAsked):
            asked.append(event)
            session.answer(event.question_id, Permit("yes"))
    assert len(asked) == 1
    assert asked[0].display.body.changes[0].after == (repository / "api.py").read_text()
    assert "'hi '" in (repository / "api.py").read_text()
    await session.close()


@pytest.mark.parametrize("choice", ["no", "never"])
async def test_refusal_with_a_reason_reaches_the_model(repository, choice):
    open_session, model = make(repository, call("shell", command="touch made"), "As you wish.")
    session = await open_session(OpenRequest())
    async for event in session.send("deploy"):
        if isinstance(event, PermissionAsked):
            session.answer(event.question_id, Permit(choice, "not on a Friday"))
    assert "not on a Friday" in str(model.requests[1].messages[-1])
    assert not (repository / "made").exists()
    await session.close()


@pytest.mark.parametrize(("choice", "is_kept"), [("session", False), ("always", True)])
async def test_allow_rule_lasts_for_the_session_or_permanently(repository, choice, is_kept):
    touch = call("shell", command="touch one")
    open_session, _ = make(repository, touch, touch, "Done.")
    first = await open_session(OpenRequest())
    asked = []
    async for event in first.send("go"):
        if isinstance(event, PermissionAsked):
            asked.append(event.rule)
            first.answer(event.question_id, Permit(choice))
    assert len(asked) == 1
    assert ("allow", asked[0]) in first.permissions.rules
    await first.close()
    second = await open_session(OpenRequest())
    assert (("allow", asked[0]) in second.permissions.rules) == is_kept
    await second.close()


async def test_a_question_is_answered_by_the_user(repository):
    ask = call("ask_user", question="Which colour?", choices=["red", "blue"])
    open_session, model = make(repository, ask, "Blue it is.")
    session = await open_session(OpenRequest())
    seen = []
    async for event in session.send("paint it"):
        seen.append(event)
        if isinstance(event, QuestionAsked):
            assert event.question.choices == ("red", "blue")
            session.answer(event.question_id, Reply(("blue",)))
    assert QuestionClosed in [type(event) for event in seen]
    assert "blue" in str(model.requests[1].messages[-1])
    await session.close()


async def test_an_interrupt_ends_a_running_command_and_a_waiting_question(repository):
    open_session, model = make(
        repository,
        call("shell", command="sleep 60"),
        call("shell", command="make deploy"),
        "Never mind.",
    )
    session = await open_session(OpenRequest())
    for kind in (ToolStarted, PermissionAsked):
        seen = []
        async for event in session.send("wait"):
            seen.append(event)
            if isinstance(event, kind):
                session.interrupt()
        assert seen[-1] == TurnFinished("interrupted")
        assert [type(event) for event in seen].count(TurnFinished) == 1
        assert not session.running
    seen = await collect(
        session.send("go on")
    )  # the transcript can be sent: every call has its result
    assert seen[-1] == TurnFinished("answered")
    assert "Interrupted" in str(model.requests[-1].messages)
    await session.close()


async def test_model_gets_the_output_of_an_interrupted_command(repository):
    open_session, model = make(
        repository,
        call("shell", command="echo printed; sleep 60"),
        "I see.",
        settings={"permissions.mode": "auto"},
    )
    session = await open_session(OpenRequest())
    async for event in session.send("wait"):
        if isinstance(event, ToolProgress):
            session.interrupt()
    await collect(session.send("what was that?"))
    [reply] = [
        part for message in model.requests[-1].messages for part in message.parts_of(ToolReply)
    ]
    assert (
        reply.text
        == "Interrupted by the user before it finished. Until then it had printed:\nprinted"
    )
    assert reply.display == Display("interrupted", Plain("printed"))
    await session.close()


async def test_output_of_an_interrupted_shell_line_is_kept(repository):
    open_session, _ = make(repository)
    session = await open_session(OpenRequest())
    seen = []
    async with aclosing(
        session.background.run_line("echo printed; sleep 60", share=True)
    ) as events:
        async for event in events:
            seen.append(event)
            if isinstance(event, ToolProgress):
                session.interrupt()
    [finished] = [event for event in seen if isinstance(event, ToolFinished)]
    assert finished.display == Display(
        "interrupted", CommandOutput("echo printed; sleep 60", "printed\n")
    )
    await session.close()


async def test_interrupted_answer_is_kept_as_cut(repository):
    reached = asyncio.Event()
    open_session, _ = make(repository, ScriptedReply("So far ", hold=reached.wait))
    session = await open_session(OpenRequest())
    async for event in session.send("talk"):
        if type(event).__name__ == "TextDelta" and event.text == "far ":
            session.interrupt()
    await session.close()
    again = await open_session(OpenRequest("latest"))
    last = list(again.scrollback.shown_events())[-1]
    assert (last.message.text, last.message.cut) == ("So far ", True)
    await again.close()


async def test_environment_is_sent_once_and_again_on_change(repository):
    open_session, model = make(repository, "One.", "Two.", "Three.")
    session = await open_session(OpenRequest())
    await collect(session.send("1"))
    await collect(session.send("2"))
    session.set_mode("plan")
    await collect(session.send("3"))
    notes = [
        part.text for message in model.requests[-1].messages for part in message.parts_of(Context)
    ]
    assert len(notes) == 2
    assert "Git branch: main\nGit status: 0 changed files" in notes[0]
    assert notes[1].splitlines()[1].startswith("Permission mode: plan")
    await session.close()


async def test_user_shell_line_is_shown_and_shared_if_requested(repository):
    open_session, model = make(repository, "I see.")
    session = await open_session(OpenRequest())
    seen = await collect(session.background.run_line("echo out; false", share=True))
    kinds = [type(event) for event in seen if not isinstance(event, ToolProgress)]
    assert kinds == [ToolStarted, ToolRunning, ToolFinished]
    assert seen[-1].failed
    await collect(session.background.run_line("echo private", share=False))
    await collect(session.send("what was that?"))
    asked = str(model.requests[0].messages)
    assert "echo out; false" in asked
    assert "private" not in asked
    await session.close()


async def test_a_line_for_later_lines_says_that_its_shell_has_ended(repository):
    open_session, _ = make(repository)
    session = await open_session(OpenRequest())

    async def notices(line):
        seen = await collect(session.background.run_line(line, share=False))
        return [event.text for event in seen if isinstance(event, Notice)]

    for line in ("cd /tmp", "export A=1", 'pushd "$HOME"'):
        [notice] = await notices(line)
        assert "shell of its own" in notice, line
    for line in ("cd /nowhere", "cd /tmp && pwd", "pwd", "cdrom || true", " "):
        assert await notices(line) == [], line
    await session.close()


async def test_a_defect_in_a_shell_line_is_shown(repository, monkeypatch):
    def fail(_permissions, _line):
        raise AttributeError("no such thing")

    monkeypatch.setattr("ouro.safety.permissions.Permissions.find_danger", fail)
    open_session, _ = make(repository)
    session = await open_session(OpenRequest())
    [notice] = await collect(session.background.run_line("ls", share=False))
    assert isinstance(notice, Notice)
    assert "AttributeError: no such thing. See `ouro.log`" in notice.text
    await session.close()


async def test_second_concurrent_turn_is_refused(repository):
    open_session, _ = make(repository, ScriptedReply("Wait.", hold=asyncio.Event().wait))
    session = await open_session(OpenRequest())
    turn = session.send("one")
    await anext(turn)
    with pytest.raises(UsageError):
        await anext(session.send("two"))
    session.steer("also this")
    assert session.waiting == ("also this",)
    assert session.withdraw() == Draft("also this")
    await turn.aclose()
    await session.close()


async def test_long_output_is_saved_in_the_session_folder(repository, home):
    open_session, model = make(
        repository,
        call("shell", command="seq 100000"),
        "Long.",
        settings={"permissions.mode": "auto"},
    )
    session = await open_session(OpenRequest())
    await collect(session.send("count"))
    kept = (home / ".ouro" / "sessions").glob("*/outputs/*")
    # The shortened output for the model is stored as well.
    spooled = max(kept, key=lambda path: path.stat().st_size)
    assert spooled.read_text().split() == [str(number) for number in range(1, 100001)]
    assert str(spooled) in str(model.requests[1].messages[-1])
    await session.close()


async def test_messages_are_private_while_long_term_memory_is_off(repository):
    with_memory, _ = make(repository, "Hello.")
    without_memory, _ = make(repository, "Hello.", memory=False)
    session = await with_memory(OpenRequest())
    await collect(session.send("hi"))
    await session.close()

    resumed = await without_memory(OpenRequest(session.id))
    await collect(resumed.send("and now"))

    entries = resumed.memory.transcript.entries
    assert [entry.private for entry in entries] == [False, False, True, True]
    await resumed.close()


async def test_an_ephemeral_session_leaves_nothing_on_disk(repository, home):
    open_session, _ = make(repository, "Hello.", ephemeral=True)
    session = await open_session(OpenRequest())
    await collect(session.send("hi"))
    await session.close()
    assert not (home / ".ouro" / "sessions").exists()
    again = await open_session(OpenRequest(session.id[:8]))
    assert isinstance(next(again.scrollback.shown_events()), Prompted)
    await again.close()


async def test_missing_folder_is_reported(tmp_path):
    open_session, _ = make(tmp_path / "gone")
    with pytest.raises(UsageError, match="is not a folder"):
        await open_session(OpenRequest())
    assert not Path(tmp_path / "gone").exists()
    with pytest.raises(UsageError, match="gone is not a folder"):
        await opener(Options(tmp_path, add_dirs=(tmp_path / "gone",)))(OpenRequest())


async def test_a_shell_line_during_a_turn_reaches_the_model_and_is_not_undone(repository):
    going = asyncio.Event()
    open_session, model = make(repository, ScriptedReply("Wait.", hold=going.wait), "I see.")
    session = await open_session(OpenRequest())
    turn = asyncio.create_task(collect(session.send("one")))
    await until(lambda: model.requests)
    await collect(session.background.run_line("echo from beside", share=True))
    assert (session.waiting, session.withdraw()) == ((), None)
    going.set()
    await turn
    assert "from beside" in str(model.requests[1].messages[-1])
    await session.close()


@pytest.mark.parametrize(("answer", "is_there"), [("run", False), ("do not run", True)])
async def test_destructive_user_shell_line_asks_first(repository, answer, is_there):
    (repository / "new.txt").write_text("x")
    open_session, _ = make(repository)
    session = await open_session(OpenRequest())
    async for event in session.background.run_line("git clean -fd", share=False):
        if isinstance(event, QuestionAsked):
            assert "git clean deletes untracked files" in event.question.text
            session.answer(event.question_id, Reply((answer,)))
    assert (repository / "new.txt").exists() is is_there
    seen = await collect(session.background.run_line("ls", share=False))
    assert not [event for event in seen if isinstance(event, QuestionAsked)]
    await session.close()


async def test_at_completes_folders_and_files_outer_ones_first(repository):
    (repository / "src" / "deep dir").mkdir(parents=True)
    for name in ("src/b.py", "src/deep dir/c.py", "z.py"):
        (repository / name).write_text("")
    session = await opener(Options(repository, ready_model=ScriptedModel([])))(OpenRequest())
    assert list(FileIndex(chain.from_iterable(session.find_files())).names()) == [
        "api.py",
        "src/",
        "z.py",
        "src/b.py",
        "src/deep dir/",
        "src/deep dir/c.py",
    ]
    await session.close()


async def test_image_named_in_a_message_is_attached(repository):
    Pillow.new("RGB", (4, 4), "red").save(repository / "shot.png")
    (repository / "bad.PNG").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    (repository / "folder.png").mkdir()
    model = ScriptedModel(["It is red.", "ok"])
    session = await opener(Options(repository, ready_model=model))(OpenRequest())
    events = [
        event
        async for event in session.send(
            "see @shot.png, @bad.PNG @folder.png @gone.png and shot.png"
        )
    ]
    [sent] = [
        part
        for message in model.requests[0].messages
        for part in message.parts
        if isinstance(part, Image)
    ]
    assert (sent.name, sent.media_type, sent.data) == (
        "shot.png",
        "image/png",
        (repository / "shot.png").read_bytes(),
    )
    [shown] = [event for event in events if isinstance(event, Prompted)]
    assert [image.name for image in shown.images] == ["shot.png"]
    said = [event.text for event in events if isinstance(event, Notice)]
    assert [text.partition(".")[0] for text in said] == [
        "bad",
        "There is no file gone",
        "scripted is not known to see pictures: only their names were sent",
    ]
    assert said[0].endswith("The message was sent without it.")
    await session.close()


async def test_image_named_in_a_steering_message_is_attached(repository):
    Pillow.new("RGB", (4, 4), "red").save(repository / "shot.png")
    Pillow.new("RGB", (4, 4), "red").save(repository / "shot 2.png")
    model = ScriptedModel([call("glob", pattern="*"), "It is red."])
    session = await opener(Options(repository, ready_model=model))(OpenRequest())
    async for event in session.send("go"):
        if isinstance(event, ToolStarted):
            session.steer('and see @shot.png, @"shot 2.png".')
    steered = model.requests[1].messages[-1]
    assert [image.name for image in steered.parts_of(Image)] == ["shot.png", "shot 2.png"]
    await session.close()


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("look at @nofile.py and @api.py.", ["nofile.py"]),
        ("see @src/none, @src", ["src/none"]),
        ("use @pytest.fixture, @app.get, @types/node and a@b.py, @dataclass", []),
        ("@none.md @none.md?", ["none.md"]),
        ("bytes of a program: @~\0\1", []),
        ("@api.py#L10-40 @api.py#L3, @gone.py#L1-L2", ["gone.py"]),
        ('@"no such.py" and @"unclosed', ["no such.py"]),
    ],
)
async def test_missing_named_file_is_reported(repository, text, missing):
    (repository / "src").mkdir(exist_ok=True)
    session = await opener(Options(repository, ready_model=ScriptedModel(["ok"])))(OpenRequest())
    events = [event async for event in session.send(text)]
    said = [
        event.text
        for event in events
        if isinstance(event, Notice) and event.text.startswith("There is no file")
    ]
    assert said == [f"There is no file {name}. The message was sent as it is." for name in missing]
    await session.close()
