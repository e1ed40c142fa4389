"""A turn that switches to another branch: git restores its files, not an undo."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ouro.safety import Checkpoints, Undo


def git(root: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    done = subprocess.run(
        ["git", *identity, *words], cwd=root, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture
def root(tmp_path) -> Path:
    """A repository with the branches `main` and `feature`, which differ in two files."""
    folder = tmp_path / "work"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.txt").write_text("main\n")
    (folder / "sub").mkdir()
    (folder / "sub/b.txt").write_text("b\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    git(folder, "switch", "-qc", "feature")
    (folder / "a.txt").write_text("feature\n")
    (folder / "sub/new.txt").write_text("new\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "two")
    git(folder, "switch", "-q", "main")
    return folder


@pytest.fixture(params=[".", "sub"])
def kept(tmp_path, root, request) -> Checkpoints:
    """The checkpoints of the whole repository, or of a folder in it."""
    return Checkpoints(root / request.param, tmp_path / ".ouro" / "checkpoints", "s1")


def turn(kept: Checkpoints, work):
    kept.take_before(1)
    work()
    return kept.take_after(1)


def test_an_undo_leaves_the_files_of_a_switched_branch(kept, root):
    def work():
        git(root, "switch", "-q", "feature")
        (kept.root / "own.txt").write_text("of the turn\n")

    changes = turn(kept, work)
    assert list(changes.files) == ["own.txt"]
    assert all("`git switch main` restores that" in reason for reason in changes.lost.values())
    assert any(name.endswith("new.txt") for name in changes.lost)
    Undo(kept).undo(kept.turns())
    assert git(root, "status", "--porcelain") == ""
    git(root, "switch", "-q", "main")
    assert (root / "a.txt").read_text() == "main\n"


def test_a_change_of_the_user_before_a_switch_is_still_restored(kept, root):
    (root / "sub/b.txt").write_text("of the user\n")

    def work():
        git(root, "switch", "-q", "feature")
        (root / "sub/b.txt").write_text("of the turn\n")
        git(root, "commit", "-qam", "three")

    changes = turn(kept, work)
    assert any(name.endswith("b.txt") for name in changes.files)
    Undo(kept).undo(kept.turns())
    assert (root / "sub/b.txt").read_text() == "of the user\n"


@pytest.mark.parametrize("words", [["switch", "-qc", "other"], ["checkout", "-q", "--detach"]])
def test_a_turn_without_other_files_restores_all(kept, root, words):
    def work():
        git(root, *words)
        (root / "sub/b.txt").write_text("of the turn\n")

    assert not turn(kept, work).lost
    Undo(kept).undo(kept.turns())
    assert (root / "sub/b.txt").read_text() == "b\n"
