"""The tool `lsp`: symbols, definitions, references, renames."""

import pytest
from fakes.tool_benches import Surroundings, call

from ouro.errors import ToolError
from ouro.lsp.tools import TextEdit, apply_text_edits
from ouro.memory.tokens import estimate
from ouro.safety import Effect


@pytest.fixture
async def project(bench):
    bench.open()
    bench.file("a.toy", "def heron\nuse heron\n")
    bench.file("b.toy", "before\n  use heron, heron\n")
    return bench


async def test_symbols_of_a_file_and_of_the_project(project):
    assert (
        await project.ask(action="symbols", path="a.toy")
        == "1: function heron\n1:   variable inner"
    )
    assert await project.ask(action="symbols", name="her") == "a.toy:1: function heron"
    assert await project.ask(action="symbols", name="zzz") == "No symbols for 'zzz'."


async def test_definition_and_references_show_the_code(project):
    assert (
        await project.ask(action="definition", path="b.toy", name="heron") == "a.toy:1: def heron"
    )
    found = await project.ask(action="references", path="b.toy", name="heron", line=1)
    assert set(found.splitlines()) == {
        "a.toy:1: def heron",
        "a.toy:2: use heron",
        "b.toy:2: use heron, heron",
    }


async def test_places_outside_of_the_project_are_named_without_their_text(bench):
    bench.open(mode="library")
    bench.file("a.toy", "def heron\n")
    found = await bench.ask(action="definition", path="a.toy", name="heron")
    assert found == "a.toy:1: def heron\n/usr/lib/toy/base.toy:4"


async def test_files_that_rules_deny_are_not_shown(project):
    project.hidden.add("b.toy")
    found = await project.ask(action="references", path="a.toy", name="heron")
    assert "b.toy" not in found
    assert "a.toy:1" in found


async def test_name_that_is_not_in_the_file_is_an_error(project):
    with pytest.raises(ToolError, match=r"`egret` is not in a\.toy"):
        await project.ask(action="definition", path="a.toy", name="egret")
    with pytest.raises(ToolError, match="needs path and name"):
        await project.ask(action="definition", name="egret")


async def test_files_without_a_server_say_so(project):
    project.file("a.txt", "heron\n")
    with pytest.raises(ToolError, match=r"no language server for \.txt files"):
        await project.ask(action="definition", path="a.txt", name="heron")


async def test_rename_is_a_change_of_all_its_files_with_a_diff(project):
    tool, args = await project.rename("b.toy", "heron", "egret", line=2)
    assert tool.effect is Effect.WRITE
    assert [target.rpartition("/")[2] for target in tool.targets(args)] == ["a.toy", "b.toy"]
    shown = await tool.preview(args)
    assert [change.after for change in shown.body.changes] == [
        "def egret\nuse egret\n",
        "before\n  use egret, egret\n",
    ]
    assert (project.folder / "a.toy").read_text() == "def heron\nuse heron\n"
    result = await tool.run(args, Surroundings().context)
    assert result.text.startswith("Renamed heron to egret in 2 files (2 files, +3 −3).")
    assert (project.folder / "b.toy").read_text() == "before\n  use egret, egret\n"


@pytest.mark.parametrize(
    ("mode", "message"),
    [("rename odd", "do not fit a.toy: it has no line 4001"), ("rename files", "create, rename or delete"),
     ("rename elsewhere", "outside")],
)  # fmt: skip
async def test_rename_that_is_not_possible_changes_nothing(bench, mode, message):
    bench.open(mode=mode)
    bench.file("a.toy", "def heron\n")
    with pytest.raises(ToolError, match=message):
        await rename_now(bench)
    assert (bench.folder / "a.toy").read_text() == "def heron\n"


async def test_rename_asks_before_it_touches_a_file_outside(bench):
    bench.open(mode="rename elsewhere")
    bench.file("a.toy", "def heron\n")
    tool, args = await bench.rename("a.toy", "heron", "egret")
    assert "/etc/hosts" in tool.targets(args)


async def rename_now(bench):
    tool, args = await bench.rename("a.toy", "heron", "egret")
    await tool.run(args, Surroundings().context)


def test_columns_count_utf_16_units():
    text = "a 🦩 = heron\nb\r = heron"
    edit = TextEdit((0, 7), (0, 12), "egret")
    assert apply_text_edits(text, [edit]) == "a 🦩 = egret\nb\r = heron"


@pytest.mark.parametrize(
    "edits",
    [
        [TextEdit((0, 0), (0, 3), "x"), TextEdit((0, 2), (0, 4), "y")],
        [TextEdit((0, 0), (0, 99), "x")],
        [TextEdit((7, 0), (7, 1), "x")],
    ],
)
def test_edits_that_overlap_or_are_outside_are_refused(edits):
    with pytest.raises(ValueError, match=r"overlap|no column|no line"):
        apply_text_edits("heron", edits)


def test_insertions_at_one_place_keep_the_order_of_the_server():
    start = (0, 0)
    edits = [TextEdit(start, (0, 5), "egret"), *(TextEdit(start, start, word) for word in "zya")]
    assert apply_text_edits("heron", edits) == "zyaegret"


async def test_tool_costs_less_than_150_tokens(bench):
    bench.open()
    spec = bench.tool.spec()
    assert estimate(f"{spec.name}{spec.description}{spec.parameters}") < 150


async def test_call_with_only_an_action_works(project):
    assert (await call(project.tool, action="symbols")).text == "a.toy:1: function heron"
