"""The tool `edit`."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest
from fakes.tool_benches import call
from properties import assume, given, settings, st

from ouro.display import Diff, Display, FileChange
from ouro.errors import ToolError
from ouro.frontends.tui.blocks.diff_data import file_diffs
from ouro.safety import Workspace
from ouro.tools.edit import Edit, Replacement, apply_edits
from ouro.tools.file_tool import display_of, file_change
from ouro.tools.files_seen import FilesSeen
from ouro.tools.text_match import find_lines, find_match
from ouro.tools.tool import parse_arguments
from ouro.utils.text_files import decode_text

PYTHON = """\
class A:
    def one(self):
        value = compute( 1 )
        return value

    def two(self):
        value = compute( 2 )
        return value
"""


class Files:
    """A folder, and an edit tool that has read the files put there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.seen = FilesSeen(Workspace(root))
        self.edit = Edit(self.seen)

    def put(self, name: str, data: str | bytes) -> Path:
        path = self.root / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        self.seen.note(path, path.read_bytes())
        return path

    async def change(self, name: str, *pairs: tuple[str, str], replace_all: bool = False):
        edits = [
            {"old_text": old, "new_text": new, "replace_all": replace_all} for old, new in pairs
        ]
        return await call(self.edit, path=name, edits=edits)

    async def refusal(self, name: str, *pairs: tuple[str, str]) -> str:
        before = (self.root / name).read_bytes() if (self.root / name).exists() else None
        with pytest.raises(ToolError) as caught:
            await self.change(name, *pairs)
        assert ((self.root / name).read_bytes() if (self.root / name).exists() else None) == before
        return caught.value.message


@pytest.fixture
def files(tmp_path) -> Files:
    return Files(tmp_path)


async def test_replaces_a_unique_match_and_shows_the_diff(files):
    path = files.put("a.py", "x = 1\ny = 2\n")
    result = await files.change("a.py", ("y = 2", "y = 3\nz = 4"))
    assert path.read_text() == "x = 1\ny = 3\nz = 4\n"
    assert result.text == "Changed a.py (+2 −1)."
    assert result.display == Display(
        "+2 −1", Diff((FileChange("a.py", "x = 1\ny = 2\n", "x = 1\ny = 3\nz = 4\n"),))
    )


async def test_later_edits_see_earlier_ones_and_a_failure_undoes_all(files):
    path = files.put("a.py", "a\nb\nc\n")
    await files.change("a.py", ("a", "x\ny"), ("y\nb", "z"))
    assert path.read_text() == "x\nz\nc\n"
    message = await files.refusal("a.py", ("x", "1"), ("nowhere at all", "2"))
    assert message.startswith("Edit 2 of 2: old_text is not in the file.")
    assert message.endswith("No edit of this call was made.")


async def test_an_ambiguous_text_is_refused_with_its_lines(files):
    files.put("a.py", "a = 1\nb = 1\na = 1\n")
    assert (
        await files.refusal("a.py", ("a = 1", "a = 2"))
        == "old_text matches 2 places, at lines 1, 3. Give more of the lines around the one you"
        " mean, "
        "or set replace_all to change all."
    )


async def test_replace_all_changes_and_counts_every_match(files):
    path = files.put("a.py", "a = 1\nb = 1\na = 1\n")
    result = await files.change("a.py", ("a = 1", "a = 2"), replace_all=True)
    assert path.read_text() == "a = 2\nb = 1\na = 2\n"
    assert result.text == "Changed a.py (+2 −2).\n2 places changed."


async def test_wrong_indentation_is_tolerated_corrected_and_reported(files):
    path = files.put("a.py", PYTHON)
    result = await files.change(
        "a.py",
        (
            "def two(self):\n    value = compute( 2 )\n    return value",
            (
                "def two(self):\n    value = compute( 2 )\n    if value:\n        log(value)\n   "
                " return value"
            ),
        ),
    )
    assert path.read_text() == (
        PYTHON.replace(
            "        value = compute( 2 )\n",
            "        value = compute( 2 )\n        if value:\n            log(value)\n",
        )
    )
    assert (
        "old_text did not match exactly (indentation differed). Changed from line 6 on, which was:"
        in result.text
    )


async def test_tabs_in_the_file_stay_tabs(files):
    path = files.put("a.go", "func f() {\n\tif x {\n\t\ty()\n\t}\n}\n")
    old = "    if x {\n        y()\n    }"
    await files.change(
        "a.go", (old, old.replace("y()\n", "y()\n        if z {\n            w()\n        }\n"))
    )
    assert (
        path.read_text() == "func f() {\n\tif x {\n\t\ty()\n\t\tif z {\n\t\t\tw()\n\t\t}\n\t}\n}\n"
    )


async def test_trailing_spaces_of_lines_that_stay_are_kept(files):
    path = files.put("a.txt", "one  \ntwo\nthree\n")
    result = await files.change("a.txt", ("one\ntwo", "one\n2"))
    assert path.read_text() == "one  \n2\nthree\n"
    assert "trailing spaces differed" in result.text


async def test_typographic_quotes_match_plain_quotes(files):
    path = files.put("a.md", "He said \u201cyes\u201d \u2014 twice.\nEnd\n")
    await files.change("a.md", ('He said "yes" - twice.\nEnd', 'He said "yes" - twice.\nThe end'))
    assert path.read_text() == "He said \u201cyes\u201d \u2014 twice.\nThe end\n"


async def test_misquoted_context_line_is_tolerated_and_kept(files):
    text = (
        "def total(items):\n    # add up everything, without tax\n    amount = sum(items)\n   "
        " return amount\n"
    )
    path = files.put("a.py", text)
    old = text.replace("without", "wihout").removesuffix("\n")
    result = await files.change("a.py", (old, old + " * 2"))
    assert path.read_text() == text.replace("return amount", "return amount * 2")
    assert "% alike" in result.text


async def test_different_number_is_no_match(files):
    files.put("a.py", "assert add_numbers_together(1, 2) == 3\n")
    message = await files.refusal("a.py", ("assert add_numbers_together(1, 2) == 4\n", "pass\n"))
    assert (
        message
        == "old_text is not in the file. The nearest lines are:\n1\tassert add_numbers_together(1,"
        " 2) == 3\nCopy old_text exactly from the file, without line numbers."
    )


async def test_two_approximate_matches_are_refused(files):
    line = "    handler.register('the first name', callback=self.on_event)\n"
    files.put("a.py", f"def f(self):\n{line}\n\ndef g(self):\n{line.replace('first', 'firsd')}")
    message = await files.refusal("a.py", (line.replace("first", "firts"), "x\n"))
    assert "old_text matches 2 places (nearly the same text), at lines 2, 6." in message


async def test_indentation_of_a_single_line_applies_to_added_lines(files):
    path = files.put("a.py", "if a:\n        return 1\n")
    await files.change("a.py", ("    return 1", "    x = 1\n    return x"))
    assert path.read_text() == "if a:\n        x = 1\n        return x\n"


async def test_copied_line_numbers_are_ignored(files):
    path = files.put("a.py", "one\ntwo\n")
    result = await files.change("a.py", ("1\tone\n2\ttwo", "1\tone\n2\t2"))
    assert path.read_text() == "one\n2\n"
    assert "line numbers were left out" in result.text


async def test_line_number_without_a_line_is_no_match(files):
    path = files.put("a.py", "one\n")
    for replace_all in (False, True):
        with pytest.raises(ToolError, match="old_text is not in the file"):
            find_match(path.read_text(), "1\t", "1\ttwo", everywhere=replace_all)


async def test_unread_file_accepts_only_exact_matches(files):
    path = files.put("a.py", "x = 1\ny = 2\ny = 3\n")
    files.seen.clear()
    unread = "a.py has not been read yet. Read it first, then change it."
    assert await files.refusal("a.py", ("z", "w")) == unread
    assert await files.refusal("a.py", ("y", "w")) == unread
    assert await files.refusal("a.py", ("x = 1  ", "x = 5")) == unread
    assert await files.refusal("a.py", ("x = 1", "x = 5"), ("y = 2 ", "y = 6")) == unread
    await files.change("a.py", ("x = 1", "x = 5"), ("y = 2", "y = 6"))
    assert path.read_text() == "x = 5\ny = 6\ny = 3\n"
    assert not files.seen.has_read(path)


async def test_a_file_stays_changed_after_an_edit_beside_what_a_formatter_did(files):
    path = files.put("a.py", "x = 1\ny = 2\nz  =  3\n")
    path.write_text("x = 1\ny = 2\nz = 3\n")  # by a formatter
    result = await files.change("a.py", ("x = 1", "x = 10"))
    assert "had changed since you read it" in result.text
    again = await files.change("a.py", ("y = 2", "y = 20"))
    assert "had changed since you read it" in again.text
    assert "has changed since it was last read" in await files.refusal("a.py", ("z  = 3", "z = 4"))


async def test_text_already_present_is_reported(files):
    files.put("a.py", "x = compute()\n")
    assert "new_text is already at line 1" in await files.refusal(
        "a.py", ("y = nothing", "x = compute()")
    )


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (("", "x"), "old_text is empty"),
        (("x", "x"), "old_text and new_text are the same"),
        (("zzz", "y"), "The file has no similar lines"),
    ],
)
async def test_useless_edits_are_refused_with_advice(files, pair, reason):
    files.put("a.py", "x\n")
    assert reason in await files.refusal("a.py", pair)


async def test_edits_that_cancel_out_are_refused(files):
    files.put("a.py", "x\n")
    assert (
        await files.refusal("a.py", ("x", "y"), ("y", "x")) == "These edits change nothing in a.py."
    )


async def test_a_missing_file_is_refused(files):
    assert (
        await files.refusal("none.py", ("x", "y"))
        == "none.py does not exist. To create it, use write."
    )


async def test_a_missing_file_suggests_the_file_of_this_name(files):
    (files.root / "shop").mkdir()
    files.put("shop/cart.py", "x\n")
    assert (
        await files.refusal("cart.py", ("x", "y"))
        == "cart.py does not exist. Did you mean shop/cart.py? To create it, use write."
    )


async def test_a_binary_file_is_refused(files):
    files.put("a.bin", b"\x00\x01\x02x\xff")
    assert "binary" in await files.refusal("a.bin", ("x", "y"))


async def test_windows_line_endings_stay_and_accept_plain_text(files):
    path = files.put("a.txt", b"one\r\ntwo\r\nthree")
    await files.change("a.txt", ("one\ntwo", "1\n2\n2.5"))
    assert path.read_bytes() == b"1\r\n2\r\n2.5\r\nthree"


async def test_mixed_line_endings_of_unchanged_lines_are_kept(files):
    path = files.put("a.txt", b"a\r\nb\nc\r\nd\r\n")
    await files.change("a.txt", ("b\nc", "B\nC"))
    assert path.read_bytes() == b"a\r\nB\r\nC\r\nd\r\n"


async def test_encoding_bom_and_mode_are_kept(files):
    for encoding in ("utf-8-sig", "utf-16", "cp1252"):
        path = files.put("a.txt", "caf\u00e9 one\nzwei\n".encode(encoding))
        path.chmod(0o751)
        await files.change("a.txt", ("one", "two"))
        assert path.read_bytes() == "caf\u00e9 two\nzwei\n".encode(encoding)
        assert stat.S_IMODE(path.stat().st_mode) == 0o751


async def test_a_character_that_the_encoding_lacks_is_refused(files):
    files.put("a.txt", "caf\u00e9\n".encode("cp1252"))
    assert (
        await files.refusal("a.txt", ("caf\u00e9", "\u4e2d"))
        == "a.txt is encoded as cp1252, which cannot hold '\\u4e2d'."
    )


async def test_a_link_stays_a_link_and_its_target_changes(files):
    path = files.put("target.txt", "one\n")
    (files.root / "link.txt").symlink_to("target.txt")
    await files.change("link.txt", ("one", "two"))
    assert (path.read_text(), (files.root / "link.txt").is_symlink()) == ("two\n", True)


async def test_a_preview_writes_nothing(files):
    path = files.put("a.py", "x = 1\n")
    arguments = {"path": "a.py", "edits": [{"old_text": "1", "new_text": "2"}]}
    display = await files.edit.preview(parse_arguments(files.edit, arguments))
    assert display == Display("+1 −1", Diff((FileChange("a.py", "x = 1\n", "x = 2\n"),)))
    assert path.read_text() == "x = 1\n"


async def test_diff_of_a_long_file_is_limited_to_the_change(files):
    lines = [f"line {number} of a long file\n" for number in range(10_000)]
    files.put("a.txt", "".join(lines))
    result = await files.change("a.txt", ("line 5000 of", "LINE 5000 of"))
    (change,) = result.display.body.changes
    assert (change.first_line, len(change.before.splitlines())) == (4981, 41)


def test_schema_lists_the_required_arguments():
    spec = Edit(FilesSeen(Workspace(Path("/")))).spec()
    assert spec.parameters["required"] == ["path", "edits"]
    assert spec.parameters["properties"]["edits"]["items"]["required"] == ["old_text", "new_text"]


def plain(text: str) -> str:
    return text.replace("\r\n", "\n")


LINES = st.lists(st.text(alphabet="ab \t(é", max_size=6), min_size=1, max_size=8)


@given(lines=LINES, ending=st.sampled_from(["\n", "\r\n"]), final=st.booleans(), data=st.data())
@settings(max_examples=150)
def test_an_exact_unique_edit_changes_only_that_region(lines, ending, final, data):
    raw = ending.join(lines) + ending * final
    text = plain(raw)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    old, new = text[start:end], data.draw(st.text(alphabet="xy\n", max_size=5))
    places = [at for at in range(len(text)) if old and text.startswith(old, at)]
    assume(old.strip() and len(places) == 1 and old != new and not old.startswith((" ", "\t")))
    after = apply_edits(decode_text(raw.encode()), [Replacement(old, new)], notes := [])
    assert notes == []
    expected = text[:start] + new + text[end:]
    assert after.encode().decode() == (
        expected.replace("\n", "\r\n") if "\r\n" in raw else expected
    )


def test_overlapping_matches_are_ambiguous():
    with pytest.raises(ToolError, match="at lines 1, 2"):
        apply_edits(decode_text(b"aaaaaa\naaaaa\na"), [Replacement("aaaaa\na", "x")], [])


def test_no_temporary_files_remain(tmp_path):
    files = Files(tmp_path)
    files.put("a.py", "x\n")
    asyncio.run(files.change("a.py", ("x", "y")))
    assert [each.name for each in tmp_path.iterdir()] == ["a.py"]


@pytest.mark.usefixtures("cpu_limit")
def test_diff_among_many_equal_lines_is_fast():
    """difflib took 55 s for these lines, in the preview of a permission question."""
    before, after = "x\n" + "a\n" * 1900 + "y\n", "z\n" + "a\nb\n" * 950 + "w\n"

    change = file_change("x", before, after)
    assert display_of([change]).summary == "+952 −952"
    (file,) = file_diffs(Diff((change,)).lines())
    changed = [pair for part in file.hunks for pair in part if not pair.is_same]
    assert (
        sum(pair.new is not None for pair in changed)
        == sum(pair.old is not None for pair in changed)
        == 952
    )


@pytest.mark.usefixtures("cpu_limit")
async def test_long_text_is_searched_fast_in_a_long_file(tmp_path):
    """Each took minutes: equal lines were compared in pairs, and 600 lines with every window of the
    file.
    """
    files = Files(tmp_path)
    files.put("equal.c", "{ \n" + "} \n" * 3000)
    await files.change("equal.c", ("}\n" * 3000, "}\n;\n" * 3000))
    assert (tmp_path / "equal.c").read_text() == "{ \n" + "} \n;\n" * 3000

    files.put("many.txt", "x\n" * 20_000)
    assert "matches 19999 places, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 …" in await files.refusal(
        "many.txt", ("x\nx", "y")
    )

    equal = ["x"] * 400_000
    assert find_lines(equal, [*equal[:200_000], "y"]) == []
    assert find_lines(equal, equal[2:]) == [0, 1, 2]

    lines = [
        f"    value_{number % 700} = compute({number}, {number * 7})" for number in range(12_000)
    ]
    files.put("long.py", "\n".join(lines))
    wanted = [
        line + " # not in the file" * (number % 3 == 0)
        for number, line in enumerate(lines[6_000:6_600])
    ]
    message = await files.refusal("long.py", ("\n".join(wanted), ""))
    assert f"The nearest lines are:\n6001\t{lines[6_000]}\n" in message


async def test_edits_given_as_json_text_are_accepted(tmp_path):
    files = Files(tmp_path)
    files.put("a.py", "x\n")
    await call(files.edit, path="a.py", edits='[{"old_text": "x", "new_text": "y"}]')
    assert (tmp_path / "a.py").read_text() == "y\n"
    for wrong in ("x", '"x"', '[{"old_text": 1}]'):
        with pytest.raises(ToolError, match="Wrong arguments for edit"):
            await call(files.edit, path="a.py", edits=wrong)
