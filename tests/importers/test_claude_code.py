import json
from pathlib import Path

from ouro.display import Diff, FileChange, Todo, Todos
from ouro.importers.claude_code import read_claude_code
from ouro.memory.backend import (
    CompactionRecord,
    MessageRecord,
    ModelRecord,
    RewindRecord,
    SessionHeader,
    TitleRecord,
)
from ouro.memory.transcript import Transcript
from ouro.messages import Context, Image, Message, Text, Thinking, ToolCall, Usage, user

DATA = Path(__file__).parent / "data"
OLD, NEW = DATA / "claude-code-1.0.jsonl", DATA / "claude-code-2.1.jsonl"


def messages(records) -> list[Message]:
    return [each.message for each in records if isinstance(each, MessageRecord)]


def entry(uuid, parent, role, content, **more) -> dict:
    message = {
        "role": role,
        "content": content,
        **({"id": f"msg_{uuid}", "model": "claude"} if role == "assistant" else {}),
    }
    fields = {
        "uuid": uuid,
        "parentUuid": parent,
        "type": role,
        "message": message,
        "sessionId": "s",
        "cwd": "/p",
    }
    return {**fields, "timestamp": "2026-01-01T00:00:00.000Z", "isSidechain": False, **more}


def import_entries(tmp_path, *entries):
    path = tmp_path / "session.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in entries))
    return read_claude_code(path)


def message_texts(found) -> list[str]:
    """The messages with which the imported session continues."""
    transcript = Transcript()
    for record in found.records:
        transcript.add_record(record)
    return [each.message.text for each in transcript.entries]


def test_early_session_is_read_with_header_title_times_and_usage():
    found = read_claude_code(OLD)

    assert found.header == SessionHeader(
        "5f0c1b2a-3d4e-4f50-8a6b-7c8d9e0f1a2b",
        "/home/me/src/shop",
        "anthropic/claude-sonnet-4-20250514",
        "2025-06-20T09:15:00.000Z",
        origin={
            "from": "claude-code",
            "id": "5f0c1b2a-3d4e-4f50-8a6b-7c8d9e0f1a2b",
            "file": str(OLD),
            "branch": "main",
        },
    )
    assert [type(each).__name__ for each in found.records] == ["MessageRecord"] * 10 + [
        "TitleRecord"
    ]
    assert found.records[-1] == TitleRecord("Flask import repaired", "2025-06-20T09:15:21.000Z")
    assert found.left_out == {"messages of sub-agents": 1}
    assert found.records[3].at == "2025-06-20T09:15:09.000Z"


def test_answer_in_several_entries_is_one_message_with_one_usage():
    answer = messages(read_claude_code(OLD).records)[4]
    assert answer == Message(
        "assistant",
        (
            Thinking("Let me look at the file.", "EqQBCkYIBRgC"),
            ToolCall("toolu_01", "Read", {"file_path": "/home/me/src/shop/api.py"}),
            ToolCall("toolu_02", "Bash", {"command": "pytest -q", "description": "Run the tests"}),
        ),
        Usage(15_004, 2_000, 13_000, 120),
        "anthropic/claude-sonnet-4-20250514",
    )


def test_parallel_results_are_no_rewind():
    found = read_claude_code(OLD)
    assert not [each for each in found.records if isinstance(each, RewindRecord)]
    replies = [each.parts[0] for each in messages(found.records) if each.role == "tool"]
    assert [(each.call_id, each.name, each.failed) for each in replies] == [
        ("toolu_01", "Read", False), ("toolu_02", "Bash", True), ("toolu_03", "Edit", False),
    ]  # fmt: skip
    assert replies[2].display.body == Diff(
        (FileChange("/home/me/src/shop/api.py", "Flsk", "Flask"),)
    )


def test_commands_are_shown_as_typed_and_inserted_text_is_context():
    first = messages(read_claude_code(OLD).records)[:4]
    assert [each.parts[0] for each in first[1::2]] == [
        Text("/model sonnet"),
        Text("fix the broken import in api.py"),
    ]
    assert [type(each.parts[0]) for each in first[::2]] == [Context, Context]


def test_rewind_is_recorded_and_the_abandoned_branch_kept():
    found = read_claude_code(NEW)
    place = next(
        place for place, each in enumerate(found.records) if isinstance(each, RewindRecord)
    )
    assert found.records[place] == RewindRecord(2, "2026-03-02T10:02:00.000Z")
    assert messages(found.records)[2].text == "draw it with turtle"
    assert message_texts(found)[:3] == ["what is in this picture?", "A cart.", "draw it as SVG"]


def test_compaction_is_recorded_with_its_tokens():
    compaction = next(
        each for each in read_claude_code(NEW).records if isinstance(each, CompactionRecord)
    )
    assert (compaction.number, compaction.covers, compaction.kept) == (10, (1, 9), ())
    assert (compaction.trigger, compaction.tokens) == ("manual", (155_000, 4_000))
    assert compaction.summary.endswith("The person wants a red cart as SVG.")


def test_kept_messages_of_a_compaction_are_kept(tmp_path):
    found = import_entries(
        tmp_path,
        entry("u1", None, "user", "one"),
        entry("a1", "u1", "assistant", "first"),
        entry("u2", "a1", "user", "two"),
        entry("a2", "u2", "assistant", "second"),
        {
            "type": "system", "subtype": "compact_boundary", "uuid": "b", "parentUuid": None,
            "compactMetadata": {"preservedSegment": {"headUuid": "u2", "anchorUuid": "c", "tailUuid": "a2"}},
        },
        entry("c", "b", "user", "A summary.", isCompactSummary=True),
        entry("u3", "a2", "user", "three"),
    )  # fmt: skip
    compaction = next(each for each in found.records if isinstance(each, CompactionRecord))
    assert (compaction.covers, compaction.kept) == ((1, 4), (3, 4))
    assert message_texts(found)[-1] == "three"


def test_pictures_plans_steering_and_titles_are_imported():
    found = read_claude_code(NEW)
    told_messages = messages(found.records)

    assert told_messages[0].parts == (
        Text("what is in this picture?"),
        Image("image/png", b"\x89PNG\r\n\x1a\n"),
    )
    assert told_messages[5].parts[1] == Thinking("", "c2VhbGVk", redacted=True)
    assert told_messages[6].parts[0].display.body == Todos(
        (Todo("Draw wheels", "done"), Todo("Draw basket", "in_progress"))
    )
    assert told_messages[7] == user("make it red")
    assert found.records[-1].title == "The cart"
    assert found.header.origin["branch"] == "feature/cart"


def test_api_error_text_is_marked_cut_and_not_sent():
    error = messages(read_claude_code(NEW).records)[3]
    assert (error.text, error.cut, error.model, error.usage) == (
        "API Error: 529 overloaded",
        True,
        "",
        None,
    )


def test_damaged_lines_and_unknown_kinds_are_counted():
    assert read_claude_code(NEW).left_out == {
        "`a-kind-of-next-year` entries": 1,
        "lines that cannot be read": 1,
    }


def test_model_change_is_recorded(tmp_path):
    first, second = entry("a1", "u1", "assistant", "x"), entry("a2", "a1", "assistant", "y")
    second["message"]["model"] = "claude-next"
    found = import_entries(tmp_path, entry("u1", None, "user", "one"), first, second)
    assert found.header.model == "anthropic/claude"
    assert [each.model for each in found.records if isinstance(each, ModelRecord)] == [
        "anthropic/claude-next"
    ]


def test_return_to_the_start_is_a_rewind_but_a_missing_parent_is_not(tmp_path):
    found = import_entries(
        tmp_path,
        entry("u1", None, "user", "one"),
        entry("a1", "u1", "assistant", "first"),
        entry("u2", None, "user", "again"),
        entry("u3", "nobody", "user", "more"),
    )
    assert message_texts(found) == ["again", "more"]
    assert len(messages(found.records)) == 4


def test_cyclic_parents_do_not_loop(tmp_path):
    entries = [
        entry("u1", "u1", "user", "one"), entry("u2", "u3", "user", "two"), entry("u3", "u2", "user", "three"),
        entry("u1", "u3", "user", "the same name again"), entry("u4", "u1", "user", "four"),
    ]  # fmt: skip
    found = import_entries(tmp_path, *entries)
    assert [each.text for each in messages(found.records)] == [
        "one",
        "two",
        "three",
        "the same name again",
        "four",
    ]


def test_shell_lines_of_the_user_are_recognized(tmp_path):
    found = import_entries(tmp_path, entry("u1", None, "user", "<bash-input>ls -l</bash-input>"))
    assert messages(found.records) == [user("I ran this in a shell:\n\n$ ls -l")]
