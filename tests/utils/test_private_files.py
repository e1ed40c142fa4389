import os
import stat

import pytest

from ouro.utils.private_files import write_private


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_the_file_is_the_users_alone_whatever_the_umask(home):
    old = os.umask(0)
    try:
        write_private(home / ".ouro" / "x.yaml", "a: 1\n")
    finally:
        os.umask(old)
    assert (mode(home / ".ouro"), mode(home / ".ouro" / "x.yaml")) == (0o700, 0o600)


def test_a_link_of_a_dotfile_manager_stays_a_link(home, tmp_path):
    (tmp_path / "real.yaml").write_text("old")
    (home / ".ouro").mkdir()
    (home / ".ouro" / "x.yaml").symlink_to(tmp_path / "real.yaml")
    write_private(home / ".ouro" / "x.yaml", "new")
    assert (home / ".ouro" / "x.yaml").is_symlink()
    assert (tmp_path / "real.yaml").read_text() == "new"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(home):
    path = home / ".ouro" / "x.yaml"
    write_private(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_private(path, "\ud800")
    assert path.read_text() == "old"
    assert [each.name for each in path.parent.iterdir()] == ["x.yaml"]
