"""A memory folder contains its own git repository: `cp -r` copies the history; an old home is
migrated once.
"""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from fakes.files import git
from fakes.knowledge import unapproved
from fakes.warm_python import WARM

from ouro.memory.long_term import GitMemoryStore, open_scopes
from ouro.memory.long_term.git.memory_folders import find_state_dir
from ouro.memory.long_term.git.values import TurnRef
from ouro.memory.long_term.store import repo_store, user_store

OLD_HOME = Path(__file__).parents[2] / "fixtures" / "memory_with_history_beside.tar.gz"
"""Three commits by a version that kept the git directory in `history.git`."""
SUBJECTS = ["Learn more", "Learn a preference", "Learn a fact"]


@pytest.fixture
def old_home(home) -> Path:
    place = home / ".ouro"
    place.mkdir(exist_ok=True)
    with tarfile.open(OLD_HOME) as tar:
        tar.extractall(place, filter="data")
    return place


def open_user(place: Path) -> GitMemoryStore:
    store = user_store(place / "memory", place / "history.git", lambda _text: "")
    store.open()
    return store


def demand_whole(store: GitMemoryStore) -> None:
    assert [commit.subject for commit in store.log()] == SUBJECTS
    assert store.accepted == store.get_current_head()
    assert unapproved(store) == ()
    assert store.repository.git_dir == store.folder / ".git"
    assert (store.folder / ".git").is_dir()
    assert git(store.folder, "log", "--format=%s").split("\n") == SUBJECTS
    assert git(store.folder, "status", "--porcelain") == ""
    assert git(store.folder, "fsck", "--strict") == ""
    assert {path.name for path in store.repository.state_dir.iterdir()} <= {"ouro", "common"}
    assert {path.name for path in store.folder.iterdir()} >= {"facts.md", "preferences.md"}
    assert store.plain_git == ""


def test_old_home_is_migrated_once_without_loss(old_home):
    demand_whole(open_user(old_home))

    store = open_user(old_home)
    demand_whole(store)
    commit = store.save_and_commit({"facts.md": "- One.\n"}, "Learn in the new place")

    assert git(store.folder, "rev-parse", "HEAD") == commit
    assert store.accepted == commit


def test_project_memory_is_migrated_too(old_home, tmp_path):
    folder = tmp_path / "app" / ".ouro" / "memory"
    shutil.copytree(old_home / "memory", folder)
    state = find_state_dir(folder, old_home / "history.git")
    shutil.copytree(old_home / "history.git" / "user.git", state)
    found = folder.stat()
    (state / "ouro" / "folder").write_text(f"{folder}\n{found.st_dev}:{found.st_ino}\n")
    (folder / ".git").write_text(f"gitdir: {state}\n")

    store = repo_store(tmp_path / "app", old_home / "history.git", lambda _text: "")
    store.open()

    assert store.repository.state_dir == state
    demand_whole(store)


_KILLED = """
import os, sys
from pathlib import Path
from ouro.memory.long_term.store import user_store
place, left = Path(sys.argv[1]), int(sys.argv[2])
def die(event, arguments):
    global left
    if event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.copytree", "shutil.copyfile"):
        left -= 1
        if left < 0:
            os._exit(9)
store = user_store(place / "memory", place / "history.git", lambda _text: "")
store.accepted and store.repository.tree(store.accepted)
sys.addaudithook(die)
store.open()
"""
"""Open a memory, and exit before the change of a folder with this number."""


def test_migration_killed_at_any_moment_loses_nothing(old_home, tmp_path):
    moment, died = 0, 9
    while died:
        place = tmp_path / f"home{moment}"
        shutil.copytree(old_home, place, symlinks=True)
        died = subprocess.run(
            [sys.executable, "-c", WARM + _KILLED, place, str(moment)], check=False
        ).returncode
        assert died in (0, 9)
        demand_whole(open_user(place))
        moment += 4

    assert moment > 20


def test_foreign_git_folder_is_not_replaced_by_the_migration(old_home):
    (old_home / "memory" / ".git").unlink()
    git(old_home, "init", "-q", str(old_home / "memory"))
    before = {
        path: path.read_bytes()
        for path in (old_home / "memory" / ".git").rglob("*")
        if path.is_file()
    }

    store = open_user(old_home)

    assert [commit.subject for commit in store.log()] == SUBJECTS
    assert store.save_and_commit({"facts.md": "- One.\n"}, "Learn")
    assert "not ouro's" in store.plain_git
    assert {path: path.read_bytes() for path in before} == before


def test_copy_on_another_machine_keeps_history_and_needs_approval(old_home, tmp_path):
    demand_whole(open_user(old_home))
    other = tmp_path / "other"
    other.mkdir()
    subprocess.run(["cp", "-r", old_home / "memory", other / "memory"], check=True)

    copied = open_user(other)

    assert [commit.subject for commit in copied.log()] == SUBJECTS
    assert copied.accepted == ""
    assert {edit.name for edit in unapproved(copied)} >= {"facts.md", "preferences.md"}
    copied.accept(copied.get_current_head())
    assert unapproved(copied) == ()
    assert copied.save_and_commit({"facts.md": "- One.\n"}, "Learn there")
    assert len(copied.log()) == 4


def test_shared_memory_keeps_its_history_without_nested_git(old_home, tmp_path):
    store = repo_store(tmp_path, old_home / "history.git", lambda _text: "")
    store.save_and_commit({"facts.md": "- One.\n"}, "Learn")
    assert (store.folder / ".git").is_dir()

    shared = repo_store(tmp_path, old_home / "history.git", lambda _text: "", is_shared=True)
    shared.open()

    assert not os.path.lexists(store.folder / ".git")
    assert [commit.subject for commit in shared.log()] == ["Learn"]
    assert unapproved(shared) == ()
    again = repo_store(tmp_path, old_home / "history.git", lambda _text: "")
    again.open()
    assert [commit.subject for commit in again.log()] == ["Learn"]
    assert (again.folder / ".git").is_dir()


def test_folder_restored_from_a_backup_needs_approval(old_home):
    store = open_user(old_home)
    backup = shutil.copytree(store.folder, old_home / "backup")
    store.save_and_commit({"facts.md": "- later\n"}, "Learn after the backup")
    shutil.rmtree(store.folder)
    backup.rename(store.folder)

    read = open_scopes([user_store(store.folder, old_home / "history.git", lambda _text: "")])
    assert (read.problems, [scope.texts for scope in read.opened]) == ((), [{}])
    [scope] = read.opened
    scope.accept(scope.proposals()[0], TurnRef("", 0))
    assert scope.texts["facts"] == store.read("facts.md") != "- later\n"


def test_deleted_history_is_recreated_and_approves_nothing(old_home):
    store = open_user(old_home)
    shutil.rmtree(store.folder / ".git")

    read = open_scopes([user_store(store.folder, old_home / "history.git", lambda _text: "")])
    assert (read.problems, [scope.texts for scope in read.opened]) == (
        (),
        [{}],
    )  # everything is pending
    assert {edit.name for edit in read.opened[0].proposals()[0].edits} >= {
        "facts.md",
        "preferences.md",
    }
    again = open_user(old_home)
    commit = again.save_and_commit({"decisions.md": "- Use git.\n"}, "Learn after that")

    assert [found.id for found in again.log()] == [commit]
    assert {edit.name for edit in unapproved(again)} >= {"facts.md", "preferences.md"}
    assert again.accepted == commit  # the commit contains only what was just written
