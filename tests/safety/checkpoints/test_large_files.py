"""Files over the limit: kept where that costs nothing, and never lost without a word."""

import subprocess
import time
from pathlib import Path

import pytest

from ouro.safety import Checkpoints, Undo

SIZE = 2_000_000


@pytest.fixture
def root(tmp_path) -> Path:
    folder = tmp_path / "work"
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / "big").write_bytes(b"1" * SIZE)
    (folder / "a.py").write_text("one\n")
    return folder


@pytest.fixture
def kept(root) -> Checkpoints:
    return Checkpoints(root, root.parent / "kept", "s1", 1_000_000)


def turn(kept: Checkpoints, work):
    kept.take_before(1)
    work()
    return kept.take_after(1)


def test_e13_a_deleted_file_is_restored(kept, root):
    assert turn(kept, (root / "big").unlink).lost == {}
    assert Undo(kept).undo(kept.turns()).paths == ("big",)
    assert (root / "big").read_bytes() == b"1" * SIZE


def test_a_replaced_file_is_restored(kept, root):
    def work():
        (root / "new").write_bytes(b"2" * SIZE)
        (root / "new").replace(root / "big")

    assert turn(kept, work).lost == {}
    assert Undo(kept).undo(kept.turns()).paths == ("big",)
    assert (root / "big").read_bytes() == b"1" * SIZE


def test_a_file_that_was_changed_in_place_is_restored_or_named(kept, root):
    def work():
        with (root / "big").open("r+b") as file:
            file.write(b"2")

    lost = turn(kept, work).lost
    Undo(kept).undo(kept.turns())
    is_restored = (root / "big").read_bytes() == b"1" * SIZE
    assert is_restored == (lost == {})
    assert list(lost) in ([], ["big"])


def test_a_file_that_a_tool_changes_is_restored(kept, root):
    kept.keep(1, root / "big")
    (root / "big").write_bytes(b"2")
    kept.keep_written(1, root / "big")
    assert kept.take_after(1).lost == {}
    assert Undo(kept).undo(kept.turns()).paths == ("big",)
    assert (root / "big").read_bytes() == b"1" * SIZE


def test_e13_new_and_grown_files_are_named(kept, root):
    def work():
        (root / "new").write_bytes(b"2" * SIZE)
        (root / "a.py").write_bytes(b"2" * SIZE)

    assert sorted(turn(kept, work).lost) == ["a.py", "new"]
    assert Undo(kept).undo(kept.turns()).paths == ()
    assert sorted(kept.turn_changes(kept.turns()[0]).lost) == ["a.py", "new"]


def test_a_large_file_that_did_not_change_is_not_named(kept, root):
    changes = turn(kept, lambda: (root / "a.py").write_text("two\n"))
    assert (changes.lost, list(changes.files)) == ({}, ["a.py"])


def test_a_folder_that_became_a_link_does_not_stop_the_undo(kept, root, tmp_path):
    for folder in ("sub", "deep/er"):
        (root / folder).mkdir(parents=True)
        (root / folder / "x.py").write_text("x\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.py").write_text("theirs\n")

    def link(name):
        subprocess.run(["rm", "-r", root / name], check=True)
        (root / name).symlink_to(outside)

    def work():
        (root / "a.py").write_text("two\n")
        (root / "deep/er/x.py").write_text("y\n")
        link("sub")

    turn(kept, work)
    link("deep")  # by the user
    restored = Undo(kept).undo(kept.turns())
    assert list(restored.left) == ["deep/er/x.py"]
    assert "link" in restored.left["deep/er/x.py"]
    assert (root / "a.py").read_text() == "one\n"
    assert (root / "sub/x.py").read_text() == "x\n"
    assert [path.name for path in outside.iterdir()] == ["x.py"]
    assert (outside / "x.py").read_text() == "theirs\n"


def command(kept: Checkpoints, work):
    """A turn with a command that may change any file."""
    kept.take_before(1)
    time.sleep(0.02)  # the clock of the disk is coarse
    kept.note_command_start(1)
    time.sleep(0.02)
    work()
    kept.note_command_end(1)
    return kept.take_after(1)


def make_nested(root: Path) -> Path:
    subprocess.run(["git", "init", "-q", root / "sub"], check=True)
    (root / "sub" / "x.py").write_text("x\n")
    return root / "sub"


def test_e13_changes_in_a_nested_repository_are_named(kept, root):
    nested = make_nested(root)

    lost = command(kept, lambda: (nested / "x.py").write_text("y\n")).lost

    assert list(lost) == ["sub"]
    assert "x.py changed" in lost["sub"]
    assert kept.turn_changes(kept.turns()[0]).lost == lost


def test_changes_in_a_submodule_are_named(kept, root):
    nested = make_nested(root)
    (root / ".gitmodules").write_text('[submodule "s"]\n\tpath = sub\n\turl = ../s\n')
    for words in (["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run(["git", "-C", nested, *words], check=True)
    subprocess.run(["git", "-C", root, "add", "sub"], check=True, capture_output=True)

    lost = command(kept, lambda: (nested / "x.py").write_text("y\n")).lost

    assert "x.py changed there" in lost["sub"]


def test_a_repository_that_a_turn_makes_is_named(kept, root):
    assert list(command(kept, lambda: make_nested(root)).lost) == ["sub"]


def test_a_nested_repository_that_did_not_change_is_not_named(kept, root):
    make_nested(root)

    assert command(kept, lambda: (root / "a.py").write_text("two\n")).lost == {}


def test_a_file_that_a_tool_changes_in_a_nested_repository_is_restored(kept, root):
    file = make_nested(root) / "x.py"
    kept.take_before(1)
    kept.keep(1, file)
    file.write_text("y\n")
    kept.keep_written(1, file)

    assert kept.take_after(1).lost == {}
    assert Undo(kept).undo(kept.turns()).paths == ("sub/x.py",)
    assert file.read_text() == "x\n"


def test_a_file_that_a_tool_and_then_a_command_change_in_a_nested_repository_is_restored(
    kept, root
):
    file = make_nested(root) / "x.py"
    kept.take_before(1)
    kept.keep(1, file)
    file.write_text("y\n")
    kept.keep_written(1, file)
    time.sleep(0.02)  # the clock of the disk is coarse
    kept.note_command_start(1)
    time.sleep(0.02)
    file.write_text("z\n")
    kept.note_command_end(1)

    assert kept.take_after(1).lost == {}
    assert Undo(kept).undo(kept.turns()).paths == ("sub/x.py",)
    assert file.read_text() == "x\n"
