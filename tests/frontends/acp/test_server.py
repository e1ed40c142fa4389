"""ouro as the agent of an editor: the SDK's own client, a real session, a model server on loopback."""

from __future__ import annotations

import asyncio
import base64
import json
import shlex
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import get_args
from unittest.mock import AsyncMock

import pytest
from acp import (
    RequestError,
    embedded_text_resource,
    image_block,
    resource_block,
    resource_link_block,
    text_block,
)
from acp import schema as acp
from fakes.editor import Editor, connected
from fakes.fake_session import FakeSession, says
from fakes.model_server import Call, Reply, agent, failure
from fakes.ouro_program import ANTHROPIC, OuroProgram

from ouro.events import Outcome, ToolStarted
from ouro.frontends.acp.editor_session import EditorSession
from ouro.frontends.acp.server import STOP_REASONS, _mcp_servers
from ouro.frontends.acp.updates import EventUpdates, prompt_usage
from ouro.llm import call
from ouro.messages import Usage


@pytest.fixture
def ouro(model_server, repository, monkeypatch):
    """The program in a repository; its model follows the lines of a prompt."""
    model_server.script(agent)
    monkeypatch.setenv("OURO_SESSIONS_TITLES", "false")
    return OuroProgram(model_server, repository)


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def test_a_prompt_with_tools_plan_and_permission(ouro):
    todos = {"todos": [{"text": "Mend it", "state": "in_progress"}]}
    edit = {"path": "api.py", "edits": [{"old_text": "'hello '", "new_text": "'hi '"}]}
    ouro.server.script([
        Reply("I look.", thinking="Hm.", calls=[Call("read", {"path": "api.py", "offset": 4}), Call("todo", todos)]),
        Reply(calls=[Call("edit", edit)]),
        Reply("Done."),
    ])  # fmt: skip
    editor = Editor("yes")
    async with connected(ouro, editor) as connection:
        opened = await connection.new()
        assert await connection.say("Mend it.") == "end_turn"
        await editor.until(lambda: editor.of("usage_update"))
    assert opened.modes.current_mode_id == "ask"
    assert [option.id for option in opened.config_options] == [
        "mode",
        "model",
    ], "this model does not think"
    assert editor.text.startswith("I look.Done.")
    assert "".join(chunk.content.text for chunk in editor.of("agent_thought_chunk")) == "Hm."
    [plan] = editor.of("plan")
    assert [(entry.content, entry.status) for entry in plan.entries] == [("Mend it", "in_progress")]
    calls = {call.title: call for call in editor.of("tool_call")}
    read, change = calls["read api.py:4-"], calls["edit api.py"]
    assert (read.kind, read.locations[0].path, read.locations[0].line) == (
        "read",
        str(ouro.folder / "api.py"),
        4,
    )
    assert (change.kind, change.status) == ("edit", "pending")
    [asked] = editor.asked
    assert asked.tool_call.tool_call_id == change.tool_call_id
    assert [option.kind for option in asked.options] == [
        "allow_once",
        "allow_always",
        "allow_always",
        "reject_once",
        "reject_once",
    ]
    assert asked.options[1].name == "Allow all edits in this session"
    assert asked.options[2].name == "Always allow write(./api.py)"
    diff = asked.tool_call.content[0]
    assert (diff.path, "'hello '" in diff.old_text, "'hi '" in diff.new_text) == (
        str(ouro.folder / "api.py"),
        True,
        True,
    )
    *_, running, done = (
        update
        for update in editor.of("tool_call_update")
        if update.tool_call_id == change.tool_call_id
    )
    assert running.status == "in_progress"
    assert (done.status, done.content[0].type, done.locations[0].line) == ("completed", "diff", 5)
    assert "'hi '" in (ouro.folder / "api.py").read_text()
    names = {
        command.name: command
        for command in editor.of("available_commands_update")[0].available_commands
    }
    assert {"compact", "memory", "undo", "model"} <= set(names)
    assert names["model"].input.root.hint == "[name|next|previous|favorite]"
    assert "exit" not in names


@pytest.mark.parametrize(("answer", "told"), [("no", "The user refused"), ("cancelled", "The user refused"),
                                              ("error", "could not ask")])  # fmt: skip
async def test_denied_permission_prevents_the_call(ouro, answer, told):
    ouro.server.script([Call("write", {"path": "made.txt", "content": "x"}), "Well."])
    async with connected(ouro, editor := Editor(answer)) as connection:
        await connection.new()
        assert await connection.say("Go.") == "end_turn"
    assert not (ouro.folder / "made.txt").exists()
    assert told in ouro.server.requests[-1].results[0]
    assert editor.of("tool_call_update")[-1].status == "failed"


async def test_always_saves_the_rule(ouro):
    write = [
        Call("write", {"path": "made.txt", "content": "x"}),
        Call("write", {"path": "made.txt", "content": "y"}),
    ]
    ouro.server.script([*write, "Done."])
    async with connected(ouro, editor := Editor("always")) as connection:
        await connection.new()
        await connection.say("Go.")
    assert ((ouro.folder / "made.txt").read_text(), len(editor.asked)) == ("y", 1)
    assert "write(./made.txt)" in (ouro.home / "permissions.yaml").read_text()


async def test_images_files_and_links_reach_the_model(ouro):
    ouro.server.script(["Seen."])
    file = ouro.folder / "api.py"
    async with connected(ouro, Editor()) as connection:
        await connection.new()
        await connection.say(
            "Compare ", resource_link_block("api.py", f"file://{file}"), " with ",
            resource_block(embedded_text_resource(f"file://{file}#L1-2", "import os")), image_block(PIXEL, "image/png"),
            resource_link_block("a b", "file:///tmp/a%20b"), resource_link_block("docs", "https://docs.example/"),
            resource_link_block("terminal", "zed:///agent/terminal-selection?lines=4"),
        )  # fmt: skip
        with pytest.raises(RequestError, match="not audio"):
            await connection.say(
                acp.AudioContentBlock(type="audio", data="", mime_type="audio/wav")
            )
        with pytest.raises(RequestError, match="picture cannot be shown"):
            await connection.say(image_block(base64.b64encode(b"<svg/>").decode(), "image/svg+xml"))
        with pytest.raises(RequestError, match="The prompt is empty"):
            await connection.say("  ")
    prompt = ouro.server.requests[0].prompt
    assert "Compare @api.py with @api.py:1-2 @/tmp/a b @https://docs.example/" in prompt
    # Only the editor can read this link.
    link = "@zed:///agent/terminal-selection?lines=4"
    assert f"{link} [the editor has sent only this link, not its content]" in prompt
    assert "Attached files:\n\n<file path='api.py:1-2'>\nimport os\n</file>" in prompt


async def test_unsaved_files_are_read_and_written_through_the_editor(ouro):
    file = str(ouro.folder / "api.py")
    edit = {"path": "api.py", "edits": [{"old_text": "x = 1", "new_text": "x = 2"}]}
    ouro.server.script([
        Call("read", {"path": "api.py"}), Call("edit", edit), Call("write", {"path": "new.py", "content": "y = 1\n"}),
        Call("read", {"path": "new.py"}), "Done.",
    ])  # fmt: skip
    editor = Editor("yes", "yes")
    editor.buffers[file] = "x = 1\nunsaved = True\n"
    async with connected(ouro, editor, files=True) as connection:
        await connection.new()
        assert await connection.say("Go.") == "end_turn"
    assert "unsaved = True" in ouro.server.requests[1].results[0]
    assert editor.written == {
        file: "x = 2\nunsaved = True\n",
        str(ouro.folder / "new.py"): "y = 1\n",
    }


async def test_cancel_ends_the_turn_and_the_session_continues(ouro):
    ouro.server.script([Call("shell", {"command": "echo begun; sleep 60"}), "Again."])
    editor = Editor("yes")
    async with connected(ouro, editor, field_meta={"terminal_output": True}) as connection:
        await connection.new()
        prompt = asyncio.create_task(connection.say("Go."))
        await editor.until(
            lambda: any("begun" in str(update) for update in editor.of("tool_call_update"))
        )
        await connection.agent.cancel(connection.session_id)
        assert await prompt == "cancelled"
        assert await connection.say("Again.") == "end_turn"
        asking = asyncio.create_task(connection.say("!echo own line"))
        assert await asking == "end_turn"
    [call] = [call for call in editor.of("tool_call") if "sleep" in call.title]
    assert call.content[0].terminal_id == call.tool_call_id
    outputs = [update.field_meta for update in editor.of("tool_call_update") if update.field_meta]
    assert any(meta.get("terminal_output", {}).get("data") == "begun\n" for meta in outputs)


async def test_commands_run_in_editor_terminals_with_the_same_limits(ouro):
    """With permission, in the sandbox, without the editor's keys and without input."""
    lines = ["echo $EDITOR_KEY; cat; echo heron; exit 3", "rm -rf /etc/nothing", "sleep 60"]
    ouro.server.script([*(Call("shell", {"command": line}) for line in lines[:2]), "Done.",
                        Call("shell", {"command": lines[2]})])  # fmt: skip
    editor = Editor("yes", "no", "yes")
    async with connected(ouro, editor, terminal=True) as connection:
        await connection.new()
        assert await connection.say("Go.") == "end_turn"
        assert [*editor.terminals] == editor.released == ["terminal-1"]
        first, second = (request.results[-1] for request in ouro.server.requests[1:3])
        assert first.startswith("\nheron\n[exit code 3")
        assert "The user refused" in second
        shown = [update for update in editor.of("tool_call_update") if update.content]
        assert [item.terminal_id for update in shown[:2] for item in update.content] == [
            "terminal-1"
        ] * 2
        assert shown[1].status == "failed"
        prompt = asyncio.create_task(connection.say("Again."))
        await editor.until(
            lambda: len(editor.terminals) == 2 and editor.of("tool_call_update")[-1].content
        )
        await connection.agent.cancel(connection.session_id)
        assert await prompt == "cancelled"
    assert editor.terminals["terminal-2"].returncode is not None
    assert editor.released == ["terminal-1", "terminal-2"]


async def test_commands_run_without_an_editor_terminal(ouro):
    ouro.server.script([Call("shell", {"command": "echo heron"}), "Done."])
    editor = Editor("yes")
    editor.has_terminals = False
    async with connected(ouro, editor, terminal=True) as connection:
        await connection.new()
        assert await connection.say("Go.") == "end_turn"
    assert ouro.server.requests[-1].results[-1].startswith("heron\n")


async def test_a_cancel_of_a_command_does_not_interrupt_a_later_turn():
    session = FakeSession([says("Something happened.")])
    client = SimpleNamespace(session_update=AsyncMock())
    updates = EventUpdates(session.cwd, terminals={})
    editor = EditorSession(session, client, updates, session.cwd, can_fill_forms=False)
    prompt = asyncio.create_task(editor.prompt([text_block("/help")]))
    await asyncio.sleep(0)  # the prompt has begun
    editor.cancel()
    await prompt
    editor.front_end.queue.start(session.send("as the background does"))
    await editor.front_end.queue.idle()
    assert session.interrupts == 0
    await editor.close()


async def test_an_update_that_cannot_be_sent_holds_up_no_other():
    client = SimpleNamespace(session_update=AsyncMock(side_effect=[ValueError("odd"), None, None]))
    session = FakeSession([says("One.")])
    updates = EventUpdates(session.cwd, terminals={})
    editor = EditorSession(session, client, updates, session.cwd, can_fill_forms=False)
    editor.send(["first", "second"])
    await editor.flush()
    assert [call.args[1] for call in client.session_update.call_args_list] == ["first", "second"]
    await editor.close()


async def test_cancel_closes_an_open_question(ouro):
    ouro.server.script([Call("write", {"path": "made.txt", "content": "x"})])
    async with connected(ouro, editor := Editor("wait")) as connection:
        await connection.new()
        prompt = asyncio.create_task(connection.say("Go."))
        await editor.until(lambda: editor.asked)
        await connection.agent.cancel(connection.session_id)
        assert await prompt == "cancelled"
        assert editor.of("tool_call_update")[-1].status == "failed", "it does not wait any more"
    assert not (ouro.folder / "made.txt").exists()


async def test_commands_change_mode_and_model(ouro):
    ouro.server.script(lambda request: "Hello.")
    editor = Editor("edit — edits files in the project without asking")
    async with connected(ouro, editor) as connection:
        opened = await connection.new()
        client, session = connection.agent, connection.session_id
        await connection.say("/plan")
        assert editor.of("current_mode_update")[-1].current_mode_id == "plan"
        await connection.say("/permissions")
        assert editor.of("current_mode_update")[-1].current_mode_id == "edit"
        await client.set_session_mode(session_id=session, mode_id="plan")
        answer = await client.set_config_option(
            session_id=session, config_id="model", value=ANTHROPIC
        )
        assert [option.id for option in answer.config_options] == ["mode", "model", "effort"]
        answer = await client.set_config_option(
            session_id=session, config_id="model", value="openai/other-model"
        )
        values = {option.id: option.current_value for option in answer.config_options}
        assert values == {"mode": "plan", "model": "openai/other-model"}
        await connection.say("/context")
        await connection.say("/nonsense")
        await connection.say("/exit")
        for config, value, told in (
            ("mode", "wild", "one of ask"),
            ("model", "no-such", "no-such"),
            ("x", "y", "There are"),
        ):
            with pytest.raises(RequestError, match=told) as refused:
                await client.set_config_option(session_id=session, config_id=config, value=value)
            assert refused.value.code == -32602, "another code asks the user to log in"
    assert "There is no command /nonsense" in editor.text
    assert "Close the thread in the editor" in editor.text
    assert {option.value for option in opened.config_options[1].options} >= {
        "openai/test-model",
        "openai/other-model",
    }


async def test_question_is_shown_as_a_form_or_choice(ouro):
    ask = Call("ask_user", {"question": "Which one?", "choices": ["red", "blue"]})
    ouro.server.script([ask, "Well."] * 2)
    first, second = Editor("blue"), Editor()
    second.form = {"answer": "green"}
    async with connected(ouro, first) as connection:
        await connection.new()
        await connection.say("Go.")
    capabilities = acp.ElicitationCapabilities(form=acp.ElicitationFormCapabilities())
    async with connected(ouro, second, elicitation=capabilities) as connection:
        await connection.new()
        await connection.say("Go.")
    assert "blue" in ouro.server.requests[1].results[0]
    assert "green" in ouro.server.requests[3].results[0]


async def test_a_thread_without_messages_is_loaded_again(ouro):
    """As an editor does that starts its agent again, or closes the thread."""
    async with connected(ouro, editor := Editor()) as connection:
        first = (await connection.new()).session_id
        cwd = str(ouro.folder)
        await connection.agent.load_session(cwd=cwd, session_id=first, mcp_servers=[])
        await connection.agent.close_session(session_id=first)
        await connection.agent.load_session(cwd=cwd, session_id=first, mcp_servers=[])
        assert await connection.say("say: one") == "end_turn"
        assert editor.text == "one"
    assert ouro.headless("-p", "say: two", "--resume", first).out == "two\n"


async def test_a_thread_without_messages_is_loaded_by_a_new_agent(ouro):
    """As after a restart of the editor (zed-industries/zed#51565)."""
    cwd = str(ouro.folder)
    async with connected(ouro, Editor()) as connection:
        first = (await connection.new()).session_id
    async with connected(ouro, editor := Editor()) as connection:
        await connection.agent.load_session(cwd=cwd, session_id=first, mcp_servers=[])
        connection.session_id = first
        assert await connection.say("say: one") == "end_turn"
        assert editor.text == "one"
    assert ouro.headless("sessions", "rm", first, "--yes").code == 0
    async with connected(ouro, Editor()) as connection:
        for session_id in (first, str(uuid.uuid4()), "../models.yaml"):
            with pytest.raises(RequestError) as raised:
                await connection.agent.load_session(cwd=cwd, session_id=session_id, mcp_servers=[])
            assert (raised.value.code, str(raised.value)) == (
                -32002,
                f"There is no session {session_id}.",
            )


async def test_a_thread_is_loaded_in_the_middle_of_a_turn_and_the_turn_continues(ouro):
    command = "echo begun; while [ ! -e go ]; do sleep 0.1; done; echo over"
    ouro.server.script([Call("shell", {"command": command}), "Done."])
    async with connected(ouro, editor := Editor("yes")) as connection:
        await connection.new()
        prompt = asyncio.create_task(connection.say("Wait for it."))
        await editor.until(
            lambda: any("begun" in str(update) for update in editor.of("tool_call_update"))
        )
        editor.updates.clear()
        await connection.agent.load_session(str(ouro.folder), connection.session_id, mcp_servers=[])
        assert [chunk.content.text for chunk in editor.of("user_message_chunk")] == ["Wait for it."]
        assert [call.status for call in editor.of("tool_call")] == ["pending"]
        shown_again = editor.of("tool_call_update")
        assert "in_progress" in [update.status for update in shown_again]
        assert any("begun" in str(update.content) for update in shown_again)
        (ouro.folder / "go").touch()
        assert await prompt == "end_turn"
        assert editor.text == "Done."
    assert "over" in ouro.server.requests[-1].results[-1]


async def test_a_thread_that_is_loaded_in_a_question_asks_it_again(ouro):
    ouro.server.script([Call("shell", {"command": "touch made.txt"}), "Done.", "Again."])
    async with connected(ouro, editor := Editor("wait", "yes")) as connection:
        await connection.new()
        prompt = asyncio.create_task(connection.say("Go."))
        await editor.until(lambda: editor.asked)
        await connection.agent.load_session(str(ouro.folder), connection.session_id, mcp_servers=[])
        assert await prompt == "end_turn"
        assert (len(editor.asked), (ouro.folder / "made.txt").exists()) == (2, True)
        assert await connection.say("And now?") == "end_turn"


async def test_a_thread_that_was_loaded_in_a_turn_can_be_stopped(ouro):
    """agentclientprotocol/claude-agent-acp#415"""
    ouro.server.script([Call("shell", {"command": "echo begun; sleep 60"}), "Again."])
    async with connected(ouro, editor := Editor("yes")) as connection:
        await connection.new()
        prompt = asyncio.create_task(connection.say("Go."))
        await editor.until(
            lambda: any("begun" in str(update) for update in editor.of("tool_call_update"))
        )
        await connection.agent.load_session(str(ouro.folder), connection.session_id, mcp_servers=[])
        assert not prompt.done()
        await connection.agent.cancel(connection.session_id)
        assert await prompt == "cancelled"
        assert await connection.say("Again.") == "end_turn"


async def test_a_title_has_one_line_and_the_content_all_of_a_command(ouro):
    command = "cat > made.txt <<'END'\none\ntwo\nEND"
    ouro.server.script([Call("shell", {"command": command}), "Done."])
    async with connected(ouro, editor := Editor("no")) as connection:
        await connection.new()
        await connection.say("Go.")
    [asked] = editor.asked
    [started] = editor.of("tool_call")
    assert "\n" not in asked.tool_call.title
    assert "\n" not in started.title
    assert "cat > made.txt" in asked.tool_call.title
    assert any(command in content.content.text for content in asked.tool_call.content)


async def test_a_subagent_asks_for_permission_in_the_editor(ouro):
    order = {"task": "write", "prompt": "Write it.", "agent": "general"}
    write = Call("write", {"path": "made.txt", "content": "x"})
    ouro.server.script([Call("subagent", order), write, "Written.", "Done."])
    async with connected(ouro, editor := Editor("yes")) as connection:
        await connection.new()
        assert await connection.say("Go.") == "end_turn"
    assert ((ouro.folder / "made.txt").read_text(), len(editor.asked)) == ("x", 1)


async def test_session_continues_in_the_terminal_and_back(ouro):
    async with connected(ouro, Editor()) as connection:
        await connection.new()
        await connection.say("say: one")
    assert ouro.headless("-p", "say: two", "--resume", connection.session_id).out == "two\n"
    async with connected(ouro, editor := Editor()) as again:
        listed = await again.agent.list_sessions(cwd=str(ouro.folder))
        assert [info.session_id for info in listed.sessions] == [connection.session_id]
        await again.agent.load_session(
            cwd=str(ouro.folder), session_id=connection.session_id, mcp_servers=[]
        )
        shown = [
            (update.session_update, update.content.text)
            for update in editor.updates
            if hasattr(update, "content")
        ]
        assert [text for kind, text in shown if kind == "user_message_chunk"] == [
            "say: one",
            "say: two",
        ]
        assert [text for kind, text in shown if kind == "agent_message_chunk"] == ["one", "two"]
        forked = await again.agent.fork_session(
            session_id=connection.session_id, cwd=str(ouro.folder)
        )
        assert forked.session_id != connection.session_id
        await again.agent.close_session(session_id=forked.session_id)
        again.session_id = forked.session_id
        with pytest.raises(RequestError, match=r"No session .* is open here"):
            await again.say("say: three")
        await again.agent.resume_session(session_id=forked.session_id, cwd=str(ouro.folder))
        await again.say("say: three")
        with pytest.raises(RequestError, match="There is no session one"):
            await again.agent.load_session(cwd=str(ouro.folder), session_id="one", mcp_servers=[])
    told = [
        message["content"]
        for message in ouro.server.requests[-1].messages
        if message["role"] == "assistant"
    ]
    assert told == ["one", "two"]


async def test_trust_is_asked_with_the_first_prompt(ouro):
    (ouro.folder / "AGENTS.md").write_text("Say moo.\n")
    ouro.server.script(lambda request: "Well.")
    for answer, obeys in (
        ("Cancel", False),
        ("yes — trust this folder, now and later", True),
        ("", True),
    ):
        async with connected(ouro, editor := Editor(answer)) as connection:
            await connection.new()
            await connection.agent.set_session_mode(
                session_id=connection.session_id, mode_id="plan"
            )
            await connection.say("Go.")
            assert ["AGENTS.md" in asked.tool_call.title for asked in editor.asked] == [
                True
            ] * bool(answer)
            assert ("Say moo." in str(ouro.server.requests[-1].body)) == obeys
        assert "plan" in str(ouro.server.requests[-1].messages[-1])


class LateEditor(Editor):
    """Answers a question only when `gate` is set."""

    def __init__(self, *answers):
        super().__init__(*answers)
        self.was_asked, self.gate = asyncio.Event(), asyncio.Event()

    async def request_permission(self, *arguments, **options):
        self.was_asked.set()
        await self.gate.wait()
        return await super().request_permission(*arguments, **options)


async def test_trust_for_a_session_that_was_opened_again_meanwhile_is_asked_again(ouro):
    (ouro.folder / "AGENTS.md").write_text("Say moo.\n")
    ouro.server.script(lambda request: "Well.")
    yes = "yes — trust this folder, now and later"
    async with connected(ouro, editor := LateEditor(yes, yes)) as connection:
        await connection.new()
        session = {"session_id": connection.session_id, "cwd": str(ouro.folder), "mcp_servers": []}
        prompt = asyncio.create_task(connection.say("Go."))
        await editor.was_asked.wait()
        await connection.agent.load_session(**session)
        editor.gate.set()
        assert await prompt == "end_turn"
        assert "Say moo." not in str(ouro.server.requests[-1].body)
        assert await connection.say("Go on.") == "end_turn"
        assert "Say moo." in str(ouro.server.requests[-1].body)
    assert len(editor.asked) == 2


async def test_a_copy_in_a_folder_that_is_trusted_later_stays_the_same_session(ouro):
    ouro.server.script(lambda request: "Well.")
    async with connected(ouro, Editor()) as connection:
        await connection.new()
        await connection.say("The first message.")
        original = connection.session_id
    (ouro.folder / "AGENTS.md").write_text("Say moo.\n")
    trusts = Editor("yes — trust this folder, now and later")
    async with connected(ouro, trusts) as connection:
        copy = await connection.agent.fork_session(
            session_id=original, cwd=str(ouro.folder), mcp_servers=[]
        )
        connection.session_id = copy.session_id
        count = len(ouro.server.requests)
        assert await connection.say("Go.") == "end_turn"
        assert len(ouro.server.requests) > count
        assert "Say moo." in str(ouro.server.requests[-1].body)
        assert "The first message." in str(ouro.server.requests[-1].body)


async def test_an_answer_that_is_cut_ends_with_max_tokens(ouro):
    ouro.server.script([Reply("Once upon a", finish="length")])
    async with connected(ouro, editor := Editor("Cancel")) as connection:
        await connection.new()
        assert await connection.say("Tell.") == "max_tokens"
    assert len(editor.asked) == 1
    assert editor.text.startswith("Once upon a\n\n> ")


def test_tokens_that_are_not_known_are_not_named():
    """anomalyco/opencode#25899: a cancelled prompt has used tokens, though none were counted."""
    assert prompt_usage(Usage()) is None
    assert prompt_usage(Usage(input=5, output=2)).total_tokens == 7


def test_every_outcome_has_a_stop_reason():
    assert {*STOP_REASONS, "failed", "unauthorized"} == set(get_args(Outcome))


async def test_subagent_progress_is_shown_at_its_call(ouro):
    order = Call("subagent", {"agent": "explore", "task": "look", "prompt": "Look."})
    ouro.server.script(
        lambda request: order if "subagent" in request.tools and not request.results else "Done."
    )
    async with connected(ouro, editor := Editor()) as connection:
        await connection.new()
        assert await connection.say("Go.") == "end_turn"
    [call] = editor.of("tool_call")
    shown = [
        update
        for update in editor.of("tool_call_update")
        if update.tool_call_id == call.tool_call_id
    ]
    assert any("explore-1" in update.content[0].content.text for update in shown if update.content)


async def test_call_changed_by_a_hook_stays_one_call(ouro, home):
    changed = json.dumps(
        {"hookSpecificOutput": {"updatedInput": {"path": "b.txt", "content": "x"}}}
    )
    (home / ".ouro").mkdir(mode=0o700, exist_ok=True)
    (home / ".ouro" / "config.yaml").write_text(
        "hooks:\n- event: before-tool\n  matcher: write\n  command:"
        f" {json.dumps(f'echo {shlex.quote(changed)}')}\n"
    )
    ouro.server.script(
        [Reply(calls=[Call("write", {"path": "a.txt", "content": "x"})]), Reply("Done.")]
    )
    async with connected(ouro, editor := Editor("yes")) as connection:
        await connection.new()
        assert await connection.say("Go.") == "end_turn"
    [call] = editor.of("tool_call")
    titles = [
        update.title
        for update in editor.of("tool_call_update")
        if update.tool_call_id == call.tool_call_id
    ]
    assert (call.title, next(filter(None, titles))) == ("write a.txt", "write b.txt")


async def test_errors_are_reported_as_text(ouro):
    ouro.server.script([failure(401, "bad key"), failure(400, "no such thing")])
    async with connected(ouro, Editor()) as connection:
        for cwd in ("relative", "/no/such/folder"):
            with pytest.raises(RequestError, match="is not an absolute path of a folder"):
                await connection.agent.new_session(cwd=cwd, mcp_servers=[])
        await connection.new()
        with pytest.raises(RequestError, match="key") as refused:
            await connection.say("Go.")
        assert refused.value.code == -32000
        with pytest.raises(RequestError, match="no such thing"):
            await connection.say("Go.")
    (ouro.home / "models.yaml").unlink()
    async with connected(ouro, Editor()) as connection:
        with pytest.raises(RequestError, match="ouro models"):
            await connection.new()


async def test_mcp_servers_of_the_editor_and_custom_commands_work(ouro):
    """MCP servers that the editor passes; custom commands in the completion, and as prompts."""
    commands = ouro.home / "commands" / "be"
    commands.mkdir(parents=True)
    (commands / "kind.md").write_text(
        "---\nargument-hint: '[name]'\n---\nSay hello $1, !`echo heron` @api.py\n"
    )
    fake = str(Path(__file__).parents[2] / "fakes" / "mcp_stdio_server.py")
    servers = [
        acp.McpServerStdio(name=name, command=sys.executable, args=[fake], env=[])
        for name in ("My/Server", "服务器", "My Server")
    ]
    ouro.server.script([
        lambda request: Call("mcp_call", {"tool": "My-Server-2.echo", "arguments": {"text": "from the server"}}),
        lambda request: "Done.",
        lambda request: f"Got: {request.prompt}",
    ])  # fmt: skip
    async with connected(ouro, editor := Editor("yes", "yes")) as connection:
        response = await connection.agent.new_session(cwd=str(ouro.folder), mcp_servers=servers)
        connection.session_id = response.session_id
        await editor.until(lambda: editor.of("available_commands_update"))
        await connection.say("Go.")
        assert "from the server" in ouro.server.requests[1].results[0]
        await connection.say("/be:kind Ada")
        await connection.say("/mcp")
    [kind] = [
        c
        for c in editor.of("available_commands_update")[0].available_commands
        if c.name == "be:kind"
    ]
    assert kind.input.root.hint == "[name]"
    assert "Say hello Ada, heron" in editor.text
    assert all(f"`{name}` · " in editor.text for name in ("My-Server", "server", "My-Server-2"))
    assert '<file path="api.py">' in editor.text
    assert {"shell echo heron", "read api.py"} <= {call.title for call in editor.of("tool_call")}


def test_no_mcp_server_of_the_editor_replaces_another():
    servers = [
        acp.McpServerStdio(name=name, command="run", args=[name], env=[])
        for name in ("a-2", "a", "a ", "a/", "服务器", "服")
    ]
    settings = _mcp_servers(servers)
    assert list(settings) == ["a-2", "a", "a-3", "a-4", "server", "server-2"]
    assert [one.args[0] for one in settings.values()] == ["a-2", "a", "a ", "a/", "服务器", "服"]


async def test_a_goal_is_pursued_until_its_command_passes(ouro):
    ouro.server.script(["Not yet.", Call("shell", {"command": "touch made"}), "Made it."])
    async with connected(ouro, editor := Editor("yes")) as connection:
        await connection.new()
        assert await connection.say("/goal !ls made") == "end_turn"
        assert "Not yet." in editor.text
        assert "Made it." in editor.text
        assert (ouro.folder / "made").exists()
        assert "The goal is reached after 2 turns" in editor.text
        await connection.say("/tasks")
        assert "No background jobs" in editor.text


async def test_a_goal_stops_at_its_cap_and_can_be_cleared(ouro):
    ouro.server.script(["Not yet.", "Still not.", "More."])
    async with connected(ouro, editor := Editor()) as connection:
        await connection.new()
        await connection.say("/goal --turns 2 !ls made")
        assert "Still not." in editor.text
        assert "More." not in editor.text
        await connection.say("/goal clear")
        await connection.say("/tasks")
        assert "!ls made" not in editor.text.rpartition("Still not.")[2]


async def test_a_repeated_message_is_sent_at_once_listed_and_ended(ouro):
    ouro.server.script(["The build is green.", "Hello."])
    async with connected(ouro, editor := Editor()) as connection:
        await connection.new()
        await connection.say("/loop 2h Check the build")
        await editor.until(lambda: "The build is green." in editor.text)
        await connection.say("/tasks")
        assert "loop_1" in editor.text
        await connection.say("/tasks kill loop_1")
        before = len(editor.text)
        await connection.say("/tasks")
        assert "Check the build" not in editor.text[before:]
        await connection.say("hello")
        assert editor.text.endswith("Hello.")


def test_a_path_in_the_home_of_an_unknown_user_is_shown_unchanged(tmp_path):
    started = ToolStarted(call("read", path="~nobody-of-that-name/x"), "read x")
    [update] = EventUpdates(tmp_path, terminals={}).updates_of(started)
    assert update.locations[0].path == str(tmp_path / "~nobody-of-that-name/x")
