"""Messages of an attached front end: what the host refuses is shown again, and nothing is lost."""

import asyncio
from contextlib import asynccontextmanager

from fakes.fake_session import Wait, says
from fakes.screens import HostedSession
from fakes.waiting import until

from ouro.events import Notice, Reply
from ouro.frontends.background import extension_methods as methods
from ouro.frontends.background.background_sessions import AgentWatch
from ouro.frontends.background.connection import HostConnection
from ouro.frontends.background.remote import RemoteSession, RemoteTurns
from ouro.session import Draft, TurnObserver
from ouro.session.background_record import BackgroundRecord


class Screen(TurnObserver):
    """Records what an attached front end shows; it is its own view."""

    def __init__(self):
        self.events, self.texts, self.end = [], [], ""

    def show(self, event):
        self.events.append(event)

    def show_background(self, event):
        self.events.append(event)

    def show_text(self, markdown, page):
        self.texts.append(markdown)

    def show_session(self, draft):
        """The transcript is not looked at here."""

    def show_changes(self):
        """The state is not looked at here."""

    def show_session_end(self, text):
        self.end = text

    def run_here(self, text):
        return False

    @property
    def notices(self):
        return [event.text for event in self.events if isinstance(event, Notice)]


@asynccontextmanager
async def attached(*turns):
    """A hosted session that plays turns, and the queue and the screen that are attached to it."""
    async with HostedSession(turns) as hosted:
        record = BackgroundRecord(hosted.session.id, 1, "/project", "2026-11-28T20:00:00.000Z")
        session = await RemoteSession.open(record)
        screen = Screen()
        turns = RemoteTurns(screen, screen)
        turns.attach(session)
        yield hosted, turns, screen
        await turns.close()


@asynccontextmanager
async def busy(*waiting):
    """The same during a turn, with these messages in the queue of the host."""
    wait = Wait()
    async with attached([wait], *(says("later") for _ in waiting)) as (hosted, turns, screen):
        turns.say(Draft("go"))
        await until(lambda: hosted.session.running)
        for text in waiting:
            turns.queue(Draft(text))
        await until(lambda: turns.waiting == waiting)
        yield hosted, turns, screen, wait


async def test_an_answer_that_the_host_refuses_is_shown_again(home):
    async with attached() as (_hosted, turns, screen):
        turns.session.answer("gone", Reply(("use Redis",)))
        await until(lambda: screen.texts)
        assert "use Redis" in screen.texts[0]
        assert "not open any more" in screen.notices[0]


async def test_a_message_that_the_host_refuses_is_shown_again(home, monkeypatch):
    async with attached() as (hosted, turns, screen):

        def refuse(_draft):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(hosted.host.turns, "say", refuse)
        turns.say(Draft("fix the test"))
        await until(lambda: screen.texts)
        assert "fix the test" in screen.texts[0]
        assert "No space left" in screen.notices[0]


async def test_a_message_that_no_host_took_is_shown_again(home):
    async with attached() as (_hosted, turns, screen):
        connection = turns.session.connection
        connection.send(methods.extension_method(methods.SEND), "fix the test")
        connection._end()
        await until(lambda: screen.end)
        assert "fix the test" in screen.texts[0]


async def test_a_queued_message_is_edited_where_the_session_runs(home):
    async with busy("one", "two") as (hosted, turns, _screen, wait):
        turns.change(1, "two, but faster")
        assert turns.waiting == ("one", "two, but faster")
        await until(lambda: hosted.host.turns.waiting == ("one", "two, but faster"))
        wait.until.set()
        await until(lambda: hosted.session.sent == ["go", "one", "two, but faster"])


async def test_an_edit_of_a_message_that_was_sent_meanwhile_is_shown_again(home):
    async with busy("one") as (hosted, turns, screen, _wait):
        hosted.host.turns._drafts.clear()  # the host has delivered it; this front end does not know
        turns.change(0, "one, but slower")
        await until(lambda: screen.texts)
        assert "one, but slower" in screen.texts[0]
        assert "does not wait any more" in screen.notices[0]


async def test_no_other_message_is_removed_than_the_one_that_is_named(home):
    async with busy("one", "two", "three") as (hosted, turns, _screen, _wait):
        hosted.host.turns._drafts.popleft()  # delivered; this front end does not know yet
        assert turns.remove(1) == "two"
        await until(lambda: hosted.host.turns.waiting == ("three",))


async def test_a_viewer_of_an_older_version_names_only_the_place(home):
    async with busy("one", "two") as (hosted, turns, _screen, _wait):
        connection: HostConnection = turns.session.connection
        method = methods.extension_method(methods.WITHDRAW)
        assert await connection.call(method, place=0) == {"text": "one"}
        assert hosted.host.turns.waiting == ("two",)


async def test_messages_that_wait_for_the_session_are_edited_and_removed_here():
    screen = Screen()
    turns = RemoteTurns(screen, screen)
    for text in ("one", "two"):
        turns.say(Draft(text))
    turns.change(1, "2")
    assert turns.remove(0) == "one"
    assert turns.waiting == ("2",)


async def test_an_event_that_cannot_be_shown_does_not_end_the_view(home, monkeypatch):
    async with attached() as (hosted, _turns, screen):
        show, failures = screen.show, [RuntimeError("no such widget")]

        def fail_first(event):
            if failures:
                raise failures.pop()
            show(event)

        monkeypatch.setattr(screen, "show", fail_first)
        for text in ("lost", "shown"):
            hosted.host.show(Notice(text))
        await until(lambda: screen.notices == ["shown"])


async def test_two_looks_at_a_session_share_one_connection(home):
    async with HostedSession() as hosted:
        record = BackgroundRecord(hosted.session.id, 1, "/project", "2026-11-28T20:00:00.000Z")
        watch = AgentWatch()
        first, second = await asyncio.gather(watch.connection(record), watch.connection(record))
        assert first is second
        await until(lambda: len(hosted.host._connections) == 1)
        await watch.close()
