"""Sessions in the formats of Claude Code and Codex, read back by the importers of these formats."""

import json
from types import SimpleNamespace

import pytest
from fakes.fake_front_end import FakeFrontEnd, slash

from ouro.commands.export.agent_formats import session_for_agent
from ouro.importers.claude_code import read_claude_code
from ouro.importers.codex import read_codex
from ouro.memory.backend import (
    CompactionRecord,
    LoadedSession,
    MessageRecord,
    RewindRecord,
    SessionHeader,
    TitleRecord,
    WholeSession,
)
from ouro.memory.transcript import Transcript
from ouro.messages import Image, Message, Text, ToolCall, ToolReply, Usage, assistant, tool, user

READERS = {"claude": read_claude_code, "codex": read_codex}
AT = "2026-11-22T20:14:0{}.000Z"
PICTURE = Image("image/png", b"\x89PNG\r\n\x1a\n and more")
MESSAGES = (
    user("Read api.py.\nAnd say what it does.", context="Date: 2026-11-22"),
    Message(
        "assistant",
        (Text("Reading."), ToolCall("call_1", "read", {"path": "api.py"})),
        Usage(90, 10, 20, 5),
        "m",
    ),
    tool(ToolReply("call_1", "read", "print('hi')\n", failed=True)),
    assistant("It greets."),
    Message("user", (Text("And this picture?"), PICTURE)),
    assistant("A cat."),
)


def export_and_import(tmp_path, monkeypatch, agent, *records, model="anthropic/m"):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.delenv("CODEX_HOME", raising=False)
    header = SessionHeader(
        "0d9f3c52-0000-4000-8000-000000000000", "/home/me/my app", model, AT.format(0)
    )
    found = session_for_agent(WholeSession(header, lambda: iter(records)), agent)
    found.path.parent.mkdir(parents=True)
    found.path.write_text("".join(found.lines))
    return found, READERS[agent](found.path)


def records_of(messages):
    return [
        MessageRecord(number, AT.format(number), message)
        for number, message in enumerate(messages, 1)
    ]


def message_parts(records) -> list:
    """The texts, calls and results of each message."""
    loaded = LoadedSession(SessionHeader("i", "", "", ""), tuple(records))
    return [
        [part.text if isinstance(part, Text | ToolReply) else part for part in entry.message.parts]
        for entry in Transcript.of(loaded).entries
    ]


@pytest.mark.parametrize("agent", READERS)
def test_exported_session_is_read_back_by_the_importer(tmp_path, monkeypatch, agent):
    left = [MessageRecord(7, AT.format(7), user("Undone.")), RewindRecord(6, AT.format(7))]
    title = TitleRecord("The greeting", AT.format(7))
    found, read = export_and_import(
        tmp_path, monkeypatch, agent, *records_of(MESSAGES), *left, title
    )
    words = [
        [part for part in message if "Date:" not in str(part)]
        for message in message_parts(records_of(MESSAGES))
    ]
    assert message_parts(read.records) == words
    assert read.header.project == "/home/me/my app"
    assert (
        next(record.title for record in read.records if isinstance(record, TitleRecord))
        == "The greeting"
    )
    assert found.command.split()[-1] == read.header.origin["id"]


@pytest.mark.parametrize("agent", READERS)
def test_a_result_that_is_only_a_picture_has_no_empty_text(tmp_path, monkeypatch, agent):
    """Providers refuse an empty text, and therefore every later message."""
    reply = ToolReply("call_1", "read", "", images=(PICTURE,))
    look = Message("assistant", (ToolCall("call_1", "read", {"path": "a.png"}),))
    found, _read = export_and_import(
        tmp_path, monkeypatch, agent, *records_of((user("Look."), look, tool(reply)))
    )
    text = "".join(found.lines)
    assert PICTURE.media_type in text
    assert '"text": ""' not in text


def test_files_are_written_where_the_other_agents_look(tmp_path, monkeypatch):
    claude, _ = export_and_import(tmp_path, monkeypatch, "claude", *records_of(MESSAGES))
    codex, _ = export_and_import(tmp_path, monkeypatch, "codex", *records_of(MESSAGES))
    name = claude.path.stem
    assert claude.path == tmp_path / f".claude/projects/-home-me-my-app/{name}.jsonl"
    assert (
        codex.path
        == tmp_path / f".codex/sessions/2026/11/22/rollout-2026-11-22T20-14-06-{name}.jsonl"
    )


@pytest.mark.parametrize("agent", READERS)
def test_summary_replaces_the_messages_it_covers(tmp_path, monkeypatch, agent):
    summary = CompactionRecord(7, AT.format(7), (1, 4), (1,), "## Goal\nGreet.")
    found, read = export_and_import(tmp_path, monkeypatch, agent, *records_of(MESSAGES), summary)
    [made] = [record for record in read.records if isinstance(record, CompactionRecord)]
    assert made.summary.startswith("## Goal\nGreet.")
    assert "Said before, word for word:\nRead api.py." in made.summary
    kinds = [json.loads(line).get("type") for line in found.lines]
    assert kinds.index("system" if agent == "claude" else "compacted") < len(kinds) - 2


def test_codex_export_names_a_model_only_if_codex_has_it(tmp_path, monkeypatch):
    for model, kinds in (
        ("openai/gpt-5", ["session_meta", "turn_context"]),
        ("anthropic/m", ["session_meta"]),
    ):
        found, _ = export_and_import(
            tmp_path / model, monkeypatch, "codex", *records_of([user("Hi.")]), model=model
        )
        lines = [json.loads(line) for line in found.lines]
        assert [line["type"] for line in lines[:-2]] == kinds
        # Codex reports an error for a provider that is not in its settings.
        assert "model_provider" not in lines[0]["payload"]


def test_an_answer_that_was_cut_has_no_calls_and_an_open_call_a_result(tmp_path, monkeypatch):
    messages = (
        user("Go."),
        Message("assistant", (Text("I"), ToolCall("a", "read", {})), cut=True),
        assistant("Now.", ToolCall("b", "read", {})),
    )
    found, _ = export_and_import(tmp_path, monkeypatch, "claude", *records_of(messages))
    blocks = [block for line in found.lines for block in json.loads(line)["message"]["content"]]
    assert [
        block.get("id") or block.get("tool_use_id") for block in blocks if "text" not in block
    ] == ["b", "b"]


@pytest.mark.parametrize("agent", ["claude", "codex"])
async def test_handoff_writes_the_session_and_shows_the_command_line(tmp_path, monkeypatch, agent):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.delenv("CODEX_HOME", raising=False)
    records = tuple(
        MessageRecord(number, AT.format(number), message)
        for number, message in enumerate(MESSAGES, 1)
    )
    header = SessionHeader("0d9f3c52-0000-4000-8000-000000000000", str(tmp_path), "m", AT.format(0))
    front_end = FakeFrontEnd()

    async def whole():
        return WholeSession(header, lambda: iter(records))

    front_end.session.memory = SimpleNamespace(whole=whole, messages=lambda: MESSAGES)
    for _ in range(2):  # the second time it is there already, and is not overwritten
        await slash(front_end, "handoff", agent)
    [path] = tmp_path.glob(f".{agent}/**/*.jsonl")
    assert READERS[agent](path)
    said = "\n".join(text for _, text in front_end.lines)
    assert "6 messages of this session" in said
    assert ("claude --resume" if agent == "claude" else "codex resume") in said
    assert f"/memory export --to {agent}" in said
