"""X10: files that a file tool must not open under any name; it decides about the opened file."""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from fakes.tool_benches import call, decision

from ouro.errors import ToolError
from ouro.safety import Allow, Ask, Deny, Workspace
from ouro.tools.apply_patch import ApplyPatch
from ouro.tools.edit import Edit, Write
from ouro.tools.files_seen import FilesSeen
from ouro.tools.glob import Glob
from ouro.tools.grep import Grep
from ouro.tools.read import Read
from ouro.utils.ouro_paths import get_checkpoints_dir

SECRET = "the secret outside\n"


@pytest.fixture
def root(tmp_path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git/config").write_text("[core]\n")
    (folder / "a.txt").write_text("inside\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.txt").write_text(SECRET)
    (folder / "file-link").symlink_to("../outside/secret.txt")
    (folder / "folder-link").symlink_to("../outside")
    return folder


def tools(root: Path):
    workspace = Workspace(root)
    seen = FilesSeen(workspace)
    return workspace, Read(seen), Write(seen), Edit(seen), ApplyPatch(seen)


OUTSIDE = [
    "../outside/secret.txt",
    "x/../../outside/secret.txt",
    "file-link",
    "folder-link/secret.txt",
    "folder-link/../outside/secret.txt",
    "/etc/passwd",
    "~/.bashrc",
    "/proc/self/environ",
    "/proc/self/cwd/../outside/secret.txt",
    "/dev/zero",
    "/dev/stdin",
]


@pytest.mark.parametrize("path", OUTSIDE)
async def test_x10_file_outside_is_not_read_or_written_without_asking(root, home, path):
    (home / ".bashrc").write_text("x")
    _, read, write, edit, patch = tools(root)
    with pytest.raises(ToolError, match="outside the workspace"):
        await call(read, path=path)
    with pytest.raises(ToolError, match="outside the workspace"):
        await call(write, path=path, content="x")
    with pytest.raises(ToolError, match="outside the workspace"):
        await call(edit, path=path, edits=[{"old_text": "a", "new_text": "b"}])
    for header in ("Add", "Update", "Delete"):
        body = {"Add": "\n+x", "Update": "\n-x\n+y", "Delete": ""}[header]
        with pytest.raises(ToolError, match="outside the workspace"):
            await call(
                patch, input=f"*** Begin Patch\n*** {header} File: {path}{body}\n*** End Patch"
            )
    assert (root.parent / "outside/secret.txt").read_text() == SECRET


@pytest.mark.parametrize("path", ["../outside", "folder-link", "/etc", "/proc/self"])
async def test_x10_folder_outside_is_not_searched_without_asking(root, path):
    workspace = Workspace(root)
    with pytest.raises(ToolError, match="outside the workspace"):
        await call(Grep(workspace), pattern="secret", path=path)
    with pytest.raises(ToolError, match="outside the workspace"):
        await call(Glob(workspace), pattern="*", path=path)


async def test_x10_search_follows_no_link_outside(root):
    result = await call(Grep(Workspace(root)), pattern="secret")
    assert result.text == "No matches for secret."


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".GIT/config",
        ".git/hooks/pre-commit",
        ".ouro/config.yaml",
        ".bashrc",
        "sub/.zshenv",
    ],
)
async def test_x10_protected_files_are_not_written_without_asking(root, path):
    workspace, _, write, _, patch = tools(root)
    before = (root / ".git/config").read_text()
    with pytest.raises(ToolError, match="may not be changed unless the user allows it"):
        await call(write, path=path, content="x")
    with pytest.raises(ToolError, match="may not be changed unless the user allows it"):
        await call(patch, input=f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch")
    assert ((root / ".git/config").read_text(), (root / ".ouro").exists()) == (before, False)
    workspace.grant(workspace.resolve("sub/.zshenv"))
    await call(write, path="sub/.zshenv", content="x")
    assert (root / "sub/.zshenv").read_text() == "x"


async def test_x10_a_hard_link_of_a_file_outside_is_not_written_without_asking(root):
    outside = root.parent / "outside/secret.txt"
    (root / "hard.txt").hardlink_to(outside)
    workspace, read, write, *_ = tools(root)
    await call(read, path="hard.txt")
    with pytest.raises(ToolError, match="hard link"):
        await call(write, path="hard.txt", content="x")
    assert outside.read_text() == SECRET
    workspace.grant(workspace.resolve("hard.txt"))
    await call(write, path="hard.txt", content="x")
    assert outside.read_text() == "x"


@pytest.mark.parametrize("mode", ["ask", "edit", "auto"])
@pytest.mark.parametrize(
    "line", ["echo x > hard", "tee hard < a.txt", "sed -i s/a/b/ hard", "chmod 600 hard"]
)
def test_x10_a_shell_line_that_writes_to_a_hard_link_is_asked(root, mode, line):
    (root / "hard").hardlink_to(root.parent / "outside/secret.txt")
    answer = decision(root, line, mode, allow=["shell", "write"])
    assert isinstance(answer, Ask)
    assert "hard link" in answer.reason
    for harmless in ("rm hard", "mv hard other", "cat hard"):
        assert isinstance(decision(root, harmless, mode, allow=["shell", "write"]), Allow)


async def test_x10_a_hard_link_inside_is_written_without_asking(root):
    (root / "sub").mkdir()
    (root / "sub/b.txt").hardlink_to(root / "a.txt")
    _, read, write, *_ = tools(root)
    await call(read, path="a.txt")
    await call(write, path="a.txt", content="x")
    assert (root / "sub/b.txt").read_text() == "x"  # still the same file
    assert isinstance(decision(root, "echo y > sub/b.txt", "auto"), Allow)


@pytest.mark.parametrize("place", [".git/config", ".envrc", ".ouro/config.yaml"])
async def test_x10_a_hard_link_of_a_protected_file_inside_is_asked(root, place):
    (root / place).parent.mkdir(exist_ok=True)
    (root / place).touch()
    (root / "hard.txt").hardlink_to(root / place)
    _, read, write, *_ = tools(root)
    await call(read, path="hard.txt")
    with pytest.raises(ToolError, match="hard link"):
        await call(write, path="hard.txt", content="x")
    answer = decision(root, "echo x > hard.txt", "auto")
    assert isinstance(answer, Ask)
    assert place in answer.reason


def test_x10_a_rule_about_another_name_of_the_file_holds(root):
    (root / "b.txt").hardlink_to(root / "a.txt")
    answer = decision(root, "echo x > a.txt", "auto", deny=["write(b.txt)"])
    assert isinstance(answer, Deny)
    answer = decision(root, "echo x > a.txt", "auto", ask=["write(b.txt)"])
    assert isinstance(answer, Ask)


def test_x10_a_hard_link_that_is_not_found_is_asked(root, monkeypatch):
    (root / "b.txt").hardlink_to(root / "a.txt")
    (root / "more").mkdir()
    (root / "more/c.txt").hardlink_to(root / "a.txt")
    assert isinstance(decision(root, "echo x > a.txt", "auto"), Allow)
    monkeypatch.setattr("ouro.safety.hard_links._MAX_LOOKED_AT", 1)
    assert isinstance(decision(root, "echo x > a.txt", "auto"), Ask)


async def test_x10_a_link_of_a_checkpoint_is_no_other_name_and_stays(root):
    status = (root / "a.txt").stat()
    key = f"{status.st_dev}-{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"
    kept = get_checkpoints_dir() / "project-1" / "large" / key
    kept.parent.mkdir(parents=True)
    kept.hardlink_to(root / "a.txt")
    assert isinstance(decision(root, "echo x > a.txt", "auto"), Allow)
    _, read, write, *_ = tools(root)
    await call(read, path="a.txt")
    await call(write, path="a.txt", content="x")
    assert kept.read_text() == "inside\n"


async def test_x10_patch_cannot_move_a_file_outside_or_onto_protected_ones(root):
    _, _, _, _, patch = tools(root)
    for target in ("../outside/new.txt", ".git/hooks/pre-commit"):
        with pytest.raises(ToolError):
            await call(
                patch,
                input=(
                    "*** Begin Patch\n*** Update File: a.txt\n*** Move to:"
                    f" {target}\n-inside\n+x\n*** End Patch"
                ),
            )
    assert ((root / "a.txt").read_text(), os.listdir(root.parent / "outside")) == (  # noqa: PTH208
        "inside\n",
        ["secret.txt"],
    )


@pytest.mark.parametrize("kind", ["pipe", "socket", "device link", "folder"])
async def test_x10_pipes_sockets_devices_and_folders_are_refused_without_waiting(root, kind):
    import socket

    path = root / "x"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device link":
        path.symlink_to("/dev/zero")
    else:
        os.chdir(root)
        socket.socket(socket.AF_UNIX).bind("x")
    _, read, write, edit, _ = tools(root)
    for tool, arguments in (
        (read, {}),
        (write, {"content": "x"}),
        (edit, {"edits": [{"old_text": "a", "new_text": "b"}]}),
    ):
        with pytest.raises(ToolError):
            await call(tool, path="x", **arguments)


@pytest.mark.skipif(
    os.geteuid() != 0 or not hasattr(os, "mknod"), reason="only root can make a device"
)
async def test_x10_a_device_inside_is_refused(root):
    try:
        os.mknod(root / "zero", 0o666 | 0o020000, os.makedev(1, 5))
    except OSError:
        pytest.skip("this file system takes no devices")
    with pytest.raises(ToolError, match="a device, not a file"):
        await call(tools(root)[1], path="zero")


def swap_repeatedly(root: Path, stop: threading.Event) -> None:
    """Replace `root/d` by a link to the outside and back, as fast as possible."""
    while not stop.is_set():
        (root / "d").rename(root / "real")
        with suppress(FileExistsError):  # the writer was faster, and created a folder there
            (root / "d").symlink_to("../outside")
            (root / "d").unlink()
        for _ in range(100):  # the writer may create it again and again
            shutil.rmtree(root / "d", ignore_errors=True)
            with suppress(OSError):
                (root / "real").rename(root / "d")
                break
        else:
            return


@pytest.fixture
def root_with_swaps(root):
    (root / "d").mkdir()
    (root / "d/secret.txt").write_text("harmless\n")
    stop = threading.Event()
    thread = threading.Thread(target=swap_repeatedly, args=(root, stop))
    thread.start()
    yield root
    stop.set()
    thread.join()


def test_x10_reader_is_not_misled_by_a_folder_swapped_for_a_link(root_with_swaps):
    workspace = Workspace(root_with_swaps)
    read: set[bytes] = set()
    tried = 0
    while tried < 1500 or (
        not read and tried < 50_000
    ):  # `d` is the real folder only some of the time
        tried += 1
        try:
            with workspace.open("d/secret.txt") as file:
                read.add(file.read())
        except ToolError:
            continue
    assert read == {b"harmless\n"}


def test_x10_writer_is_not_misled_by_a_folder_swapped_for_a_link(root_with_swaps):
    from ouro.utils.text_files import save_file

    workspace = Workspace(root_with_swaps)
    written = tried = 0
    while tried < 500 or (
        not written and tried < 50_000
    ):  # `d` is the real folder only some of the time
        tried += 1
        try:
            with workspace.place("d/secret.txt", "write", create_parents=True) as place:
                save_file(place.folder, place.name, b"ours\n", expected=place.stat())
                written += 1
        except (ToolError, OSError):
            continue
    outside = root_with_swaps.parent / "outside"
    assert written > 0
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret.txt": SECRET}


def swap(folder: Path) -> None:
    """Replace a folder by a link to the folder outside."""
    folder.rename(folder.with_name("real"))
    folder.symlink_to("../outside")


@pytest.fixture
def swapped_when_checked(root, monkeypatch) -> Workspace:
    """A workspace whose folder `d` is replaced by a link to the outside as soon as a path was
    resolved and checked.
    """
    for folder in (root / "d/sub", root.parent / "outside/sub"):
        folder.mkdir(parents=True)
    (root / "d/sub/secret.txt").write_text("harmless\n")
    (root / "d/secret.txt").write_text("harmless\n")
    (root.parent / "outside/sub/secret.txt").write_text(SECRET)
    workspace, check = Workspace(root), Workspace.check

    def check_then_swap(self, path, access):
        check(self, path, access)
        if not (root / "d").is_symlink():
            swap(root / "d")

    monkeypatch.setattr(Workspace, "check", check_then_swap)
    return workspace


@pytest.mark.parametrize("path", ["d/secret.txt", "d/sub/secret.txt"])
def test_x10_reader_is_not_misled_by_a_folder_swapped_after_the_check(swapped_when_checked, path):
    with pytest.raises(ToolError), swapped_when_checked.open(path) as file:
        assert file.read() == b"harmless\n"


@pytest.mark.parametrize(
    "path", ["d/secret.txt", "d/sub/secret.txt", "d/new.txt", "d/sub/new.txt", "d/more/new.txt"]
)
def test_x10_writer_is_not_misled_by_a_folder_swapped_after_the_check(swapped_when_checked, path):
    from ouro.utils.text_files import save_file

    outside = swapped_when_checked.root.parent / "outside"
    before = sorted(outside.rglob("*"))
    with (
        pytest.raises(ToolError),
        swapped_when_checked.place(path, "write", create_parents=True) as place,
    ):
        save_file(place.folder, place.name, b"ours\n", expected=place.stat())
    assert sorted(outside.rglob("*")) == before
    assert (outside / "sub/secret.txt").read_text() == SECRET


def test_x10_a_file_swapped_for_a_link_after_the_check_is_not_opened(root, monkeypatch):
    workspace, demand = Workspace(root), Workspace._require_regular

    def demand_then_swap(self, path, found):
        demand(self, path, found)
        if not (root / "a.txt").is_symlink():
            (root / "a.txt").unlink()
            (root / "a.txt").symlink_to("../outside/secret.txt")

    monkeypatch.setattr(Workspace, "_require_regular", demand_then_swap)
    with pytest.raises(ToolError):
        workspace.open("a.txt")
