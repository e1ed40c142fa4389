"""X13: a read-only file is not replaced by a rename."""

from __future__ import annotations

import pytest

from ouro.errors import ToolError
from ouro.safety import Workspace
from ouro.tools.apply_patch import ApplyPatch, ApplyPatchArgs
from ouro.tools.edit import Edit, EditArgs, Replacement, Write, WriteArgs
from ouro.tools.files_seen import FilesSeen


@pytest.mark.parametrize("mode", [0o444, 0o400, 0o555])
@pytest.mark.parametrize("tool", ["edit", "write"])
def test_x13_read_only_file_is_refused_by_name(tmp_path, mode, tool):
    path = tmp_path / "généré.txt"
    path.write_text("k=1\n")
    path.chmod(mode)
    seen = FilesSeen(Workspace(tmp_path))
    seen.note(path, path.read_bytes())

    change = {
        "edit": lambda: Edit(seen)._change(
            EditArgs(str(path), [Replacement("k=1", "k=2")]), "write", []
        ),
        "write": lambda: Write(seen)._change(WriteArgs(str(path), "k=2\n"), "write", []),
    }[tool]

    with pytest.raises(ToolError, match="is read-only"):
        change()

    assert path.read_text() == "k=1\n"


@pytest.mark.parametrize(
    "patch",
    [
        "*** Update File: a.ipynb\n-k=1\n+k=2",
        "*** Delete File: a.ipynb",
        "*** Update File: a.ipynb\n*** Move to: b.txt",
        "*** Update File: a.ipynb\n*** Move to: b.txt\n-k=1\n+k=2",
        "*** Add File: a.ipynb\n+new",
        "*** Update File: other.txt\n*** Move to: a.ipynb",
        "*** Update File: other.txt\n-o\n+p\n*** Delete File: a.ipynb",
    ],
)
def test_x13_patch_of_a_read_only_file_is_refused_as_a_whole(tmp_path, patch):
    path, other = tmp_path / "a.ipynb", tmp_path / "other.txt"
    path.write_text("k=1\n")
    other.write_text("o\n")
    path.chmod(0o444)
    seen = FilesSeen(Workspace(tmp_path))
    for file in (path, other):
        seen.note(file, file.read_bytes())

    with pytest.raises(ToolError, match=r"a\.ipynb is read-only"):
        ApplyPatch(seen)._change(
            ApplyPatchArgs(f"*** Begin Patch\n{patch}\n*** End Patch"), "write", []
        )

    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.ipynb", "other.txt"]
    assert (path.read_text(), other.read_text()) == ("k=1\n", "o\n")
