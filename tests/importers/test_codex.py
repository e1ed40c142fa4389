import base64
import json
from pathlib import Path

from ouro.display import CommandOutput, Display, Plain
from ouro.importers.codex import read_codex
from ouro.importers.foreign_values import image_from_url
from ouro.memory.backend import (
    CompactionRecord,
    MessageRecord,
    RewindRecord,
    SessionHeader,
    TitleRecord,
)
from ouro.messages import Image, Message, Text, Thinking, ToolCall, ToolReply, Usage, user

DATA = Path(__file__).parent / "data"
OLD, NEW = DATA / "codex-0.2.jsonl", DATA / "codex-0.98.jsonl"


def messages(records) -> list[Message]:
    return [each.message for each in records if isinstance(each, MessageRecord)]


def import_commands(tmp_path, *lines):
    path = tmp_path / "rollout.jsonl"
    path.write_text(
        "".join(json.dumps({"timestamp": "2026-01-01T00:00:00Z", **each}) + "\n" for each in lines)
    )
    return read_codex(path)


def item(**payload) -> dict:
    return {"type": "response_item", "payload": payload}


def event(**payload) -> dict:
    return {"type": "event_msg", "payload": payload}


def test_session_is_read_with_header_title_and_times():
    found = read_codex(NEW)
    assert found.header == SessionHeader(
        "019c22a0-1111-7222-8333-444455556666",
        "/home/me/src/shop",
        "openai/gpt-5.3-codex",
        "2026-02-03T07:59:59.900Z",
        origin={
            "from": "codex",
            "id": "019c22a0-1111-7222-8333-444455556666",
            "file": str(NEW),
            "branch": "main",
        },
    )
    assert found.left_out == {}
    assert found.records[-1] == TitleRecord("Cart test", "2026-02-03T08:05:02.000Z")


def test_context_inserted_by_codex_is_left_out():
    assert messages(read_codex(NEW).records)[0] == user("add a test for the cart")


def test_picture_tags_and_skill_text_are_left_out(tmp_path):
    data = "iVBORw0KGgoAAAANSUhEUgAAAAQAAAAECAIAAAAmkwkpAAAAEElEQVR4nGP8z4AATAxEcQAz0QEHOoQ+uAAAAABJRU5ErkJggg=="
    content = [
        {"type": "input_text", "text": "<image name=[Image #1]>"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{data}"},
        {"type": "input_text", "text": "</image>"},
        {"type": "input_text", "text": "<image> is a tag of SVG, isn't it?"},
    ]
    skill = "<skill>\n<name>pdf</name>\nRead it.\n</skill>"
    found = import_commands(
        tmp_path,
        item(type="message", role="user", content=[{"type": "input_text", "text": skill}]),
        item(type="message", role="user", content=content),
    )
    (prompt,) = messages(found.records)
    assert [type(part) for part in prompt.parts] == [Image, Text]
    assert prompt.text == "<image> is a tag of SVG, isn't it?"


def test_items_of_an_answer_are_one_message_with_one_usage():
    answer = messages(read_codex(NEW).records)[1]
    patch = (
        "*** Begin Patch\n*** Add File: tests/test_cart.py\n+def test_cart():\n+    assert"
        " True\n*** End Patch"
    )
    assert answer == Message(
        "assistant",
        (
            Thinking("**Looking**"),
            ToolCall("call_1", "exec_command", {"cmd": "ls tests", "workdir": "/home/me/src/shop"}),
            ToolCall("call_2", "apply_patch", {"input": patch}),
        ),
        Usage(9_000, 8_000, 0, 120),
        "openai/gpt-5.3-codex",
    )


def test_outputs_get_their_display_type():
    first, second = (each.parts[0] for each in messages(read_codex(NEW).records)[2:4])
    assert first.display.body == CommandOutput("ls tests", first.text, 2)
    assert second.text == "Success. Updated the following files:\nA tests/test_cart.py\n"
    assert isinstance(second.display.body, Plain)
    assert second.display.body.language == "diff"


def test_turns_that_were_rolled_back_are_rewound():
    found = read_codex(NEW)
    assert [each for each in found.records if isinstance(each, RewindRecord)] == [
        RewindRecord(5, "2026-02-03T08:02:00.000Z")
    ]
    back = messages(found.records)[5]
    assert back.parts == (Text("now in Rust"), Image("image/png", b"\x89PNG\r\n\x1a\n"))


def test_provider_web_search_gets_a_result():
    call, reply = (each.parts[0] for each in messages(read_codex(NEW).records)[8:10])
    assert call == ToolCall(call.id, "web_search", {"type": "search", "query": "carts"})
    assert (reply.call_id, reply.name) == (call.id, "web_search")


def test_compaction_is_recorded_but_an_encrypted_one_is_ignored(tmp_path):
    found = next(each for each in read_codex(NEW).records if isinstance(each, CompactionRecord))
    assert (found.summary, found.covers) == ("A test for the cart was added.", (1, 11))

    sealed = import_commands(
        tmp_path,
        item(type="message", role="user", content=[{"type": "input_text", "text": "hi"}]),
        {
            "type": "compacted",
            "payload": {"message": "", "replacement_history": [{"type": "compaction"}]},
        },
    )
    assert not [each for each in sealed.records if isinstance(each, CompactionRecord)]


def test_oldest_layout_with_bare_items_is_read():
    found = read_codex(OLD)
    assert found.header.id == "7b2e3d4c-5f60-4172-8c8d-9e0f1a2b3c4d"
    assert found.header.created_at == "2025-05-16T12:00:00.000Z"
    shown = Display("a.py", CommandOutput("ls", "a.py\nb.py\n"))
    assert messages(found.records) == [
        user("list the files"),
        Message(
            "assistant",
            (
                Thinking("**Listing**"),
                ToolCall(
                    "call_a",
                    "local_shell",
                    {
                        "type": "exec", "command": ["bash", "-lc", "ls"], "timeout_ms": None,
                        "working_directory": None, "env": None, "user": None,
                    },
                ),
            ),
        ),
        Message("tool", (ToolReply("call_a", "local_shell", "a.py\nb.py\n", display=shown),)),
        Message("assistant", (Text("Two files: a.py and b.py."),)),
    ]  # fmt: skip
    assert found.left_out == {}


def test_messages_only_in_events_are_read(tmp_path):
    found = import_commands(
        tmp_path,
        {"type": "session_meta", "payload": {"id": "x", "cwd": "/p"}},
        event(type="user_message", message="hello"),
        event(type="agent_message", message="hi"),
    )
    assert [(each.role, each.text) for each in messages(found.records)] == [
        ("user", "hello"),
        ("assistant", "hi"),
    ]


def test_copied_session_is_identified_by_its_own_header(tmp_path):
    found = import_commands(
        tmp_path,
        {
            "type": "session_meta",
            "payload": {"id": "copy", "cwd": "/p", "forked_from_id": "source"},
        },
        {"type": "session_meta", "payload": {"id": "source", "cwd": "/q"}},
        item(type="message", role="user", content="hello"),
    )
    assert (found.header.origin["id"], found.header.project) == ("copy", "/p")


def test_non_object_arguments_are_kept_as_malformed(tmp_path):
    calls = [
        item(type="function_call", name="f", arguments=text, call_id=str(number))
        for number, text in enumerate(['{"a": 1', "[1]", '{"a": 1}', None])
    ]
    parts = messages(import_commands(tmp_path, *calls).records)[0].parts
    assert [(each.arguments, each.malformed) for each in parts] == [
        ({}, '{"a": 1'), ({}, "[1]"), ({"a": 1}, ""), ({}, ""),
    ]  # fmt: skip


def test_unknown_items_are_counted(tmp_path):
    found = import_commands(
        tmp_path,
        item(type="image_generation_call"),
        {"type": "of_next_year", "payload": {}},
        item(type="ghost_snapshot"),
        {"x": 1},
        item(type="message", role="user", content="hello"),
    )
    assert found.left_out == {
        "`image_generation_call` items": 1, "`of_next_year` lines": 1, "lines of an unknown kind": 1,
    }  # fmt: skip


def test_l3_data_that_is_no_picture_is_named_only():
    """A provider refuses it, and with it each later request of the session."""
    for data, kind in ((b"<svg/>", "image/svg+xml"), (b"no picture", "image/png")):
        found = image_from_url(f"data:{kind};base64,{base64.b64encode(data).decode()}")
        assert found == Text(f"[a picture ({kind}) that is not kept]")
