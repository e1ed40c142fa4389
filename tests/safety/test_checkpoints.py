import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ouro.safety import Checkpoints, TurnDiffs, Undo, clean_checkpoints, stored_checkpoints
from ouro.safety.checkpoints import checkpoint_repository, checkpoints, undo
from ouro.safety.checkpoints.checkpoint_repository import CheckpointError
from ouro.safety.checkpoints.checkpoints import MAX_FILE_BYTES
from ouro.safety.checkpoints.undo import BESIDE_SUFFIX
from ouro.utils.files import lock_file


@pytest.fixture
def root(tmp_path) -> Path:
    folder = tmp_path / "work"
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / "a.py").write_text("one\ntwo\nthree\nfour\nfive\n")
    (folder / "sub").mkdir()
    (folder / "sub/b.py").write_text("b\n")
    (folder / ".gitignore").write_text("*.log\n")
    return folder


@pytest.fixture
def kept(tmp_path, root) -> Checkpoints:
    return Checkpoints(root, tmp_path / ".ouro" / "checkpoints", "s1")


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    found = {}
    for path in sorted(root.rglob("*")):
        if ".git" not in path.parts and (path.is_file() or path.is_symlink()):
            data = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
            found[str(path.relative_to(root))] = (path.lstat().st_mode & 0o111, data)
    return found


def turn(kept: Checkpoints, number: int, work) -> None:
    kept.take_before(number)
    work()
    kept.take_after(number)


def replace(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.write_text("new\n")


def test_undo_and_redo_of_every_kind_of_change(kept, root):
    before = snapshot(root)

    def work():
        (root / "a.py").write_text("changed\n")
        (root / "sub/b.py").unlink()
        (root / "sub").rmdir()
        (root / "new/deep").mkdir(parents=True)
        (root / "new/deep/file with\nnewline").write_bytes(b"\0\xff")
        (root / "link").symlink_to("a.py")
        (root / "run.sh").write_text("x\n")
        (root / "run.sh").chmod(0o755)

    turn(kept, 1, work)
    after = snapshot(root)
    assert {change.kind for change in kept.changes(kept.turns()[0])} == {
        "added",
        "changed",
        "deleted",
    }

    assert Undo(kept).undo(kept.turns()).left == {}
    assert snapshot(root) == before
    assert not (root / "new").exists()
    assert Undo(kept).redo(kept.turns()).left == {}
    assert snapshot(root) == after


def test_file_replaced_by_a_link_or_folder_is_restored(kept, root):
    def work():
        (root / "a.py").unlink()
        (root / "a.py").symlink_to("/etc/passwd")
        (root / "sub/b.py").unlink()
        (root / "sub").rmdir()
        (root / "sub").write_text("a file now\n")
        (root / "b.py").unlink()
        (root / "b.py").mkdir()
        (root / "b.py/a").write_text("in a folder now\n")

    (root / "b.py").write_text("b\n")
    before = snapshot(root)
    turn(kept, 1, work)
    Undo(kept).undo(kept.turns())
    assert snapshot(root) == before


def test_several_turns_are_undone_in_reverse(kept, root):
    before = snapshot(root)
    for number in range(1, 6):
        turn(
            kept,
            number,
            lambda number=number: (root / "a.py").write_text(f"turn {number}\n" * number),
        )
    Undo(kept).undo(kept.turns()[2:])
    assert (root / "a.py").read_text() == "turn 2\n" * 2
    Undo(kept).undo(kept.turns()[:2])
    assert snapshot(root) == before


def test_random_work_is_undone_and_redone_byte_for_byte(kept, root):
    drawn = random.Random(3)
    states = [snapshot(root)]

    def work():
        for _ in range(6):
            path = root / drawn.choice(["x", "y", "d/x", "d/y", "e/f/g"])
            if path.is_file() and drawn.random() < 0.4:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(drawn.randbytes(drawn.randrange(200)))

    for number in range(12):
        turn(kept, number, work)
        states.append(snapshot(root))
    turns = kept.turns()
    for at in range(11, -1, -1):
        Undo(kept).undo([turns[at]])
        assert snapshot(root) == states[at]
    Undo(kept).redo(turns)
    assert snapshot(root) == states[-1]


class TestWhatTheUserChangedSince:
    """E10"""

    def test_user_edits_on_other_lines_are_kept_and_turn_undone(self, kept, root):
        text = (root / "a.py").read_text()
        turn(kept, 1, lambda: (root / "a.py").write_text(text.replace("one", "ONE")))
        (root / "a.py").write_text(text.replace("one", "ONE").replace("five", "mine"))
        assert Undo(kept).undo(kept.turns()).merged == ("a.py",)
        assert (root / "a.py").read_text() == text.replace("five", "mine")

    def test_user_edits_on_the_same_lines_are_kept_and_a_copy_is_written(self, kept, root):
        text = (root / "a.py").read_text()
        turn(kept, 1, lambda: (root / "a.py").write_text(text.replace("one", "ONE")))
        (root / "a.py").write_text(text.replace("one", "mine"))
        assert "you have changed it since" in Undo(kept).undo(kept.turns()).left["a.py"]
        assert (root / "a.py").read_text() == text.replace("one", "mine")
        assert (root / f"a.py{BESIDE_SUFFIX}").read_text() == text

    def test_folder_replaced_by_a_file_is_skipped_and_the_rest_undone(self, kept, root):
        def work():
            (root / "sub/b.py").unlink()
            (root / "a.py").write_text("agent\n")

        turn(kept, 1, work)
        (root / "sub").rmdir()
        (root / "sub").write_text("mine\n")
        restored = Undo(kept).undo(kept.turns())
        assert restored.left == {"sub/b.py": "it cannot be written (File exists)"}
        assert restored.paths == ("a.py",)
        assert (root / "sub").read_text() == "mine\n"

    def test_new_file_edited_by_the_user_is_kept(self, kept, root):
        turn(kept, 1, lambda: (root / "new").write_text("agent\n"))
        (root / "new").write_text("agent and me\n")
        assert Undo(kept).undo(kept.turns()).left == {"new": "you have changed it since"}
        assert (root / "new").read_text() == "agent and me\n"

    def test_file_deleted_by_the_user_is_not_restored(self, kept, root):
        turn(kept, 1, lambda: (root / "a.py").write_text("agent\n"))
        (root / "a.py").unlink()
        assert Undo(kept).undo(kept.turns()).left == {"a.py": "you have deleted it"}
        assert not (root / "a.py").exists()

    def test_work_between_two_turns_is_not_undone(self, kept, root):
        turn(kept, 1, lambda: (root / "a.py").write_text("agent\n"))
        (root / "mine").write_text("mine\n")
        (root / "sub/b.py").write_text("mine\n")
        turn(kept, 2, lambda: (root / "two").write_text("agent\n"))
        Undo(kept).undo(kept.turns())
        assert (root / "mine").read_text() == (root / "sub/b.py").read_text() == "mine\n"
        assert (root / "a.py").read_text().startswith("one\n")
        assert not (root / "two").exists()

    def test_undo_does_not_write_through_a_link(self, kept, root, tmp_path):
        (tmp_path / "outside").mkdir()
        turn(kept, 1, lambda: (root / "sub/b.py").unlink())
        (root / "sub").rmdir()
        (root / "sub").symlink_to(tmp_path / "outside")
        assert "link" in Undo(kept).undo(kept.turns()).left["sub/b.py"]
        assert list((tmp_path / "outside").iterdir()) == []

    @pytest.mark.parametrize("work", ["write", "delete", "link"])
    def test_x10_undo_is_not_misled_by_a_folder_swapped_after_the_check(
        self, kept, root, tmp_path, monkeypatch, work
    ):
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "b.py").write_text("theirs\n")
        if work == "link":
            (root / "sub/b.py").unlink()
            (root / "sub/b.py").symlink_to("../a.py")
        name = {"write": "sub/b.py", "delete": "sub/c.py", "link": "sub/b.py"}[work]
        turn(kept, 1, lambda: replace(root / name))
        (outside / "c.py").write_text("theirs\n")
        state, looks = undo.state_and_content, []

        def state_then_swap(file):
            found = state(file)
            looks.append(file)
            if len(looks) == 2:  # the first look keeps the file as it is
                (root / "sub").rename(root / "real")
                (root / "sub").symlink_to(outside)
            return found

        monkeypatch.setattr(undo, "state_and_content", state_then_swap)
        [reason] = Undo(kept).undo(kept.turns()).left.values()
        assert "a folder on its path is a link now" in reason
        assert {path.name: path.read_text() for path in outside.iterdir()} == dict.fromkeys(
            ("b.py", "c.py"), "theirs\n"
        )


def test_undo_keeps_file_permissions(kept, root):
    """In an earlier version undo made a file with keys readable for everyone."""
    keys, tool, shared = root / "keys.txt", root / "tool.sh", root / "shared.txt"
    for path, mode in ((keys, 0o600), (tool, 0o700), (shared, 0o664)):
        path.write_text("one\n")
        path.chmod(mode)
    os.link(shared, root / "same.txt")

    def work():
        for path in (keys, tool, shared):
            path.write_text("two\n")
        tool.chmod(0o600)

    turn(kept, 1, work)
    Undo(kept).undo(kept.turns())
    assert [path.stat().st_mode & 0o777 for path in (keys, tool, shared)] == [0o600, 0o700, 0o664]
    assert (root / "same.txt").read_text() == "one\n"
    keys.write_text("mine\n")
    assert "you have changed it" in Undo(kept).redo(kept.turns()).left["keys.txt"]
    assert (root / f"keys.txt{BESIDE_SUFFIX}").stat().st_mode & 0o777 == 0o600


def test_undo_of_one_file(kept, root):
    def work():
        (root / "a.py").write_text("changed\n")
        (root / "sub/b.py").write_text("changed\n")

    turn(kept, 1, work)
    assert Undo(kept).undo(kept.turns(), "a.py").paths == ("a.py",)
    assert (root / "sub/b.py").read_text() == "changed\n"


def test_ignored_large_and_nested_files_are_skipped_and_reported(kept, root):
    (root / "big").write_bytes(bytes(MAX_FILE_BYTES + 1))
    (root / "a.log").write_bytes(b"\0")  # a small text would be kept
    subprocess.run(["git", "init", "-q", root / "nested"], check=True)
    (root / "nested/file").write_text("1\n")

    def work():
        for name in ("big", "a.log", "nested/file"):
            (root / name).write_text("2\n" * MAX_FILE_BYTES if name == "big" else "2\n")

    turn(kept, 1, work)
    assert kept.left_out == {"big", "nested"}
    assert kept.changes(kept.turns()[0]) == ()
    Undo(kept).undo(kept.turns())
    assert (root / "a.log").read_text() == "2\n"


def test_file_grown_too_large_is_not_treated_as_deleted(kept, root):
    turn(kept, 1, lambda: (root / "a.py").write_bytes(bytes(MAX_FILE_BYTES + 1)))
    Undo(kept).undo(kept.turns())
    assert (root / "a.py").stat().st_size == MAX_FILE_BYTES + 1


def test_gitattributes_and_filters_have_no_effect(kept, root):
    (root / ".gitattributes").write_text("* text=auto eol=crlf filter=evil\n")
    subprocess.run(["git", "config", "filter.evil.clean", "touch ran"], cwd=root, check=True)
    subprocess.run(["git", "config", "filter.evil.smudge", "touch ran"], cwd=root, check=True)
    (root / "mixed").write_bytes(b"a\r\nb\nc\r\n")
    before = snapshot(root)
    turn(kept, 1, lambda: (root / "mixed").write_bytes(b"x"))
    Undo(kept).undo(kept.turns())
    assert snapshot(root) == before


def test_the_repository_of_the_user_is_untouched(kept, root):
    before = {path: path.stat().st_mtime_ns for path in (root / ".git").rglob("*")}
    turn(kept, 1, lambda: (root / "a.py").write_text("changed\n"))
    Undo(kept).undo(kept.turns())
    assert {path: path.stat().st_mtime_ns for path in (root / ".git").rglob("*")} == before


def test_two_sessions_share_a_workspace(kept, root):
    other = Checkpoints(root, kept.folder.parent, "s2")
    turn(kept, 1, lambda: (root / "one").write_text("1\n"))
    turn(other, 1, lambda: (root / "two").write_text("2\n"))
    Undo(kept).undo(kept.turns())
    assert not (root / "one").exists()
    assert (root / "two").exists()
    assert [len(one.turns()) for one in (kept, other)] == [1, 1]


def test_diff_since_a_turn_shows_new_files_and_hunks(kept, root):
    turn(kept, 1, lambda: (root / "a.py").write_text("changed\n"))
    (root / "later").write_text("later\n")
    diff = TurnDiffs(kept).diff(kept.turns())
    assert "+changed" in diff
    assert "+later" in diff
    hunk = re.search(r"#(\w+)\n\+later", diff)[1]
    Undo(kept).undo_hunk(kept.turns(), "later", hunk)
    assert not (root / "later").exists()


def test_missing_git_is_reported(kept, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CheckpointError, match="git"):
        kept.take_before(1)


def test_old_and_excess_checkpoints_are_deleted(kept, root, tmp_path):
    base = kept.folder.parent
    turn(kept, 1, lambda: (root / "a.py").write_text("changed\n"))
    assert [one.workspace for one in stored_checkpoints(base)] == [str(root)]
    assert clean_checkpoints(base, days=30, max_bytes=1 << 30) == 0
    assert len(kept.turns()) == 1
    clean_checkpoints(base, days=30, max_bytes=10)
    assert stored_checkpoints(base) == ()
    turn(kept, 2, lambda: (root / "a.py").write_text("again\n"))
    assert [each.number for each in kept.turns()] == [2]


def test_checkpoints_that_cannot_be_cleaned_keep_no_others(kept, root, tmp_path):
    base = kept.folder.parent
    kept.take_before(1)
    (tmp_path / "other").mkdir()
    broken = Checkpoints(tmp_path / "other", base, "s1")
    broken.take_before(1)
    (broken.folder / "config").write_text("not a configuration")
    past, now = time.time() - 10 * 86_400, time.time()
    os.utime(kept.folder / "index", (past, past))
    (broken.folder / "index").touch()
    os.utime(broken.folder / "index", (now, now))
    with pytest.raises(CheckpointError):
        clean_checkpoints(base, days=3, max_bytes=1 << 30)
    assert [one.workspace for one in stored_checkpoints(base)] == [str(tmp_path / "other")]


def replace_by_circular_link(folder: Path) -> None:
    """Put a link that leads to itself in the place of a folder: its files cannot be read then."""
    shutil.rmtree(folder)
    folder.symlink_to(folder.name)


def test_a_file_that_cannot_be_read_keeps_no_others_from_undo(kept, root):
    (root / "sub/notes.log").write_text("ignored by git\n")
    kept.take_before(1)
    for name in ("a.py", "sub/b.py"):
        kept.keep(1, root / name)
        (root / name).write_text("changed\n")
    kept.note_command_start(1)
    replace_by_circular_link(root / "sub")
    kept.note_command_end(1)
    lost = kept.take_after(1).lost
    assert lost == {"sub/b.py": "it cannot be read now (Too many levels of symbolic links)"}
    assert "a.py" in Undo(kept).undo(kept.turns()).paths
    assert (root / "a.py").read_text().startswith("one\n")


def test_undo_leaves_a_file_that_cannot_be_read_and_restores_others(kept, root):
    def work():
        (root / "a.py").write_text("changed\n")
        (root / "sub/b.py").write_text("changed\n")

    turn(kept, 1, work)
    replace_by_circular_link(root / "sub")
    restored = Undo(kept).undo(kept.turns())
    assert (restored.paths, list(restored.left)) == (("a.py",), ["sub/b.py"])


def test_a_deleted_folder_is_not_a_missing_git(tmp_path):
    with pytest.raises(CheckpointError, match="was deleted or moved"):
        checkpoint_repository.start_checkpoint_git(tmp_path, tmp_path / "gone", ("status",))


def test_a_checkpoint_without_a_change_only_lists_files(kept, root, monkeypatch):
    started = []
    start = checkpoint_repository.start_checkpoint_git
    monkeypatch.setattr(
        checkpoint_repository,
        "start_checkpoint_git",
        lambda *given, **named: started.append(given[2][1]) or start(*given, **named),
    )
    kept.take_before(1)
    started.clear()
    kept.take_before(2)
    assert set(started) == {"ls-files"}
    (root / "a.py").write_text("changed\n")
    kept.take_before(3)
    first, second, third = (one.before for one in kept.turns())
    assert first == second != third


@pytest.mark.parametrize("max_bytes", [1 << 30, 10], ids=["its refs", "its folder"])
def test_checkpoint_deleted_by_another_process_is_recreated(kept, root, max_bytes):
    kept.take_before(1)
    clean_checkpoints(kept.folder.parent, days=-1, max_bytes=max_bytes)
    turn(kept, 2, lambda: (root / "a.py").write_text("changed\n"))
    assert Undo(kept).undo(kept.turns()).paths == ("a.py",)
    assert (root / "a.py").read_text().startswith("one\n")


def test_stale_lock_of_a_killed_git_is_removed(kept, root):
    kept.take_before(1)
    (kept.folder / "index.lock").touch()
    turn(kept, 2, lambda: (root / "a.py").write_text("changed\n"))
    assert Undo(kept).undo(kept.turns()).paths == ("a.py",)


class UnreadableFiles:
    """Lets the first `count` updates of the index fail, as git does if a file disappears meanwhile."""

    def __init__(self, kept, count, monkeypatch) -> None:
        self.left = count
        self._kept, self._read_files = kept, kept.repository.git_files
        monkeypatch.setattr(kept.repository, "git_files", self.git_files)

    def git_files(self, *words, **options):
        if "update-index" not in words or not self.left:
            return self._read_files(*words, **options)
        self.left -= 1
        index_lock = self._kept.folder / "index.lock"
        index_lock.touch()
        try:
            return self._read_files(*words, **options)
        finally:
            index_lock.unlink()


def test_a_checkpoint_is_taken_although_files_change_while_git_reads_them(kept, root, monkeypatch):
    unreadable = UnreadableFiles(kept, 2, monkeypatch)
    turn(kept, 1, lambda: (root / "a.py").write_text("changed\n"))
    assert unreadable.left == 0
    assert [change.path for change in kept.changes(kept.turns()[0])] == ["a.py"]


def test_a_checkpoint_fails_if_git_can_never_read_the_files(kept, monkeypatch):
    unreadable = UnreadableFiles(kept, 100, monkeypatch)
    with pytest.raises(CheckpointError, match="update-index failed"):
        kept.take_before(1)
    assert 80 < unreadable.left < 100


def test_a_git_that_outlives_its_ouro_keeps_the_lock(kept, root, tmp_path):
    """That git still has the index open: without the lock another ouro would remove its lock file
    as a stale one.
    """
    tools, started, go = (tmp_path / name for name in ("tools", "started", "go"))
    tools.mkdir()
    waits = (
        f'case "$*" in *update-index*) touch {started}; until [ -e {go} ]; do sleep 0.05; done;;'
        " esac"
    )
    (tools / "git").write_text(f'#!/bin/sh\n{waits}\nexec {shutil.which("git")} "$@"\n')
    (tools / "git").chmod(0o755)
    code = "import sys; from pathlib import Path; from ouro.safety import Checkpoints\n"
    code += "Checkpoints(Path(sys.argv[1]), Path(sys.argv[2]), 's2').take_before(1)"
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}"}
    ouro = subprocess.Popen([sys.executable, "-c", code, root, kept.folder.parent], env=environment)
    while not started.exists():
        assert ouro.poll() is None
        time.sleep(0.02)
    ouro.kill()
    ouro.wait()
    with pytest.raises(BlockingIOError), lock_file(kept.folder / "lock", timeout=0):
        pass
    go.touch()
    turn(kept, 1, lambda: (root / "a.py").write_text("changed\n"))
    assert Undo(kept).undo(kept.turns()).paths == ("a.py",)


def test_commit_older_than_a_day_is_not_reused(kept, root, monkeypatch):
    """Cleaning deletes old commits by date: a turn of today must not depend on one."""
    kept.take_before(1)
    later = time.time() + 90_000
    monkeypatch.setattr(checkpoints.time, "time", lambda: later)
    kept.take_before(2)
    first, second = (one.before for one in kept.turns())
    assert first != second


def test_undo_in_an_empty_folder_removes_the_new_file(tmp_path):
    root = tmp_path / "empty"
    root.mkdir()
    kept = Checkpoints(root, tmp_path / "kept", "s1")
    turn(kept, 1, lambda: (root / "a.py").write_text("new\n"))
    Undo(kept).undo(kept.turns())
    assert not (root / "a.py").exists()


def test_unreadable_file_is_skipped_and_the_rest_kept(kept, root, monkeypatch):
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path).name != "a.py"
    )  # root can read every file
    turn(kept, 1, lambda: (root / "sub/b.py").write_text("changed\n"))
    assert kept.left_out == {"a.py"}
    Undo(kept).undo(kept.turns())
    assert (root / "sub/b.py").read_text() == "b\n"


@pytest.mark.parametrize("name", ["big\n\na.py", "big\na.py", "a.py\nbig"])
def test_x10_name_of_a_skipped_file_leaves_no_other_file_out(kept, root, name):
    path = root / name
    path.write_bytes(b"0" * (MAX_FILE_BYTES + 1))

    turn(kept, 1, lambda: (root / "a.py").write_text("new\n"))

    assert [change.path for change in kept.changes(kept.turns()[0])] == ["a.py"]


@pytest.mark.parametrize("name", ["grown\nx", "grown "])
def test_name_of_a_skipped_file_is_read_unchanged(kept, root, name):
    (root / name).write_text("small")

    turn(kept, 1, lambda: (root / name).write_bytes(b"0" * (MAX_FILE_BYTES + 1)))

    assert kept.changes(kept.turns()[0]) == ()
