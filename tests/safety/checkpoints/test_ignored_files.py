"""Small files that git ignores are kept before a turn, and restored with it."""

import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from ouro.safety import Checkpoints, Undo
from ouro.safety.checkpoints import ignored_files


@pytest.fixture
def root(tmp_path) -> Path:
    folder = tmp_path / "work"
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / ".gitignore").write_text(".env*\n*.log\nbuild/\nnode_modules/\n*.bin\n")
    (folder / "a.py").write_text("a\n")
    (folder / ".env").write_text("KEY=1\n")
    (folder / ".env").chmod(0o600)
    return folder


@pytest.fixture
def kept(tmp_path, root) -> Checkpoints:
    return Checkpoints(root, tmp_path / "checkpoints", "s1")


def run_turn(kept: Checkpoints, number: int, work):
    """A turn with a command; returns what it changed."""
    kept.take_before(number)
    kept.note_command_start(number)
    work()
    kept.note_command_end(number)
    return kept.take_after(number)


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_deleted_env_file_is_restored_with_its_permissions(kept, root):
    (root / "sub").mkdir()
    (root / "sub/.env.local").write_text("B=2\n")

    def work():
        (root / ".env").unlink()
        shutil.rmtree(root / "sub")

    run_turn(kept, 1, work)
    restored = Undo(kept).undo(kept.turns())
    assert set(restored.paths) == {".env", "sub/.env.local"}
    assert (root / ".env").read_text() == "KEY=1\n"
    assert permissions(root / ".env") == 0o600
    Undo(kept).redo(kept.turns())
    assert not (root / ".env").exists()


def test_an_overwritten_file_is_restored_and_changes_of_the_user_stay(kept, root):
    run_turn(kept, 1, lambda: (root / ".env").write_text("KEY=other\n"))
    (root / ".env").write_text("KEY=other\nMINE=1\n")
    restored = Undo(kept).undo(kept.turns())
    assert restored.left  # the same lines: what would be written is beside it
    assert (root / ".env").read_text() == "KEY=other\nMINE=1\n"

    (root / ".env").write_text("KEY=3\n")
    run_turn(kept, 2, lambda: (root / ".env").write_text("KEY=4\n"))
    Undo(kept).undo(kept.turns()[-1:])
    assert (root / ".env").read_text() == "KEY=3\n"


def test_logs_programs_caches_and_new_files_are_left_out(kept, root):
    (root / "server.log").write_text("started\n")
    (root / "data.bin").write_bytes(b"\0" * 9)
    (root / "large.log").write_text("x" * (ignored_files.MAX_IGNORED_BYTES + 1))
    cache = root / ".some_cache"
    cache.mkdir()
    (cache / ".gitignore").write_text("*\n")
    (cache / "entry").write_text("1")

    def work():
        (root / "server.log").write_text("started\nstopped\n")
        (root / "data.bin").unlink()
        (root / "large.log").unlink()
        (cache / "entry").write_text("2")
        (root / ".env.new").write_text("made by the command")

    changes = run_turn(kept, 1, work)
    assert (changes.files, changes.lost) == ({}, {})


def test_an_ignored_folder_that_is_gone_is_reported(kept, root):
    (root / "build").mkdir()
    (root / "build/out").write_text("1")
    (root / "node_modules").mkdir()
    (root / "node_modules/a.js").write_text("1")
    changes = run_turn(kept, 1, lambda: shutil.rmtree(root / "build"))
    assert list(changes.lost) == ["build"]
    assert changes.files == {}


def test_a_turn_soon_after_a_listing_uses_it(kept, root, monkeypatch):
    monkeypatch.setattr(ignored_files, "_MAX_SHARE", 1e-9)
    calls = []
    git_files = kept.repository.git_files

    def counted(*words, **options):
        calls.append("-i" in words)
        return git_files(*words, **options)

    monkeypatch.setattr(kept.repository, "git_files", counted)
    run_turn(kept, 1, lambda: None)
    run_turn(kept, 2, (root / ".env").unlink)
    assert sum(calls) == 1
    Undo(kept).undo(kept.turns()[-1:])
    assert (root / ".env").read_text() == "KEY=1\n"


def test_at_most_so_many_files_are_kept_those_above_first(kept, root, monkeypatch):
    monkeypatch.setattr(ignored_files, "MAX_IGNORED_FILES", 1)
    (root / "a").mkdir()
    (root / "a/.env").write_text("below")

    def work():
        (root / ".env").unlink()
        (root / "a/.env").unlink()

    assert list(run_turn(kept, 1, work).files) == [".env"]
