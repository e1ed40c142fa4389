"""S1, S3, S7: a session with every kind of record, cut at every byte, and read by the reader that
all sessions use.

`test_s1_s2_s3_cut_saves.py` cuts real saves of real processes, at fewer places.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from fakes.waiting import BytesFile, wait
from memory.store_contract import EVERY_CHANGE

from ouro.memory.backend import CHANGES, MessageRecord, Record, SessionHeader
from ouro.memory.safe_yaml import load
from ouro.memory.serialization import record_from
from ouro.memory.sessions.record_windows import (
    read_backward,
)
from ouro.memory.sessions.session_file import (
    encode_record,
    find_whole_end,
    number_of,
    records_in,
    split_records,
)
from ouro.memory.sessions.session_folders import fetch_output
from ouro.memory.sessions.session_reader import read_session
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Image, Message, Text, Thinking, ToolCall, ToolReply, Usage, tool, user

AT = "2026-11-21T20:15:00.000Z"
HEADER = SessionHeader(
    "0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", AT, memory={"user": "4be1c0d"}
)
MESSAGES = [
    user(
        "one\n...\n---\nfour ", [Image("image/png", b"\x89PNG", "shot.png")], "Today is Saturday."
    ),
    Message(
        "assistant",
        (
            Thinking("Hm.", "seal"),
            Text("zwei — 二\n"),
            ToolCall("c", "read", {"path": "a", "lines": [1, 2]}),
        ),
        Usage(10, 4, 0, 5, 0.25),
        "a/one",
    ),
    tool(
        ToolReply("c", "read", "...\n---\nmessage: 9\n\ttabs\n", failed=True),
        ToolReply("d", "x", "y\n" * 9000),
    ),
]
RECORDS: list[Record] = [
    *(MessageRecord(number, AT, each) for number, each in enumerate(MESSAGES, 1)),
    *EVERY_CHANGE,
]
NEXT = encode_record({"message": 900, "role": "user", "text": "the next one"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The folder of a session with these records."""
    root = tmp_path_factory.mktemp("sessions")
    wait(YamlFileMemoryStore(root).import_session(HEADER, RECORDS))
    return next(root.glob("2*"))


@pytest.fixture(scope="module")
def data(folder) -> bytes:
    return (folder / "session.yaml").read_bytes()


def read(folder, block) -> Record:
    return record_from(load(block.data), partial(fetch_output, folder)).record


def test_the_session_has_every_kind_of_record(folder, data):
    blocks, tail = split_records(data)
    assert [read(folder, block) for block in blocks[1:]] == RECORDS
    assert {type(each) for each in RECORDS} == {MessageRecord, *CHANGES.values()}
    assert tail == b""


async def test_s1_session_cut_at_any_byte_keeps_exactly_its_whole_records(data, tmp_path):
    whole = records_in(data)
    ends = [block.offset + block.size for block in whole]
    path = tmp_path / "session.yaml"
    path.write_bytes(data)
    descriptor = os.open(path, os.O_RDWR)
    for cut in reversed(range(len(data) + 1)):
        os.ftruncate(descriptor, cut)
        # The newline after an end mark may be missing: the mark itself is complete.
        kept = [block for block, end in zip(whole, ends, strict=True) if end <= cut + 1]
        end = min(ends[len(kept) - 1], cut) if kept else 0
        blocks, tail = split_records(data[:cut])
        assert ([block.data for block in blocks], [block.offset for block in blocks]) == (
            [block.data for block in kept],
            [block.offset for block in kept],
        ), cut
        assert tail == data[end:cut], cut
        assert find_whole_end(descriptor) == (end, data[end:cut]), cut
        back = [record.offset async for record in read_backward(BytesFile(data[:cut]), 0, end)]
        assert back == [block.offset for block in reversed(kept)], cut
    os.close(descriptor)


def test_s1_record_after_a_cut_one_is_read_and_the_cut_one_skipped(data):
    whole = records_in(data)
    ends = [block.offset + block.size for block in whole]
    for cut in range(ends[0], len(data)):
        kept = sum(end <= cut + 1 for end in ends)
        glue = b"" if data[:cut].endswith(b"\n") else b"\n"
        blocks, tail = split_records(data[:cut] + glue + NEXT)
        believed = [block for block in blocks if block.is_whole]
        assert (number_of(believed[-1]), tail) == (900, b""), cut
        assert [block.offset for block in believed[:-1]] == [
            block.offset for block in whole[:kept]
        ], cut


@pytest.mark.parametrize("part", [0.3, 0.5, 0.7, 0.9, 0.999])
def test_s1_a_session_that_is_cut_opens_with_all_whole_records(folder, data, part):
    cut = int(len(data) * part)
    kept = sum(block.offset + block.size <= cut + 1 for block in records_in(data))
    path = folder / "session.yaml"
    path.write_bytes(data[:cut])
    try:
        found = wait(read_session(folder)).session
    finally:
        path.write_bytes(data)
    assert list(found.records) == RECORDS[: kept - 1]
    assert any("is incomplete" in notice for notice in found.notices)
