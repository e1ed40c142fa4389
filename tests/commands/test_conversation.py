from fakes.fake_front_end import FakeFrontEnd
from fakes.fake_session import FakeSession

from ouro.commands.command import Choice
from ouro.commands.dispatch import dispatch
from ouro.display import CommandOutput, Diff, Display, FileChange, Todo
from ouro.events import Prompted, Replied, ToolFinished, ToolStarted
from ouro.messages import ToolCall, assistant
from ouro.session import OpenRequest, SessionInfo

PAST = [
    Prompted("Mend it"),
    Replied(assistant("Looking.", ToolCall("c1", "edit", {}))),
    ToolStarted(ToolCall("c1", "edit", {}), "edit api.py"),
    ToolFinished("c1", "edit", Display("+1 -1", Diff((FileChange("api.py", "a\n", "b\n"),))), False, 0.1),
    ToolStarted(ToolCall("c2", "shell", {}), "pytest"),
    ToolFinished("c2", "shell", Display("exit 1", CommandOutput("pytest", "```\nbad\x1b[31m", 1)), True, 0.1),
    Replied(assistant("Done: `b`.")),
]


def info(session_id, title):
    return SessionInfo(
        id=session_id, title=title, project="p", model="m", created_at="2026-01-02T03:04:05",
        updated_at="2026-01-02T03:04:05", messages=4, size=1, cost=0.5, folder="/project",
    )  # fmt: skip


async def test_clear_opens_a_new_session_and_tells_the_way_back():
    front_end = FakeFrontEnd()
    await dispatch(front_end, "/new")
    assert front_end.opened == [OpenRequest()]
    assert front_end.said == [("info", "A new session. The one before: /resume s-1")]


async def test_resume_with_words_opens_what_they_name():
    front_end = FakeFrontEnd()
    await dispatch(front_end, "/resume latest")
    assert front_end.opened == [OpenRequest("latest")]


async def test_resume_alone_lets_one_choose_among_the_other_sessions():
    front_end = FakeFrontEnd(picks=["s-2"])
    front_end.session.known = [info("s-1", "this"), info("s-2", "the \x1b[2Jother")]
    await dispatch(front_end, "/resume")
    assert front_end.asked[0][1] == (Choice("s-2", "the other", "2026-01-02 03:04 · 4 messages · $0.50"),)
    assert front_end.opened == [OpenRequest("s-2")]


async def test_resume_tells_when_there_is_nothing():
    front_end = FakeFrontEnd()
    await dispatch(front_end, "/resume")
    assert front_end.said == [("error", "There is no earlier session of this project.")]


async def test_copy_takes_the_last_answer_as_markdown():
    front_end = FakeFrontEnd()
    await dispatch(front_end, "/copy")
    assert front_end.copied == []
    front_end.session.shown_before = PAST
    await dispatch(front_end, "/copy")
    assert front_end.copied == ["Done: `b`."]


async def test_export_writes_the_conversation_and_never_over_a_file(tmp_path):
    front_end = FakeFrontEnd(FakeSession(cwd=tmp_path))
    front_end.session.title = "A *title*"
    front_end.session.shown_before = PAST
    await dispatch(front_end, "/export out.md")
    assert (tmp_path / "out.md").read_text() == (
        "# A \\*title\\*\n\n## You\n\nMend it\n\n## ouro\n\nLooking.\n\n"
        "> `edit api.py` — +1 -1\n\n```diff\n--- a/api.py\n+++ b/api.py\n@@ -1 +1 @@\n-a\n+b\n```\n\n"
        "> `pytest` — failed: exit 1\n\n````console\n$ pytest\n```\nbad\n````\n\n## ouro\n\nDone: `b`.\n"
    )
    (tmp_path / "out.md").write_text("mine")
    await dispatch(front_end, "/export out.md")
    assert (tmp_path / "out.md").read_text() == "mine"
    assert "is there already" in front_end.said[-1][1]


async def test_export_without_a_name_makes_one(tmp_path):
    front_end = FakeFrontEnd(FakeSession(cwd=tmp_path))
    await dispatch(front_end, "/export")
    assert [path.name for path in tmp_path.iterdir()] == ["ouro-s-1.md"]


async def test_todos_shows_the_plan():
    front_end = FakeFrontEnd()
    front_end.session.todos = (Todo("look", "done"), Todo("mend *it*", "in_progress"), Todo("tell"))
    await dispatch(front_end, "/todos")
    assert front_end.shown == ["- ☑ look\n- ▶ mend \\*it\\*\n- ☐ tell"]


async def test_tasks_ends_a_job():
    front_end = FakeFrontEnd()
    await dispatch(front_end, "/tasks")
    await dispatch(front_end, "/tasks kill 3")
    assert front_end.shown == ["Nothing runs in the background."]
    assert front_end.session.killed_jobs == ["3"]
