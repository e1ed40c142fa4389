"""Work that one process at a time does."""

from ouro.utils.one_process import only_one


def test_where_no_folder_can_be_made_nobody_is_alone(tmp_path):
    (tmp_path / "file").write_text("")
    with only_one(tmp_path / "file" / "folder" / "lock") as is_mine:
        assert not is_mine
    with only_one(tmp_path / "new" / "lock") as is_mine:
        assert is_mine
