import subprocess
from pathlib import Path

import pytest
from fakes.files import git

from ouro.memory.long_term.notes.merged_branches import find_default_branch, find_merged_branches
from ouro.memory.long_term.notes.note import Note
from ouro.memory.long_term.notes.validity import is_visible


def commit(folder: Path, name: str) -> None:
    (folder / name).write_text(name)
    git(folder, "add", name)
    git(folder, "commit", "-m", name)


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init")
    commit(tmp_path, "start")
    return tmp_path


def test_a_branch_counts_as_merged_when_its_work_is_in_the_other(repository):
    for name in ("merged", "open"):
        git(repository, "checkout", "-q", "-b", name, "main")
        commit(repository, name)
    git(repository, "checkout", "-q", "main")
    git(repository, "merge", "-q", "--no-edit", "merged")

    assert find_merged_branches(repository, ["merged", "open", "unknown", "main", ""]) == {"merged"}


def test_branch_without_own_commits_is_merged_only_by_a_merge(repository):
    git(repository, "checkout", "-q", "-b", "new")
    git(repository, "checkout", "-q", "-b", "deleted")
    git(repository, "checkout", "-q", "main")
    git(repository, "branch", "-D", "deleted")
    commit(repository, "later")
    assert find_merged_branches(repository, ["new", "deleted"]) == frozenset()
    git(repository, "checkout", "-q", "new")
    commit(repository, "work")
    git(repository, "checkout", "-q", "main")
    git(repository, "merge", "-q", "--no-edit", "new")
    assert find_merged_branches(repository, ["new", "deleted"]) == {"new"}


def test_deleted_branch_is_merged_only_if_git_shows_it(repository):
    for name in ("fast-forward", "squashed", "by-another", "dropped"):
        git(repository, "checkout", "-q", "-b", name, "main")
        commit(repository, name)
        git(repository, "checkout", "-q", "main")
    git(repository, "merge", "-q", "--ff-only", "fast-forward")
    git(repository, "merge", "-q", "--squash", "squashed")
    git(repository, "commit", "-q", "-m", "All of it at once (#12)")
    git(repository, "commit", "-q", "--allow-empty", "-m", "x")
    tree, tip = ("rev-parse", "HEAD^{tree}"), "HEAD~1"
    found = subprocess.run(
        ["git", *tree], cwd=repository, check=True, capture_output=True, text=True
    ).stdout.strip()
    message = "Merge pull request #3 from someone/elsewhere"
    merge = ["git", "commit-tree", found, "-p", "HEAD", "-p", tip, "-m", message]
    made = subprocess.run(
        merge, cwd=repository, check=True, capture_output=True, text=True
    ).stdout.strip()
    git(repository, "reset", "-q", "--hard", made)
    for name in ("fast-forward", "squashed", "dropped"):
        git(repository, "branch", "-D", name)

    names = ["fast-forward", "squashed", "dropped", "elsewhere", "never-here"]
    assert find_merged_branches(repository, names) == {"fast-forward", "squashed", "elsewhere"}


def test_no_merges_without_a_repository_or_branch(repository):
    assert find_merged_branches(Path("/"), ["a"]) == frozenset()
    git(repository, "update-ref", "refs/remotes/origin/next", "HEAD")
    git(repository, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/next")
    assert find_merged_branches(repository, ["a"]) == frozenset()  # there is no such branch here


def test_default_branch_is_the_remotes_or_a_common_name(repository):
    assert find_default_branch(repository) == "main"
    git(repository, "update-ref", "refs/remotes/origin/next", "HEAD")
    git(repository, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/next")
    assert find_default_branch(repository) == "next"


def test_outside_a_repository_there_is_no_default_branch(tmp_path):
    assert find_default_branch(tmp_path) == ""


@pytest.mark.parametrize(
    ("of", "on", "visible"),
    [(None, "main", True), ("x", "x", True), ("x", "main", False), ("x", "", False)],
)
def test_a_note_of_a_branch_is_seen_there_only(of, on, visible):
    assert is_visible(Note(id="mem_00000000", branch=of), on) is visible
