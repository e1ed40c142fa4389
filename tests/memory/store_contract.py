"""What every session store must do; a test class of each store inherits this."""

import pytest
from msgspec.structs import replace

from ouro.display import CommandOutput, Display, Picture, Plain, Todo, Todos
from ouro.errors import SaveFailed, SessionInUse, SessionNotFound
from ouro.memory.backend import (
    LoadedSession,
    MemoryStore,
    MessageRecord,
    ModelRecord,
    SessionHeader,
    TitleRecord,
    timestamp,
)
from ouro.messages import (
    Context,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolReply,
    Usage,
    assistant,
    tool,
    user,
)

HEADER = SessionHeader("0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/home/me/app", "test/model", "2026-11-21T20:14:03.120Z")
OTHER = SessionHeader(
    "1e9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/home/me/other", "test/model", "2026-11-20T20:14:03.120Z"
)

EVERY_PART = (
    user("fix the broken import\n  in api.py\n", [Image("image/png", b"\x89PNG\r\n", "shot.png")]),
    Message("user", (Context("It is Saturday."), Text("go on"))),
    Message(
        "assistant",
        (
            Thinking("First\n\nlook.", "c2lnbmF0dXJl+/="),
            Thinking("", "opaque", redacted=True),
            Text("Let me look."),
            ToolCall(
                "call_1", "read", {"path": "api.py", "lines": [1, 2.5, True, None], "more": {"a b": {"c": "d\n e"}}}
            ),
            ToolCall("call_2", "shell", {}, malformed='{"command": "ls'),
        ),
        Usage(5210, 4800, 12, 41, 0.0031),
        "test/model",
    ),
    tool(
        ToolReply(
            "call_1", "read", "1\timport os\n \n", display=Display("2 lines", Plain("1\timport os\n \n", "python"))
        ),
        ToolReply("call_2", "shell", "no arguments", failed=True, images=(Image("image/gif", b"GIF"),)),
    ),
    tool(
        ToolReply("a", "shell", "said", display=Display("exit 1", CommandOutput("ls", "said", 1))),
        ToolReply("b", "shell", "said", display=Display("killed", CommandOutput("ls\nls", "more than said"))),
        ToolReply("c", "read", "a picture", display=Display("png", Picture("a.png", "image/png", 12))),
        ToolReply("d", "todo_write", "kept", display=Display("2", Todos((Todo("one", "done"), Todo("two: 3"))))),
        ToolReply("e", "read", "…", display=Display("only a summary")),
        ToolReply("f", "read", "", display=Display("differs", Plain("what was shown"))),
    ),
    Message("assistant", (Text("one"), ToolCall("x", "read", {}), Text("two"), Thinking("three"))),
    Message("assistant", (Text("half an ans"),), model="test/model", cut=True),
    Message("assistant", (), Usage()),
    Message("user", (Text(""),)),
)


def message_record(number: int, message: Message) -> MessageRecord:
    return MessageRecord(number, f"2026-11-21T20:15:{number:02}.000Z", message)


class StoreContract:
    """Needs a fixture `store`, and `again`: what another start of ouro would see."""

    def test_a_session_comes_back_as_it_was_saved(self, store: MemoryStore, again):
        records = [message_record(number, message) for number, message in enumerate(EVERY_PART, 1)]
        store.create_session(HEADER)
        for record in records:
            store.save_message(HEADER.id, record)
        store.save_memory(HEADER.id, TitleRecord("a title: of mine", timestamp()))
        store.save_memory(HEADER.id, ModelRecord("other/model", "2026-11-21T20:16:00.000Z"))
        store.close_session(HEADER.id)

        loaded = again().load_session(HEADER.id)

        assert loaded.header == HEADER
        assert loaded.records[: len(records)] == tuple(records)
        assert [replace(each, at="") for each in loaded.records[len(records) :]] == [
            TitleRecord("a title: of mine", ""),
            ModelRecord("other/model", ""),
        ]
        assert (loaded.notices, loaded.read_only) == ((), False)

    def test_what_is_loaded_can_be_gone_on_with(self, store, again):
        self._saved(store, HEADER, user("one"))
        second = again()
        second.load_session(HEADER.id)
        second.save_message(HEADER.id, message_record(2, assistant("two")))
        second.close_session(HEADER.id)

        found = again().load_session(HEADER.id)

        assert [record.message.text for record in found.records if isinstance(record, MessageRecord)] == ["one", "two"]

    def test_an_open_session_is_refused_to_others_but_may_be_read(self, store):
        store.create_session(HEADER)
        store.save_message(HEADER.id, message_record(1, user("one")))

        with pytest.raises(SessionInUse):
            store.load_session(HEADER.id)
        with pytest.raises(SessionInUse):
            store.delete_session(HEADER.id)
        read = store.load_session(HEADER.id, read_only=True)
        assert read == LoadedSession(HEADER, (message_record(1, user("one")),), read_only=True)

    def test_nothing_is_saved_into_a_session_that_is_not_open(self, store):
        self._saved(store, HEADER, user("one"))

        with pytest.raises(SaveFailed):
            store.save_message(HEADER.id, message_record(2, user("two")))

    def test_sessions_are_listed_last_used_first_and_by_project(self, store):
        self._saved(store, HEADER, user("one"), Message("assistant", (Text("two"),), Usage(cost=0.5)))
        self._saved(store, OTHER, user("three"))
        store.load_session(OTHER.id)
        store.save_memory(OTHER.id, TitleRecord("three", timestamp()))
        store.save_message(OTHER.id, replace(message_record(2, user("four")), at="2026-12-01T00:00:00.000Z"))
        store.close_session(OTHER.id)

        found = store.list_sessions()

        assert [each.id for each in found] == [OTHER.id, HEADER.id]
        shown = [(each.title, each.project, each.model, each.messages, each.cost) for each in found]
        assert shown == [
            ("three", "/home/me/other", "test/model", 2, None),
            ("", "/home/me/app", "test/model", 2, 0.5),
        ]
        assert [each.updated_at for each in found] == ["2026-12-01T00:00:00.000Z", "2026-11-21T20:15:02.000Z"]
        assert [each.id for each in store.list_sessions("/home/me/app")] == [HEADER.id]
        assert store.get_session_stats(HEADER.id) == found[1]

    def test_a_session_in_which_nothing_was_said_is_not_listed(self, store):
        store.create_session(HEADER)
        store.close_session(HEADER.id)

        assert store.list_sessions() == []

    def test_a_removed_session_is_gone(self, store, again):
        self._saved(store, HEADER, user("one"))
        self._saved(store, OTHER, user("two"))
        store.delete_session(HEADER.id)

        assert [each.id for each in again().list_sessions()] == [OTHER.id]
        for ask in (store.load_session, store.get_session_stats, store.delete_session):
            with pytest.raises(SessionNotFound):
                ask(HEADER.id)

    def test_an_id_is_not_used_twice(self, store):
        self._saved(store, HEADER, user("one"))

        with pytest.raises(SaveFailed):
            store.create_session(HEADER)

    def test_nothing_stands_in_the_way(self, store):
        assert store.obstacle() == ""

    def _saved(self, store: MemoryStore, header: SessionHeader, *messages: Message) -> None:
        store.create_session(header)
        for number, message in enumerate(messages, 1):
            store.save_message(header.id, message_record(number, message))
        store.close_session(header.id)
