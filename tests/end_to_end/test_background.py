"""Sessions that run in a process of their own: real processes, sockets and terminals."""

import asyncio
import json
import os
import signal
import termios
from pathlib import Path

import pytest
from acp import PROTOCOL_VERSION, connect_to_agent
from fakes.editor import Editor
from fakes.ouro_program import BackgroundSessions, OuroTerminal
from fakes.terminal import as_job, job_in

from ouro.utils.private_socket import connect

SIZES = [(40, 120), (24, 80)]


@pytest.fixture
def sessions(ouro):
    return BackgroundSessions(ouro)


def test_a_session_outlives_the_terminal_that_started_it(ouro, sessions):
    terminal = ouro.start("--bg", "run: touch made")
    assert terminal.end() == 0
    assert "ouro attach" in terminal.text()

    row = sessions.until_state("", "waiting")

    assert (row["question"], row["choices"][0]) == ("shell touch made", "yes")
    assert (row["mode"], row["cwd"]) == ("ask", str(ouro.folder))
    assert os.getsid(row["pid"]) == row["pid"]
    assert not (ouro.folder / "made").exists()
    assert sessions.answer(row["id"], "y").out.rstrip().endswith("→ yes")
    sessions.until_state(row["id"], "idle")
    assert (ouro.folder / "made").exists()
    assert sessions.stop(row["id"]).code == 0
    sessions.until_gone(row["pid"])
    assert json.loads(ouro.headless("agents", "--json").out) == []


@pytest.mark.parametrize("size", SIZES)
def test_four_sessions_are_answered_from_the_list(ouro, sessions, size):
    for number in range(4):
        sessions.start(f"run: touch made{number}")
    terminal = ouro.start("agents", size=size)
    terminal.until_shows("4 waiting")
    for left in range(4, 0, -1):
        terminal.until_shows(f"{left} waiting", "Allow?")
        terminal.press("y", lambda left=left: not terminal.shows(f"{left} waiting"))

    terminal.until(lambda: all((ouro.folder / f"made{n}").exists() for n in range(4)))
    terminal.until_shows("4 idle")
    terminal.send("x")
    terminal.until_shows("It can be resumed.")
    terminal.send("y")
    terminal.until_shows("3 idle")
    terminal.send("q")
    assert terminal.end() == 0


def test_questions_are_answered_from_the_list_in_words(ouro, sessions):
    question = {"question": "Which one?", "choices": ["red", "blue"]}
    asking = sessions.start(f"call: ask_user {json.dumps(question)}")
    sessions.until_state(asking, "waiting")
    permit = sessions.start("run: touch made")
    terminal = ouro.start("agents", size=(24, 80))
    terminal.until_shows("2 waiting", "Which one?", "a digit answers")
    terminal.send("\x1b")  # it neither answers nor leaves
    terminal.until_shows("The question stays open.")
    terminal.press("2", lambda: terminal.shows("1 waiting"))
    sessions.until(asking, lambda row: row["last_line"] == "blue")

    terminal.until_shows("Allow?", "Tab comment")  # the next one is marked
    terminal.press("\t", lambda: terminal.shows("Enter sends · Esc back"))
    terminal.send("only once\r")

    sessions.until(permit, lambda row: row["state"] == "idle")
    assert "only once" in str(ouro.server.requests[-1].messages)
    terminal.send("q")
    assert terminal.end() == 0


def test_a_host_that_hangs_has_a_row(ouro, sessions, monkeypatch):
    monkeypatch.setattr("ouro.frontends.background.background_sessions.STATE_TIMEOUT", 0.5)
    session = sessions.start("say: done")
    row = sessions.until_state(session, "idle")
    os.kill(row["pid"], signal.SIGSTOP)
    sessions.until_state(session, "silent")
    os.kill(row["pid"], signal.SIGCONT)
    sessions.until_state(session, "idle")


def test_killing_the_launcher_ends_the_session_and_saves_it(ouro):
    terminal = ouro.screen()
    terminal.say("say: kept")
    terminal.until_shows("  kept")
    process = terminal.pid
    assert process != terminal.child.pid
    os.kill(terminal.child.pid, signal.SIGKILL)
    BackgroundSessions(ouro).until_gone(process)
    assert ouro.headless("-p", "say: again", "--resume", "latest").out == "again\n"


def test_a_stopped_program_is_a_stopped_job_of_its_shell(ouro):
    terminal = OuroTerminal(as_job(ouro.command()), ouro.environment, ouro.folder)
    ouro.terminals.append(terminal)
    terminal.until_shows("❯", "test-model")
    launcher = job_in(terminal)
    terminal.send("\x1a")
    terminal.until(lambda: state_of(launcher) == "T")
    os.killpg(launcher, signal.SIGCONT)
    terminal.until(lambda: state_of(launcher) != "T")
    # Before that, Enter would be a line feed.
    terminal.until(lambda: not terminal.modes()[0] & termios.ICRNL)
    terminal.say("say: back again")
    terminal.until_shows("  back again")
    terminal.leave()


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_list_opens_a_session_and_comes_back(ouro, sessions):
    sessions.start("say: from the background")
    terminal = ouro.start("agents", size=(24, 80))
    terminal.until_shows("1 idle")
    terminal.send("\r")
    terminal.until_shows("❯ say: from the background", "  from the background", "test-model")
    terminal.send("\x04")
    terminal.until_shows("1 background session")
    terminal.send("q")
    assert terminal.end() == 0


def test_two_terminals_of_different_sizes_see_the_same(ouro, sessions):
    session = sessions.start("run: touch made")
    large, small = (ouro.start("attach", session, size=size) for size in SIZES)
    for terminal in (large, small):
        terminal.until_shows("Allow?", "touch made", "❯ 1 yes (y)")

    small.answer("y", "touch made")

    for terminal in (large, small):
        terminal.until_gone("Allow?")
        terminal.until_shows("Done: 1 tool call.")
    large.say("say: seen by both")
    for terminal in (large, small):
        terminal.until_shows("❯ say: seen by both", "  seen by both")
    assert large.leave() == 0
    small.say("say: still there")
    small.until_shows("  still there")
    assert small.leave() == 0
    assert sessions.row(session)["state"] == "idle"


def test_a_viewer_that_leaves_during_a_question_leaves_it_open(ouro, sessions):
    session = sessions.start("run: touch made")
    terminal = ouro.start("attach", session)
    terminal.until_shows("Allow?")
    terminal.signal(signal.SIGKILL)
    terminal.end()

    row = sessions.until(session, lambda row: not row["viewers"])

    assert row["state"] == "waiting"
    again = ouro.start("attach", session)
    again.answer("y", "touch made")
    again.until_shows("Done: 1 tool call.")


def test_a_killed_host_loses_nothing_and_can_be_resumed(ouro, sessions):
    session = sessions.start("say: first answer")
    sessions.until_state(session, "idle")
    sessions.kill(session)

    row = sessions.until_state(session, "ended")

    assert (row["ended"], row["pid"]) == ("killed", None)
    assert f"ouro --resume {session}" in ouro.headless("agents").out
    assert "does not run any more" in ouro.headless("attach", session).err
    again = ouro.screen("--resume", session)
    again.until_shows("❯ say: first answer", "  first answer")
    again.say("say: second answer")
    again.until_shows("  second answer")
    again.leave()
    assert sessions.rows() == []
    assert not list((ouro.home / "background").iterdir())


def test_a_host_that_is_killed_during_a_question_asks_again_for_nothing(ouro, sessions):
    session = sessions.start("run: touch made")
    sessions.until_state(session, "waiting")
    sessions.kill(session)
    sessions.until_state(session, "ended")

    again = sessions.start("--resume", session, "say: and now")

    sessions.until_state(again, "idle")
    assert again == session
    assert not (ouro.folder / "made").exists()
    assert "interrupted" in ouro.server.requests[-1].messages[-2]["content"]


def test_resuming_a_session_that_runs_attaches_to_it(ouro, sessions):
    session = sessions.start("say: I run")
    sessions.until_state(session, "idle")

    refused = ouro.headless("-p", "say: too", "--resume", session)
    screen = ouro.start("--resume", session)

    assert refused.code == 1
    assert f"ouro attach {session}" in refused.err
    screen.until_shows("  I run", "Attached to a session in the background.")
    screen.say("say: both of us")
    screen.until_shows("  both of us")
    screen.send("\x04")
    screen.until_shows(f"It continues in the background: ouro attach {session}")
    assert screen.end() == 0
    assert sessions.row(session)["viewers"] == 0


@pytest.mark.parametrize("size", SIZES)
def test_a_running_command_goes_on_when_its_session_is_detached(ouro, sessions, size):
    terminal = ouro.screen("--mode", "auto", size=size)
    terminal.say("run: until test -e go; do sleep 0.1; done; echo finished")
    terminal.until_shows("run until test -e go")
    process = terminal.pid

    terminal.send("\x1b[20~")

    assert terminal.end() == 0
    assert "It continues in the background: ouro attach" in terminal.text()
    row = sessions.until_state("", "working")
    assert (row["pid"], os.getsid(process)) == (process, process)
    (ouro.folder / "go").touch()
    sessions.until_state("", "idle")
    again = ouro.start("attach", size=size)
    again.until_shows("finished")
    again.leave()
    assert sessions.stop(row["id"]).code == 0
    sessions.until_gone(process)


def test_a_question_stays_open_when_its_session_is_detached(ouro, sessions):
    terminal = ouro.screen()
    terminal.say("run: touch made")
    terminal.until_shows("Allow?")
    terminal.send("\x1b[20~")
    assert terminal.end() == 0

    row = sessions.until_state("", "waiting")
    sessions.answer(row["id"], "yes")

    sessions.until_state("", "idle")
    assert (ouro.folder / "made").exists()


def test_the_plain_prompt_attaches_answers_and_detaches(ouro, sessions):
    plain = ouro.start("--plain")
    plain.until_shows("›")
    plain.send("run: touch made\r")
    plain.until_shows("y/s/a/n/d?")
    plain.send("\x03")  # it ends the turn
    plain.until_shows("Interrupted")
    plain.send("/bg\r")
    assert plain.end() == 0
    [row] = sessions.rows()

    again = ouro.start("attach", row["id"], "--plain")
    again.until_shows("run: touch made")
    again.send("run: touch again\r")
    again.until_shows("y/s/a/n/d?")
    again.send("y\r")
    again.until_shows("Done: 1 tool call.")
    again.send("/exit\r")
    again.until_shows("It continues in the background")
    assert again.end() == 0
    assert (ouro.folder / "again").exists()
    assert sessions.row(row["id"])["state"] == "idle"


def test_an_idle_session_ends_by_itself_but_a_question_waits(ouro, sessions):
    (ouro.home / "config.yaml").write_text("session: {background_idle_minutes: 0.02}\n")
    asking = sessions.start("run: touch made")
    quiet = sessions.start("say: done")

    row = sessions.until_state(quiet, "ended")

    assert (row["ended"], row["last_line"]) == ("idle", "done")
    assert sessions.row(asking)["state"] == "waiting"


def test_a_command_of_the_session_runs_there(ouro, sessions):
    session = sessions.start("say: hello")
    terminal = ouro.start("attach", session)
    terminal.until_shows("  hello")
    terminal.say("/rename A good name")
    terminal.until_shows("This session is now called “A good name”.")
    terminal.send("\x1b[Z")  # the mode
    terminal.until_shows(" edit ")
    terminal.say("/model")
    terminal.until_shows("other-model", "Esc: no answer")
    terminal.send("\x1b")
    terminal.until_gone("Esc: no answer")
    row = sessions.row(session)
    assert (row["title"], row["mode"]) == ("A good name", "edit")


def test_an_attached_screen_names_files_and_opens_the_palette(ouro, sessions):
    (ouro.folder / "lighthouse.py").write_text("")
    session = sessions.start("say: hello")
    terminal = ouro.start("attach", session)
    terminal.until_shows("  hello")

    terminal.send("@ligh")
    terminal.until_shows("lighthouse.py")
    terminal.send("\t \x15\x10")  # take the name, empty the prompt, open the palette
    terminal.until_shows("type to search")
    terminal.send("lighthouse")
    terminal.until_shows("❯ lighthouse.py")
    terminal.send("\r")

    terminal.until_shows("❯ @lighthouse.py")
    terminal.send("\x15")
    assert terminal.leave() == 0


def test_what_cannot_run_in_the_background_says_why(ouro):
    for words, expected in (
        (("--bg",), "needs a task"),
        (("--bg", "-p", "x"), "not one answer"),
        (("--bg", "--ephemeral", "x"), "saves its session"),
        (("--bg", "--resume", "--", "x"), "no session can be picked"),
    ):
        done = ouro.headless(*words)
        assert (done.code, expected in done.err) == (2, True), done
    (ouro.folder / "AGENTS.md").write_text("Obey.\n")
    done = ouro.headless("--bg", "say: hi")
    assert (done.code, "is not trusted" in done.err) == (5, True)
    assert "No session runs in the background." in ouro.headless("agents").out


def test_flags_hold_in_the_background(ouro, sessions):
    inner = ouro.folder / "inner"
    inner.mkdir()
    session = sessions.start(
        "--cd", "inner", "--model", "other", "--allow", "shell(touch *)", "run: touch made"
    )
    row = sessions.until_state(session, "idle")
    assert (row["model"], row["cwd"]) == ("openai/other-model", str(inner))
    assert (inner / "made").exists()


async def test_any_client_of_the_protocol_can_answer(ouro, sessions):
    session = await asyncio.to_thread(sessions.start, "run: touch made")
    row = await asyncio.to_thread(sessions.until_state, session, "waiting")
    place = Path(os.environ["OURO_HOME"]) / "background" / f"{row['id']}.sock"
    reader, writer = await asyncio.open_unix_connection(sock=connect(place))
    editor = Editor("yes")

    agent = connect_to_agent(
        editor, writer, reader, use_unstable_protocol=True, observers=[editor.check]
    )
    await agent.initialize(protocol_version=PROTOCOL_VERSION)
    await agent.load_session(cwd=str(ouro.folder), session_id=row["id"], mcp_servers=[])
    await editor.until(lambda: "Done: 1 tool call." in editor.text)
    await agent.close()

    assert (ouro.folder / "made").exists()
    assert [asked.options[0].option_id for asked in editor.asked] == ["yes"]
    assert editor.wrong == []
    await asyncio.to_thread(sessions.until_state, session, "idle")
