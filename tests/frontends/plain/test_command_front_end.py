"""The plain prompt prints a session, starting at the requested message."""

from types import SimpleNamespace

import pytest
from fakes.fake_session import FakeSession, Wait
from fakes.fake_session import opener as fake_opener
from fakes.waiting import until

from ouro.assemble import Options, opener
from ouro.errors import UsageError
from ouro.frontends.plain.command_front_end import ReplFrontEnd
from ouro.frontends.plain.line_questions import LineQuestions
from ouro.frontends.plain.printer import Printer
from ouro.llm import ScriptedModel
from ouro.memory.backend import MessageRecord, RewindRecord, SessionHeader
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import assistant, user
from ouro.session import Draft, OpenRequest, TurnObserver, TurnQueue
from ouro.utils.ouro_paths import get_sessions_dir

AT = "2026-11-20T10:00:00.000Z"
TURNS = 60


@pytest.fixture
async def print_from(repository):
    """The output when a session is opened at a message. It has 60 turns; a rewind removed those
    after the 40th.
    """
    store = YamlFileMemoryStore(get_sessions_dir(), str)
    await store.create_session(SessionHeader("s-old", str(repository), "m", AT))
    for turn in range(1, TURNS + 1):
        await store.save_memory("s-old", MessageRecord(2 * turn - 1, AT, user(f"message {turn}.")))
        await store.save_memory(
            "s-old", MessageRecord(2 * turn, AT, assistant("More of it. " * 400))
        )
    await store.save_memory("s-old", RewindRecord(80, AT, ("conversation",)))
    await store.save_memory("s-old", MessageRecord(2 * TURNS + 1, AT, user("another way.")))
    await store.close_session("s-old")
    texts: list[str] = []
    printer, questions = Printer(texts.append, plain=True), LineQuestions(lambda: None)
    turns = TurnQueue(TurnObserver())
    repl = SimpleNamespace(
        redraw=lambda: None, fill=lambda _text: True, begin_session=lambda _session: None
    )
    open_session = opener(Options(repository, ready_model=ScriptedModel([])))
    front_end = ReplFrontEnd(open_session, None, printer, questions, turns, repl)

    async def begin(message):
        await front_end.begin(OpenRequest("s-old", read_only=True, message=message))
        return "".join(texts)

    yield begin
    await front_end.session.close()
    await turns.close()


async def test_a_message_that_steers_the_turn_goes_to_the_session_that_is_opened():
    first, second = FakeSession([[Wait()]]), FakeSession(session_id="s-2")
    turns = TurnQueue(TurnObserver(), holds_after_interrupt=True)
    printer, questions = Printer(lambda _text: None, plain=True), LineQuestions(lambda: None)
    repl = SimpleNamespace(redraw=lambda: None, begin_session=lambda _session: None)
    open_session = fake_opener(first, second)
    front_end = ReplFrontEnd(open_session, None, printer, questions, turns, repl)
    await front_end.begin(OpenRequest())
    turns.say(Draft("go"))
    await until(lambda: first.running)
    turns.say(Draft("and this"))
    await front_end.open(OpenRequest("s-2"))
    assert not turns.running
    assert turns.waiting == ("and this",)
    turns.say(Draft("now"))
    await until(lambda: second.sent == ["and this", "now"])
    await turns.close()


async def test_session_is_printed_from_an_early_message(print_from):
    text = await print_from(5)
    assert ("message 2." in text, "message 3." in text, "message 4." in text, "another way." in text) == (
        False, True, True, True,
    )  # fmt: skip


async def test_session_is_printed_from_a_message_of_an_abandoned_branch(print_from):
    text = await print_from(2 * 50)  # the answer of the model
    assert ("message 49." in text, "message 50." in text, "message 60." in text) == (
        False,
        True,
        True,
    )
    assert "another way." not in text
    assert "on a branch that was left by a rewind" in text


async def test_missing_message_is_reported_and_the_end_printed(print_from):
    text = await print_from(999)
    assert "Message 999 is not in this session any more." in text
    assert "another way." in text


async def test_the_terminal_sets_the_colours():
    front_end = ReplFrontEnd.__new__(ReplFrontEnd)
    for name in ("", "light"):
        with pytest.raises(UsageError, match="the colours are those of your terminal"):
            await front_end.use_theme(name)


def test_copy_uses_xclip_or_the_terminal_sequence(monkeypatch, tmp_path):
    (tmp_path / "xclip").write_text(f"#!/bin/sh\ncat > {tmp_path}/clip\n")
    (tmp_path / "xclip").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    front_end = ReplFrontEnd.__new__(ReplFrontEnd)
    front_end._printer = Printer([].append, plain=True)

    assert front_end.copy("an answer") == "with xclip"
    assert (tmp_path / "clip").read_text() == "an answer"
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("TMUX", raising=False)
    with pytest.raises(UsageError, match="Use /export"):
        front_end.copy("an answer")
    sent = []
    front_end._printer = Printer(sent.append, plain=False)
    assert "may refuse" in front_end.copy("an answer")
    assert sent == ["\x1b]52;c;YW4gYW5zd2Vy\a"]


def test_text_in_angle_brackets_is_printed():
    texts: list[str] = []
    Printer(texts.append, plain=False).print_markdown(
        "Use Vec<T> and <b>list</b>.\n\n<div>\nhello\n</div>"
    )
    printed = "".join(texts)
    assert all(part in printed for part in ("Vec<T>", "<b>list</b>", "<div>", "hello"))


def test_a_name_in_code_keeps_its_underscores():
    texts: list[str] = []
    Printer(texts.append, plain=False).print_markdown("See __init__.py.")
    assert "__init__.py" in "".join(texts)
