"""Notebooks by cells: the tool `notebook_edit`, and what `read` shows of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fakes.agents import say
from fakes.tool_benches import ToolFileBench, call
from properties import given, st

from ouro.assemble import Options, opener
from ouro.display import Diff
from ouro.errors import ToolError
from ouro.llm import ScriptedModel
from ouro.messages import ToolCall
from ouro.safety import Workspace
from ouro.session import OpenRequest
from ouro.tools.files_seen import FilesSeen
from ouro.tools.notebook import CellNotebook
from ouro.tools.notebook_edit import CellEdit, NotebookEdit, apply_cell_edits
from ouro.tools.read import Read
from ouro.tools.tool import parse_arguments

EDIT = {"cell": 1, "source": "c"}
OUTPUT = {"name": "stdout", "output_type": "stream", "text": ["1\n"]}


def lines_of(source: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", source)


def code(source: str, number: int = 0, **more: object) -> dict:
    return {
        "cell_type": "code", "execution_count": number or None, "id": f"id{number}", "metadata": {},
        "outputs": [OUTPUT] if number else [], "source": lines_of(source), **more,
    }  # fmt: skip


def words(source: str) -> dict:
    lines = lines_of(source)
    return {"cell_type": "markdown", "id": "m", "metadata": {"tags": ["ü"]}, "source": lines}


def document(*cells: dict, **more: object) -> dict:
    return {
        "cells": list(cells),
        "metadata": {"k": 1.0},
        "nbformat": 4,
        "nbformat_minor": 5,
        **more,
    }


def written(data: dict, **style: object) -> str:
    """As nbformat writes it."""
    return json.dumps(data, **{"indent": 1, "ensure_ascii": False, **style}) + "\n"


class Books:
    """A folder with notebooks, the tool that changes them, and `read`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.seen = FilesSeen(Workspace(root))
        self.tool, self.read = NotebookEdit(self.seen), Read(self.seen)

    async def put(self, text: str, name: str = "a.ipynb") -> Path:
        path = self.root / name
        path.write_bytes(text.encode())
        await call(self.read, path=name)
        return path

    async def change(self, *edits: dict, name: str = "a.ipynb"):
        return await call(self.tool, path=name, edits=list(edits))

    async def refusal(self, *edits: dict, name: str = "a.ipynb") -> str:
        path = self.root / name
        before = path.read_bytes()
        with pytest.raises(ToolError) as caught:
            await self.change(*edits, name=name)
        assert path.read_bytes() == before
        return caught.value.message


@pytest.fixture
def books(tmp_path) -> Books:
    return Books(tmp_path)


async def test_a_changed_source_clears_the_outputs_and_leaves_the_rest_byte_for_byte(books):
    before = document(words("# ü\n"), code("x = 1\nprint(x)", 3), code("y", 4))
    path = await books.put(written(before))
    await books.change({"cell": 2, "source": "x = 2\nprint(x)"})
    after = document(words("# ü\n"), code("x = 2\nprint(x)", 3), code("y", 4))
    after["cells"][1] |= {"outputs": [], "execution_count": None}
    assert path.read_text() == written(after)


async def test_outputs_are_kept_if_asked(books):
    path = await books.put(written(document(code("x", 3))))
    await books.change({"cell": 1, "source": "z", "keep_outputs": True})
    assert path.read_text() == written(document(code("z", 3)))


async def test_insert_delete_and_convert_use_the_numbers_before_the_call(books):
    path = await books.put(written(document(words("a"), code("b", 2), code("c", 3))))
    result = await books.change(
        {"cell": 0, "mode": "insert", "kind": "markdown", "source": "top"},
        {"cell": 1, "mode": "delete"},
        {"cell": 2, "kind": "markdown"},
        {"cell": 3, "mode": "insert", "source": "end"},
    )
    cells = json.loads(path.read_text())["cells"]
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in cells] == [
        ("markdown", "top"), ("markdown", "b"), ("code", "c"), ("code", "end"),
    ]  # fmt: skip
    assert "outputs" not in cells[1]
    assert cells[2]["outputs"] == [OUTPUT]
    assert len({cell["id"] for cell in cells}) == 4
    assert "New cells, by their number now: 1, 4." in result.text
    assert path.read_text() == written(json.loads(path.read_text()))


@pytest.mark.parametrize(
    "style",
    [
        {"indent": 4, "ensure_ascii": True},
        {"indent": "\t"},
        {"indent": None},
        {"indent": None, "separators": (",", ":")},
        {"indent": 2, "sort_keys": False},
    ],
)
async def test_indent_separators_and_escapes_stay_as_in_the_file(books, style):
    path = await books.put(written(document(words("ü"), code("b", 2)), **style))
    await books.change({"cell": 2, "source": "é\n"}, {"cell": 2, "mode": "insert", "source": "n"})
    found = json.loads(path.read_text())
    assert found["cells"][1]["source"] == ["é\n"]
    assert path.read_text() == written(found, **style)


async def test_windows_line_endings_and_a_missing_last_newline_stay(books):
    text = written(document(code("b", 2))).removesuffix("\n").replace("\n", "\r\n")
    path = await books.put(text)
    await books.change({"cell": 1, "source": "c", "keep_outputs": True})
    assert path.read_bytes().decode() == text.replace('"b"', '"c"')


async def test_the_question_shows_cells_and_not_json(books):
    await books.put(written(document(words("a"), code("b = 1", 2), code("c", 3))))
    edits = [{"cell": 1, "mode": "delete"}, {"cell": 2, "source": "b = 2"}]
    args = parse_arguments(books.tool, {"path": "a.ipynb", "edits": edits})
    display = await books.tool.preview(args)
    assert isinstance(display.body, Diff)
    changed = [line for line in display.body.lines() if line[0] in "+-"][2:]
    assert changed == [
        "---- cell 1 (markdown)", "-a", "-b = 1", "-(1 output)", "+b = 2",
    ]  # fmt: skip


async def test_a_notebook_is_read_before_it_is_changed(books):
    path = books.root / "a.ipynb"
    path.write_text(written(document(code("b"))))
    assert "has not been read yet" in await books.refusal({"cell": 1, "source": "c"})
    await call(books.read, path="a.ipynb")
    path.write_text(written(document(words("new"), code("b"))))
    assert "has changed since" in await books.refusal({"cell": 1, "source": "c"})


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ([{"cell": 3, "source": "x"}], "There is no cell 3: the notebook has 2 cells."),
        ([{"cell": 0, "mode": "delete"}], "There is no cell 0"),
        ([{"cell": 3, "mode": "insert"}], "There is no cell 3"),
        ([{"cell": 1}], "replace needs source or kind"),
        ([{"cell": 1, "source": "b"}], "change nothing"),
        ([{"cell": 1, "source": "x"}, {"cell": 1, "mode": "delete"}], "Edit 2 of 2: Another edit"),
        ([{"cell": 2, "kind": "code"}], "attachments"),
    ],
)
async def test_an_edit_that_cannot_be_made_changes_nothing(books, edits, message):
    picture = {"attachments": {"a.png": {"image/png": "AA=="}}}
    await books.put(written(document(code("b", 1), words("m") | picture)))
    assert message in await books.refusal(*edits)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"cells": [', "its JSON is broken"),
        ('{"worksheets": [{"cells": []}], "nbformat": 3}', "it has format 3"),
        ('{"cells": [1], "nbformat": 4}', "no list of cells"),
        ('{"cells": [], "cells": [], "nbformat": 4}', "`cells` is there twice"),
        ('{"cells": [], "nbformat": 5}', "format 5"),
        ("[" * 200_000, "nested too deeply"),
    ],
)
async def test_what_is_no_notebook_is_shown_as_text_and_not_changed(books, text, message):
    path = await books.put(text)
    shown = (await call(books.read, path="a.ipynb")).text
    assert f"as text, not as cells: {message}" in shown or message in shown
    assert message in await books.refusal({"cell": 0, "mode": "insert"})
    assert path.read_text() == text


async def test_cells_with_the_same_id_are_changed_by_number_and_named(books):
    path = await books.put(written(document(code("a"), code("b"))))
    result = await books.change({"cell": 2, "source": "c"})
    assert [cell["source"] for cell in json.loads(path.read_text())["cells"]] == [["a"], ["c"]]
    assert "More than one cell has the id `id0`" in result.text


async def test_a_notebook_with_49_mb_of_outputs_is_shown_and_changed_by_cells(books):
    output = {"output_type": "stream", "name": "stdout", "text": "x" * 49_000_000}
    path = await books.put(written(document(code("b", 1), code("c", 2, outputs=[output]))))
    shown = (await call(books.read, path="a.ipynb")).text
    assert len(shown) < 20_000
    assert "--- cell 2 (code, run as [2])" in shown
    await books.change({"cell": 2, "source": "d"})
    assert path.stat().st_size < 2_000


async def test_a_larger_notebook_is_refused_by_size(books):
    output = {"output_type": "stream", "name": "stdout", "text": "x" * 51_000_000}
    await books.put(written(document(code("c", 2, outputs=[output]))))
    assert "too large for this tool" in await books.refusal({"cell": 1, "source": "d"})


async def test_the_last_cell_can_go_and_come_back(books):
    path = await books.put(written(document(code("a"))))
    await books.change({"cell": 1, "mode": "delete"})
    assert path.read_text() == written(document())
    await books.change({"cell": 0, "mode": "insert", "source": "n"})
    assert path.read_text() == written(json.loads(path.read_text()))


@given(
    st.lists(st.text(max_size=30), min_size=1, max_size=4),
    st.sampled_from([0, 1, 4, None]),
    st.booleans(),
    st.text(max_size=30),
)
def test_any_text_is_written_as_json_would(sources, indent, ascii_only, new):
    style = {"indent": indent, "ensure_ascii": ascii_only}
    data = document(*(code(source) for source in ["é", *sources]))
    book = CellNotebook(written(data, **style))
    rows = apply_cell_edits(book, [CellEdit(2, source=new)])
    text = book.with_cells([(book.cells[row.number - 1], row.text) for row in rows])
    data["cells"][1]["source"] = lines_of(new)
    assert text == written(data, **style)


async def test_the_tool_is_offered_only_in_a_project_with_a_notebook(tmp_path):
    bench = ToolFileBench(tmp_path)
    assert "notebook_edit" not in await bench.names()
    (tmp_path / "book").mkdir()
    (tmp_path / "book/a.ipynb").write_text(written(document()))
    assert "notebook_edit" in await bench.names()


async def test_undo_restores_a_notebook_of_a_session(repository):
    path = repository / "a.ipynb"
    path.write_text(before := written(document(code("b", 2))))
    calls = [
        ToolCall("1", "read", {"path": "a.ipynb"}),
        ToolCall("2", "NotebookEdit", {"notebook_path": "a.ipynb", "edits": [EDIT]}),
    ]
    model = ScriptedModel([*calls, "Done."])
    options = Options(repository, ready_model=model, settings={"permissions.mode": "auto"})
    session = await opener(options)(OpenRequest())
    try:
        await say(session, "change it")
        assert json.loads(path.read_text())["cells"][0]["source"] == ["c"]
        await session.rewind.undo()
        assert path.read_text() == before
    finally:
        await session.close()
