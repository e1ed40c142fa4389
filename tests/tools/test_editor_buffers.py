"""Files that an editor has changed and not saved: read, and written through the editor."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.tool_context import call

from ouro.errors import ToolError
from ouro.safety import GuardedMemory, Workspace
from ouro.tools.apply_patch import ApplyPatch
from ouro.tools.edit import Edit
from ouro.tools.files_seen import FilesSeen
from ouro.tools.read import Read
from ouro.tools.write import Write


class Buffers:
    """An editor: `open` is what it has not saved."""

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


class Desk:
    """A folder with the file tools, and an editor in which api.py is not saved."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.buffers = Buffers()
        self.commands = False
        self.file = root / "api.py"
        self.file.write_bytes(b"x = 1\r\n")
        self.buffers.open[self.file] = "x = 1\nmine = True\n"
        workspace = Workspace(root, memory=[GuardedMemory(root.parent / "memory")])
        seen = FilesSeen(editor=self.buffers, has_commands=lambda: self.commands)
        self.read, self.edit = Read(workspace, seen), Edit(workspace, seen)
        self.write, self.patch = Write(workspace, seen), ApplyPatch(workspace, seen)

    async def change(self, old: str, new: str) -> str:
        result = await call(self.edit, path="api.py", edits=[{"old_text": old, "new_text": new}])
        return result.text


@pytest.fixture
def desk(tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    (tmp_path / "memory").mkdir()
    return Desk(root)


async def test_what_is_not_saved_is_read_and_changed(desk):
    assert "mine = True" in (await call(desk.read, path="api.py")).text
    await desk.change("x = 1", "x = 2")
    assert desk.file.read_bytes() == b"x = 2\r\nmine = True\r\n"
    assert desk.buffers.open == {}


async def test_a_change_in_the_editor_after_the_read_is_noticed(desk):
    await call(desk.read, path="api.py")
    desk.buffers.open[desk.file] += "more = 1\n"
    with pytest.raises(ToolError, match="has changed since it was last read"):
        await desk.change("x = 1", "x = 2")
    assert desk.buffers.open[desk.file].endswith("more = 1\n")


async def test_an_editor_that_formats_is_noticed_too(desk):
    desk.buffers.formats = lambda text: text.replace(" = ", "=")
    await call(desk.read, path="api.py")
    await desk.change("x = 1", "x = 2")
    with pytest.raises(ToolError, match="has changed since"):
        await desk.change("x = 2", "x = 3")


async def test_each_tool_writes_through_the_editor(desk):
    await call(desk.write, path="new.py", content="y = 1\n")
    await call(desk.patch, input="*** Begin Patch\n*** Update File: api.py\n-x = 1\n+x = 3\n*** End Patch")
    assert (desk.root / "new.py").read_text() == "y = 1\n"
    assert desk.file.read_bytes() == b"x = 3\r\nmine = True\r\n"


async def test_where_the_editor_does_not_save_nothing_of_it_is_lost(desk):
    desk.buffers.saves = False
    await call(desk.read, path="api.py")
    with pytest.raises(ToolError, match="not saved, and was not written: save the file there"):
        await desk.change("x = 1", "x = 2")
    assert desk.file.read_bytes() == b"x = 1\r\n"
    await call(desk.write, path="new.py", content="y = 1\n")
    assert (desk.root / "new.py").read_text() == "y = 1\n"


async def test_while_a_command_runs_the_editor_is_not_used(desk):
    """A command could put a link in its way: an editor follows it, the tool itself does not."""
    await call(desk.read, path="api.py")
    desk.commands = True
    with pytest.raises(ToolError, match="a command is running"):
        await desk.change("x = 1", "x = 2")
    del desk.buffers.open[desk.file]
    desk.buffers.saves = False  # it would say so, if it were asked
    await call(desk.read, path="api.py")
    await desk.change("x = 1", "x = 2")
    assert desk.file.read_bytes() == b"x = 2\r\n"


async def test_a_link_that_was_put_in_the_way_is_not_followed(desk, tmp_path):
    """X10: a process that is not of this session may do so, too."""
    outside, folder = tmp_path / "outside", desk.root / "src"
    outside.mkdir()
    folder.mkdir()
    (folder / "a.py").write_text("x = 1\n")
    (outside / "a.py").write_text("x = 1\n")
    await call(desk.read, path="src/a.py")
    read = desk.buffers.read

    def swap(path):
        text = read(path)
        folder.rename(desk.root / "moved")
        folder.symlink_to(outside)
        return text

    desk.buffers.read = swap
    await call(desk.edit, path="src/a.py", edits=[{"old_text": "x = 1", "new_text": "x = 2"}])
    assert (outside / "a.py").read_text() == "x = 1\n"
    assert (desk.root / "moved" / "a.py").read_text() == "x = 2\n"


async def test_memory_and_what_is_outside_are_no_affair_of_the_editor(desk, tmp_path):
    note = tmp_path / "memory" / "facts.md"
    note.write_text("- one\n")
    await call(desk.read, path=str(note))
    await call(desk.edit, path=str(note), edits=[{"old_text": "one", "new_text": "two"}])
    assert (note.read_text(), desk.buffers.asked) == ("- two\n", [])
