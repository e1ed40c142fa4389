"""X13: a read-only file is not replaced by a rename."""

from __future__ import annotations

import pytest

from ouro.errors import ToolError
from ouro.safety import Workspace
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
