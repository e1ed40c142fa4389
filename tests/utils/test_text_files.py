"""Text files with their encoding and newlines."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from properties import given, settings, st

from ouro.errors import ToolError
from ouro.utils.text_files import (
    ChangedMeanwhileError,
    NotTextError,
    Span,
    TextFile,
    decode_text,
    guess_encoding,
    save_file,
)


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def put(path: Path, data: bytes) -> None:
    with opened(path.parent) as folder:
        save_file(folder, path.name, data, expected=path.lstat() if path.exists() else None)


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be", "cp1252"]
)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_text_round_trips_in_every_encoding(encoding, newline):
    data = f"one caf\u00e9{newline}two{newline}".encode(encoding)
    file = decode_text(data)
    assert (file.text, file.newline, file.encode()) == ("one caf\u00e9\ntwo\n", newline, data)


@given(data=st.binary(max_size=200))
@settings(max_examples=200)
def test_decoded_data_round_trips_byte_for_byte(data):
    try:
        file = decode_text(data)
    except NotTextError:
        return
    assert file.encode() == data


@given(pieces=st.lists(st.sampled_from(["a", "b", "\n", "\r\n"]), max_size=30), data=st.data())
@settings(max_examples=200)
def test_splice_changes_only_the_span(pieces, data):
    start = data.draw(st.integers(0, len(pieces)))  # each piece is one character of `text`
    end = data.draw(st.integers(start, len(pieces)))
    after = TextFile("".join(pieces)).splice([Span(start, end, "X")])
    assert after.raw == "".join([*pieces[:start], "X", *pieces[end:]])


def test_encoding_is_guessed_from_a_cut_start():
    assert guess_encoding("caf\u00e9".encode()[:-1]) == "utf-8"
    assert guess_encoding("\ufeffx".encode("utf-16-le")) == "utf-16"
    with pytest.raises(NotTextError):
        guess_encoding(bytes(100))


def test_save_creates_a_file_with_the_usual_mode_and_no_leftovers(tmp_path):
    old = os.umask(0o027)
    try:
        put(tmp_path / "a", b"x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_saving_keeps_mode_and_hard_links(tmp_path):
    (tmp_path / "a").write_bytes(b"long text")
    (tmp_path / "a").chmod(0o700)
    put(tmp_path / "a", b"1")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    os.link(tmp_path / "a", tmp_path / "b")
    put(tmp_path / "a", b"2")
    assert (tmp_path / "b").read_bytes() == b"2"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file any group")
def test_saving_keeps_the_group_with_the_setgid_bit(tmp_path):
    (tmp_path / "a").write_bytes(b"long text")
    os.chown(tmp_path / "a", -1, 4242)
    (tmp_path / "a").chmod(0o2664)
    put(tmp_path / "a", b"1")
    status = (tmp_path / "a").stat()
    assert (status.st_gid, stat.S_IMODE(status.st_mode)) == (4242, 0o2664)


def test_file_is_written_in_place_if_its_group_cannot_be_kept(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"long text")
    before = (tmp_path / "a").stat()
    really = os.fstat

    def with_another_group(descriptor):
        status = really(descriptor)
        if status.st_ino == before.st_ino:
            return status
        return os.stat_result([*status[:5], before.st_gid + 1, *status[6:]])

    def refusing(_descriptor, _user, _group):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fstat", with_another_group)
    monkeypatch.setattr(os, "fchown", refusing)
    put(tmp_path / "a", b"new")
    assert ((tmp_path / "a").read_bytes(), (tmp_path / "a").stat().st_ino) == (
        b"new",
        before.st_ino,
    )
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="extended attributes are Linux's")
def test_saving_keeps_the_attributes_of_the_user(tmp_path):
    (tmp_path / "a").write_bytes(b"long text")
    try:
        os.setxattr(tmp_path / "a", "user.note", b"hello")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    put(tmp_path / "a", b"1")
    assert os.getxattr(tmp_path / "a", "user.note") == b"hello"


def test_file_is_written_in_place_if_no_new_file_can_be_made(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"long text")
    inode = (tmp_path / "a").stat().st_ino
    really = os.open

    def refusing(path, flags, mode=0o777, *, dir_fd=None):
        if flags & os.O_CREAT:
            raise PermissionError(13, "Permission denied")
        return really(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refusing)
    put(tmp_path / "a", b"new")
    assert ((tmp_path / "a").read_bytes(), (tmp_path / "a").stat().st_ino) == (b"new", inode)
    with pytest.raises(PermissionError):
        put(tmp_path / "b", b"new")


def test_file_changed_by_someone_else_is_not_overwritten(tmp_path):
    (tmp_path / "a").write_bytes(b"one")
    before = (tmp_path / "a").stat()
    (tmp_path / "a").write_bytes(b"theirs")
    with opened(tmp_path) as folder:
        for name, expected in (("a", before), ("a", None), ("gone", before)):
            with pytest.raises(ChangedMeanwhileError):
                save_file(folder, name, b"ours", expected=expected)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"a": b"theirs"}


CHINESE = "# 说明文档\n第一行内容\n第三行内容\n"


@pytest.mark.parametrize(
    "data",
    [
        CHINESE.encode() + b"cut \xff byte\n",
        CHINESE.encode()[:-2],
        "naïve café, déjà vu\n".encode() * 5 + b"Brand\x99\n",
    ],
)
def test_a_few_damaged_bytes_do_not_make_utf8_another_encoding(data):
    file = decode_text(data)
    assert (file.encoding, file.is_damaged) == ("utf-8", True)
    assert file.text.rstrip("\ufffd\n") == data.decode("utf-8", "replace").rstrip("\ufffd\n")
    assert file.encode() == data


@pytest.mark.parametrize("encoding", ["gbk", "shift_jis", "euc_kr", "cp866", "koi8-r", "cp1252"])
def test_a_text_in_an_old_encoding_is_no_damaged_utf8(encoding):
    texts = {
        "gbk": "中国的文字，这是一个测试文件。国家机关工作人员\n",
        "shift_jis": "これは日本語のテキストです。漢字も有ります。\n",
        "euc_kr": "이것은 한국어 텍스트입니다. 국가 기관\n",
        "cp1252": "configuração não é möglich «ça»\n",
    }
    text = texts.get(encoding, "рабочая страна, съезд рабов и царств\n") * 4
    assert not decode_text(text.encode(encoding)).is_damaged


def test_a_damaged_byte_stays_when_its_line_is_changed():
    file = decode_text(CHINESE.encode() + b"old \xff and \xfe byte\nend\n")
    start = file.text.index("old")
    line = "old \ufffd and \ufffd byte"
    new = file.splice([Span(start, start + len(line), line.replace("old", "new"))])
    assert new.encode() == file.encode().replace(b"old", b"new")
    assert file.with_text(file.text + "more\n").encode() == file.encode() + b"more\n"
    assert b"\xff" not in file.splice([Span(start, start + len(line), "gone")]).encode()


def test_a_mark_that_may_stand_for_several_damaged_bytes_is_refused():
    file = decode_text(CHINESE.encode() + b"\xff and \xfe\n")
    with pytest.raises(ToolError, match="Keep all of them, or leave all out"):
        file.with_text(CHINESE + "\ufffd\n")
