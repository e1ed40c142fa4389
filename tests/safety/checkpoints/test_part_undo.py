"""A part of a diff is undone as a whole, or not at all, and a redo that failed can be repeated."""

import subprocess
from pathlib import Path

import pytest

from ouro.errors import UsageError
from ouro.safety import Checkpoints, PartUndo
from ouro.utils.git_diff import DiffedFile, parse_git_diff


@pytest.fixture
def root(tmp_path) -> Path:
    folder = tmp_path / "work"
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / "sub").mkdir()
    (folder / "sub/old.py").write_text("".join(f"line {number}\n" for number in range(20)))
    subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *author, "commit", "-qm", "first"], cwd=folder, check=True)
    return folder


@pytest.fixture
def kept(tmp_path, root) -> Checkpoints:
    return Checkpoints(root, tmp_path / "checkpoints", "s1")


def diffed(root: Path) -> DiffedFile:
    """The only file that differs from the last commit, as git shows it."""
    subprocess.run(["git", "add", "-A"], cwd=root, check=True)
    words = ["git", "diff", "--cached", "--src-prefix=a/", "--dst-prefix=b/"]
    (file,) = parse_git_diff(
        subprocess.run(words, cwd=root, check=True, capture_output=True, text=True).stdout
    )
    return file


def test_a_renamed_file_stays_as_it_is_if_its_old_name_is_taken(kept, root):
    old, new = root / "sub/old.py", root / "sub/new.py"
    text = old.read_text().replace("line 3\n", "changed\n")
    old.unlink()
    new.write_text(text)
    file = diffed(root)
    assert (file.kind, file.old_path) == ("renamed", "sub/old.py")
    old.write_text("another one\n")
    with pytest.raises(UsageError, match=r"old\.py is there again"):
        PartUndo(kept).undo(file)
    assert new.read_text() == text
    old.unlink()
    PartUndo(kept).undo(file)
    assert ("line 3\n" in old.read_text(), new.exists()) == (True, False)


def test_a_redo_that_failed_can_be_repeated(kept, root):
    old = root / "sub/old.py"
    old.write_text(old.read_text().replace("line 3\n", "changed\n"))
    changed = old.read_text()
    part_undo = PartUndo(kept)
    part_undo.undo(diffed(root))
    assert "changed" not in old.read_text()
    (root / "sub").rename(root / "away")
    (root / "sub").symlink_to("sub")
    with pytest.raises(OSError, match="symbolic links"):
        part_undo.redo()
    (root / "sub").unlink()
    (root / "away").rename(root / "sub")
    assert part_undo.redo() == {"sub/old.py": ""}
    assert old.read_text() == changed
