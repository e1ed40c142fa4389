from pathlib import Path

import pytest

from ouro.errors import SessionError
from ouro.importers.ouro_files import read_older_ouro
from ouro.memory.backend import MessageRecord
from ouro.messages import Message, Text, Thinking, ToolCall, ToolReply, user

PATH = Path(__file__).parent / "data" / "older" / "2025-09-01_8c3f4e5d" / "session.yaml"


def messages(path) -> list[Message]:
    return [
        each.message for each in read_older_ouro(path).records if isinstance(each, MessageRecord)
    ]


def write_session(tmp_path, text: str) -> Path:
    (tmp_path / "session.yaml").write_text(text)
    return tmp_path / "session.yaml"


def test_session_is_read_in_order():
    found = read_older_ouro(PATH)
    assert messages(PATH) == [
        user("read api.py"),
        Message("assistant", (ToolCall("call_1", "read_file", {"file_path": "api.py"}),)),
        Message("tool", (ToolReply("call_1", "read_file", "import os"),)),
        Message("assistant", (Thinking("Short file."), Text("It imports os."))),
    ]
    assert (found.header.id, found.header.created_at) == (
        "8c3f4e5d-6071-4283-9d9e-0f1a2b3c4d5e", "2025-09-01T10:00:00.123Z",
    )  # fmt: skip
    assert [each.at for each in found.records] == [
        f"2025-09-01T10:00:00.{number}Z" for number in (123, 124, 125, 126, 126)
    ]
    assert found.records[-1].title == "read api.py"


def test_oldest_messages_with_calls_in_their_content_are_read(tmp_path):
    path = write_session(
        tmp_path,
        "id: x\ncreated_at: '2025-01-01T00:00:00'\nmessages:\n- {role: assistant, content: [{type:"
        " text, text: Look}, {type: tool_use, id: t1, name: f, input: {q: a}}]}\n- {role: user,"
        " content: [{type: tool_result, tool_use_id: t1, content: found}]}\n",
    )
    assert messages(path) == [
        Message("assistant", (Text("Look"), ToolCall("t1", "f", {"q": "a"}))),
        Message("tool", (ToolReply("t1", "f", "found"),)),
    ]


def test_invalid_messages_are_counted(tmp_path):
    path = write_session(
        tmp_path, "id: x\nmessages: [7, {role: nobody}, {role: user}, {role: user, content: hi}]\n"
    )
    assert read_older_ouro(path).left_out == {"lines that cannot be read": 3}
    assert messages(path) == [user("hi")]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "messages: 7",
        "a: &x [1]\nb: *x",
        "!!python/object:os.system {}",
        "[" * 100_000,
        "id: \x00",
        "id: x",
    ],
)
def test_invalid_session_file_raises(tmp_path, text):
    with pytest.raises(SessionError, match=r"session\.yaml"):
        read_older_ouro(write_session(tmp_path, text))
