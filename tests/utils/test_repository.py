"""Which folders are one project."""

import subprocess

import pytest

from ouro.utils.git import repository_of, same_project


@pytest.fixture
def worktree(repository, tmp_path):
    folder = tmp_path / "elsewhere" / "worktree"
    subprocess.run(["git", "worktree", "add", "-q", str(folder)], cwd=repository, check=True)
    return folder


def test_the_worktrees_and_folders_of_a_repository_are_one_project(repository, worktree, tmp_path):
    (worktree / "src").mkdir()
    is_here = same_project(str(repository))

    folders = (repository, worktree, worktree / "src", repository / "gone", tmp_path, tmp_path / "elsewhere")
    assert [is_here(str(each)) for each in folders] == [True, True, True, True, False, False]
    assert same_project(str(worktree / "src"))(str(repository))


def test_without_git_only_the_very_folder_counts(tmp_path):
    is_here = same_project(str(tmp_path / "app"))

    assert [is_here(str(tmp_path / name)) for name in ("app", "app/src", "App", ".")] == [True, False, False, False]


def test_a_folder_that_says_it_is_a_worktree_is_not_trusted(repository, worktree, tmp_path):
    claims = tmp_path / "claims"
    claims.mkdir()
    (claims / ".git").write_text((worktree / ".git").read_text())

    assert repository_of(claims) == claims / ".git"
    assert not same_project(str(repository))(str(claims))


def test_a_submodule_is_a_project_of_its_own(repository, tmp_path):
    inner = repository / "inner"
    subprocess.run(["git", "init", "-q", "--separate-git-dir", str(tmp_path / "of-inner"), str(inner)], check=True)

    assert not same_project(str(repository))(str(inner))
    assert same_project(str(inner))(str(inner / "src"))
