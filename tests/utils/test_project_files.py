"""The files of a project, and finding a file by typing."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ouro.utils.git_process import start_git
from ouro.utils.project_files import list_project_files, stream_project_text, walk


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")


def git(*arguments: str, cwd: Path) -> None:
    subprocess.run(["git", *arguments], cwd=cwd, check=True, capture_output=True)


def test_git_decides_which_files_belong_to_a_repository(repository):
    put(repository, "new.py", "out.log", "build/x.py", "sub dir/\u00fc\n.txt")
    (repository / ".gitignore").write_text("*.log\nbuild/\n")
    assert list_project_files(repository) == [
        ".gitignore",
        "api.py",
        "new.py",
        "sub dir/\u00fc\n.txt",
    ]
    assert list_project_files(repository / "sub dir") == ["\u00fc\n.txt"]


def test_nested_repositories_are_listed(repository, tmp_path):
    other = tmp_path / "other"
    put(other, "lib.py")
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        git(*arguments, cwd=other)
    git(
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "add",
        "-q",
        str(other),
        "vendor",
        cwd=repository,
    )
    git("clone", "-q", str(other), "nested", cwd=repository)
    assert list_project_files(repository) == [
        ".gitmodules",
        "api.py",
        "nested/lib.py",
        "vendor/lib.py",
    ]


def test_new_files_are_looked_for_while_the_tracked_ones_are_used(repository, monkeypatch):
    """The first tracked ones do not wait for the start of the git that looks for new ones."""
    tracked = [f"folder/{number:0100}.py" for number in range(2_000)]
    put(repository, *tracked)
    git("add", ".", cwd=repository)
    put(repository, "new.py")
    started = []

    def start(*arguments, **options):
        started.append(start_git(*arguments, **options))
        return started[-1]

    monkeypatch.setattr("ouro.utils.git_process.start_git", start)
    texts = stream_project_text(repository, tracked_first=True)
    first_names = next(texts).split("\0")
    assert (first_names[0], len(started)) == ("api.py", 1)
    assert next(texts).startswith("folder/")
    assert len(started) == 2
    *_, last = texts
    assert last == "new.py"

    texts = stream_project_text(repository, tracked_first=True)
    next(texts)
    next(texts)
    texts.close()
    assert None not in [process.returncode for process in started]


def test_listing_runs_no_program_configured_by_the_repository(repository, tmp_path):
    git("config", "core.fsmonitor", f"touch {tmp_path}/ran; false", cwd=repository)
    assert list_project_files(repository) == ["api.py"]
    assert not (tmp_path / "ran").exists()


def test_without_git_the_ignore_files_of_each_folder_apply(tmp_path):
    put(
        tmp_path,
        "a.py",
        "a.log",
        "keep.log",
        "src/b.py",
        "src/c.tmp",
        "src/d.log",
        "node_modules/x.js",
        "out/y.py",
    )
    (tmp_path / ".gitignore").write_text("*.log\n!keep.log\n/out/\n")
    (tmp_path / "src/.gitignore").write_text("*.tmp\n!d.log\n")
    (tmp_path / "link").symlink_to("src")
    (tmp_path / "loop").symlink_to(".")
    assert list_project_files(tmp_path) == [
        ".gitignore", "a.py", "keep.log", "link", "loop", "src/.gitignore", "src/b.py", "src/d.log",
    ]  # fmt: skip
    assert sorted(walk(tmp_path / "src")) == [".gitignore", "b.py", "d.log"]
    assert sorted(walk(tmp_path / "out")) == ["y.py"]
    assert "out/y.py" in set(walk(tmp_path, ignored=True))


def test_missing_folder_lists_nothing(tmp_path):
    assert list_project_files(tmp_path / "none") == []
