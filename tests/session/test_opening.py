"""The questions before a session opens are asked in one place, for every front end."""

from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from ouro.errors import (
    DemoRequested,
    NoModelError,
    SessionInUse,
    SessionOpenHere,
    SeveralSessions,
    TrustNeeded,
)
from ouro.session import PICK, OpenRequest, open_interactively

SEVERAL = SeveralSessions("Two match.", "", ["a", "b"])
TRUST = TrustNeeded(Path("/p"), [Path("/p/AGENTS.md")])
NO_MODEL = NoModelError("No model.", "Set one up.")


def no_model(*usable):
    error = NoModelError("No model `typo`.")
    error.usable = usable
    return error


class Dialog:
    """Answers `choose_open` and `pick_open` with given values."""

    def __init__(self, *answers):
        self.answers, self.asked, self.esc = list(answers), [], []

    async def choose_open(self, title, choices, *, esc="closes", ctrl_c=None):
        self.asked.append((title, [choice.value for choice in choices]))
        self.esc.append(esc)
        return self.answers.pop(0)

    async def pick_open(self, ids):
        self.asked.append(tuple(ids))
        return self.answers.pop(0)

    async def set_up_model(self):
        return self.answers.pop(0)


def opens_after(*errors):
    """An opener that raises these errors, then opens; `requests` records its calls."""
    left, requests = list(errors), []

    async def open_session(request):
        requests.append(request)
        if left:
            raise left.pop(0)
        return "session"

    open_session.requests = requests
    return open_session


START = OpenRequest("words", fork=True)


@pytest.mark.parametrize(
    ("error", "answers", "request_then"),
    [
        (SEVERAL, [OpenRequest("b")], replace(START, resume="b")),
        (SEVERAL, [OpenRequest()], OpenRequest()),
        (TRUST, ["yes"], replace(START, trust="yes")),
        (TRUST, ["no"], replace(START, trust="no")),
        (SessionInUse("In use."), ["read"], replace(START, read_only=True, fork=False)),
        (SessionInUse("In use."), ["copy"], replace(START, fork=True)),
        (SessionOpenHere(), ["copy"], replace(START, fork=True)),
        (NO_MODEL, ["set up", "openai/m"], replace(START, model="openai/m")),
        (NO_MODEL, ["set up", "", "set up", "openai/m"], replace(START, model="openai/m")),
        (no_model("openai/a", "openai/b"), ["use openai/b"], replace(START, model="openai/b")),
    ],
)
async def test_an_answer_changes_the_request(error, answers, request_then):
    open_session = opens_after(error)
    assert await open_interactively(open_session, START, Dialog(*answers)) == "session"
    assert open_session.requests == [START, request_then]


@pytest.mark.parametrize(
    ("error", "answers"), [(SEVERAL, [None]), (TRUST, [""]), (TRUST, [None, ""])]
)
async def test_declining_a_dialog_opens_no_session(error, answers):
    assert await open_interactively(opens_after(error), START, Dialog(*answers)) is None


async def test_escape_at_the_first_choice_asks_and_goes_back():
    dialog = Dialog(None, "back", "yes")
    assert await open_interactively(opens_after(TRUST), START, dialog) == "session"
    assert [title for title, _ in dialog.asked][1] == "Leave ouro?"
    assert dialog.esc == ["asks to quit", "goes back", "asks to quit"]


async def test_escape_at_the_question_whether_to_leave_goes_back():
    dialog = Dialog(None, None, "yes")
    assert await open_interactively(opens_after(TRUST), START, dialog) == "session"


@pytest.mark.parametrize("error", [TRUST, SessionInUse("In use.")])
async def test_escape_keeps_a_session_that_is_open(error):
    dialog = Dialog(None)
    with suppress(SessionInUse):
        assert (
            await open_interactively(opens_after(error), START, dialog, has_open_session=True)
            is None
        )
    assert (len(dialog.asked), dialog.esc) == (1, ["closes"])


async def test_the_first_choice_for_the_session_that_is_open_here_is_to_stay_in_it():
    dialog = Dialog("")
    opens = opens_after(SessionOpenHere())
    assert await open_interactively(opens, START, dialog, has_open_session=True) is None
    [(title, choices)] = dialog.asked
    assert (title, choices[0]) == ("This session is already open in this ouro.", "")


@pytest.mark.parametrize(
    ("error", "answers", "raised"),
    [
        (SessionInUse("In use."), [""], SessionInUse),
        (SessionInUse("In use."), [None, ""], SessionInUse),
        (NO_MODEL, [""], NoModelError),
        (NO_MODEL, ["set up", "", ""], NoModelError),
        (NO_MODEL, ["demo"], DemoRequested),
    ],
)
async def test_declining_without_an_alternative_raises(error, answers, raised):
    with pytest.raises(raised):
        await open_interactively(opens_after(error), START, Dialog(*answers))


@pytest.mark.parametrize("error", [SEVERAL, TRUST, SessionInUse("In use."), NO_MODEL])
async def test_without_a_dialog_every_error_is_raised(error):
    with pytest.raises(type(error)):
        await open_interactively(opens_after(error), START, None)


async def test_session_is_picked_before_opening():
    open_session, dialog = opens_after(), Dialog(OpenRequest("a"))
    assert await open_interactively(open_session, OpenRequest(PICK), dialog) == "session"
    assert (dialog.asked, open_session.requests) == ([()], [OpenRequest("a")])


async def test_the_trust_question_names_the_files():
    dialog = Dialog("no")
    await open_interactively(opens_after(TRUST), START, dialog)
    assert dialog.asked[0][0] == "Do you trust /p?\nouro would obey what is written in: AGENTS.md"
