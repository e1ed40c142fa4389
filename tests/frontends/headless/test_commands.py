"""Slash commands in headless, in whole sessions."""

import io
import json
import os

import pytest

from ouro.assemble import opener
from ouro.commands.all_actions import COMMANDS
from ouro.frontends.headless.headless import HeadlessOptions, Streams, run_headless
from ouro.llm import ScriptedModel
from ouro.session import OpenRequest
from ouro.session_options import Options


@pytest.fixture(autouse=True)
def without_memory(monkeypatch):
    """Only the agent asks the model."""
    monkeypatch.setenv("OURO_MEMORY_ENABLED", "false")


class Ran:
    def __init__(self, code, out, err, model):
        self.code, self.out, self.err, self.model = code, out, err, model

    @property
    def result(self):
        return json.loads(self.out.splitlines()[-1])

    @property
    def results(self):
        lines = map(json.loads, self.out.splitlines())
        return [line for line in lines if line["type"] == "result"]


async def run(folder, prompt, *replies, stdin="", resume="", **more):
    model = ScriptedModel(replies)
    options = Options(cwd=folder, settings={}, trust=True, ready_model=model)
    out, err = io.StringIO(), io.StringIO()
    reads, writes = os.pipe()
    os.write(writes, stdin.encode())
    os.close(writes)
    streams = Streams(reads, out, err)
    try:
        code = await run_headless(
            opener(options), OpenRequest(resume), HeadlessOptions(prompt, **more), streams
        )
    finally:
        os.close(reads)
    return Ran(code, out.getvalue(), err.getvalue(), model)


async def test_what_needs_no_screen_is_answered_without_the_model(repository):
    ran = await run(repository, "/status")
    assert (ran.code, ran.err, ran.model.requests) == (0, "", [])
    assert f"**Folder**: `{repository}`" in ran.out


async def test_json_has_the_text_and_the_value_of_the_command(repository):
    ran = await run(repository, "/usage", output="json")
    assert (ran.code, ran.result["outcome"], ran.result["turns"]) == (0, "answered", 0)
    assert ran.result["result"].startswith("This session: nothing")
    assert ran.result["data"]["session"]["total"]["input"] == 0


async def test_an_unknown_command_is_named_with_the_nearest_and_not_sent(repository):
    ran = await run(repository, "/usge")
    assert (ran.code, ran.out, ran.model.requests) == (2, "", [])
    assert ran.err.startswith("ouro: There is no command /usge. Did you mean /usage")
    ran = await run(repository, "/usge", output="json")
    assert (ran.result["outcome"], ran.result["exit_code"]) == ("failed", 2)
    assert "/usage" in ran.result["detail"]


@pytest.mark.parametrize("text", ["/etc/hosts is odd", "/tmp", "/* a comment", "5 / 2", "# Title"])
async def test_a_path_and_other_text_stay_messages(repository, text):
    ran = await run(repository, text, "Yes.")
    assert (ran.code, ran.out) == (0, "Yes.\n")
    assert text in ran.model.requests[0].messages[-1].text


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("/resume", "ouro sessions list"),
        ("/resume latest", "ouro -p --resume latest"),
        ("/clear", "each `ouro -p` begins a new session"),
        ("/transcript", "ouro sessions show"),
        ("/find word", "ouro sessions show"),
        ("/theme light", "ouro config set tui.theme light"),
        ("/vim", "ouro config set tui.editing vim"),
        ("/model", "Name one after the command: "),
        ("/permissions", "ask, edit, plan, auto"),
        ("/permissions auto", "Start with `--mode auto`"),
        ("/bg", "ouro --bg"),
        ("/exit", "ends with its answer"),
        ("/loop 10m look", "cron"),
    ],
)
async def test_what_needs_a_screen_says_what_to_use_instead(repository, command, advice):
    if command.startswith("/loop"):
        with pytest.raises(Exception, match=advice):
            await run(repository, command)
        return
    ran = await run(repository, command)
    assert (ran.code, ran.out, ran.model.requests) == (2, "", [])
    assert advice in ran.err


async def test_commands_on_messages_change_the_resumed_session(repository):
    first = await run(repository, "hello", "Hi.", output="json")
    session = first.result["session_id"]
    await run(repository, "and more", "Yes.", resume=session)
    for command, advice in (("/rewind", "`/rewind 2`"), ("/copy", "sessions show")):
        assert advice in (await run(repository, command, resume=session)).err
    undone = await run(repository, "/undo", resume=session)
    assert (undone.code, "The message was: and more" in undone.out) == (0, True)
    ran = await run(repository, "again", "Third.", resume=session)
    assert "and more" not in str(ran.model.requests[0].messages)
    assert "hello" in str(ran.model.requests[0].messages)


async def test_compact_needs_no_review_without_a_user(repository):
    first = await run(repository, "hello " * 3000, "Hi.", output="json")
    session = first.result["session_id"]
    for word in ("two", "three", "four", "five"):
        await run(repository, word * 3000, f"{word}. " * 500, resume=session)
    ran = await run(repository, "/compact", "## Goal\nA short summary.", resume=session)
    assert ran.code == 0
    assert "There is no user" not in ran.err


async def test_a_command_with_a_message_sends_it_in_the_same_run(repository):
    ran = await run(repository, "/plan say hi", "Hi.")
    assert (ran.code, ran.out) == (0, "Hi.\n")
    assert "Mode plan" in ran.err


async def test_settings_are_printed_and_changed(repository, home):
    assert (await run(repository, "/config tui.theme")).out == "auto\n"
    assert "permissions.mode" in (await run(repository, "/config")).out
    assert (await run(repository, "/config set tui.theme light")).code == 0
    assert "light" in (home / ".ouro/config.yaml").read_text()


async def test_a_schema_is_not_for_commands(repository):
    ran = await run(repository, "/status", output="json", schema='{"type": "object"}')
    assert (ran.code, ran.result["outcome"]) == (2, "failed")


async def test_a_command_among_json_lines_has_its_own_result_and_an_error_ends_nothing(repository):
    texts = ("/nope", "/status", "hello")
    lines = "".join(f"{json.dumps({'type': 'user', 'text': text})}\n" for text in texts)
    ran = await run(repository, "", "Hi.", stdin=lines, input="stream-json", output="stream-json")
    failed, status, answer = ran.results
    assert (failed["outcome"], failed["exit_code"]) == ("failed", 2)
    assert status["data"]["mode"] == "ask"
    assert (answer["result"], ran.code) == ("Hi.", 0)


async def test_e3_text_of_a_pipe_is_no_command(repository, home):
    ran = await run(repository, "", "Well.", stdin="/config set permissions.mode auto\n")
    assert (ran.code, ran.out) == (0, "Well.\n")
    assert "The message was sent as it is" in ran.err
    assert not (home / ".ouro/config.yaml").exists()


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.place != "prompt"])
async def test_each_command_ends_in_headless_with_an_answer_or_an_error(
    repository, command, monkeypatch
):
    """None waits for a user, and none fails with a defect."""
    if command.name in ("doctor", "feedback", "loop", "goal", "sync", "pr"):
        pytest.skip("it looks at this machine, reaches a server or has its own tests")
    ran = await run(repository, f"/{command.name}", "Yes.", "Yes.", output="json")
    assert ran.code in (0, 1, 2)
    assert "Error:" not in ran.result["detail"]


async def test_the_plans_are_listed_and_one_is_printed(repository):
    folder = repository / ".ouro" / "plans"
    folder.mkdir(parents=True)
    for name in ("a cache", "a queue"):
        text = f"---\nstate: approved\n---\n# Plan: {name}\n\n1. [x] Measure\n2. [ ] Add {name}\n"
        (folder / f"2026-11-29-{name.replace(' ', '-')}.md").write_text(text)
    ran = await run(repository, "/plans", output="json")
    assert ran.code == 0
    assert "2026-11-29-a-queue.md" in ran.result["result"]
    assert [plan["state"] for plan in ran.result["data"]] == ["1 of 2 steps done"] * 2
    ran = await run(repository, "/plans queue")
    assert (ran.code, ran.err) == (0, "")
    assert "[ ] Add a queue" in ran.out
    assert "a cache" not in ran.out
