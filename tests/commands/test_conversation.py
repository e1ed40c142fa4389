from types import SimpleNamespace

import pytest
from fakes.fake_front_end import FakeFrontEnd
from fakes.fake_session import FakeSession

from ouro.commands.render import escape_sentence
from ouro.commands.slash import dispatch
from ouro.display import CommandOutput, Diff, Display, FileChange, Todo
from ouro.events import Prompted, Replied, ToolFinished, ToolStarted
from ouro.messages import ToolCall, assistant
from ouro.session import OpenRequest

PAST = [
    Prompted("Mend it"),
    Replied(assistant("Looking.", ToolCall("c1", "edit", {}))),
    ToolStarted(ToolCall("c1", "edit", {}), "edit api.py"),
    ToolFinished(
        "c1", "edit", Display("+1 -1", Diff((FileChange("api.py", "a\n", "b\n"),))), False, 0.1
    ),
    ToolStarted(ToolCall("c2", "shell", {}), "pytest"),
    ToolFinished(
        "c2", "shell", Display("exit 1", CommandOutput("pytest", "```\nbad\x1b[31m", 1)), True, 0.1
    ),
    Replied(assistant("Done: `b`.")),
]


async def test_clear_opens_a_new_session_and_shows_how_to_resume():
    front_end = FakeFrontEnd(FakeSession(session_id="a362d151-b5b8"))
    front_end.opens = [FakeSession(session_id="s-2")]
    await dispatch(front_end, "/new")
    assert (front_end.opened, front_end.session.id) == ([OpenRequest()], "s-2")
    assert front_end.lines == [("info", "A new session. The one before: /resume a362d151")]


async def test_failed_clear_is_not_announced():
    front_end = FakeFrontEnd()
    await dispatch(front_end, "/clear")
    assert (front_end.opened, front_end.lines) == ([OpenRequest()], [])


async def test_clear_keeps_the_model_its_effort_and_the_mode():
    front_end = FakeFrontEnd()
    for line in ("/model fake/three", "/think high", "/plan"):
        await dispatch(front_end, line)
    before = front_end.session.status()
    front_end.opens = [FakeSession(session_id="s-2")]
    await dispatch(front_end, "/clear")
    assert (front_end.session.id, front_end.session.status()) == ("s-2", before)
    assert (before.model, before.effort, before.mode) == ("fake/three", "high", "plan")


async def test_resume_with_an_argument_opens_that_session():
    front_end = FakeFrontEnd()
    await dispatch(front_end, "/resume latest")
    assert front_end.opened == [OpenRequest("latest")]


async def test_resume_without_an_argument_picks_a_session_or_a_copy():
    front_end = FakeFrontEnd(picks=[OpenRequest("s-2"), OpenRequest("s-3", fork=True), None])
    for _ in range(3):
        await dispatch(front_end, "/resume")
    assert front_end.opened == [OpenRequest("s-2"), OpenRequest("s-3", fork=True)]


async def test_copy_copies_the_last_answer_as_markdown():
    front_end = FakeFrontEnd()
    await dispatch(front_end, "/copy")
    assert front_end.copied == []
    front_end.session.shown_before = PAST
    await dispatch(front_end, "/copy")
    assert front_end.copied == ["Done: `b`."]
    assert front_end.lines[-1][1] == "The last answer (10 characters): copied with xclip."
    front_end.copy = lambda _text: "sent to the terminal"
    await dispatch(front_end, "/copy")
    assert front_end.lines[-1][1] == "The last answer (10 characters): sent to the terminal."


async def test_todos_shows_the_plan():
    front_end = FakeFrontEnd()
    front_end.session.todos = (Todo("look", "done"), Todo("mend *it*", "in_progress"), Todo("tell"))
    await dispatch(front_end, "/todos")
    assert front_end.shown == ["- ☑ look\n- ▶ mend \\*it\\*\n- ☐ tell"]


async def test_tasks_ends_a_job():
    front_end = FakeFrontEnd()
    await dispatch(front_end, "/tasks")
    await dispatch(front_end, "/tasks kill 3")
    assert front_end.shown == ["No background jobs and no subagents."]
    assert front_end.session.background.killed == ["3"]
    assert front_end.redrawn  # the status line may name what was ended


async def test_tasks_says_how_one_is_ended():
    front_end = FakeFrontEnd()
    task = SimpleNamespace(id="job_1", title="make", state="running")
    front_end.session.background.tasks = (task,)
    await dispatch(front_end, "/tasks")
    [text] = front_end.shown
    assert "make — running" in text
    assert text.endswith("`/tasks kill ID` ends one.")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("`test -e done` — 3 of 20 turns", "`test -e done` — 3 of 20 turns"),
        ("mend *it* with `a*b`", "mend \\*it\\* with `a*b`"),
        ("echo `date", "echo \\`date"),
    ],
)
def test_code_in_a_sentence_stays_code(text, shown):
    assert escape_sentence(text) == shown
