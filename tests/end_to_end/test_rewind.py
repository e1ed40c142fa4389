"""Rewinds, forks and titles as a user makes them."""

import pytest
from fakes.model_server import Reply
from fakes.ouro_program import OuroProgram

from ouro.session.titles import INSTRUCTIONS


def said(request):
    return [line for message in request.messages if message["role"] == "user"
            for line in str(message["content"]).split("\\n") if line.startswith("say:")]  # fmt: skip


def rewind_screen(terminal):
    terminal.send("\x1b")
    terminal.read(0.1)
    terminal.send("\x1b")
    terminal.until_shows("Rewind to a message")


def test_message_is_edited_and_resent_and_resume_continues_there(ouro):
    terminal = ouro.screen()
    terminal.say("say: first answer")
    terminal.until_shows("  first answer")
    terminal.say("say: a wrong turn")
    terminal.until_shows("  a wrong turn")
    rewind_screen(terminal)
    terminal.until_shows("❯ say: a wrong turn")
    terminal.send("\r")
    terminal.until_shows("Rewound to here", "❯ say: a wrong turn")
    terminal.send("\x7f" * 4 + "way\r")
    terminal.until_shows("  a wrong way")
    rewind_screen(terminal)
    terminal.until_shows("↳ left: say: a wrong turn")
    terminal.send("\x1b")
    terminal.until_gone("Rewind to a message")
    before = ouro.server.requests[-1]
    assert "a wrong turn" not in before.raw.decode()
    assert terminal.leave() == 0
    again = ouro.headless("-p", "say: and on", "--continue")
    assert (again.code, again.out) == (0, "and on\n")
    after = ouro.server.requests[-1]
    assert after.messages[: len(before.messages)] == before.messages
    assert "a wrong turn" not in after.raw.decode()


def test_a_fork_on_the_command_line_leaves_the_session_unchanged(ouro):
    first = ouro.headless("-p", "say: once", "--output", "json")
    assert first.code == 0
    copy = ouro.headless("-p", "say: twice", "--resume", "latest", "--fork", "--output", "json")
    assert copy.lines[0]["session_id"] != first.lines[0]["session_id"]
    assert "once" in ouro.server.requests[-1].raw.decode()
    sessions = {info["id"]: info["messages"] for info in ouro.sessions()}
    assert sessions == {first.lines[0]["session_id"]: 2, copy.lines[0]["session_id"]: 4}


def test_fork_without_a_session_is_a_usage_error(ouro):
    done = ouro.headless("-p", "say: x", "--fork")
    assert (done.code, done.out) == (2, "")
    assert "Name it with --resume" in done.err


def test_the_plain_prompt_rewinds_and_forks_by_numbers(ouro):
    lines = [
        "say: one",
        "say: two",
        "/rewind",
        "1",
        "1",
        "say: three",
        "/redo",
        "/undo",
        "/fork Another",
        "/exit",
    ]
    done = ouro.headless("--plain", given="\n".join(lines) + "\n")
    assert done.code == 0
    assert "1. say: two — 2 messages" in done.out
    assert "The message was:\nsay: two" in done.out.replace("· ", "")
    assert "There is nothing to redo" in done.out
    assert "This is a copy" in done.out
    assert {each["title"] for each in ouro.sessions()} == {"say: one", "Another"}


@pytest.fixture
def with_titles(model_server, repository):
    """ouro with its default setting: a model writes titles."""
    program = OuroProgram(model_server, repository, titles=True)
    yield program
    program.close()


def test_title_is_found_after_the_first_turn_in_the_background(with_titles):
    def reply(request):
        is_title = INSTRUCTIONS in str(request.messages[0]["content"])
        return Reply("Greet well" if is_title else "It is fixed.")

    with_titles.server.script(reply)
    terminal = with_titles.screen(size=(24, 180))
    terminal.say("please fix the greeting in api.py, it is wrong")
    terminal.until_shows("It is fixed.", "Greet well")
    terminal.leave()
    assert [each["title"] for each in with_titles.sessions()] == ["Greet well"]
    asked = with_titles.server.requests
    assert [bool(each.tools) for each in asked] == [True, False]
    with_titles.headless("-p", "one question")
    assert len(asked) == 3
