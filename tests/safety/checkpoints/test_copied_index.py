"""Checkpoints begin with the user's git index: no file is read twice, none is mistaken."""

import os
import subprocess
from pathlib import Path

import pytest

from ouro.safety import Checkpoints, Undo
from ouro.safety.checkpoints.copied_index import read_index


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.invalid")
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture
def root(tmp_path) -> Path:
    folder = tmp_path / "work"
    git(tmp_path, "init", "-q", "-b", "main", str(folder))
    for number in range(30):
        (folder / f"{number}.py").write_text(f"{number}\n" * 50)
    (folder / "sub").mkdir()
    (folder / "sub" / "deep.py").write_text("deep\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "start")
    past = 1_700_000_000
    for path in folder.rglob("*.py"):
        os.utime(path, (past, past))
    git(folder, "update-index", "--refresh", "-q")
    return folder


def kept(root: Path) -> Checkpoints:
    return Checkpoints(root, root.parent / "kept", "s1")


def turn(found: Checkpoints, work) -> None:
    found.take_before(1)
    work()
    found.take_after(1)


def objects(found: Checkpoints) -> int:
    return sum(path.is_file() for path in (found.folder / "objects").rglob("*"))


def test_tracked_files_are_not_copied(root):
    found = kept(root)
    found.take_before(1)
    assert objects(found) <= 3


def test_undo_does_not_need_the_objects_of_the_user_afterwards(root):
    found = kept(root)
    turn(found, lambda: (root / "1.py").write_text("changed\n"))
    for path in (root / ".git" / "objects").rglob("*"):
        if path.is_file():
            path.unlink()
    assert Undo(found).undo(found.turns()).paths == ("1.py",)
    assert (root / "1.py").read_text() == "1\n" * 50


def test_what_was_not_committed_is_restored(root):
    (root / "1.py").write_text("mine\n")
    (root / "new.py").write_text("mine\n")
    (root / "2.py").unlink()
    found = kept(root)

    def work():
        for name in ("1.py", "2.py", "new.py"):
            (root / name).write_text("changed\n")

    turn(found, work)
    Undo(found).undo(found.turns())
    assert (root / "1.py").read_text() == (root / "new.py").read_text() == "mine\n"
    assert not (root / "2.py").exists()


@pytest.mark.parametrize(
    ("attributes", "content"),
    [
        ("* text=auto\n", b"a\r\nb\r\n"),
        ("*.odd filter=swap\n", b"abc\n"),
        ("*.odd working-tree-encoding=UTF-16LE-BOM\n", "\ufeffword\n".encode("utf-16-le")),
        ("*.odd ident\n", b"$Id: 0123456789012345678901234567890123456789 $\n"),
    ],
)
def test_a_file_that_git_converts_is_restored_byte_for_byte(root, attributes, content):
    git(root, "config", "filter.swap.clean", "tr a-z b-za")
    (root / ".gitattributes").write_text(attributes)
    (root / "file.odd").write_bytes(content)
    os.utime(root / "file.odd", (1_700_000_000, 1_700_000_000))
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "odd")
    found = kept(root)
    turn(found, lambda: (root / "file.odd").write_bytes(b"changed"))
    Undo(found).undo(found.turns())
    assert (root / "file.odd").read_bytes() == content


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_file_that_git_does_not_look_at_is_restored(root, flag):
    git(root, "update-index", flag, "3.py")
    (root / "3.py").write_text("my settings\n")
    found = kept(root)
    turn(found, lambda: (root / "3.py").write_text("changed\n"))
    Undo(found).undo(found.turns())
    assert (root / "3.py").read_text() == "my settings\n"


def test_a_conflict_and_an_intended_file_are_restored(root):
    git(root, "checkout", "-q", "-b", "other")
    (root / "1.py").write_text("theirs\n")
    git(root, "commit", "-qam", "theirs")
    git(root, "checkout", "-q", "main")
    (root / "1.py").write_text("ours\n")
    git(root, "commit", "-qam", "ours")
    subprocess.run(["git", "merge", "-q", "other"], cwd=root, check=False, capture_output=True)
    (root / "later.py").write_text("later\n")
    git(root, "add", "--intent-to-add", "later.py")
    before = (root / "1.py").read_text()
    assert "<<<<<<<" in before
    found = kept(root)

    def work():
        (root / "1.py").write_text("resolved\n")
        (root / "later.py").write_text("changed\n")

    turn(found, work)
    Undo(found).undo(found.turns())
    assert ((root / "1.py").read_text(), (root / "later.py").read_text()) == (before, "later\n")


def test_a_workspace_below_the_root_of_a_repository(root):
    found = Checkpoints(root / "sub", root.parent / "kept", "s1")

    def work():
        (root / "sub" / "deep.py").write_text("changed\n")
        (root / "sub" / "new.py").write_text("new\n")
        (root / "1.py").write_text("outside\n")

    turn(found, work)
    assert sorted(Undo(found).undo(found.turns()).paths) == ["deep.py", "new.py"]
    assert (root / "sub" / "deep.py").read_text() == "deep\n"
    assert (root / "1.py").read_text() == "outside\n"


def test_a_worktree_and_a_submodule(root, tmp_path):
    git(root, "worktree", "add", "-q", str(tmp_path / "tree"))
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(root), "inner")
    for folder in (tmp_path / "tree", root / "inner"):
        found = Checkpoints(folder, tmp_path / "kept", "s1")
        turn(found, lambda folder=folder: (folder / "1.py").write_text("changed\n"))
        assert Undo(found).undo(found.turns()).paths == ("1.py",)
        assert (folder / "1.py").read_text() == "1\n" * 50
    found = kept(root)
    turn(found, lambda: (root / "inner" / "1.py").write_text("changed\n"))
    assert found.changes(found.turns()[0]) == ()


def test_a_split_index_and_one_of_another_version(root):
    for words in (("--split-index",), ("--no-split-index", "--index-version=4")):
        git(root, "update-index", *words)
        found = Checkpoints(root, root.parent / words[-1], "s1")
        turn(found, lambda: (root / "1.py").write_text("changed\n"))
        assert Undo(found).undo(found.turns()).paths == ("1.py",)
        assert objects(found) < 20


def test_a_broken_index_is_not_used(root):
    (root / ".git" / "index").write_bytes(b"DIRC\0\0\0\2\xff\xff\xff\xff")
    found = kept(root)
    turn(found, lambda: (root / "1.py").write_text("changed\n"))
    assert Undo(found).undo(found.turns()).paths == ("1.py",)


def test_a_file_written_in_the_moment_of_the_index_is_read(root):
    """Git compares the content of a file that is as new as the index: the copy keeps its time."""
    (root / "1.py").write_text("xx\n")
    git(root, "add", "1.py")
    (root / "1.py").write_text("yy\n")
    found = kept(root)
    turn(found, lambda: (root / "1.py").write_text("changed\n"))
    Undo(found).undo(found.turns())
    assert (root / "1.py").read_text() == "yy\n"


def test_the_index_is_read_as_git_reads_it(root):
    (root / ("long" * 1200)[:250]).touch()
    git(root, "add", ".")
    listed = git(root, "ls-files", "--stage", "-z").split("\0")[:-1]
    entries = list(read_index((root / ".git" / "index").read_bytes()))
    assert [f"{one.mode:o} {one.blob} 0\t{os.fsdecode(one.path)}" for one in entries] == listed


def test_paths_of_a_hostile_tree_are_not_followed(root):
    found = kept(root)
    blob = git(root, "hash-object", "-w", "1.py").strip()
    data = f"100644 blob {blob}\t..\0".encode()
    done = subprocess.run(
        ["git", "mktree", "-z"], cwd=root, input=data, capture_output=True, check=True
    )
    from ouro.safety.checkpoints.trees import changes_between

    found.take_before(1)
    empty = git(root, "hash-object", "-t", "tree", "/dev/null").strip()
    assert list(changes_between(found.repository, empty, done.stdout.decode().strip())) == []
