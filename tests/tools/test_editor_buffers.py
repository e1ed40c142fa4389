"""Files with unsaved changes in an editor: read from the editor, and written through it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.tool_benches import call

from ouro.errors import ToolError
from ouro.safety import GuardedMemory, Workspace
from ouro.tools.apply_patch import ApplyPatch
from ouro.tools.edit import Edit, Write
from ouro.tools.files_seen import FilesSeen
from ouro.tools.read import Read


class Buffers:
    """An editor; `open` has its unsaved files."""

    def __init__(self) -> None:
        self.open: dict[Path, str] = {}
        self.asked: list[Path] = []
        self.saves = True
        self.formats = str

    def read(self, path: Path) -> str | None:
        self.asked.append(path)
        return self.open.get(path, path.read_bytes().decode() if path.exists() else None)

    def write(self, path: Path, text: str) -> bool:
        self.asked.append(path)
        if self.saves:
            path.write_bytes(self.formats(text).encode())
            self.open.pop(path, None)
        return self.saves


class Folder:
    """A folder with the file tools, and an editor with unsaved changes in api.py."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.buffers = Buffers()
        self.commands = False
        self.file = root / "api.py"
        self.file.write_bytes(b"x = 1\r\n")
        self.buffers.open[self.file] = "x = 1\nmine = True\n"
        workspace = Workspace(root, memory=[GuardedMemory(root.parent / "memory")])
        seen = FilesSeen(workspace, editor=self.buffers, has_commands=lambda: self.commands)
        self.read, self.edit = Read(seen), Edit(seen)
        self.write, self.patch = Write(seen), ApplyPatch(seen)

    async def change(self, old: str, new: str) -> str:
        result = await call(self.edit, path="api.py", edits=[{"old_text": old, "new_text": new}])
        return result.text


@pytest.fixture
def tools(tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    (tmp_path / "memory").mkdir()
    return Folder(root)


async def test_unsaved_editor_text_is_read_and_changed(tools):
    assert "mine = True" in (await call(tools.read, path="api.py")).text
    await tools.change("x = 1", "x = 2")
    assert tools.file.read_bytes() == b"x = 2\r\nmine = True\r\n"
    assert tools.buffers.open == {}


async def test_a_change_in_the_editor_after_the_read_is_noticed_and_stays(tools):
    await call(tools.read, path="api.py")
    tools.buffers.open[tools.file] += "more = 1\n"
    with pytest.raises(ToolError, match="has changed since it was last read"):
        await call(tools.write, path="api.py", content="x = 2\n")
    assert tools.buffers.open[tools.file].endswith("more = 1\n")
    result = await tools.change("x = 1", "x = 2")
    assert "had changed since you read it" in result
    assert tools.file.read_text().endswith("more = 1\n")


async def test_a_text_that_a_command_has_replaced_is_no_unsaved_change(tools):
    """An editor may show a file for a while as it was before a command has changed it."""
    tools.buffers.open[tools.file] = "x = 1\n"
    assert "x = 1" in (await call(tools.read, path="api.py")).text
    tools.file.write_bytes(b"x = 5\r\n")  # by a command; the editor does not know it yet
    assert "x = 5" in (await call(tools.read, path="api.py")).text
    await tools.change("x = 5", "x = 6")
    assert tools.file.read_bytes() == b"x = 6\r\n"
    tools.buffers.open[tools.file] = "x = 6\n"
    tools.file.write_bytes(b"x = 7\r\n")
    assert "x = 7" in (await call(tools.read, path="api.py")).text
    tools.buffers.open[tools.file] = "x = 6\nmine = 1\n"  # the user types
    assert "mine = 1" in (await call(tools.read, path="api.py")).text


async def test_an_edit_after_a_change_by_the_editors_formatter_is_noted(tools):
    tools.buffers.formats = lambda text: text.replace(" = ", "=")
    await call(tools.read, path="api.py")
    await tools.change("x = 1", "x = 2")
    with pytest.raises(ToolError, match="has changed since"):
        await tools.change("x = 2", "x = 3")
    result = await tools.change("x=2", "x=3")
    assert "had changed since you read it" in result


async def test_each_tool_writes_through_the_editor(tools):
    await call(tools.write, path="new.py", content="y = 1\n")
    await call(
        tools.patch, input="*** Begin Patch\n*** Update File: api.py\n-x = 1\n+x = 3\n*** End Patch"
    )
    assert (tools.root / "new.py").read_text() == "y = 1\n"
    assert tools.file.read_bytes() == b"x = 3\r\nmine = True\r\n"


async def test_editor_that_does_not_save_loses_nothing(tools):
    tools.buffers.saves = False
    await call(tools.read, path="api.py")
    with pytest.raises(ToolError, match="not saved, and was not written: save the file there"):
        await tools.change("x = 1", "x = 2")
    assert tools.file.read_bytes() == b"x = 1\r\n"
    await call(tools.write, path="new.py", content="y = 1\n")
    assert (tools.root / "new.py").read_text() == "y = 1\n"


async def test_while_a_command_runs_the_editor_is_not_used(tools):
    """The command could replace the path by a link: an editor follows it, the tool does not."""
    await call(tools.read, path="api.py")
    tools.commands = True
    with pytest.raises(ToolError, match="a command is running"):
        await tools.change("x = 1", "x = 2")
    del tools.buffers.open[tools.file]
    tools.buffers.saves = False  # it would report this if it were called
    await call(tools.read, path="api.py")
    await tools.change("x = 1", "x = 2")
    assert tools.file.read_bytes() == b"x = 2\r\n"


async def test_link_swapped_in_during_the_edit_is_not_followed(tools):
    """X10: a process outside of this session can do so as well."""
    other, folder = tools.root / "other", tools.root / "src"
    other.mkdir()
    folder.mkdir()
    (folder / "a.py").write_text("x = 1\n")
    (other / "a.py").write_text("x = 1\n")
    await call(tools.read, path="src/a.py")
    read = tools.buffers.read

    def swap(path):
        text = read(path)
        folder.rename(tools.root / "moved")
        folder.symlink_to(other)
        return text

    tools.buffers.read = swap
    await call(tools.edit, path="src/a.py", edits=[{"old_text": "x = 1", "new_text": "x = 2"}])
    assert (other / "a.py").read_text() == "x = 1\n"
    assert (tools.root / "moved" / "a.py").read_text() == "x = 2\n"


async def test_memory_files_bypass_the_editor(tools, tmp_path):
    note = tmp_path / "memory" / "facts.md"
    note.write_text("- one\n")
    await call(tools.read, path=str(note))
    await call(tools.edit, path=str(note), edits=[{"old_text": "one", "new_text": "two"}])
    assert (note.read_text(), tools.buffers.asked) == ("- two\n", [])
