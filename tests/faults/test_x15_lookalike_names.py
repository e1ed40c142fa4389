"""X15: a file whose name looks like the given one, but has other characters."""

from __future__ import annotations

import os

import pytest

from ouro.errors import ToolError
from ouro.safety import Workspace
from ouro.tools.apply_patch import ApplyPatch, ApplyPatchArgs
from ouro.tools.edit import Edit, EditArgs, Replacement, Write, WriteArgs
from ouro.tools.files_seen import FilesSeen
from ouro.tools.glob import Glob, GlobArgs
from ouro.tools.grep import Grep
from ouro.tools.grep_search import GrepArgs
from ouro.tools.read import Read, ReadArgs

PAIRS = (
    ("Screenshot at 3.04\u202fPM.txt", "Screenshot at 3.04 PM.txt"),
    ("note\u00a01.txt", "note 1.txt"),
    ("全角\u3000空白.txt", "全角 空白.txt"),
    ("re\u0301sume\u0301.txt", "r\u00e9sum\u00e9.txt"),
    ("r\u00e9sum\u00e9.txt", "re\u0301sume\u0301.txt"),
    ("\u1112\u1161\u11ab.txt", "\ud55c.txt"),
    ("\u304b\u3099.txt", "\u304c.txt"),
    ("Anna\u2019s list.txt", "Anna's list.txt"),
    ("2019\u20132020.txt", "2019-2020.txt"),
    ("zero\u200bwidth.txt", "zerowidth.txt"),
    ("caf\u00e9.txt", r"caf\303\251.txt"),
    ("a\u202fb.txt", r"a\u202fb.txt"),
    (os.fsdecode(b"na\xefve.txt"), r"na\xefve.txt"),
    (os.fsdecode(b"na\xefve.txt"), "na\ufffdve.txt"),
)


@pytest.mark.parametrize(("name", "given"), PAIRS)
@pytest.mark.parametrize("folder", [".", "Me\u0301moires de l\u2019e\u0301te\u0301"])
def test_x15_the_only_file_that_looks_like_it_is_opened(tmp_path, name, given, folder):
    (tmp_path / folder).mkdir(exist_ok=True)
    path = tmp_path / folder / name
    path.write_text("needle\n")
    seen = FilesSeen(Workspace(tmp_path))
    asked = "." if folder == "." else "M\u00e9moires de l'\u00e9t\u00e9"

    tool, args = Read(seen).resolve(ReadArgs(f"{asked}/{given}"))
    assert "needle" in tool.read_now(args).text
    tool, args = Edit(seen).resolve(EditArgs(f"{asked}/{given}", [Replacement("needle", "pin")]))
    tool._change(args, "write", [])

    assert path.read_text() == "pin\n"
    assert len(list(path.parent.iterdir())) == 1


async def test_x15_folders_of_searches_and_files_of_patches_are_found(tmp_path):
    (tmp_path / "E\u0301tudes").mkdir()
    (tmp_path / "E\u0301tudes" / "a\u00a0b.txt").write_text("one\n")
    workspace = Workspace(tmp_path)
    seen = FilesSeen(workspace)

    for made in (Glob(workspace), Grep(workspace)):
        arguments = GlobArgs("*.txt", "\u00c9tudes"), GrepArgs("one", "\u00c9tudes")
        tool, args = made.resolve(arguments[made.name == "grep"])
        assert "a\u00a0b.txt" in (await tool.run(args, None)).text
    assert "a\u00a0b" in (await Glob(workspace).run(GlobArgs("\u00c9tudes/*"), None)).text
    patch = "*** Begin Patch\n*** Update File: \u00c9tudes/a b.txt\n-one\n+two\n*** End Patch"
    ApplyPatch(seen)._change(ApplyPatchArgs(patch), "write", [])

    assert (tmp_path / "E\u0301tudes" / "a\u00a0b.txt").read_text() == "two\n"


def test_x15_several_files_that_look_alike_are_named_with_their_characters(tmp_path):
    for name in ("a\u00a0b.txt", "a\u202fb.txt"):
        (tmp_path / name).write_text("x\n")
    read = Read(FilesSeen(Workspace(tmp_path)))

    with pytest.raises(ToolError, match=r"U\+00A0 NO-BREAK SPACE.*U\+202F NARROW") as problem:
        read.resolve(ReadArgs("a b.txt"))

    assert r"`a\u202fb.txt`" in str(problem.value)
    _tool, args = read.resolve(ReadArgs(r"a\u202fb.txt"))
    assert args.path == str(tmp_path / "a\u202fb.txt")


def test_x15_a_name_that_exists_is_taken_as_it_is_and_a_new_file_stays_new(tmp_path):
    (tmp_path / "a\u00a0b.txt").write_text("other\n")
    (tmp_path / r"x\xff").write_text("literal\n")
    seen = FilesSeen(Workspace(tmp_path))

    assert Read(seen).resolve(ReadArgs(r"x\xff"))[1].path == r"x\xff"
    assert Read(seen).resolve(ReadArgs("none.txt"))[1].path == "none.txt"
    _, args = Write(seen).resolve(WriteArgs("a b.txt", "new\n"))
    Write(seen)._change(args, "write", [])

    assert (tmp_path / "a\u00a0b.txt").read_text() == "other\n"
    assert (tmp_path / "a b.txt").read_text() == "new\n"
