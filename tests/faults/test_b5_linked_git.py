"""B5: in a worktree, a submodule or a folder of a repository, git commands of `auto` change its repository, but nothing in it
that runs programs, and not the state of the other worktrees.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ouro.safety import Allow, Effect, Permissions, Workspace
from ouro.safety.sandbox import confinement as confinement_module
from ouro.safety.sandbox.confinement import Confinement
from ouro.safety.sandbox.linked_git import LinkedGit, find_linked_git
from ouro.safety.sandbox.sandboxes import Bubblewrap, ChosenSandbox, _find_bwrap
from ouro.settings import SandboxSettings


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    run = subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return run.stdout


@pytest.fixture
def main(tmp_path) -> Path:
    """A repository with a commit, and a submodule `library`."""
    library, main = tmp_path / "library", tmp_path / "main"
    for folder in (library, main):
        (folder / "package").mkdir(parents=True)
        git(folder, "init", "-q")
        (folder / "a.txt").write_text("a\n")
        (folder / "package/a.txt").write_text("a\n")
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "first")
    git(main, "submodule", "--quiet", "add", str(library), "library")
    git(main, "commit", "-qm", "library")
    return main


@pytest.fixture
def tree(main, tmp_path) -> Path:
    """A worktree of it, beside another one."""
    git(main, "worktree", "add", "-q", "../other")
    git(main, "worktree", "add", "-q", "../tree")
    return tmp_path / "tree"


@pytest.fixture
def confined(tmp_path, monkeypatch):
    """Runs a line of sh in a folder as git commands run in `auto`; returns what was moved out."""
    if (program := _find_bwrap()) is None:
        pytest.skip("bwrap is not installed")
    state = tmp_path / "state"
    state.mkdir()
    chosen = ChosenSandbox(Bubblewrap(program, state))
    monkeypatch.setattr(confinement_module, "_choose_once", lambda _dir: chosen)

    def run(root: Path, line: str) -> list[Path]:
        confinement = Confinement(root, state, SandboxSettings())
        argv = confinement.wrap(["sh", "-c", line], "repository", "1")
        who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b"}
        who |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
        subprocess.run(argv, cwd=root, env={**os.environ, **who}, check=False, timeout=60)
        return [item.path for item in confinement.revert("1")]

    return run


@pytest.mark.parametrize("place", ["tree", "main/library"])
def test_b5_git_commits_and_branches_in_a_worktree_and_in_a_submodule(
    confined, tree, tmp_path, place
):
    root = tmp_path / place
    (root / "a.txt").write_text("changed\n")
    line = "git add -A && git commit -qm second && git switch -qc topic && git tag v1 && git stash list"
    assert confined(root, line) == []
    assert git(root, "log", "-1", "--format=%s") == "second\n"
    assert git(root, "branch", "--show-current") == "topic\n"
    assert git(root, "tag") == "v1\n"
    assert git(root, "status", "--short") == ""


@pytest.mark.parametrize("place", ["tree", "main/library", "main/package"])
def test_b5_what_runs_programs_in_a_linked_repository_stays(confined, tree, tmp_path, place):
    root = tmp_path / place
    linked = find_linked_git(root)
    before = {path: path.read_bytes() for path in linked.acting if path.is_file()}
    writes = [
        f"mkdir -p {folder}/{name}; echo hostile > {folder}/{name}/x; echo hostile > {folder}/{name}"
        for folder in linked.folders
        for name in ("hooks", "config", "config.worktree", "commondir", "info", "modules")
    ]
    confined(root, "; ".join(writes) + f"; rm -rf {linked.folders[0]}/hooks")
    assert {path: path.read_bytes() for path in linked.acting if path.is_file()} == before
    left = [path for path in linked.acting if path.is_dir() and list(path.rglob("x"))]
    assert left == []


def test_b5_a_command_in_a_worktree_leaves_the_others_as_they_are(confined, tree, main, tmp_path):
    heads = [git(folder, "rev-parse", "HEAD") for folder in (main, tmp_path / "other")]
    for folder in (main, tmp_path / "other"):
        confined(
            tree, f"cd {folder} && git rm -q --cached a.txt; git commit -qm x; git switch -qc y"
        )
        assert git(folder, "status", "--short") == ""
    assert heads == [git(folder, "rev-parse", "HEAD") for folder in (main, tmp_path / "other")]


def test_b5_what_others_commit_in_another_worktree_meanwhile_stays(confined, tree, tmp_path):
    other = tmp_path / "other"
    confinement = Confinement(tree, tmp_path / "state", SandboxSettings())
    confinement.wrap(["true"], "repository", "1")
    git(other, "commit", "-q", "--allow-empty", "-m", "mine")
    git(other, "config", "core.abbrev", "9")
    confinement.revert("1")
    assert git(other, "log", "-1", "--format=%s") == "mine\n"
    assert git(other, "config", "core.abbrev") == "9\n"


@pytest.mark.parametrize(
    "named",
    [
        "../.git",
        "../.git/hooks",
        "../.git/modules",
        "../.git/modules/library/hooks",
        "../.git/worktrees/tree",
    ],
)
def test_b5_a_git_file_that_names_another_folder_opens_nothing(tree, main, named):
    """What `git worktree add` and `git submodule add` do not make could open hooks."""
    folder = main / "sent"
    folder.mkdir()
    (folder / ".git").write_text(f"gitdir: {named}\n")
    assert find_linked_git(folder) == LinkedGit()


@pytest.mark.parametrize("place", ["main/package", "tree/package", "main/library/package"])
def test_b5_git_commits_in_a_folder_below_the_root(confined, tree, tmp_path, place):
    root = tmp_path / place
    (root / "a.txt").write_text("changed\n")
    assert confined(root, "git add . && git commit -qm second && git branch topic") == []
    assert git(root, "log", "-1", "--format=%s", "topic") == "second\n"
    assert git(root, "status", "--short") == ""


@pytest.mark.parametrize(
    ("line", "limits"),
    [
        ("git add -A && git commit -m x", "repository"),
        ("git branch topic", "repository"),
        ("git add . && git switch topic", "workspace"),
        ("git stash", "workspace"),
        ("git rebase main", "workspace"),
    ],
)
def test_b5_below_the_root_git_only_records(main, line, limits):
    """Files outside of the workspace cannot change: a `git switch` would fail half way."""
    inside = Workspace(main / "package", confines=lambda: True)
    assert Permissions(inside, "auto").decide("shell", Effect.RUN, [line]) == Allow(limits)
    whole = Workspace(main, confines=lambda: True)
    assert Permissions(whole, "auto").decide("shell", Effect.RUN, [line]) == Allow("repository")


def test_b5_a_git_folder_that_is_a_link_opens_nothing(main, tmp_path):
    linked = tmp_path / "linked"
    (linked / "package").mkdir(parents=True)
    (linked / ".git").symlink_to(main / ".git")
    assert find_linked_git(linked / "package") == LinkedGit()


def test_b5_a_plain_repository_has_no_linked_git(main):
    assert find_linked_git(main) == LinkedGit()
