import os
import stat
from pathlib import Path

import pytest

from ouro.utils.files import lock_file, sweep_written_dirs, try_lock_file, write_private
from ouro.utils.ouro_paths import get_written_journals
from ouro.utils.text_files import save_file


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_file_is_private_whatever_the_umask(home):
    old = os.umask(0)
    try:
        write_private(home / ".ouro" / "x.yaml", "a: 1\n")
    finally:
        os.umask(old)
    assert (mode(home / ".ouro"), mode(home / ".ouro" / "x.yaml")) == (0o700, 0o600)


def test_symlinked_file_stays_a_link(home, tmp_path):
    (tmp_path / "real.yaml").write_text("old")
    (home / ".ouro").mkdir()
    (home / ".ouro" / "x.yaml").symlink_to(tmp_path / "real.yaml")
    write_private(home / ".ouro" / "x.yaml", "new")
    assert (home / ".ouro" / "x.yaml").is_symlink()
    assert (tmp_path / "real.yaml").read_text() == "new"


def test_failed_write_keeps_the_old_file_and_leaves_no_other(home):
    path = home / ".ouro" / "x.yaml"
    write_private(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_private(path, "\ud800")
    assert path.read_text() == "old"
    assert [each.name for each in path.parent.iterdir()] == ["x.yaml"]


def test_only_one_is_false_if_the_folder_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with try_lock_file(tmp_path / "file" / "folder" / "lock") as is_mine:
        assert not is_mine
    with try_lock_file(tmp_path / "new" / "lock") as is_mine:
        assert is_mine


def test_a_lock_is_waited_for_up_to_the_timeout(tmp_path):
    with lock_file(tmp_path / "lock"):
        with pytest.raises(BlockingIOError), lock_file(tmp_path / "lock", timeout=0.03):
            pass
        with try_lock_file(tmp_path / "lock") as is_mine:
            assert not is_mine
    with lock_file(tmp_path / "lock", timeout=0):
        pass


def test_leftover_in_a_non_utf8_folder_is_removed_and_others_kept(home, tmp_path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/f\xff"))
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        save_file(descriptor, "a.txt", b"x")
    finally:
        os.close(descriptor)
    gone = 4_194_303  # larger than every process id
    journals = get_written_journals()
    (journals / str(os.getpid())).rename(journals / str(gone))
    (journals / ".DS_Store").write_text("x")
    (folder / f".a.txt.{gone}.01234567.tmp").write_text("half")
    sweep_written_dirs([])
    assert (
        [path.name for path in folder.iterdir()],
        [path.name for path in journals.iterdir()],
    ) == (
        ["a.txt"],
        [".DS_Store"],
    )
