"""The bytes of a session file: records are found forwards, backwards and at an offset, whatever
text they contain.
"""

import asyncio
import os
import re

import pytest
from fakes.waiting import BytesFile
from properties import given, st

from ouro.memory.sessions import record_windows, session_file
from ouro.memory.sessions.record_windows import (
    read_backward,
    read_record_at,
)
from ouro.memory.sessions.session_file import (
    find_whole_end,
    records_in,
    split_records,
)

PIECES = st.lists(
    st.sampled_from(
        [
            b"---",
            b"...",
            b"\n",
            b"\r\n",
            b"--- ",
            b"...\t",
            b"... x",
            b"---x",
            b" ...",
            b"a: b",
            b"# c",
            b"",
            b"-",
            b".",
        ]
    ),
    max_size=40,
).map(b"".join)
RECORDS = st.lists(
    st.sampled_from(
        [
            b"---\nmessage: 1\n...\n",
            b"---\ntext: |-\n  x\n  ...\n...\n",
            b"---\r\na: b\r\n...\r\n",
            b"# c\n\n",
            b"---\nhalf\n",
        ]
    ),
    max_size=30,
).map(b"".join)


@given(PIECES | RECORDS)
def test_record_end_marks_are_found_only_at_line_starts(data):
    ends = [end.end() for end in re.finditer(rb"^\.\.\.[ \t\r]*(?:\n|\Z)", data, re.MULTILINE)]

    records = records_in(data)

    assert [record.offset + record.size for record in records if record.is_whole] == ends


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("file") / "session.yaml"


async def check_backwards(data, end, forwards):
    file = BytesFile(data)
    assert [record async for record in read_backward(file, 0, end)] == forwards[::-1]
    for record in forwards:
        if record.is_whole and data[record.offset : record.offset + 4] == b"---\n":
            assert await read_record_at(file, record.offset) == record


@given(data=PIECES | RECORDS, windows=st.tuples(st.integers(1, 30), st.integers(1, 30)))
def test_reading_backwards_finds_the_same_records(path, data, windows):
    path.write_bytes(data)
    descriptor = os.open(path, os.O_RDONLY)
    before = record_windows._FIRST_WINDOW, record_windows._WINDOW
    record_windows._FIRST_WINDOW, record_windows._WINDOW = windows
    try:
        end, tail = find_whole_end(descriptor)
        forwards, last = split_records(data)
        assert tail == last
        asyncio.run(check_backwards(data, end, forwards))
    finally:
        record_windows._FIRST_WINDOW, record_windows._WINDOW = before
        os.close(descriptor)


def test_error_names_the_full_path(tmp_path):
    tmp_path.chmod(0o700)
    (tmp_path / session_file.LOCK_NAME).mkdir()
    with pytest.raises(IsADirectoryError) as refused:
        session_file.SessionLock(tmp_path)
    assert refused.value.filename == str(tmp_path / session_file.LOCK_NAME)
