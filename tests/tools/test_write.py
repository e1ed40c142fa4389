"""The tool `write`."""

from __future__ import annotations

import pytest
from fakes.tool_benches import call

from ouro.display import Diff, Display, FileChange
from ouro.errors import ToolError
from ouro.safety import Workspace
from ouro.tools.edit import Write
from ouro.tools.files_seen import FilesSeen
from ouro.tools.tool import parse_arguments


@pytest.fixture
def seen(tmp_path) -> FilesSeen:
    return FilesSeen(Workspace(tmp_path))


@pytest.fixture
def write(seen) -> Write:
    return Write(seen)


async def refusal(write: Write, path: str, content: str) -> str:
    with pytest.raises(ToolError) as caught:
        await call(write, path=path, content=content)
    return caught.value.message


async def test_creates_a_file_and_its_parent_folders(write, tmp_path):
    result = await call(write, path="a/b/c.py", content="x = 1\n")
    assert (tmp_path / "a/b/c.py").read_text() == "x = 1\n"
    assert result.text == "Wrote a/b/c.py (new file, 1 line)."
    assert result.display == Display(
        "new file, 1 line", Diff((FileChange("a/b/c.py", None, "x = 1\n"),))
    )


async def test_written_file_counts_as_seen(write, tmp_path):
    await call(write, path="a.py", content="x = 1\n")
    await call(write, path="a.py", content="x = 2\n")
    assert (tmp_path / "a.py").read_text() == "x = 2\n"


async def test_unread_file_is_not_overwritten(write, tmp_path):
    (tmp_path / "a.py").write_text("precious\n")
    assert (
        await refusal(write, "a.py", "x")
        == "a.py has not been read yet. Read it first, then change it."
    )
    assert (tmp_path / "a.py").read_text() == "precious\n"


async def test_encoding_line_endings_and_mode_of_a_file_are_kept(write, seen, tmp_path):
    path = tmp_path / "run.sh"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    path.chmod(0o755)
    seen.note(path, path.read_bytes())
    await call(write, path="run.sh", content="three\nfour\n")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (
        b"\xef\xbb\xbfthree\r\nfour\r\n",
        0o755,
    )


async def test_identical_text_is_reported(write):
    await call(write, path="a.py", content="x\n")
    assert await refusal(write, "a.py", "x\n") == "a.py has exactly this text already."


async def test_a_folder_or_a_file_in_the_way_is_refused(write, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    assert await refusal(write, "folder", "x") == "folder is a folder, not a file."
    assert "cannot be opened as a folder" in await refusal(write, "file/x", "x")


async def test_overlong_file_name_is_reported(write):
    assert (
        await refusal(write, "n" * 300, "x") == f"{'n' * 300} cannot be read: File name too long."
    )


async def test_preview_creates_nothing(write, tmp_path):
    display = await write.preview(parse_arguments(write, {"path": "a/b.py", "content": "x\n"}))
    assert display == Display("new file, 1 line", Diff((FileChange("a/b.py", None, "x\n"),)))
    assert list(tmp_path.iterdir()) == []


async def test_a_new_file_has_the_line_ends_that_the_project_declares(repository):
    attributes = "* text=auto eol=crlf\n*.sh text eol=lf\n"
    (repository / ".gitattributes").write_text(attributes)
    config = "root = true\n[*.cs]\nend_of_line = crlf\n[*.md]\nend_of_line = lf\n"
    (repository / ".editorconfig").write_text(config)
    write = Write(FilesSeen(Workspace(repository)))
    for name in ("a.bat", "new/b.txt", "c.sh", "d.cs", "e.md"):
        await call(write, path=name, content="one\ntwo\n")
    written = {path.name: path.read_bytes().count(b"\r\n") for path in repository.rglob("?.*")}
    assert written == {"a.bat": 2, "b.txt": 2, "c.sh": 0, "d.cs": 2, "e.md": 0}
    await call(write, path="f.sh", content="one\r\n")
    assert (repository / "f.sh").read_bytes() == b"one\r\n"


async def test_a_new_file_without_a_declaration_is_written_as_given(write, tmp_path):
    await call(write, path="a.bat", content="one\ntwo\n")
    assert (tmp_path / "a.bat").read_bytes() == b"one\ntwo\n"
