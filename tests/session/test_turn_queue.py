"""One queue for every front end: a message during a turn steers it, or waits for the next turn."""

import asyncio

import pytest
from fakes.fake_session import FakeSession, Wait, says
from fakes.waiting import until
from msgspec.structs import replace

from ouro.events import Notice, TextDelta, Titled, TurnFinished
from ouro.extensions import CommandRegistry, CustomCommand
from ouro.messages import Image
from ouro.session import Draft, TurnObserver, TurnQueue


class Recorder(TurnObserver):
    """Records what it shows and runs; `/x` is a command."""

    def __init__(self):
        self.events, self.ended, self.commands = [], [], []

    def show(self, event):
        self.events.append(event)

    def show_background(self, event):
        self.events.append(event)

    def turn_ended(self, outcome, seconds):
        self.ended.append(outcome)

    async def run_command(self, text):
        self.commands.append(text)
        return text.startswith("/x")


def queue_for(session, **options):
    recorder = Recorder()
    queue = TurnQueue(recorder, **options)
    queue.attach(session)
    return queue, recorder


async def test_messages_before_the_session_opens_run_in_order():
    session, queue = FakeSession([says("1"), says("2")]), TurnQueue(Recorder())
    queue.say(Draft("one"))
    queue.say(Draft("two"))
    assert queue.waiting == ("one", "two")
    queue.attach(session)
    await queue.idle()
    assert (session.sent, queue.waiting) == (["one", "two"], ())


async def test_messages_can_change_places_before_the_session_opens():
    queue = TurnQueue(Recorder())
    queue.say(Draft("one"))
    queue.say(Draft("two"))
    assert queue.move(1, by=-1) == 0
    assert queue.waiting == ("two", "one")


async def test_the_message_of_a_turn_that_was_begun_elsewhere_is_starting_until_it_is_shown():
    session, queue = FakeSession([says("1")]), TurnQueue(Recorder())
    session.before_prompt = hook = Wait()
    draft = Draft("one")
    queue.attach(session, session.send("one"), draft)
    await until(lambda: queue.starting is draft)
    hook.until.set()
    await until(lambda: queue.starting is None)
    await queue.idle()
    assert queue.starting is None


async def test_message_during_a_turn_steers_and_a_queued_one_waits():
    wait = Wait()
    session = FakeSession([[wait], says("2")])
    queue, _ = queue_for(session)
    queue.say(Draft("go"))
    await until(lambda: session.running)
    queue.say(Draft("steer"))
    queue.queue(Draft("next"))
    assert queue.waiting == ("steer", "next")
    assert queue.withdraw() == Draft("next")
    assert queue.withdraw() == Draft("steer")
    queue.queue(Draft("next"))
    wait.until.set()
    await queue.idle()
    assert session.sent == ["go", "next"]


async def test_a_message_too_late_to_steer_is_the_next_turn():
    wait = Wait()
    session = FakeSession([[wait, TurnFinished("failed")], says("2")])
    queue, recorder = queue_for(session)
    queue.say(Draft("go"))
    await until(lambda: session.running)
    queue.say(Draft("late"))
    wait.until.set()
    await queue.idle()
    assert (session.sent, recorder.ended) == (["go", "late"], ["failed", "answered"])


async def test_a_second_interrupt_of_a_turn_kills_child_processes():
    wait = Wait()
    session = FakeSession([[wait]])
    queue, recorder = queue_for(session)
    assert not queue.interrupt()
    queue.say(Draft("go"))
    await until(lambda: session.running)
    assert queue.interrupt()
    assert queue.interrupt()
    await queue.idle()
    assert (session.interrupts, session.background.kills, recorder.ended) == (2, 1, ["interrupted"])


@pytest.mark.parametrize("holds", [True, False])
async def test_queued_message_after_interrupt_is_sent_or_held(holds):
    session = FakeSession([[Wait()], says("2"), says("3")])
    queue, _ = queue_for(session, holds_after_interrupt=holds)
    queue.say(Draft("go"))
    await until(lambda: session.running)
    queue.queue(Draft("waits"))
    queue.interrupt()
    await queue.idle()
    assert session.sent == (["go"] if holds else ["go", "waits"])
    if holds:
        queue.say(Draft("more"))
        await queue.idle()
        assert session.sent == ["go", "waits", "more"]


async def test_commands_run_at_once_and_shell_lines_wait():
    wait = Wait()
    session = FakeSession([[wait], says("2")])
    queue, recorder = queue_for(session)
    queue.say(Draft("go"))
    await until(lambda: session.running)
    queue.say(Draft("/x now"))
    queue.say(Draft("/no command"))
    queue.say(Draft("!ls"))
    await until(lambda: session.steered)
    assert recorder.commands == ["/x now", "/no command"]
    assert queue.withdraw() == Draft("!ls")
    queue.queue(Draft("!!ls"))
    wait.until.set()
    await queue.idle()
    assert session.background.lines == [("ls", False)]


async def test_a_custom_command_typed_during_a_turn_is_the_next_turn():
    wait, picture = Wait(), Image("image/png", b"x")
    session = FakeSession([[wait], says("2")])
    ship = CustomCommand("git:ship", "", "", "ship.md", None)
    extensions = session.extensions
    session.extensions = replace(extensions, commands=CommandRegistry([lambda: [ship]], tuple))
    queue, _ = queue_for(session)
    queue.say(Draft("go"))
    await until(lambda: session.running)
    queue.say(Draft("/git:ship v2", (picture,)))
    await until(lambda: queue.waiting)
    assert session.steered == []
    wait.until.set()
    await queue.idle()
    assert (session.sent, session.sent_images) == (["go", "/git:ship v2"], [picture])


async def test_a_stream_that_is_no_turn_can_be_interrupted():
    session = FakeSession()
    session.interrupt = lambda: False
    queue, recorder = queue_for(session)

    async def sync():
        yield Notice("step")
        await asyncio.Event().wait()

    queue.start(sync())
    await until(lambda: recorder.events)
    queue.interrupt()
    await queue.idle()
    assert recorder.ended == ["interrupted"]


async def test_the_late_end_of_a_turn_is_not_shown_in_the_next_session():
    wait, ended = Wait(), Wait()
    first = FakeSession([[TextDelta("before"), wait, TextDelta("late"), ended]])
    second = FakeSession([says("Hello.")])
    queue, recorder = queue_for(first, holds_after_interrupt=True)
    queue.say(Draft("go"))
    await until(lambda: TextDelta("before") in recorder.events)
    queue.say(Draft("too late to steer"))
    with queue.paused():
        queue.attach(second)
    wait.until.set()
    ended.until.set()
    await queue.idle()
    assert TextDelta("late") not in recorder.events
    assert recorder.ended == ["answered", "answered"]
    assert second.sent == ["too late to steer"]


async def test_a_stream_waits_for_the_turn_that_runs():
    async def stream():
        yield Notice("synchronised")

    wait = Wait()
    session = FakeSession([[wait, *says("done")]])
    queue, recorder = queue_for(session)
    queue.say(Draft("go"))
    await until(lambda: session.running)
    sync = asyncio.create_task(queue.run(stream()))
    await asyncio.sleep(0)
    assert Notice("synchronised") not in recorder.events
    wait.until.set()
    await sync
    assert recorder.ended == ["answered", "answered"]
    assert recorder.events[-1] == Notice("synchronised")


async def test_exception_is_shown_and_ends_only_its_turn():
    session = FakeSession([says("2")])
    queue, recorder = queue_for(session)

    async def broken():
        yield Notice("step")
        raise KeyError("x")

    queue.start(broken())
    queue.queue(Draft("go"))
    await queue.idle()
    assert recorder.ended == ["failed", "answered"]
    assert Notice("KeyError: 'x' (details are in ouro.log)", "error") in recorder.events


async def test_stop_sends_nothing_more_and_close_shows_last_events():
    class LateTitle(FakeSession):
        async def close(self, on_released=None):
            self.emit_event(Titled("late"))
            await super().close(on_released)

    session = LateTitle([[Wait()], says("2")])
    queue, recorder = queue_for(session)
    queue.say(Draft("go"))
    await until(lambda: session.running)
    queue.queue(Draft("never"))
    queue.stop()
    await queue.idle()
    shown = []
    await queue.close(on_released=lambda: shown.append(recorder.events[-1]))
    assert (session.sent, session.closed, shown) == (["go"], True, [Titled("late")])


async def test_session_that_does_not_close_is_abandoned_after_the_timeout():
    class Stuck(FakeSession):
        async def close(self, on_released=None):
            await asyncio.Event().wait()

    session = Stuck([[Wait()]])
    queue, _ = queue_for(session)
    queue.say(Draft("go"))
    await until(lambda: session.running)
    await queue.close(turn_timeout=1, timeout=0.01)
    assert (session.background.kills, queue.running) == (1, False)


async def test_what_was_pressed_is_handled_before_a_waiting_answer():
    """A key passes some tasks on its way; an answer that is there already must not go first."""
    answer = [TextDelta(f"word{number} ") for number in range(5_000)]
    queue, recorder = queue_for(FakeSession([[*answer, TurnFinished("answered")]]))
    queue.say(Draft("go"))
    while not recorder.events:
        await asyncio.sleep(0)
    for _ in range(8):
        await asyncio.sleep(0)
    assert len(recorder.events) < 500
    await queue.idle()
    assert len(recorder.events) > 5_000
