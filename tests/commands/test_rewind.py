import pytest
from fakes.fake_front_end import FakeFrontEnd
from fakes.fake_parts import FakeRewind
from fakes.fake_session import FakeSession

from ouro.commands.front_end import RewindChoice
from ouro.commands.rewind import choose_from_list, message_label
from ouro.commands.slash import dispatch
from ouro.display import Choice
from ouro.session import Branch, OpenRequest, Point

AT = "2026-01-02T03:04:05.000Z"
POINTS = (
    Point(1, AT, "mend the \x1b[31mimport", 12, 4),
    Point(5, AT, "now the tests", 8, 1),
    Point(9, AT, "and\nthe docs", 1, 0),
)
LEFT = Branch(20, 8, AT, ("say it in German",), 4, 0)


class OpeningFrontEnd(FakeFrontEnd):
    """Opens the requested session."""

    async def open(self, request):
        await super().open(request)
        self.session = FakeSession(session_id=request.resume)


def front_end_with(points=POINTS, branches=(), picks=()):
    front_end = OpeningFrontEnd(picks=picks)
    front_end.session.rewind = FakeRewind(points, branches)
    return front_end


async def test_undo_returns_to_before_the_last_message_and_refills_prompt():
    front_end = front_end_with()
    await dispatch(front_end, "/undo")
    assert front_end.session.rewind.went == [("rewind", 9, ("conversation", "files"))]
    assert front_end.drafts == [("and\nthe docs", ())]
    assert front_end.lines == [("info", "/redo reverses this.")]


async def test_redo_restores_and_shows_the_transcript():
    front_end = front_end_with()
    await dispatch(front_end, "/redo")
    assert front_end.session.rewind.went == [("redo", "conversation", "files", "memory")]
    assert front_end.drafts == [("", ())]
    assert front_end.lines == [("info", "Redone. Changed again: a.py.")]
    await dispatch(front_end, "/redo memory files")
    assert front_end.session.rewind.went[1:] == [("redo", "files", "memory")]
    assert len(front_end.drafts) == 1, "the transcript is the same: it is not shown again"
    await dispatch(front_end, "/redo everything")
    assert front_end.lines[-1][0] == "error"


@pytest.mark.parametrize(
    ("chosen", "went"), [(RewindChoice("redo", 0, ("files",)), [("redo", "files")]), (None, [])]
)
async def test_redo_applies_the_chosen_parts(chosen, went):
    front_end = front_end_with(picks=[chosen])
    await dispatch(front_end, "/redo")
    assert front_end.session.rewind.went == went


async def test_redo_with_nothing_to_redo_asks_nothing():
    front_end = front_end_with(picks=["not asked"])
    front_end.session.rewind.redoable = {}
    await dispatch(front_end, "/redo")
    assert (front_end.picks, front_end.session.rewind.went) == (["not asked"], [("redo",)])


@pytest.mark.parametrize(
    ("pick", "went"), [("undo", [("rewind", 1, ("files",))]), ("keep", []), (None, [])]
)
async def test_undo_of_files_offers_the_turn_that_changed_some(pick, went):
    front_end = front_end_with(picks=[pick])
    front_end.session.rewind.changed = (POINTS[0], "2 files")
    await dispatch(front_end, "/undo files")
    assert front_end.session.rewind.went == went


async def test_undo_without_a_message_is_an_error():
    front_end = front_end_with(())
    await dispatch(front_end, "/undo")
    assert (front_end.session.rewind.went, front_end.lines[-1][0]) == ([], "error")


async def test_undo_of_the_conversation_leaves_the_files():
    front_end = front_end_with()
    await dispatch(front_end, "/undo conversation")
    assert front_end.session.rewind.went == [("undo", "conversation")]


@pytest.mark.parametrize(
    ("words", "went"),
    [
        ("", ("rewind", 9, ("conversation", "files"))),
        ("conversation files memory", ("undo", "conversation", "files", "memory")),
        ("files", ("undo", "files")),
        ("memory", ("undo", "memory")),
        ("src/a.py", ("undo", "src/a.py", "", 1)),
        ("src/a.py#3f2a 2", ("undo", "src/a.py", "3f2a", 2)),
    ],
)
async def test_undo_passes_on_its_arguments(words, went):
    front_end = front_end_with()
    await dispatch(front_end, f"/undo {words}".strip())
    assert front_end.session.rewind.went == [went]
    await dispatch(front_end, "/undo a.py two")
    assert front_end.lines[-1][0] == "error"


async def test_rewind_with_a_number_counts_messages_from_the_last():
    front_end = front_end_with()
    await dispatch(front_end, "/rewind 2")
    assert front_end.session.rewind.went == [("rewind", 5, ("conversation",))]
    assert front_end.drafts == [("now the tests", ())]


@pytest.mark.parametrize("number", ["0", "4", "-1", "two"])
async def test_invalid_message_number_is_refused(number):
    front_end = front_end_with()
    await dispatch(front_end, f"/rewind {number}")
    assert front_end.session.rewind.went == []
    [(level, text)] = front_end.lines
    assert (level, "from 1 to 3" in text) == ("error", True)


async def test_rewind_applies_the_choice_and_reports_what_was_not_undone():
    front_end = front_end_with(picks=[RewindChoice("rewind", 5, ("conversation", "memory"))])
    front_end.session.rewind.notices = ("Undone: api.py.", "A note was changed since: it stays.")
    await dispatch(front_end, "/rewind")
    assert front_end.session.rewind.went == [("rewind", 5, ("conversation", "memory"))]
    assert front_end.lines == [
        ("info", "Undone: api.py."),
        ("warning", "A note was changed since: it stays."),
        ("info", "/redo reverses this."),
    ]


async def test_rewind_without_messages_or_choice_does_nothing():
    front_end = front_end_with(points=())
    await dispatch(front_end, "/rewind")
    assert front_end.lines == [("error", "There is no message yet to go back to.")]
    front_end = front_end_with(picks=[None])
    await dispatch(front_end, "/rewind")
    assert (front_end.session.rewind.went, front_end.lines) == ([], [])


async def test_rewind_is_refused_during_a_turn():
    for line in ("/rewind 1", "/undo", "/redo", "/fork"):
        front_end = front_end_with()
        front_end.session.running = True
        await dispatch(front_end, line)
        assert front_end.session.rewind.went == []
        assert "cannot run while the agent works" in front_end.lines[0][1]


async def test_fork_opens_the_copy_and_shows_how_to_return():
    front_end = front_end_with()
    past = front_end.session.rewind
    await dispatch(front_end, "/fork Another way")
    assert past.went == [("fork", None, "Another way")]
    assert front_end.opened == [OpenRequest("s-copy")]
    assert front_end.lines == [("info", "This is a copy. The one before: /resume s-1")]


async def test_fork_at_a_message_puts_it_into_the_prompt():
    front_end = front_end_with(picks=[RewindChoice("fork", 5)])
    past = front_end.session.rewind
    await dispatch(front_end, "/rewind")
    assert past.went == [("fork", 5, "")]
    assert (front_end.opened, front_end.drafts) == (
        [OpenRequest("s-copy")],
        [("now the tests", ())],
    )


async def test_rename_without_a_title_asks_a_model_for_one():
    front_end = front_end_with()
    await dispatch(front_end, "/rename")
    assert front_end.lines == [("info", "This session is now called “Fix the import”.")]
    await dispatch(front_end, "/rename my \x1b[2Jown")
    assert (front_end.session.title, front_end.redrawn) == ("my own", 2)


async def test_the_printed_list_has_the_last_message_first_then_branches():
    front_end = front_end_with(branches=[LEFT], picks=["5", "back"])
    assert await choose_from_list(front_end) == RewindChoice("rewind", 5)
    assert front_end.asked[0][1] == (
        Choice("9", "and the docs", "1 message"),
        Choice("5", "now the tests", "8 messages, 1 tool call"),
        Choice("1", "mend the import", "12 messages, 4 tool calls"),
        Choice("branch 20", "↳ left: say it in German", "4 messages"),
    )
    assert [each.value for each in front_end.asked[1][1]] == ["back", "fork"]


@pytest.mark.parametrize(
    ("picks", "way"),
    [
        (["branch 20"], RewindChoice("visit", 20)),
        (["5", "fork"], RewindChoice("fork", 5)),
        (["5", "back, memory"], RewindChoice("rewind", 5, ("conversation", "memory"))),
        (["5", None], None),
        ([None], None),
    ],
)
async def test_each_rewind_choice_is_available_from_the_list(picks, way):
    front_end = front_end_with(branches=[LEFT], picks=picks)
    front_end.session.rewind.offered = {"memory": "2 changes"}
    assert await choose_from_list(front_end) == way


def test_the_label_of_a_message_has_no_marks_of_markdown():
    assert message_label("**Fix** the\n`parser`\x1b[31m") == "Fix the parser"
    assert message_label("** **") == "** **"
