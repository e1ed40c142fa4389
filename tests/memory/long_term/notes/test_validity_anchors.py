import os

import pytest

from ouro.memory.long_term.notes.note import Anchor
from ouro.memory.long_term.notes.validity import Anchors

HELLO = "ce013625030ba8dba906f756967f9e9ca394464a"  # as `git hash-object` returns for "hello\n"


def test_anchor_is_the_git_blob_hash(tmp_path):
    (tmp_path / "api.py").write_text("hello\n")

    found = Anchors(tmp_path).of(["file:api.py", "tool:ruff", "file:gone.py"])

    assert found == (Anchor("api.py", HELLO),)


def test_changed_or_deleted_file_is_reported(tmp_path):
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / name).write_text("hello\n")
    anchors = Anchors(tmp_path)
    held = anchors.of(["file:a.py", "file:b.py", "file:c.py"])
    assert anchors.changed_paths(held) == ()

    (tmp_path / "a.py").write_text("hello, world\n")
    (tmp_path / "b.py").unlink()

    assert anchors.changed_paths(held) == ("a.py", "b.py")


def test_restored_file_is_not_stale(tmp_path):
    anchors = Anchors(tmp_path)
    (tmp_path / "a.py").write_text("other\n")
    (tmp_path / "a.py").write_text("hello\n")

    assert anchors.changed_paths([Anchor("a.py", HELLO)]) == ()


def test_note_naming_many_files_gets_no_anchors(tmp_path):
    for number in range(9):
        (tmp_path / f"{number}.py").write_text("x")

    assert Anchors(tmp_path).of([f"file:{number}.py" for number in range(9)]) == ()


@pytest.mark.parametrize(
    "path", ["../outside.py", "/etc/passwd", "link.py", "pipe", "folder", "nul\0.py"]
)
def test_only_plain_files_below_the_root_are_read(tmp_path, path):
    root = tmp_path / "repo"
    (root / "folder").mkdir(parents=True)
    (tmp_path / "outside.py").write_text("hello\n")
    (root / "link.py").symlink_to(tmp_path / "outside.py")
    os.mkfifo(root / "pipe")

    assert Anchors(root).of([f"file:{path}"]) == ()
    assert Anchors(root).changed_paths([Anchor(path, HELLO)]) == (path,)
