"""After a compaction, messages that are no longer sent leave memory; scrolling and rewinds read
them from the file.
"""

import gc

import pytest

from ouro.errors import SaveFailed
from ouro.memory.backend import (
    CompactionRecord,
    MessageRecord,
    ModelRecord,
    RecalledRecord,
    RewindRecord,
)
from ouro.memory.manager import MemoryManager
from ouro.memory.sessions.session_reader import MIN_SHOWN
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message, Text, ToolCall, ToolReply, Usage, assistant, tool, user

OUTPUT = "2026-11-21 20:14:03 INFO worker 7 handled job 4711\n" * 320
"""16 KB."""


@pytest.fixture
def store(tmp_path) -> YamlFileMemoryStore:
    return YamlFileMemoryStore(tmp_path / "sessions")


async def talk(memory: MemoryManager, turns: int, output: str = "some text") -> None:
    for _ in range(turns):
        number = memory.next_number
        await memory.add(user(f"prompt {number}"))
        await memory.add(
            assistant("Looking.", ToolCall(f"call_{number}", "read", {"path": "a.py"}))
        )
        await memory.add(tool(ToolReply(f"call_{number}", "read", f"{number}: {output}")))
        await memory.add(
            Message("assistant", (Text(f"answer {number}"),), Usage(500, output=20), "m")
        )


async def compact(memory: MemoryManager, leave: int = 8) -> None:
    sent = memory.transcript.sent_entries()
    covered = sent[:-leave]
    kept = tuple(each.number for each in covered[:3] if each.message.role == "user")
    last = max(each.number for each in covered)
    await memory.record(
        CompactionRecord(
            memory.next_number, memory.now(), (1, last), kept, "What was said.", tokens=(900, 90)
        )
    )


def texts(told) -> list[str]:
    return [
        each.message.text
        for each in told
        if isinstance(each, MessageRecord) and each.message.role != "tool"
    ]


def bytes_held(memory: MemoryManager) -> int:
    """Characters of the tool outputs that the manager has in memory."""
    return sum(len(reply.text) for each in memory.messages() for reply in each.parts_of(ToolReply))


async def test_sent_context_and_usage_are_unchanged(store):
    memory = MemoryManager.start(store, project="/p", model="m")
    await talk(memory, 60)
    turns = memory.transcript.turns
    await compact(memory)

    sent, tokens = memory.context(), memory.tokens
    assert len(memory.messages()) == MIN_SHOWN
    assert (memory.transcript.turns, turns) == (60, 60)
    assert (memory.pager.has_earlier, memory.transcript.is_complete) == (True, True)
    await talk(memory, 1)
    assert memory.context()[: len(sent)] == sent
    await memory.close()

    again = await MemoryManager.resume(store, memory.session_id, project="/p")
    assert again.context() == memory.context()
    assert (tokens, again.tokens) == (90, 520)
    await again.close()


async def test_memory_use_does_not_grow_with_compactions(store):
    gc.freeze()  # otherwise each collection spends a second on objects of earlier tests
    memory = MemoryManager.start(store, project="/p", model="m")
    held, objects = [], []
    for _ in range(10):
        await talk(memory, 30, OUTPUT)
        await compact(memory)
        gc.collect()
        held.append(bytes_held(memory))
        objects.append(
            sum(isinstance(each, MessageRecord | ToolReply) for each in gc.get_objects())
        )

    assert memory.transcript.turns == 300
    assert max(held[1:]) <= held[1] + 100 < 12 * len(OUTPUT)
    assert max(objects[1:]) <= objects[1] + 5
    await memory.close()


async def test_scrolling_shows_each_message_exactly_once(store):
    memory = MemoryManager.start(store, project="/p", model="m")
    await talk(memory, 60)
    everything = texts(memory.pager.shown())
    await compact(memory)
    await talk(memory, 2)

    assert not memory.pager.has_hidden  # everything is on the screen
    assert await memory.pager.show_more(10) == ()
    seen = texts(memory.pager.shown())
    while memory.pager.has_hidden:  # a new screen shows everything again
        seen[:0] = texts(await memory.pager.show_more(37))
    assert seen[: len(everything)] == everything
    assert len(seen) == 62 * 3
    await memory.close()


async def test_scrolling_continues_at_its_position_after_a_compaction(store):
    memory = MemoryManager.start(store, project="/p", model="m")
    await talk(memory, 150)
    await compact(memory)
    await memory.close()
    memory = await MemoryManager.resume(store, memory.session_id, project="/p")
    shown = texts(memory.pager.shown())
    shown[:0] = texts(await memory.pager.show_more(100))
    said = [each for each in (await memory.whole()).records() if isinstance(each, MessageRecord)]
    await talk(memory, 20)
    await compact(memory)
    while memory.pager.has_hidden:
        shown[:0] = texts(await memory.pager.show_more(30))
    assert shown == [each.message.text for each in said if each.message.role != "tool"]
    await memory.close()


async def test_scrolling_ends_at_a_change_of_model_before_the_first_message(store):
    memory = MemoryManager.start(store, project="/p", model="m")
    memory.set_model("other")
    await talk(memory, 60)
    await compact(memory)
    memory.pager.shown()
    pages = []
    while memory.pager.has_hidden and len(pages) < 5:
        pages.append(await memory.pager.show_more(100))
    assert [len(page) for page in pages] == [100, 100, 1]
    await memory.close()


async def test_rewind_to_released_messages_and_forward_again_works(store):
    memory = MemoryManager.start(store, project="/p", model="m")
    await talk(memory, 60)
    before = memory.context()
    last = memory.transcript.last_number
    await compact(memory)
    await memory.record(RewindRecord(8, memory.now()))
    assert memory.context() == before[:8]
    await memory.add(user("else"))
    await memory.record(RewindRecord(last, memory.now()))
    assert memory.context() == before
    await memory.close()


async def test_unsaved_messages_are_not_released(store, monkeypatch):
    memory = MemoryManager.start(store, project="/p", model="m")
    await talk(memory, 60)

    def full(*_given):
        raise SaveFailed("Not saved: No space left on device.")

    with monkeypatch.context() as disk:
        disk.setattr(store, "save_memory", full)
        with pytest.raises(SaveFailed):
            await compact(memory)
    assert len(memory.messages()) == 240
    await memory.close()

    looked_at = await MemoryManager.resume(store, memory.session_id, project="/p", read_only=True)
    await looked_at.pager.finish_loading()
    count = len(looked_at.messages())
    await talk(looked_at, 60)
    await compact(looked_at)
    assert len(looked_at.messages()) == count + 240
    await looked_at.close()


async def test_scrolling_shows_marks_and_receipts_between_messages(store):
    memory = MemoryManager.start(store, project="/p", model="m")
    await talk(memory, 2)
    memory.record_later(RecalledRecord(5, memory.now(), ()))
    memory.set_model("other")
    await talk(memory, 1)
    await memory.record(RewindRecord(8, memory.now()))
    await talk(memory, 60)
    told = memory.pager.shown()
    await compact(memory)

    page = list(memory.pager.shown())
    while memory.pager.has_hidden:
        page[:0] = await memory.pager.show_more(50)
    kinds = [type(each) for each in page if not isinstance(each, MessageRecord)]
    assert kinds == [RecalledRecord, ModelRecord, RewindRecord, CompactionRecord]
    assert [each for each in page if not isinstance(each, CompactionRecord)] == list(told)
    await memory.close()

    again = await MemoryManager.resume(store, memory.session_id, project="/p")
    page = list(again.pager.shown())
    while again.pager.has_hidden:
        page[:0] = await again.pager.show_more(50)
    assert [each for each in page if not isinstance(each, CompactionRecord)] == list(told)
    await again.close()
