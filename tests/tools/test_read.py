"""The tool `read`."""

from __future__ import annotations

import base64
import io
import json
import zlib
from pathlib import Path

import pytest
from fakes.tool_benches import call
from PIL import Image as Pillow

from ouro.display import Display, Picture, Plain
from ouro.errors import ToolError
from ouro.messages import Image
from ouro.safety import Workspace
from ouro.tools import read as read_module
from ouro.tools.files_seen import FilesSeen
from ouro.tools.read import Read, ReadArgs
from ouro.tools.tool import ToolResult, parse_arguments


@pytest.fixture
def read(tmp_path) -> Read:
    return Read(FilesSeen(Workspace(tmp_path)))


async def refusal(read: Read, path: str, **arguments) -> str:
    with pytest.raises(ToolError) as caught:
        await call(read, path=path, **arguments)
    return caught.value.message


def drawing(width: int, height: int, form: str, **options) -> bytes:
    buffer = io.BytesIO()
    Pillow.new("RGB", (width, height), "red").save(buffer, form, **options)
    return buffer.getvalue()


async def test_shows_lines_with_their_numbers(read, tmp_path):
    (tmp_path / "a.py").write_text("one\n\n\ttwo\n")
    assert await call(read, path="a.py") == ToolResult(
        "1\tone\n2\t\n3\t\ttwo", Display("3 lines", Plain("one\n\n\ttwo", "py"))
    )


async def test_partial_read_reports_its_range_and_the_next_offset(read, tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 11)))
    assert (
        await call(read, path="a.txt", offset=3, limit=2)
    ).text == "3\tline 3\n4\tline 4\n[Lines 3-4 of 10. Continue with offset=5.]"
    assert (
        await call(read, path="a.txt", offset=9)
    ).text == "9\tline 9\n10\tline 10\n[Lines 9-10 of 10.]"
    assert (
        await call(read, path="a.txt", offset=0, limit=1)
    ).text == "1\tline 1\n[Lines 1-1 of 10. Continue with offset=2.]"
    assert await refusal(read, "a.txt", offset=11) == "The file has 10 lines: there is no line 11."


async def test_titles_show_the_line_range(read):
    titles = [
        read.title(parse_arguments(read, {"path": "a.py", **more}))
        for more in ({}, {"offset": 5}, {"offset": 5, "limit": 2})
    ]
    assert titles == ["read a.py", "read a.py:5-", "read a.py:5-6"]


async def test_empty_file_is_reported(read, tmp_path):
    (tmp_path / "a.py").touch()
    assert (await call(read, path="a.py")).text == "[The file is empty.]"


async def test_long_files_and_lines_are_cut_with_a_note(read, tmp_path):
    (tmp_path / "a.txt").write_text("x" * 5000 + "\nshort\n")
    assert (
        await call(read, path="a.txt")
    ).text == "1\t" + "x" * 2000 + " [cut: the line goes on]\n2\tshort"
    (tmp_path / "b.txt").write_text("y" * 100 + "\n" * 5000)
    assert (await call(read, path="b.txt")).text.endswith(
        "[Lines 1-2000 of 5000. Continue with offset=2001.]"
    )
    (tmp_path / "c.txt").write_text(("z" * 1990 + "\n") * 100)
    result = await call(read, path="c.txt")
    assert len(result.text) < 61_000
    assert result.text.endswith("[Lines 1-30 of 100. Continue with offset=31.]")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
async def test_a_huge_file_is_read_in_part_with_the_same_result(
    read, tmp_path, monkeypatch, encoding
):
    lines = "".join(
        f"line {number} caf\u00e9 {'x' * (number % 50) * 100}\r\n" for number in range(1, 400)
    )
    (tmp_path / "a.txt").write_bytes(lines.encode(encoding))
    whole = (
        (await call(read, path="a.txt", offset=100, limit=60))
        .text.partition("\n[Read as")[0]
        .rpartition("\n")
    )
    monkeypatch.setattr(read_module, "_MAX_WHOLE_BYTES", 10)
    part = (
        (await call(read, path="a.txt", offset=100, limit=60))
        .text.partition("\n[Read as")[0]
        .rpartition("\n")
    )
    assert part[0] == whole[0]
    assert part[2].startswith("[Lines 100-1")
    assert "of a file of" in part[2]
    assert (await call(read, path="a.txt", offset=399)).text.startswith("399\tline 399 caf")
    assert (
        await refusal(read, "a.txt", offset=400) == "The file has 399 lines: there is no line 400."
    )


async def test_damaged_bytes_of_a_utf8_file_are_marked(read, tmp_path):
    (tmp_path / "a.txt").write_bytes("\u8bf4\u660e\n".encode() + b"x \xff\n")
    text = (await call(read, path="a.txt")).text
    note = "[Bytes that are not UTF-8 are shown as \ufffd. An edit keeps them.]"
    assert text == f"1\t\u8bf4\u660e\n2\tx \ufffd\n{note}"


async def test_latin1_and_cp1251_files_are_decoded(read, tmp_path):
    greeting = (
        "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u041a\u0430\u043a"
        " \u0434\u0435\u043b\u0430?"
    )
    (tmp_path / "a.txt").write_bytes("gr\u00fc\u00dfe\r\n".encode("latin-1"))
    (tmp_path / "b.txt").write_bytes((greeting + "\n").encode("cp1251"))
    assert (
        await call(read, path="a.txt")
    ).text == "1\tgr\u00fc\u00dfe\n[Read as cp1252 (a guess).]"
    assert (await call(read, path="b.txt")).text == f"1\t{greeting}\n[Read as cp1251 (a guess).]"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x7fELF\x02\x00\x00", "an ELF program or library (7 B)"),
        (b"PK\x03\x04" + bytes(2000), "a zip archive (or an office file, a jar, a wheel) (2 KB)"),
        (bytes(range(256)) * 20, "binary data (5 KB)"),
        (b"\x01\x02\x03\x04 \xff\xfe abc", "binary data (11 B)"),
    ],
)
async def test_binary_file_is_refused_with_its_kind(read, tmp_path, data, kind):
    (tmp_path / "a.bin").write_bytes(data)
    assert (
        await refusal(read, "a.bin")
        == f"a.bin is {kind}, not text. Use the shell to look into it (file, strings, unzip -l, …)."
    )


@pytest.mark.parametrize(
    ("form", "media_type"),
    [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("GIF", "image/gif"), ("WEBP", "image/webp")],
)
async def test_picture_is_returned_unchanged(read, tmp_path, form, media_type):
    data = drawing(30, 20, form)
    (tmp_path / "a.dat").write_bytes(data)
    assert await call(read, path="a.dat") == ToolResult(
        "a.dat is a picture (30×20).",
        Display("30×20", Picture("a.dat", media_type, len(data))),
        images=(Image(media_type, data, "a.dat"),),
    )


async def test_a_large_picture_is_scaled_down(read, tmp_path):
    for form, media_type in (("PNG", "image/png"), ("JPEG", "image/jpeg")):
        (tmp_path / "a.png").write_bytes(drawing(4000, 1000, form))
        result = await call(read, path="a.png")
        (image,) = result.images
        assert Pillow.open(io.BytesIO(image.data)).size == (1568, 392)
        assert (image.media_type, result.display.summary) == (
            media_type,
            "4000×1000, scaled to 1568×392",
        )


async def test_a_damaged_or_enormous_picture_is_refused(read, tmp_path):
    (tmp_path / "a.png").write_bytes(drawing(30, 20, "PNG")[:25])
    assert "the picture is damaged" in await refusal(read, "a.png")
    (tmp_path / "b.png").write_bytes(drawing(3000, 3000, "PNG")[:1000])
    assert "the picture is damaged" in await refusal(read, "b.png")
    (tmp_path / "d.png").write_bytes(drawing(30, 20, "PNG")[:-30])
    assert "the picture is damaged" in await refusal(read, "d.png")
    header = b"IHDR" + (20_000).to_bytes(4, "big") + (8000).to_bytes(4, "big") + b"\x08\x02\0\0\0"
    enormous = drawing(1, 1, "PNG")[:12] + header + zlib.crc32(header).to_bytes(4, "big")
    (tmp_path / "c.png").write_bytes(enormous + drawing(1, 1, "PNG")[33:])
    assert await refusal(read, "c.png") == "c.png is too large to be shown: 20000×8000 pixels."


def pdf(*pages: str) -> bytes:
    """A minimal PDF with one line of text on each page."""
    kids = " ".join(f"{4 + 2 * at} 0 R" for at in range(len(pages)))
    bodies = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for at, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET" if text else ""
        bodies.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * at} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        bodies.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    data = b"%PDF-1.4\n"
    offsets = []
    for number, body in enumerate(bodies, 1):
        offsets.append(len(data))
        data += f"{number} 0 obj\n{body}\nendobj\n".encode()
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    end = (
        f"xref\n0 {len(bodies) + 1}\n0000000000 65535 f \n{table}trailer << /Size {len(bodies) + 1}"
        " /Root 1 0 R >>\n"
    )
    return data + f"{end}startxref\n{len(data)}\n%%EOF\n".encode()


async def test_a_pdf_is_shown_as_text_by_pages(read, tmp_path):
    (tmp_path / "a.pdf").write_bytes(pdf("first words", "second words", "third words"))
    assert (
        (await call(read, path="a.pdf")).text
        == "--- page 1 of 3\nfirst words\n--- page 2 of 3\nsecond words\n--- page 3 of 3\nthird"
        " words"
    )
    assert (
        await call(read, path="a.pdf", offset=2, limit=1)
    ).text == "--- page 2 of 3\nsecond words\n[Continue with offset=3.]"
    assert await refusal(read, "a.pdf", offset=4) == "a.pdf has 3 pages: there is no page 4."


async def test_a_pdf_page_that_is_too_long_says_what_is_left_out(read, tmp_path, monkeypatch):
    monkeypatch.setattr("ouro.tools.read.MAX_CHARACTERS", 40)
    (tmp_path / "a.pdf").write_bytes(pdf("word " * 20 + "end", "second"))
    result = await call(read, path="a.pdf")
    assert "The last 79 characters of page 1 are left out" in result.text
    assert "[Continue with offset=2.]" in result.text
    result = await call(read, path="a.pdf", offset=2)
    assert "left out" not in result.text


async def test_scanned_or_damaged_pdf_is_reported(read, tmp_path):
    (tmp_path / "a.pdf").write_bytes(pdf(""))
    assert "they may be scanned pictures" in (await call(read, path="a.pdf")).text
    (tmp_path / "b.pdf").write_bytes(b"%PDF-1.4\n" + b"nonsense " * 50)
    assert "the PDF is damaged" in await refusal(read, "b.pdf")


async def test_a_notebook_is_shown_as_cells_with_their_output(read, tmp_path):
    png = drawing(4, 4, "PNG")
    outputs = [
        {"output_type": "stream", "text": ["out\n", "\x1b[31mred\x1b[0m\n"]},
        {"output_type": "execute_result", "data": {"text/plain": "42"}},
        {
            "output_type": "display_data",
            "data": {"image/png": base64.b64encode(png).decode(), "text/plain": "<fig>"},
        },
        {"output_type": "display_data", "data": {"image/png": "AAAA"}},
        {"output_type": "display_data", "data": {"image/jpeg": "no base64!"}},
        {
            "output_type": "error",
            "ename": "E",
            "evalue": "bad",
            "traceback": ["\x1b[1mE: bad\x1b[0m"],
        },
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "words"]},
        {"cell_type": "code", "execution_count": 3, "source": "print(1)", "outputs": outputs},
    ]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
    result = await call(read, path="a.ipynb")
    lines = [line.partition("\t")[2] for line in result.text.split("\n")[:-1]]
    assert lines == [
        "--- cell 1 (markdown)", "# Title", "words",
        "--- cell 2 (code, run as [3])", "print(1)",
        "--- output", "out", "red", "--- output", "42", "--- output", f"(image/png, 4×4, {len(png)} B)",
        "--- output", "(image/png, damaged)", "--- output", "(image/jpeg, damaged)", "--- output", "E: bad",
    ]  # fmt: skip
    assert result.images == (Image("image/png", png, "cell 2"),)


async def test_a_long_traceback_of_a_notebook_keeps_its_end(read, tmp_path):
    frames = [f"frame {number}: {'x' * 90}\n" for number in range(100)]
    output = {"output_type": "error", "traceback": [*frames, "ValueError: bad"]}
    cell = {"cell_type": "code", "source": "f()", "outputs": [output]}
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [cell]}))
    text = (await call(read, path="a.ipynb")).text
    assert "frame 0:" in text
    assert "[… cut here: " in text
    assert "ValueError: bad" in text
    assert len(text) < 5_000


async def test_invalid_notebook_is_shown_as_text(read, tmp_path):
    (tmp_path / "a.ipynb").write_text("[1]\n")
    text = (await call(read, path="a.ipynb")).text
    assert text.startswith("1\t[1]\n[Lines 1-1 of 1 as text, not as cells: it is not an object")


async def test_a_listed_name_with_a_line_end_is_one_line_and_is_found(read, tmp_path):
    (tmp_path / "a\nb.txt").write_text("text\n")
    assert (await refusal(read, ".")).endswith("It holds:\na\\u000ab.txt")
    _, args = read.resolve(ReadArgs(path="a\\u000ab.txt"))
    assert args.path == str(tmp_path / "a\nb.txt")


async def test_reading_a_folder_lists_its_files(read, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "a.py").touch()
    assert (
        await refusal(read, ".")
        == ". is a folder. Read one of its files, or use glob. It holds:\na.py\nsrc/"
    )


async def test_missing_file_suggests_similar_names(read, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/handler.py").touch()
    (tmp_path / "readme.md").touch()
    assert (
        await refusal(read, "handler.py")
        == "handler.py does not exist. Did you mean src/handler.py?"
    )
    assert (
        await refusal(read, "src/handlers.py")
        == "src/handlers.py does not exist. Did you mean src/handler.py?"
    )


async def test_a_path_that_was_made_up_shows_what_there_is(read, tmp_path):
    (tmp_path / "src/shop").mkdir(parents=True)
    (tmp_path / ".cache").mkdir()
    (tmp_path / "cart.py").touch()
    assert (
        await refusal(read, "main/java/Xyzzy.java")
        == "main/java/Xyzzy.java does not exist. Use glob to find it."
        " The folder . holds:\ncart.py\nsrc/\n.cache/"
    )
    assert (await refusal(read, "src/java/Xyzzy.java")).endswith("The folder src holds:\nshop/")


async def test_read_file_counts_as_seen(tmp_path):
    seen = FilesSeen(Workspace(tmp_path))
    (tmp_path / "a.py").write_text("x\n")
    await call(Read(seen), path="a.py")
    assert seen.has_read(Path(tmp_path / "a.py"))
