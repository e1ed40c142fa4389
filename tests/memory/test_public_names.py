"""The public names of the design documents, used like a program that imports ouro as a package."""

import inspect
import json

import pytest

from ouro.memory import LongTermMemoryManager, MemoryManager
from ouro.memory.backend import MemoryStore, SessionHeader
from ouro.memory.long_term import GitMemoryStore, LongTermMemoryConsolidator
from ouro.memory.record_fields import BadRecordError
from ouro.memory.serialization import deserialize_message, serialize_message
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Image, Message, Text, ToolCall, ToolReply, Usage, assistant, tool, user

METHODS = {
    "create_session",
    "save_message",
    "save_memory",
    "load_session",
    "list_sessions",
    "delete_session",
    "get_session_stats",
}


async def test_a_session_without_arguments_is_saved_in_the_default_folder(home):
    memory = MemoryManager()
    await memory.add(user("remember the milk"))
    await memory.add(assistant("I will."))
    await memory.close()

    [file] = (home / ".ouro" / "sessions").glob("*/session.yaml")
    assert "remember the milk" in file.read_text()
    store = YamlFileMemoryStore()
    [info] = await store.list_sessions()
    again = await MemoryManager.resume(store, info.id, project=memory.project)
    assert [message.text for message in again.messages()] == ["remember the milk", "I will."]
    assert again.long_term is None
    await again.close()


def test_long_term_memory_classes_have_their_public_names():
    assert (LongTermMemoryManager.__name__, GitMemoryStore.__name__) == (
        "LongTermMemoryManager",
        "GitMemoryStore",
    )
    assert inspect.iscoroutinefunction(LongTermMemoryConsolidator.consolidate)
    long_term = object()
    assert MemoryManager(long_term=long_term).long_term is long_term


def test_store_methods_are_asynchronous_and_required():
    assert MemoryStore.__abstractmethods__ >= METHODS
    assert all(inspect.iscoroutinefunction(getattr(MemoryStore, name)) for name in METHODS)
    for missing in METHODS:
        made = {
            name: getattr(YamlFileMemoryStore, name)
            for name in MemoryStore.__abstractmethods__ - {missing}
        }
        with pytest.raises(TypeError, match=missing):
            type("Incomplete", (MemoryStore,), made)()


@pytest.mark.parametrize(
    "message",
    [
        user("look", [Image("image/png", b"\x89PNG", "shot.png")], "It is Sunday."),
        Message(
            "assistant",
            (Text("one"), ToolCall("c", "read", {"path": "a"})),
            Usage(5, 1, 0, 2, 0.5),
            "a/b",
        ),
        tool(ToolReply("c", "read", "x\n", images=(Image("image/gif", b"GIF"),))),
    ],
)
def test_a_message_survives_json(message):
    data = json.loads(json.dumps(serialize_message(message)))
    assert deserialize_message(data) == message


def test_data_that_is_not_a_message_is_refused():
    with pytest.raises(BadRecordError):
        deserialize_message({"title": "x"})


async def test_header_can_be_passed_explicitly(home):
    store = YamlFileMemoryStore()
    header = SessionHeader(
        "0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "a/b", "2026-11-21T20:14:03.120Z"
    )
    await store.create_session(header)
    await store.close_session(header.id)
    assert (await store.load_session(header.id, read_only=True)).header == header
