"""Truncation of long output."""

import asyncio
import os
import resource
import stat
import threading

import pytest
from fakes.waiting import until

from ouro.tools import output_capture
from ouro.tools.output_capture import MAX_IN_MEMORY, MAX_SPOOLED, OutputCapture, Pump
from ouro.tools.truncate import MAX_SHOWN, fold_progress, readable, shorten


def test_short_output_creates_no_file(tmp_path):
    capture = OutputCapture(tmp_path / "outputs")
    capture.add(b"one\n")
    capture.add(b"two\n")
    capture.close()
    capture.wait_for_file(10)
    assert (capture.text(), capture.file, list(tmp_path.iterdir())) == ("one\ntwo\n", None, [])


@pytest.mark.parametrize(
    ("encoding", "text"), [("ISO-8859-1", "Größe"), ("ISO-8859-7", "Grφίe"), ("UTF-8", "Größe")]
)
def test_output_that_is_not_utf8_is_read_in_the_encoding_of_the_locale(monkeypatch, encoding, text):
    monkeypatch.setattr("locale.getencoding", lambda: encoding)
    assert readable("Größe".encode("latin-1")) == text
    assert readable("Größe".encode()) == "Größe"


def test_long_output_shows_head_tail_size_and_file(tmp_path):
    capture = OutputCapture(tmp_path / "outputs")
    lines = "".join(f"line {number}\n" for number in range(100_000))
    for start in range(0, len(lines), 5000):
        capture.add(lines[start : start + 5000].encode())
    capture.close()
    capture.wait_for_file(10)
    text = capture.text()
    assert text.startswith("line 0\n")
    assert text.endswith("line 99999\n")
    assert f"{len(lines):,} bytes in all; all of it is in {capture.file}" in text
    assert len(text) < MAX_SHOWN + 200
    assert capture.file.read_text() == lines
    assert stat.S_IMODE(capture.file.stat().st_mode) == 0o600


def test_text_is_cut_between_lines():
    shortened = shorten("".join(f"line {number}\n" for number in range(1000)), 1000)
    head, tail = shortened.split("\n\n[… cut here: 8,890 characters in all]\n\n")
    assert (
        head.splitlines()[-1].startswith("line "),
        tail.splitlines()[0].startswith("line "),
    ) == (True, True)


def test_memory_and_file_are_bounded_however_much_is_printed(tmp_path):
    capture = OutputCapture(tmp_path)
    piece = b"x" * (MAX_IN_MEMORY * 4)
    for _ in range(MAX_SPOOLED // len(piece) + 5):
        capture.add(piece)
    capture.close()
    capture.wait_for_file(10)
    assert len(capture._head) + len(capture._tail) <= MAX_IN_MEMORY * 1.5
    assert capture.file.stat().st_size == MAX_SPOOLED
    assert "its first 4 MB are in" in capture.text()


def test_lines_are_not_counted_in_more_than_the_file_holds(tmp_path):
    counted = []

    class Piece(bytes):
        def count(self, *arguments) -> int:
            counted.append(len(self))
            return super().count(*arguments)

    capture = OutputCapture(tmp_path)
    for _ in range(5):
        capture.add(Piece(b"x\n" * 500_000))
    assert sum(counted) == 4_000_000
    assert capture.describe_lines("x\nx") == "5.0 MB"
    capture.close()
    capture.wait_for_file(10)


def test_secrets_are_masked_in_the_file_across_chunks(tmp_path):
    capture = OutputCapture(tmp_path, mask=lambda text: text.replace("hunter2hunter2", "[secret]"))
    capture.add(b"x\n" * MAX_SHOWN)
    capture.add(b"key=hunter2")
    capture.add(b"hunter2\n")
    capture.close()
    capture.wait_for_file(10)
    assert b"hunter2" not in capture.file.read_bytes()
    assert capture.file.read_text().endswith("key=[secret]\n")


def test_full_disk_is_reported_and_output_continues(tmp_path):
    (tmp_path / "outputs").write_text("a file where the folder should be")
    capture = OutputCapture(tmp_path / "outputs")
    capture.add(b"x\n" * MAX_SHOWN)
    capture.close()
    capture.wait_for_file(10)
    assert "the rest could not be saved" in capture.text()


def test_a_disk_that_gets_full_is_reported(tmp_path):
    capture = OutputCapture(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        capture.add(b"x\n" * MAX_SHOWN)
        capture.close()
        capture.wait_for_file(10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "all of it is in" not in capture.text()
    assert f"only its beginning is in {capture.file} (File too large)" in capture.text()


def test_since_returns_new_output_once_and_reports_gaps(tmp_path):
    capture = OutputCapture(tmp_path)
    capture.add(b"one\n")
    assert (capture.text_since(0), capture.text_since(4)) == ("one\n", "")
    capture.add(b"y\n" * MAX_IN_MEMORY)
    assert capture.text_since(4).startswith("[")
    assert "bytes left out" in capture.text_since(4)


def test_binary_output_is_reported_and_not_shown(tmp_path):
    capture = OutputCapture(tmp_path)
    capture.add(b"\x7fELF\0\0")
    assert capture.text() == "[binary output, 6 bytes, is not shown]"


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        ("10%\r50%\r100%\n", "100%\n"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("done\r", "done"),
        ("plain", "plain"),
    ],
)
def test_progress_bars_are_reduced_to_their_last_state(raw, seen):
    assert fold_progress(raw) == seen


def test_arbitrary_bytes_become_readable_text():
    assert readable(b"\xff\x1b[31mred\x1b[0m \xc3\xa9\n") == "\ufffdred é\n"


def test_slow_mask_does_not_block_the_output(tmp_path):
    gate = threading.Event()

    def mask(text: str) -> str:
        gate.wait(10)
        return text

    capture = OutputCapture(tmp_path, mask)
    capture.add(b"line\n" * MAX_SHOWN)
    capture.close()
    assert capture.text().startswith("line\n")
    gate.set()
    capture.wait_for_file(10)
    assert capture.file.read_bytes() == b"line\n" * MAX_SHOWN


def test_one_large_chunk_equals_many_small_ones(tmp_path):
    data = b"".join(b"line %d\n" % number for number in range(150_000))
    whole, pieces = OutputCapture(tmp_path), OutputCapture(tmp_path)
    whole.add(data)
    for at in range(0, len(data), 1000):
        pieces.add(data[at : at + 1000])
    for capture in (whole, pieces):
        capture.close()
        capture.wait_for_file(10)
    assert whole.text().replace(str(whole.file), "FILE") == pieces.text().replace(
        str(pieces.file), "FILE"
    )
    assert whole.text_since(len(data) - 50) == pieces.text_since(len(data) - 50)
    assert whole.file.read_bytes() == pieces.file.read_bytes() == data


@pytest.mark.usefixtures("cpu_limit")
def test_output_of_carriage_returns_alone_is_folded_in_linear_time():
    """Without the lookbehind 128 KB took 5 s: a command could block ouro."""
    assert fold_progress("\r" * 500_000 + "x") == "x"


async def write_and_wait(descriptor, capture, data):
    """Write to the pipe of a pump, and wait until the capture has it."""
    total = capture.total + len(data)
    await asyncio.to_thread(os.write, descriptor, data)
    await until(lambda: capture.total == total)


async def test_a_long_output_is_read_in_large_pieces_and_its_end_is_kept(tmp_path, monkeypatch):
    pauses, reports = [], []
    monkeypatch.setattr(output_capture.time, "sleep", pauses.append)
    capture = OutputCapture(tmp_path)
    reading, writing = os.pipe()
    pump = Pump(reading, capture, reports.append)
    line = b"%9d of the output\n"
    for start in range(0, MAX_SPOOLED + 1, 1 << 16):
        await write_and_wait(writing, capture, b"x" * min(1 << 16, MAX_SPOOLED + 1 - start))
    assert not pauses  # what the file holds is read at once
    lines = b"".join(line % number for number in range(40_000))
    for start in range(0, len(lines), 1 << 15):
        await write_and_wait(writing, capture, lines[start : start + (1 << 15)])
    assert len(pauses) >= len(lines) >> 15
    pauses.clear()
    await write_and_wait(writing, capture, b"a last line")
    assert not pauses  # no more is on its way
    os.close(writing)
    pump.close()
    assert capture.text().endswith("39999 of the output\na last line")
    assert bytes(capture._tail).removesuffix(b"a last line") in lines
    assert reports[-1].endswith(b"a last line")
    assert len(capture._tail) >= MAX_IN_MEMORY // 2


async def test_all_of_a_long_output_reaches_what_watches_it(tmp_path):
    pieces = []
    capture = OutputCapture(tmp_path, on_data=pieces.append)
    reading, writing = os.pipe()
    pump = Pump(reading, capture, lambda _: None)
    for _ in range(2 * MAX_SPOOLED >> 16):
        await write_and_wait(writing, capture, b"y" * (1 << 16))
    os.close(writing)
    pump.close()
    assert sum(map(len, pieces)) == 2 * MAX_SPOOLED


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_output_of_windows_programs_through_a_terminal_is_read(encoding, line_end):
    text = f"Gr\u00fc\u00dfe, one{line_end}two \u6f22\u5b57{line_end}"
    through_terminal = text.encode(encoding).replace(b"\n", b"\r\n")
    assert readable(through_terminal) == "Gr\u00fc\u00dfe, one\ntwo \u6f22\u5b57\n"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_output_of_windows_programs_is_read(encoding):
    text = "Name  Größe\r\nWindows  12\r\n"
    capture = OutputCapture(None)
    capture.add(text.encode(encoding))
    assert capture.text() == text.replace("\r\n", "\n")


@pytest.mark.parametrize("encoding", ["UTF-8", "ANSI_X3.4-1968"])
def test_latin_1_lines_are_read_beside_lines_in_utf8(monkeypatch, encoding):
    monkeypatch.setattr("locale.getencoding", lambda: encoding)
    data = "Köln.txt → 日本\n".encode() + "grüße, die Straße ist für alle\n".encode("latin-1")
    assert readable(data) == "Köln.txt → 日本\ngrüße, die Straße ist für alle\n"


def test_a_piece_that_begins_and_ends_within_a_character_is_utf8(monkeypatch):
    monkeypatch.setattr("locale.getencoding", lambda: "UTF-8")
    data = "日本語の出力\n次の行".encode()
    assert readable(data[1:-1]) == "本語の出力\n次の\ufffd"


def test_utf16_behind_other_text_is_not_guessed():
    capture = OutputCapture(None)
    capture.add(b"one line\n" + "Hello from Windows\r\n".encode("utf-16-le") * 9)
    assert capture.text().startswith("[binary output")


def test_binary_output_is_not_shown():
    capture = OutputCapture(None)
    capture.add(b"\x7fELF\2\1\1\0\0\0\xff\xfe\0\0\0\1" * 50)
    assert capture.text().startswith("[binary output, 800 bytes")
