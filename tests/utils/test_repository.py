"""Which folders belong to one project."""

import os
import subprocess
from pathlib import Path

import pytest

from ouro.utils.git import repository_of, same_project


@pytest.fixture
def worktree(repository, tmp_path):
    folder = tmp_path / "elsewhere" / "worktree"
    subprocess.run(["git", "worktree", "add", "-q", str(folder)], cwd=repository, check=True)
    return folder


def test_worktrees_and_subfolders_are_one_project(repository, worktree, tmp_path):
    (worktree / "src").mkdir()
    is_here = same_project(str(repository))

    folders = (
        repository,
        worktree,
        worktree / "src",
        repository / "gone",
        tmp_path,
        tmp_path / "elsewhere",
    )
    assert [is_here(str(each)) for each in folders] == [True, True, True, True, False, False]
    assert same_project(str(worktree / "src"))(str(repository))


def test_without_git_only_the_very_folder_counts(tmp_path):
    is_here = same_project(str(tmp_path / "app"))

    assert [is_here(str(tmp_path / name)) for name in ("app", "app/src", "App", ".")] == [
        True,
        False,
        False,
        False,
    ]


def test_folder_claiming_to_be_a_worktree_is_another_project(repository, worktree, tmp_path):
    claims = tmp_path / "claims"
    claims.mkdir()
    (claims / ".git").write_text((worktree / ".git").read_text())

    assert repository_of(claims) == claims / ".git"
    assert not same_project(str(repository))(str(claims))


def test_a_submodule_is_a_project_of_its_own(repository, tmp_path):
    inner = repository / "inner"
    subprocess.run(
        ["git", "init", "-q", "--separate-git-dir", str(tmp_path / "of-inner"), str(inner)],
        check=True,
    )

    assert not same_project(str(repository))(str(inner))
    assert same_project(str(inner))(str(inner / "src"))


def test_folder_claiming_to_be_a_submodule_is_another_project(repository):
    (repository / ".git" / "modules" / "inner").mkdir(parents=True)
    for name in ("inner", "claims"):
        (repository / name).mkdir()
        (repository / name / ".git").write_text("gitdir: ../.git/modules/inner\n")

    assert not same_project(str(repository / "inner"))(str(repository / "claims"))


def test_a_folder_that_cannot_be_resolved_is_another_project(repository, tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")

    assert [same_project(str(repository))(name) for name in ("/a\0b", str(tmp_path / "loop"))] == [
        False,
        False,
    ]


def test_a_link_to_the_git_file_of_a_project_does_not_make_a_folder_that_project(
    repository, worktree, tmp_path
):
    inner = tmp_path / "inner"
    subprocess.run(
        ["git", "init", "-q", "--separate-git-dir", str(tmp_path / "of-inner"), str(inner)],
        check=True,
    )

    for project in (worktree, inner):
        claims = tmp_path / f"claims-{project.name}"
        claims.mkdir()
        (claims / ".git").symlink_to(project / ".git")
        assert not same_project(str(project))(str(claims))


def test_a_worktree_whose_path_is_not_utf_8_belongs_to_its_project(repository, tmp_path):
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    subprocess.run(["git", "worktree", "add", "-q", folder], cwd=repository, check=True)

    assert repository_of(Path(os.fsdecode(folder))) == repository / ".git"
