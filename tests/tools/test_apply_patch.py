"""The tool `apply_patch`: patches of several files."""

from __future__ import annotations

import os
from difflib import SequenceMatcher
from pathlib import Path

import pytest
from fakes.tool_benches import call
from properties import given, settings, st

from ouro.display import Diff, FileChange
from ouro.errors import ToolError
from ouro.safety import Workspace
from ouro.tools.apply_patch import ApplyPatch, apply_hunks, parse_patch
from ouro.tools.files_seen import FilesSeen
from ouro.tools.tool import parse_arguments
from ouro.utils.text_files import TextFile


@pytest.fixture
def tool(tmp_path) -> ApplyPatch:
    return ApplyPatch(FilesSeen(Workspace(tmp_path)))


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def tree(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): path.read_text()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


async def refusal(tool: ApplyPatch, root: Path, text: str) -> str:
    before = tree(root)
    with pytest.raises(ToolError) as caught:
        await call(tool, input=text)
    assert tree(root) == before
    return caught.value.message


async def test_adds_changes_moves_and_deletes_in_one_patch(tool, tmp_path):
    (tmp_path / "old.py").write_text("gone\n")
    (tmp_path / "api.py").write_text("import os\n\n\ndef f():\n    return 1\n")
    (tmp_path / "name.py").write_text("a\nb\nc\n")
    (tmp_path / "name.py").chmod(0o755)
    text = patch(
        "*** Add File: pkg/new.py",
        "+one",
        "+",
        "+two",
        "*** Update File: api.py",
        "@@ def f():",
        "-    return 1",
        "+    return 2",
        "*** Update File: name.py",
        "*** Move to: pkg/renamed.py",
        "@@",
        " a",
        "-b",
        "+B",
        "*** Delete File: old.py",
    )
    result = await call(tool, input=text)
    assert tree(tmp_path) == {
        "pkg/new.py": "one\n\ntwo\n",
        "api.py": "import os\n\n\ndef f():\n    return 2\n",
        "pkg/renamed.py": "a\nB\nc\n",
    }
    assert (tmp_path / "pkg/renamed.py").stat().st_mode & 0o777 == 0o755
    assert (
        result.text
        == "Applied the patch:\nA pkg/new.py\nM api.py\nM name.py -> pkg/renamed.py\nD old.py"
    )
    assert result.display.summary == "4 files, +5 −3"
    assert tool.targets(parse_arguments(tool, {"input": text})) == (
        "pkg/new.py", "api.py", "name.py", "pkg/renamed.py", "old.py",
    )  # fmt: skip


async def test_a_preview_shows_the_diff_and_writes_nothing(tool, tmp_path):
    (tmp_path / "a.py").write_text("x\n")
    text = patch("*** Update File: a.py", "-x", "+y", "*** Add File: far/off.py", "+new")
    display = await tool.preview(parse_arguments(tool, {"input": text}))
    assert display.body == Diff(
        (FileChange("a.py", "x\n", "y\n"), FileChange("far/off.py", None, "new\n"))
    )
    assert tree(tmp_path) == {"a.py": "x\n"}
    assert os.listdir(tmp_path) == ["a.py"]  # noqa: PTH208


def apply(text: str, *lines: str) -> tuple[str, list[str]]:
    (file,) = parse_patch(patch("*** Update File: a.py", *lines))
    notes: list[str] = []
    return apply_hunks(TextFile(text), file.hunks, notes).raw, notes


def test_header_selects_one_of_two_matches():
    text = (
        "class A:\n    def f(self):\n        pass\n\n\nclass B:\n    def f(self):\n        pass\n"
    )
    after, notes = apply(
        text, "@@ class B:", "@@     def f(self):", "-        pass", "+        return 1"
    )
    assert (after, notes) == (text.removesuffix("pass\n") + "return 1\n", [])


def test_headers_can_be_combined_and_abbreviated():
    text = "class Alpha(Base):\n    x = 1\n\n\nclass Beta(Base):\n    x = 1\n"
    after, _ = apply(text, "@@ class Beta", "-    x = 1", "+    x = 2")
    assert after == text.removesuffix("1\n") + "2\n"


def test_end_of_file_marker_selects_the_last_match():
    after, _ = apply("x\ny\nx\n", "@@", "-x", "+z", "*** End of File")
    assert after == "x\ny\nz\n"


def test_lines_without_context_are_appended():
    assert apply("a\n", "@@", "+b", "+c")[0] == "a\nb\nc\n"
    assert apply("", "+b")[0] == "b\n"


def test_lines_are_added_below_a_header():
    assert (
        apply("import os\n\nx = 1\n", "@@ import os", "+import sys")[0]
        == "import os\nimport sys\n\nx = 1\n"
    )


def test_missing_final_newline_is_kept():
    assert apply("a\nb", "@@", "-a", "+c")[0] == "c\nb"
    assert apply("a\nb", "@@", " a", "-b", "+c")[0] == "a\nc\n"
    assert apply("a\nb", "@@", " b", "+c")[0] == "a\nb\nc\n"


def test_line_endings_stay():
    assert apply("a\rb\rc\r", "@@", " a", "-b", "+B")[0] == "a\rB\rc\r"
    assert apply("a\r\nb\r\nc\r\n", "@@", " a", "-b", "+B", "+b2")[0] == "a\r\nB\r\nb2\r\nc\r\n"


@pytest.mark.parametrize(
    ("line", "how"),
    [
        ("    return 'x'  ", "trailing spaces differed"),
        ("        return 'x'", "indentation differed"),
        ("    return \u2018x\u2019", "quotes, dashes or spaces differed"),
    ],
)
def test_context_is_matched_despite_whitespace_and_quotes(line, how):
    text = f"def f():\n{line}\nend\n"
    after, notes = apply(text, "@@", "     return 'x'", "-end", "+END")
    assert after == text.replace("end", "END")
    assert notes == [
        f"The change at line 3 of the patch was made at line 2 of the file, though {how}."
    ]


def test_added_lines_follow_the_indentation_of_the_file():
    after, _ = apply(
        "class A:\n    def f(self):\n        a()\n",
        "@@",
        " def f(self):",
        "-    a()",
        "+    if b:",
        "+        c()",
    )
    assert after == "class A:\n    def f(self):\n        if b:\n            c()\n"


def test_several_hunks_apply_in_any_order():
    text = "".join(f"{number}\n" for number in range(1, 10))
    assert apply(text, "@@", "-2", "+two", "@@", " 7", "-8")[0] == text.replace("2", "two").replace(
        "8\n", ""
    )
    assert apply(text, "@@", "-8", "+eight", "@@", "-2", "+two")[0] == text.replace(
        "2", "two"
    ).replace("8", "eight")


def test_ambiguous_match_is_reported():
    after, notes = apply("x\na\nx\n", "@@", "-x", "+y")
    assert (after, notes) == (
        "y\na\nx\n",
        [
            "The change at line 3 of the patch was made at line 1; the same lines are also at 3."
            " Check it."
        ],
    )


def test_unified_diff_positions_are_ignored_and_blank_is_context():
    assert apply("a\n\nb\n", "@@ -1,3 +1,3 @@ def f", " a", "", "-b", "+c", "")[0] == "a\n\nc\n"


def test_shell_and_markdown_around_a_patch_are_passed_over():
    inner = patch("*** Delete File: a.py")
    for text in (
        f"apply_patch <<'EOF'\n{inner}\nEOF\n",
        f"```diff\n{inner}\n```",
        f"\n{inner}\n",
        inner.replace("\n", "\r\n"),
    ):
        assert [file.path for file in parse_patch(text)] == ["a.py"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "hello",
            "Line 1 of the patch is wrong: a patch begins with *** Begin Patch. The line is: hello",
        ),
        (
            "*** Begin Patch\n*** Delete File: a",
            (
                "Line 2 of the patch is wrong: a patch ends with *** End Patch; this one may have"
                " been cut off. The line is: *** Delete File: a"
            ),
        ),
        (patch("*** Frob File: a"), "Line 2 of the patch is wrong: expected *** Add File:"),
        (
            patch("*** Add File: a", "no plus"),
            "Line 3 of the patch is wrong: each line of an added file begins with +",
        ),
        (patch("*** Delete File: a", "+x"), "Line 3 of the patch is wrong: expected a file header"),
        (
            patch("*** Update File: a", "@@", "x"),
            "Line 4 of the patch is wrong: a line of a change begins with",
        ),
        (
            patch("*** Update File: a", "*** End of File"),
            "Line 3 of the patch is wrong: there is no change before it",
        ),
        (patch("*** Update File: a"), "The patch changes nothing in a."),
        (patch(), "The patch is empty: it names no file."),
        (patch("*** Delete File: a", "*** Delete File: a"), "The patch names a twice"),
    ],
)
async def test_a_broken_patch_is_refused_with_its_line(tool, tmp_path, text, message):
    (tmp_path / "a").write_text("x\n")
    assert (await refusal(tool, tmp_path, text)).startswith(message)
    assert tool.title(parse_arguments(tool, {"input": "hello"})) == "patch"


async def test_one_failing_hunk_leaves_every_file_unchanged(tool, tmp_path):
    (tmp_path / "a.py").write_text("x\n")
    (tmp_path / "b.py").write_text("first line here\nsecond\n")
    text = patch(
        "*** Update File: a.py",
        "-x",
        "+y",
        "*** Update File: b.py",
        "@@",
        " first line there",
        "-second",
    )
    assert (
        await refusal(tool, tmp_path, text)
        == "b.py: Line 6 of the patch: these lines are not in the file. The nearest lines are:\n"
        "1\tfirst line here\n2\tsecond No file was changed."
    )


async def test_write_failure_restores_every_file(tool, tmp_path, monkeypatch):
    (tmp_path / "a.py").write_text("x\n")
    (tmp_path / "a.py").chmod(0o755)
    (tmp_path / "b.py").write_text("x\n")
    unlink = os.unlink

    def failing(path, *, dir_fd=None):
        if path == "b.py":
            raise OSError(5, "Input/output error")
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", failing)
    text = patch(
        "*** Add File: n.py", "+n", "*** Update File: a.py", "-x", "+y", "*** Delete File: b.py"
    )
    assert await refusal(tool, tmp_path, text) == "b.py cannot be deleted: Input/output error."
    assert (tmp_path / "a.py").stat().st_mode & 0o777 == 0o755


async def test_a_file_that_cannot_be_restored_is_named(tool, tmp_path, monkeypatch):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("x\n")

    unlink = os.unlink

    def failing(path, *_arguments, **options):
        if path != "b.py" and options.keys() == {"dir_fd"}:  # a temporary file
            return unlink(path, **options)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "unlink", failing)
    monkeypatch.setattr("ouro.tools.apply_patch.save_file", failing)
    text = patch("*** Update File: a.py", "-x", "+y", "*** Delete File: b.py")
    with pytest.raises(ToolError) as caught:
        await call(tool, input=text)
    assert caught.value.message == (
        "b.py cannot be deleted: Input/output error. Not restored, so still changed: a.py."
    )


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["*** Delete File: none.py"], "none.py does not exist."),
        (["*** Delete File: link.py"], "link.py is a link: use the shell to move or delete it."),
        (
            ["*** Update File: a.py", "-x", "*** Delete File: ./a.py"],
            "The patch names one file under two names",
        ),
    ],
)
async def test_conflicting_paths_are_refused(tool, tmp_path, lines, message):
    (tmp_path / "a.py").write_text("x\n")
    (tmp_path / "b.py").write_text("x\n")
    (tmp_path / "link.py").symlink_to("b.py")
    assert (await refusal(tool, tmp_path, patch(*lines))).startswith(message)


LINES = st.lists(st.sampled_from(["a", "b", "  c", "", "\td", "é"]), max_size=12)


def patch_between(old: list[str], new: list[str]) -> list[str]:
    """A single change with the whole file as its context."""
    lines: list[str] = ["@@"]
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            lines += [f" {line}" for line in old[a:b]]
        else:
            lines += [f"-{line}" for line in old[a:b]] + [f"+{line}" for line in new[c:d]]
    return lines


@given(old=LINES, new=LINES)
@settings(max_examples=150)
def test_patch_between_two_texts_yields_the_second(old, new):
    before, after = ("".join(f"{line}\n" for line in lines) for lines in (old, new))
    if any(line != " " for line in patch_between(old, new)[1:]):
        assert apply(before, *patch_between(old, new))[0] == after


@pytest.mark.parametrize("indent", ["  ", "\t"])
def test_indented_header_counts_only_outside_an_update(indent):
    added = parse_patch(
        patch(f"{indent}*** Add File: a.py", "+x", f"{indent}*** Delete File: b.py")
    )
    assert [(file.kind, file.path) for file in added] == [("Add", "a.py"), ("Delete", "b.py")]
    (updated,) = parse_patch(
        patch(f"{indent}*** Update File: a.py", "-x", " *** Delete File: b.py")
    )
    assert updated.hunks[0].lines == [("-", "x"), (" ", "*** Delete File: b.py")]


SCENARIOS = {
    "add": ({}, ["*** Add File: bar.md", "+new"], {"bar.md": "new\n"}),
    "several operations": (
        {"change.txt": "1\n2\n", "delete.txt": "x\n"},
        ["*** Add File: d/new.txt", "+new", "*** Delete File: delete.txt", "*** Update File: change.txt", "-2", "+3"],
        {"d/new.txt": "new\n", "change.txt": "1\n3\n"},
    ),
    "several places": (
        {"a.txt": "1\n2\n3\n4\n"},
        ["*** Update File: a.txt", "@@", "-2", "+B", "@@", "-4", "+D"],
        {"a.txt": "1\nB\n3\nD\n"},
    ),
    "move": (
        {"old/name.txt": "old\n", "old/other.txt": "x\n"},
        ["*** Update File: old/name.txt", "*** Move to: new/dir/name.txt", "@@", "-old", "+new"],
        {"new/dir/name.txt": "new\n", "old/other.txt": "x\n"},
    ),
    "no file": ({"a.txt": "x\n"}, [], None),
    "missing context": ({"a.txt": "1\n2\n"}, ["*** Update File: a.txt", "@@", "-none", "+x"], None),
    "missing file deleted": ({"a.txt": "x\n"}, ["*** Delete File: none.txt"], None),
    "empty update": ({"a.txt": "x\n"}, ["*** Update File: a.txt"], None),
    "missing file changed": ({"a.txt": "x\n"}, ["*** Update File: none.txt", "@@", "-x", "+y"], None),
    "moved over a file": (
        {"old/name.txt": "from\n", "new/name.txt": "there\n"},
        ["*** Update File: old/name.txt", "*** Move to: new/name.txt", "@@", "-from", "+new"],
        {"new/name.txt": "new\n"},
    ),
    "added over a file": ({"a.txt": "old\n"}, ["*** Add File: a.txt", "+new"], {"a.txt": "new\n"}),
    "folder deleted": ({"dir/a.txt": "x\n"}, ["*** Delete File: dir"], None),
    "unknown header": ({"a.txt": "x\n"}, ["*** Frobnicate File: a.txt"], None),
    "last line without line break": (
        {"a.txt": "no end"}, ["*** Update File: a.txt", "@@", "-no end", "+1", "+2"], {"a.txt": "1\n2\n"}
    ),
    "one file fails (codex leaves the first)": (
        {}, ["*** Add File: made.txt", "+x", "*** Update File: none.txt", "@@", "-x", "+y"], None
    ),
    "only additions": ({"a.txt": "1\n"}, ["*** Update File: a.txt", "@@", "+2", "+3"], {"a.txt": "1\n2\n3\n"}),
    "indented header": ({"a.txt": "old\n"}, ["  *** Update File: a.txt", "@@", "-old", "+new"], {"a.txt": "new\n"}),
    "unicode": (
        {"a.txt": "1\n\u00ef\n"}, ["*** Update File: a.txt", " 1", "-\u00ef", "+\u2705"], {"a.txt": "1\n\u2705\n"}
    ),
    "delete": ({"a.txt": "x\n", "b.txt": "y\n"}, ["*** Delete File: b.txt"], {"a.txt": "x\n"}),
    "only deletions": ({"a.txt": "1\n2\n3\n"}, ["*** Update File: a.txt", "@@", " 1", "-2", " 3"], {"a.txt": "1\n3\n"}),
    "end of file": (
        {"a.txt": "1\n2\n"}, ["*** Update File: a.txt", "@@", " 1", "-2", "+B", "*** End of File"], {"a.txt": "1\nB\n"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("newline", ["\n", "\r"])
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_codex_scenarios_give_the_expected_files(tool, tmp_path, scenario, newline):
    before, lines, after = SCENARIOS[scenario]
    for name, content in before.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    text = f" {patch(*lines)} ".replace("\n", newline)  # spaces around the markers are allowed
    if after is None:
        await refusal(tool, tmp_path, text)
    else:
        await call(tool, input=text)
        assert tree(tmp_path) == after


async def test_overwritten_files_are_previewed_and_reported(tool, tmp_path):
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / name).write_text(f"{name}\n")
    text = patch(
        "*** Add File: a.py", "+x", "*** Update File: b.py", "*** Move to: c.py", "-b.py", "+y"
    )
    shown = await tool.preview(parse_arguments(tool, {"input": text}))
    assert [(change.path, change.before, change.after, change.moved_to) for change in shown.body.changes] == [
        ("a.py", "a.py\n", "x\n", ""), ("c.py", "c.py\n", None, ""), ("b.py", "b.py\n", "y\n", "c.py"),
    ]  # fmt: skip
    result = await call(tool, input=text)
    assert result.text.endswith(
        "a.py existed: its text was replaced.\nc.py existed: it was replaced."
    )


async def test_file_changed_since_it_was_read_is_not_overwritten(tool, tmp_path):
    (tmp_path / "a.py").write_text("mine\n")
    tool._seen.note(tmp_path / "a.py", b"as it was read\n")
    (tmp_path / "b.py").write_text("x\n")
    for lines in (["*** Add File: a.py", "+x"], ["*** Update File: b.py", "*** Move to: a.py"]):
        assert "has changed since it was last read" in await refusal(tool, tmp_path, patch(*lines))
