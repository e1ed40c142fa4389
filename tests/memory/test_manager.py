import asyncio

import pytest
from fakes.waiting import wait

from ouro.errors import SaveFailed, SessionInUse, SessionNotFound
from ouro.memory.backend import ChangeRecord, CostRecord, MessageRecord, RewindRecord
from ouro.memory.ephemeral_backend import DictMemoryStore
from ouro.memory.manager import MemoryManager
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.memory.transcript import make_title
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message, Text, Usage, user


class FullDisk(DictMemoryStore):
    """Refuses every save while `is_full`."""

    is_full = True

    async def save_message(self, session_id: str, record: MessageRecord) -> None:
        if self.is_full:
            raise SaveFailed("no space left")
        await super().save_message(session_id, record)

    async def save_memory(self, session_id: str, record: ChangeRecord) -> None:
        if self.is_full:
            raise SaveFailed("no space left")
        await super().save_memory(session_id, record)


class SlowDisk(DictMemoryStore):
    """Blocks a save until `go_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def save_message(self, session_id: str, record: MessageRecord) -> None:
        self.begun.set()
        await self.go_on.wait()
        await super().save_message(session_id, record)


def saved_texts(store, session_id: str) -> list[str]:
    records = wait(store.load_session(session_id, read_only=True)).records
    return [record.message.text for record in records if isinstance(record, MessageRecord)]


def start_manager(store=None) -> MemoryManager:
    return MemoryManager.start(store or DictMemoryStore(), project="/p", model="a/b")


async def test_nothing_is_written_before_the_first_message(home):
    store = YamlFileMemoryStore(home / ".ouro" / "sessions")
    memory = start_manager(store)
    memory.set_model("c/d")
    memory.set_title("early")
    await memory.close()

    assert not (home / ".ouro").exists()


async def test_cost_before_the_first_message_is_counted_once_outside(home):
    store = YamlFileMemoryStore(home / ".ouro" / "sessions")
    memory = start_manager(store)
    memory.record_later(CostRecord("crystallization", memory.now(), "c/d", Usage(9, cost=0.5)))
    await memory.close()
    assert [(each.model, each.usage) for each in await store.load_costs()] == [
        ("c/d", Usage(9, cost=0.5))
    ]
    assert (await store.list_sessions()) == []

    memory = start_manager(store)
    await memory.add(user("one"))
    memory.record_later(CostRecord("title", memory.now(), "c/d", Usage(9, cost=0.5)))
    await memory.close()
    assert [each.calls for each in await store.load_costs()] == [1]


async def test_cost_in_a_read_only_session_is_counted_outside(home):
    store = YamlFileMemoryStore(home / ".ouro" / "sessions")
    memory = start_manager(store)
    await memory.add(user("one"))
    await memory.close()
    memory = await MemoryManager.resume(store, memory.session_id, project="/p", read_only=True)
    await memory.add(user("two"))
    await memory.add(Message("assistant", (Text("x"),), Usage(5, cost=0.25), "a/b"))
    await memory.close()
    assert saved_texts(store, memory.session_id) == ["one"]
    assert [(each.model, each.usage) for each in await store.load_costs()] == [
        ("a/b", Usage(5, cost=0.25))
    ]


async def test_a_message_is_saved_when_add_returns():
    store = DictMemoryStore()
    memory = start_manager(store)

    await memory.add(user("one"))

    assert saved_texts(store, memory.session_id) == ["one"]
    assert memory.messages() == (user("one"),) == tuple(memory.context())


async def test_title_is_the_first_message_and_can_be_changed():
    store = DictMemoryStore()
    memory = start_manager(store)
    await memory.add(
        user("fix the\n broken import in api.py, which nobody has looked at since spring")
    )
    first = memory.title
    memory.set_title("imports")
    await memory.close()

    assert first == "fix the broken import in api.py, which nobody has looked at…"
    assert [each.title for each in await store.list_sessions()] == ["imports"]
    assert (await MemoryManager.resume(store, memory.session_id, project="/p")).title == "imports"


def test_a_title_is_one_clean_line():
    assert make_title("\x1b[31m a\tb\n\nc\u202e ") == "a b c"
    assert make_title("I ran this in a shell:\n\n$ make -j2\nok\n") == "! make -j2"
    assert (
        make_title("On standard input:\n\ndiff --git a b\n\n+ x\n\nreview this\n") == "review this"
    )
    assert make_title("Attached files:\n\n<file>a</file>\n\nwhat is it?") == "what is it?"
    assert make_title("x" * 99) == "x" * 60 + "…"


async def test_unsaved_messages_are_saved_with_the_next():
    store = FullDisk()
    memory = start_manager(store)
    for text in ("one", "two"):
        with pytest.raises(SaveFailed):
            await memory.add(user(text))
    kept = memory.messages()
    store.is_full = False
    await memory.add(user("three"))

    assert kept == (user("one"), user("two"))
    assert saved_texts(store, memory.session_id) == ["one", "two", "three"]


async def test_closing_saves_unsaved_messages():
    store = FullDisk()
    memory = start_manager(store)
    with pytest.raises(SaveFailed):
        await memory.add(user("one"))
    store.is_full = False
    await memory.close()

    assert saved_texts(store, memory.session_id) == ["one"]


async def test_rewind_that_cannot_be_saved_changes_nothing():
    store = FullDisk()
    store.is_full = False
    memory = start_manager(store)
    for text in ("one", "two", "three"):
        await memory.add(user(text))
    store.is_full = True
    with pytest.raises(SaveFailed):
        await memory.record(RewindRecord(1, memory.now()))
    kept = memory.messages()
    store.is_full = False
    await memory.add(user("four"))
    await memory.close()

    assert kept == (user("one"), user("two"), user("three"))
    again = await MemoryManager.resume(store, memory.session_id, project="/p")
    assert again.messages() == memory.messages() == (*kept, user("four"))


async def test_started_save_completes_although_its_caller_is_cancelled():
    store = SlowDisk()
    memory = start_manager(store)
    adding = asyncio.create_task(memory.add(user("one")))
    await store.begun.wait()
    adding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await adding
    store.go_on.set()
    await memory.add(user("two"))

    assert saved_texts(store, memory.session_id) == ["one", "two"]


async def test_concurrently_added_messages_are_saved_in_order():
    store = DictMemoryStore()
    memory = start_manager(store)
    await asyncio.gather(*(memory.add(user(str(number))) for number in range(50)))

    assert saved_texts(store, memory.session_id) == [each.text for each in memory.messages()]


async def test_resume_restores_the_state_and_continues_numbering():
    store = DictMemoryStore()
    memory = start_manager(store)
    await memory.add(user("one"))
    await memory.add(Message("assistant", (Text("two"),), Usage(100, 0, 0, 10, 0.5), "a/b"))
    memory.set_model("c/d")
    await memory.close()

    again = await MemoryManager.resume(store, memory.session_id, project="/p")
    await again.add(user("three"))
    await again.close()

    assert (again.session_id, again.model, again.title) == (memory.session_id, "c/d", "one")
    assert again.usage == Usage(100, 0, 0, 10, 0.5)
    assert again.tokens == len("onetwothree") // 3.5  # the old count was for another tokenizer
    numbers = [
        record.number
        for record in (await store.load_session(again.session_id)).records
        if isinstance(record, MessageRecord)
    ]
    assert numbers == [1, 2, 3]


async def test_session_is_found_by_id_prefix_latest_and_words():
    store = DictMemoryStore()
    memories = {}
    for project, text in (
        ("/p", "fix the import"),
        ("/p", "fix the tests"),
        ("/other", "write docs"),
    ):
        memory = MemoryManager.start(store, project=project, model="a/b")
        await memory.add(user(text))
        await memory.close()
        memories[text] = memory.session_id

    async def found(query: str) -> str:
        return (await SessionCatalog(store, "/p").find(query)).id

    assert await found(memories["write docs"]) == memories["write docs"]
    assert await found(memories["fix the import"][:10].upper()) == memories["fix the import"]
    assert await found("import FIX") == memories["fix the import"]
    assert await found("docs") == memories["write docs"]
    assert await found("latest") in (memories["fix the import"], memories["fix the tests"])
    for nobody in ("", "nothing of the kind", "../../x", "x" * 300):
        with pytest.raises(SessionNotFound):
            await found(nobody)
    with pytest.raises(SessionNotFound, match="Several sessions"):
        await found("fix")
    with pytest.raises(SessionNotFound, match="No session of this folder"):
        await SessionCatalog(store, "/empty").find("latest")


async def test_a_session_that_is_open_is_refused(home):
    store = YamlFileMemoryStore(home / ".ouro" / "sessions")
    memory = start_manager(store)
    await memory.add(user("one"))

    with pytest.raises(SessionInUse):
        await MemoryManager.resume(
            YamlFileMemoryStore(home / ".ouro" / "sessions"), memory.session_id, project="/p"
        )


async def test_unwritable_home_is_reported_at_the_start(home):
    (home / ".ouro").write_text("a file in the way")

    memory = start_manager(YamlFileMemoryStore(home / ".ouro" / "sessions"))

    assert memory.notices == (f"This session cannot be saved: {home / '.ouro'} is not a folder.",)
