"""M9: only regular files of the user are read as memory; links and devices never block the start."""

import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from ouro.errors import MemoryUnusable
from ouro.memory.long_term import GitMemoryStore
from ouro.memory.long_term.git.files import FileRefused, MemoryFiles
from ouro.memory.long_term.git.values import SkippedFile

SECRET = "root:x:0:0"


@pytest.fixture
def store(tmp_path) -> GitMemoryStore:
    made = GitMemoryStore(tmp_path / "memory", "user", tmp_path / "history.git" / "user.git")
    made.save_and_commit({"facts.md": "- one\n", "preferences.md": "- tabs\n"}, "Learn")
    (tmp_path / "outside.md").write_text(SECRET)
    return made


def symlink(path: Path) -> None:
    path.symlink_to(path.parent.parent / "outside.md")


def symlink_inside(path: Path) -> None:
    path.symlink_to("preferences.md")


def dangling(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def hard_link(path: Path) -> None:
    path.hardlink_to(
        next(each / "outside.md" for each in path.parents if (each / "outside.md").exists())
    )


def fifo(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    server = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket has a limit
    try:
        server.bind(path.name)
    finally:
        os.chdir(here)
        server.close()


def folder(path: Path) -> None:
    path.mkdir()
    (path / "facts.md").write_text(SECRET)


def device(path: Path) -> None:
    if os.getuid():
        pytest.skip("only root can make a device")
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero, without end


def foreign(path: Path) -> None:
    if os.getuid():
        pytest.skip("only root can give a file away")
    path.write_text(SECRET)
    os.chown(path, 12345, 12345)


ODD = {
    symlink: "a link", symlink_inside: "a link", dangling: "a link", loop: "a link",
    hard_link: "a hard link: the same file has another name elsewhere", fifo: "a pipe, socket or device",
    unix_socket: "a pipe, socket or device", folder: "a folder", device: "a pipe, socket or device",
    foreign: "belongs to another user",
}  # fmt: skip


@pytest.mark.parametrize("name", ["facts.md", "mem_1.md", "archive/mem_1.md"])
@pytest.mark.parametrize("make", ODD, ids=[each.__name__ for each in ODD])
def test_m9_special_file_is_skipped_and_stays_in_the_history(store, make, name):
    head, path = store.get_current_head(), store.folder / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    make(path)

    loaded = store.load_all()

    assert loaded.skipped == (SkippedFile(name, ODD[make]),)
    assert SECRET not in str(loaded)
    assert loaded.core["preferences"] == "- tabs\n"
    assert store.edits_since(head) == ()
    assert store.commit_changes("Take in what is there") == ""
    with pytest.raises(FileRefused):
        store.read(name)


@pytest.mark.parametrize("make", ODD, ids=[each.__name__ for each in ODD])
def test_m9_nothing_is_written_through_a_special_file(store, make, tmp_path):
    path = store.folder / "facts.md"
    path.unlink()
    make(path)

    with pytest.raises(FileRefused):
        store.save_and_commit({"facts.md": "- two\n"}, "Learn")

    assert (tmp_path / "outside.md").read_text() == SECRET
    assert (store.folder / "preferences.md").read_text() == "- tabs\n"


def test_m9_a_memory_folder_that_is_a_link_is_not_used(store, tmp_path):
    store.folder.rename(tmp_path / "elsewhere")
    store.folder.symlink_to(tmp_path / "elsewhere")

    for use in (
        store.load_all,
        lambda: store.save_and_commit({"facts.md": "x"}, "x"),
        lambda: store.read("facts.md"),
    ):
        with pytest.raises(MemoryUnusable, match="is a link"):
            use()
    assert (tmp_path / "elsewhere" / "facts.md").read_text() == "- one\n"


def test_m9_an_archive_that_is_a_link_is_not_followed(store, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mem_1.md").write_text(SECRET)
    (store.folder / "archive").symlink_to(tmp_path / "elsewhere")

    assert store.load_all().notes == ()
    with pytest.raises(MemoryUnusable):
        store.save_and_commit({"archive/mem_2.md": "x"}, "Learn")
    assert [each.name for each in (tmp_path / "elsewhere").iterdir()] == ["mem_1.md"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_m9_a_folder_of_another_user_is_not_read(store):
    os.chown(store.folder, 12345, 12345)

    with pytest.raises(MemoryUnusable, match="another user"):
        store.load_all()


@pytest.mark.parametrize(
    "name",
    [
        "../outside.md",
        "/etc/hosts.md",
        "archive/../../outside.md",
        "sub/x.md",
        ".hidden.md",
        "x.txt",
        "a\nb.md",
    ],
)
def test_m9_no_name_leaves_the_folder(store, tmp_path, name):
    with pytest.raises(FileRefused):
        store.read(name)
    with pytest.raises(FileRefused):
        store.save_and_commit({name: "x"}, "Learn")
    assert (tmp_path / "outside.md").read_text() == SECRET


def test_m9_file_swapped_for_a_link_while_read_is_not_followed(tmp_path):
    """Between the check and the opening: a thread swaps them as fast as it can."""
    files, target = MemoryFiles(tmp_path / "memory"), tmp_path / "outside.md"
    files.write("facts.md", b"- one\n")
    target.write_text(SECRET)
    path, stop = tmp_path / "memory" / "facts.md", threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (tmp_path / "memory" / "next").symlink_to(target)
            (tmp_path / "memory" / "next").replace(path)
            (tmp_path / "memory" / "next").write_text("- one\n")
            (tmp_path / "memory" / "next").replace(path)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        read = {files.find("facts.md") for _ in range(2000)}
    finally:
        stop.set()
        swapping.join()
    assert SECRET not in str(read)
    assert len(read) > 1
