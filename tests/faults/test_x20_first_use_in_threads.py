"""X20: threads that read the same type of record for the first time, which crashes msgspec."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec

from ouro.utils.decoding import from_plain

_PROGRAM = """
from __future__ import annotations

import sys
import threading

import msgspec

from ouro.utils.decoding import decode_json, from_plain

COUNT = 40
for number in range(COUNT):
    fields = {name: "str | None" for name in "abcdef"}
    fields |= {"inner": f"Record{number - 1} | None"} if number else {}
    body = "".join(f"    {name}: {kind} = None\\n" for name, kind in fields.items())
    exec(f"class Record{number}(msgspec.Struct):\\n{body}", globals())

start = threading.Barrier(6)


def read():
    start.wait()
    for number in reversed(range(COUNT)):
        kind = globals()[f"Record{number}"]
        from_plain({"a": "x", "inner": {"b": "y"}}, kind)
        decode_json('{"a": "x", "inner": {"b": "y"}}', kind)


sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=read) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("read")
"""


def test_x20_threads_read_a_type_for_the_first_time_together():
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "read\n"), done.stderr


def test_x20_one_thread_at_a_time_prepares_a_type(monkeypatch):
    """The crash is a race: on a busy machine the program above may end without it."""
    together, is_second, inside, counts = threading.Barrier(2), threading.Event(), [], []

    def prepare(kind):
        inside.append(kind)
        counts.append(len(inside))
        if len(counts) == 2:
            is_second.set()
        is_second.wait(1)
        inside.remove(kind)

    def read(kind):
        together.wait()
        return from_plain({}, kind)

    monkeypatch.setattr(msgspec.json, "Decoder", prepare)
    kinds = [msgspec.defstruct("FirstRecord", []), msgspec.defstruct("SecondRecord", [])]
    with ThreadPoolExecutor(2) as pool:
        assert [type(value) for value in pool.map(read, kinds)] == kinds
    assert counts == [1, 1]
