"""/queue: the messages that wait are listed, edited, moved and removed."""

import pytest
from fakes.fake_front_end import FakeFrontEnd
from fakes.fake_session import FakeSession

from ouro.commands.slash import dispatch
from ouro.session import Draft, TurnObserver, TurnQueue
from ouro.session.session_tasks import Steering


class SteeredSession(FakeSession):
    """Two messages steer it."""

    def __init__(self):
        super().__init__()
        self.turn.steering = Steering(environment=None, warn=lambda _text: None)
        self.turn.steering.add("first steers")
        self.turn.steering.add("second steers")

    @property
    def waiting(self):
        return self.turn.steering.texts


class QueueFrontEnd(FakeFrontEnd):
    def __init__(self, session):
        super().__init__(session)
        self.queue = TurnQueue(TurnObserver())
        self.queue.session = session
        self.queue._drafts.extend(Draft(text) for text in ("a", "b", "c"))
        self.edited = ""

    async def edit(self, _text):
        return self.edited

    async def show_queue(self):
        return False


@pytest.fixture
def front_end():
    return QueueFrontEnd(SteeredSession())


ALL = ("first steers", "second steers", "a", "b", "c")


@pytest.mark.parametrize(
    ("line", "waiting"),
    [
        ("/queue", ALL),
        ("/queue remove 4", ("first steers", "second steers", "a", "c")),
        ("/queue remove 1", ("second steers", "a", "b", "c")),
        ("/queue up 5", ("first steers", "second steers", "a", "c", "b")),
        ("/queue up 3", ALL),
        ("/queue down 5", ALL),
        ("/queue down 1", ("second steers", "first steers", "a", "b", "c")),
        ("/queue down 2", ALL),
        ("/queue edit 4", ("first steers", "second steers", "a", "ändert", "c")),
        ("/queue edit 2", ("first steers", "ändert", "a", "b", "c")),
        ("/queue clear", ()),
        ("/queue remove 6", ALL),
        ("/queue remove x", ALL),
        ("/queue jump 1", ALL),
    ],
)
async def test_an_entry_is_changed_within_its_group(front_end, line, waiting):
    front_end.edited = " ändert "
    await dispatch(front_end, line)
    assert front_end.queue.waiting == waiting


async def test_the_list_marks_what_steers(front_end):
    await dispatch(front_end, "/queue")
    shown = [text for _, text in front_end.lines]
    assert shown[1:3] == ["2. → second steers", "3. a"]


async def test_a_message_that_was_delivered_meanwhile_is_not_changed(front_end):
    front_end.edited = "late"
    front_end.queue._drafts.popleft()
    front_end.queue.change(9, "late")
    assert front_end.queue.remove(9) == ""
    assert front_end.queue.waiting == ("first steers", "second steers", "b", "c")


async def test_the_edit_of_a_message_that_was_sent_meanwhile_is_shown(front_end, monkeypatch):
    async def edit(_text):
        front_end.queue._drafts.popleft()
        return "a, but later"

    monkeypatch.setattr(front_end, "edit", edit)
    await dispatch(front_end, "/queue edit 3")
    assert any("sent meanwhile" in text for _, text in front_end.lines)
    assert "a, but later" in "".join(front_end.shown)
    assert "a, but later" not in front_end.queue.waiting
