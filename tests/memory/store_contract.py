"""The tests that every session store must pass; a test class of each store inherits them."""

import pytest
from fakes.waiting import wait
from msgspec.structs import replace

from ouro.display import CommandOutput, Display, Picture, Plain, Todo, Todos
from ouro.errors import SaveFailed, SessionInUse, SessionNotFound
from ouro.memory.backend import (
    CapturedRecord,
    ChangeRecord,
    CompactionRecord,
    CostRecord,
    DailyUsage,
    DropRecord,
    ForkRecord,
    LabelRecord,
    LoadedSession,
    MemoryStore,
    MessageRecord,
    ModelRecord,
    ModeRecord,
    PinRecord,
    RecalledItem,
    RecalledRecord,
    Record,
    RewindRecord,
    SessionHeader,
    SummaryRecord,
    TitleRecord,
    timestamp,
)
from ouro.memory.sessions.usage import day_of
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

HEADER = SessionHeader(
    "0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/home/me/app", "test/model", "2026-11-21T20:14:03.120Z"
)
OTHER = SessionHeader(
    "1e9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f",
    "/home/me/other",
    "test/model",
    "2026-11-20T20:14:03.120Z",
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
                "call_1",
                "read",
                {"path": "api.py", "lines": [1, 2.5, True, None], "more": {"a b": {"c": "d\n e"}}},
            ),
            ToolCall("call_2", "shell", {}, malformed='{"command": "ls'),
        ),
        Usage(5210, 4800, 12, 41, 0.0031),
        "test/model",
    ),
    tool(
        ToolReply(
            "call_1",
            "read",
            "1\timport os\n \n",
            display=Display("2 lines", Plain("1\timport os\n \n", "python")),
        ),
        ToolReply(
            "call_2", "shell", "no arguments", failed=True, images=(Image("image/gif", b"GIF"),)
        ),
    ),
    tool(
        ToolReply("a", "shell", "said", display=Display("exit 1", CommandOutput("ls", "said", 1))),
        ToolReply(
            "b",
            "shell",
            "said",
            display=Display("killed", CommandOutput("ls\nls", "more than said")),
        ),
        ToolReply(
            "c", "read", "a picture", display=Display("png", Picture("a.png", "image/png", 12))
        ),
        ToolReply(
            "d",
            "todo_write",
            "kept",
            display=Display("2", Todos((Todo("one", "done"), Todo("two: 3")))),
        ),
        ToolReply("e", "read", "…", display=Display("only a summary")),
        ToolReply("f", "read", "", display=Display("differs", Plain("what was shown"))),
    ),
    Message("assistant", (Text("one"), ToolCall("x", "read", {}), Text("two"), Thinking("three"))),
    Message("assistant", (Text("half an ans"),), model="test/model", cut=True),
    Message("assistant", (), Usage()),
    Message("user", (Text(""),)),
)

LONG = "a long line of output é\n" * 1000
LONG_OUTPUTS = (
    tool(
        ToolReply("1", "shell", LONG, display=Display("1000 lines", CommandOutput("make", LONG, 0)))
    ),
    tool(
        ToolReply(
            "2", "shell", LONG[:100], display=Display("all of it", CommandOutput("make", LONG))
        )
    ),
    Message("user", (ToolReply("3", "read", LONG + "."), Text("parts in no common order"))),
)
AT = "2026-11-21T20:16:00.000Z"
EVERY_CHANGE: tuple[ChangeRecord, ...] = (
    TitleRecord("a title: of mine", AT),
    ModelRecord("other/model", AT),
    ModeRecord("plan", AT),
    PinRecord(2, AT),
    PinRecord(3, AT, pinned=False),
    DropRecord(39, AT, ("12", "12:mem_3f6c1e", "call:c_1"), tokens=(9000, 400)),
    DropRecord(40, AT, ("12",), restored=True, tokens=(400, 500)),
    CompactionRecord(
        40,
        AT,
        (1, 39),
        (2, 7),
        "what\nwas said: --- ...",
        "manual",
        focus="the parser",
        dropped=("call_1",),
        tokens=(9000, 400),
        model="small/model",
        usage=Usage(9000, 8000, 0, 300, 0.25),
        spent=Usage(99000, 8000, 0, 900, 1.5),
        title="a title",
        pins=(2,),
        chosen="other/model",
        captured=30,
        messages=37,
    ),
    CompactionRecord(41, AT, (0, 0), (), ""),
    RewindRecord(3, AT, ("conversation", "memory")),
    RewindRecord(0, AT),
    ForkRecord("1e9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", 7, AT),
    RecalledRecord(
        2, AT, (RecalledItem("mem_1", "loaded", "names api.py", 0.5, 120),), way="local"
    ),
    RecalledRecord(3, AT, ()),
    CostRecord("title", AT, "small/model", Usage(100, 0, 0, 9)),
    CapturedRecord(3, AT),
    SummaryRecord("Mended\nthe import.", AT, 4),
    LabelRecord(("parser", "late"), AT, pinned=True, branch="main", files=3),
)


def message_record(number: int, message: Message) -> MessageRecord:
    return MessageRecord(number, f"2026-11-21T20:15:{number:02}.000Z", message)


class StoreContract:
    """Needs a fixture `store`, and a fixture `again`: the same store, opened by another start of
    ouro.
    """

    def test_saved_session_is_loaded_unchanged(self, store: MemoryStore, again):
        records = [message_record(number, message) for number, message in enumerate(EVERY_PART, 1)]
        wait(store.create_session(HEADER))
        for record in records:
            wait(store.save_message(HEADER.id, record))
        for change in EVERY_CHANGE:
            wait(store.save_memory(HEADER.id, change))
        wait(store.close_session(HEADER.id))

        assert wait(again().load_session(HEADER.id)) == LoadedSession(
            HEADER, (*records, *EVERY_CHANGE)
        )

    def test_long_outputs_are_loaded_unchanged(self, store, again):
        self._saved(store, HEADER, *LONG_OUTPUTS)

        found = wait(again().load_session(HEADER.id)).records

        assert found == tuple(
            message_record(number, message) for number, message in enumerate(LONG_OUTPUTS, 1)
        )

    def test_loaded_session_can_be_continued(self, store, again):
        self._saved(store, HEADER, user("one"))
        second = again()
        wait(second.load_session(HEADER.id))
        wait(second.save_message(HEADER.id, message_record(2, assistant("two"))))
        wait(second.close_session(HEADER.id))

        found = wait(again().load_session(HEADER.id))

        assert [
            record.message.text for record in found.records if isinstance(record, MessageRecord)
        ] == ["one", "two"]

    def test_an_open_session_is_refused_to_others_but_may_be_read(self, store):
        wait(store.create_session(HEADER))
        wait(store.save_message(HEADER.id, message_record(1, user("one"))))

        with pytest.raises(SessionInUse):
            wait(store.load_session(HEADER.id))
        with pytest.raises(SessionInUse):
            wait(store.delete_session(HEADER.id))
        read = wait(store.load_session(HEADER.id, read_only=True))
        assert read == LoadedSession(HEADER, (message_record(1, user("one")),), read_only=True)

    def test_saving_into_a_closed_session_fails(self, store):
        self._saved(store, HEADER, user("one"))

        with pytest.raises(SaveFailed):
            wait(store.save_message(HEADER.id, message_record(2, user("two"))))

    def test_sessions_are_listed_last_used_first_and_by_project(self, store):
        self._saved(
            store, HEADER, user("one"), Message("assistant", (Text("two"),), Usage(cost=0.5))
        )
        self._saved(store, OTHER, user("three"))
        wait(store.load_session(OTHER.id))
        wait(store.save_memory(OTHER.id, TitleRecord("three", timestamp())))
        wait(
            store.save_message(
                OTHER.id, replace(message_record(2, user("four")), at="2026-12-01T00:00:00.000Z")
            )
        )
        wait(store.close_session(OTHER.id))

        found = wait(store.list_sessions())

        assert [each.id for each in found] == [OTHER.id, HEADER.id]
        shown = [(each.title, each.project, each.model, each.messages, each.cost) for each in found]
        assert shown == [
            ("three", "/home/me/other", "test/model", 2, None),
            ("", "/home/me/app", "test/model", 2, 0.5),
        ]
        assert [each.updated_at for each in found] == [
            "2026-12-01T00:00:00.000Z",
            "2026-11-21T20:15:02.000Z",
        ]
        assert [each.id for each in wait(store.list_sessions("/home/me/app"))] == [HEADER.id]
        assert wait(store.get_session_stats(HEADER.id)) == found[1]

    def test_empty_session_is_not_listed(self, store):
        wait(store.create_session(HEADER))
        wait(store.close_session(HEADER.id))

        assert wait(store.list_sessions()) == []

    def test_deleted_session_is_in_the_trash_and_can_be_restored(self, store, again):
        self._saved(store, HEADER, user("one"))
        self._saved(store, OTHER, user("two"))
        before = wait(store.get_session_stats(HEADER.id))
        wait(store.delete_session(HEADER.id))

        assert [each.id for each in wait(again().list_sessions())] == [OTHER.id]
        assert wait(again().list_deleted()) == [before]
        for ask in (store.load_session, store.get_session_stats, store.delete_session):
            with pytest.raises(SessionNotFound):
                wait(ask(HEADER.id))

        wait(store.restore_session(HEADER.id))
        assert wait(again().list_deleted()) == []
        assert wait(again().load_session(HEADER.id, read_only=True)).records == (
            message_record(1, user("one")),
        )

    def test_purge_removes_only_deleted_sessions_permanently(self, store, again):
        self._saved(store, HEADER, user("one"))
        with pytest.raises(SessionNotFound):
            wait(store.purge_session(HEADER.id))
        wait(store.delete_session(HEADER.id))
        wait(store.purge_session(HEADER.id))

        assert (wait(again().list_sessions()), wait(again().list_deleted())) == ([], [])
        for ask in (store.restore_session, store.purge_session):
            with pytest.raises(SessionNotFound):
                wait(ask(HEADER.id))

    def test_a_session_is_imported_whole(self, store, again):
        records = (
            *(message_record(number, message) for number, message in enumerate(EVERY_PART, 1)),
            *EVERY_CHANGE,
        )
        wait(store.import_session(HEADER, iter(records)))

        assert wait(again().load_session(HEADER.id)) == LoadedSession(HEADER, records)
        with pytest.raises(SaveFailed):
            wait(store.import_session(HEADER, ()))

    def test_fork_copies_up_to_a_message_and_is_independent(self, store, again):
        self._saved(store, HEADER, user("one"), EVERY_PART[0], LONG_OUTPUTS[0], user("four"))
        wait(store.load_session(HEADER.id))
        wait(store.fork_session(HEADER.id, 3, OTHER, "another"))
        wait(store.save_message(HEADER.id, message_record(5, user("five"))))
        wait(store.close_session(HEADER.id))
        wait(store.load_session(OTHER.id))
        wait(store.save_message(OTHER.id, message_record(4, user("other"))))
        wait(store.close_session(OTHER.id))

        assert self._texts(again(), HEADER) == ["one", EVERY_PART[0].text, "", "four", "five"]
        copy = wait(again().load_session(OTHER.id))
        said = (user("one"), EVERY_PART[0], LONG_OUTPUTS[0], user("other"))
        assert (
            tuple(each.message for each in copy.records if isinstance(each, MessageRecord)) == said
        )
        assert [replace(each, at="") for each in copy.records[3:5]] == [
            ForkRecord(HEADER.id, 3, ""),
            TitleRecord("another", ""),
        ]
        info = wait(again().get_session_stats(OTHER.id))
        assert (info.title, info.fork_of, info.messages, info.project) == (
            "another",
            HEADER.id,
            4,
            OTHER.project,
        )

    def test_fork_is_complete_or_fails(self, store):
        self._saved(store, HEADER, user("one"), user("two"))
        wait(store.fork_session(HEADER.id, None, OTHER))
        assert self._texts(store, OTHER) == ["one", "two"]
        third = replace(OTHER, id="2e9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f")
        wait(store.fork_session(HEADER.id, 0, third))
        assert self._texts(store, third) == []

        fourth = replace(OTHER, id="3e9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f")
        for source, number in ((HEADER.id, 99), ("nobody", None)):
            with pytest.raises(SessionNotFound):
                wait(store.fork_session(source, number, fourth))
        with pytest.raises(SaveFailed):
            wait(store.fork_session(HEADER.id, None, OTHER))

    def test_list_includes_usage_by_day_and_model_summary_and_fork(self, store, again):
        usage = Usage(100, 50, 0, 10, 0.25)
        first = Message("assistant", (Text("x"),), usage, "a/b")
        later = replace(message_record(2, first), at="2026-11-25T12:00:00.000Z")
        copied: list[Record] = [message_record(1, first), ForkRecord(OTHER.id, 1, AT)]
        own: list[Record] = [
            later,
            CostRecord("title", AT, "small/model", usage),
            CompactionRecord(3, AT, (1, 2), (), "s", model="small/model", usage=usage),
            CostRecord("title", AT, "free/model", Usage(7)),
            SummaryRecord("Mended\nthe import.", AT, 2),
        ]
        wait(store.import_session(HEADER, [*copied, *own]))

        [info] = wait(again().list_sessions())

        day = day_of(AT)
        assert info.spent == (
            DailyUsage(day, "free/model", Usage(7), 1, "title"),
            DailyUsage(day, "small/model", usage, 1, "compaction"),
            DailyUsage(day, "small/model", usage, 1, "title"),
            DailyUsage(day_of(later.at), "a/b", usage, 1),
        )
        assert (info.cost, info.fork_of, info.messages) == (0.75, OTHER.id, 2)
        assert " ".join(info.summary.split()) == "Mended the import."
        assert wait(store.get_session_stats(HEADER.id)) == info

    def test_duplicate_id_is_refused(self, store):
        self._saved(store, HEADER, user("one"))

        with pytest.raises(SaveFailed):
            wait(store.create_session(HEADER))

    def test_obstacle_is_empty_if_sessions_can_be_saved(self, store):
        assert store.obstacle() == ""

    def test_costs_outside_sessions_are_counted_by_day_and_model(self, store):
        assert wait(store.load_costs()) == ()
        for model, cost in (("b/two", 0.25), ("a/one", None), ("b/two", 0.25)):
            wait(
                store.save_cost(
                    CostRecord("vectors", HEADER.created_at, model, Usage(7, cost=cost))
                )
            )
        day = day_of(HEADER.created_at)
        assert wait(store.load_costs()) == (
            DailyUsage(day, "a/one", Usage(7), 1, "vectors"),
            DailyUsage(day, "b/two", Usage(14, cost=0.5), 2, "vectors"),
        )
        assert wait(store.list_sessions()) == []

    def _texts(self, store: MemoryStore, header: SessionHeader) -> list[str]:
        records = wait(store.load_session(header.id, read_only=True)).records
        return [each.message.text for each in records if isinstance(each, MessageRecord)]

    def _saved(self, store: MemoryStore, header: SessionHeader, *messages: Message) -> None:
        wait(store.create_session(header))
        for number, message in enumerate(messages, 1):
            wait(store.save_message(header.id, message_record(number, message)))
        wait(store.close_session(header.id))
