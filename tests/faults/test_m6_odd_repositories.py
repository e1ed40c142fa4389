"""M6: every unusual state of memory's git repository. The text is kept, and the history is never
replaced.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.knowledge import unapproved

from ouro.errors import MemoryUnusable
from ouro.memory.long_term import GitMemoryStore
from ouro.memory.long_term.git import process
from ouro.memory.long_term.git import repository as history
from ouro.memory.long_term.scope import ScopeMemory

LOCKS = ("HEAD.lock", "refs/heads/main.lock", "packed-refs.lock", "index.lock")


@pytest.fixture(autouse=True)
def short_lock_wait(monkeypatch):
    """Try a branch that another git has locked for less than the default of three seconds."""
    monkeypatch.setattr(history, "_COMMIT_TRIES", 2)


@pytest.fixture
def store(home) -> GitMemoryStore:
    """Two commits of history."""
    made = GitMemoryStore(
        home / ".ouro" / "memory", "user", home / ".ouro" / "history.git" / "user.git"
    )
    made.save_and_commit({"facts.md": "- one\n"}, "Learn one")
    made.save_and_commit({"facts.md": "- one\n- two\n"}, "Learn two")
    return made


def plain(store: GitMemoryStore, *arguments: str, check: bool = True) -> str:
    done = subprocess.run(
        ["git", "-C", store.folder, *arguments], capture_output=True, text=True, check=check
    )
    return done.stdout.strip()


def object_file(store: GitMemoryStore, name: str) -> Path:
    number = plain(store, "rev-parse", name)
    return store.repository.git_dir / "objects" / number[:2] / number[2:]


def write_old(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    hour = time.time() - 3600
    os.utime(path, (hour, hour))


def nothing(store: GitMemoryStore) -> None:
    pass


def pack_refs(store: GitMemoryStore) -> None:
    plain(store, "pack-refs", "--all")
    assert not (store.repository.git_dir / "refs/heads/main").exists()


def spoil_index(store: GitMemoryStore) -> None:
    (store.repository.git_dir / "index").write_bytes(b"DIRC garbage")


def lose_index(store: GitMemoryStore) -> None:
    (store.repository.git_dir / "index").unlink()


def on_another_branch(store: GitMemoryStore) -> None:
    plain(store, "switch", "-q", "-c", "experiment")


def with_settings(*lines: str) -> Callable[[GitMemoryStore], None]:
    def set_globally(store: GitMemoryStore) -> None:
        with (Path.home() / ".gitconfig").open("a") as file:
            file.write("\n".join(lines) + "\n")

    return set_globally


def failing_hook(store: GitMemoryStore) -> None:
    hooks = Path.home() / "hooks"
    hooks.mkdir()
    for name in ("pre-commit", "commit-msg", "reference-transaction", "post-index-change"):
        (hooks / name).write_text("#!/bin/sh\nexit 1\n")
        (hooks / name).chmod(0o755)
    with_settings("[core]", f"hooksPath = {hooks}")(store)


def ignoring_markdown(store: GitMemoryStore) -> None:
    (Path.home() / "ignore").write_text("*.md\n")
    with_settings("[core]", f"excludesFile = {Path.home() / 'ignore'}")(store)


def without_name(store: GitMemoryStore) -> None:
    (Path.home() / ".gitconfig").write_text("[user]\n\tuseConfigOnly = true\n")


def stale_lock(name: str) -> Callable[[GitMemoryStore], None]:
    return lambda store: write_old(store.repository.git_dir / name)


GOOD = {
    "as it should be": nothing,
    "refs are packed": pack_refs,
    "index is corrupt": spoil_index,
    "index is gone": lose_index,
    "on another branch": on_another_branch,
    "no user.name": without_name,
    "commit.gpgsign with a program that fails": with_settings(
        "[commit]", "gpgsign = true", "[gpg]", "program = false"
    ),
    "global hooks that fail": failing_hook,
    "autocrlf and safecrlf": with_settings("[core]", "autocrlf = true", "safecrlf = true"),
    "all Markdown is ignored": ignoring_markdown,
    **{f"a stale {name}": stale_lock(name) for name in LOCKS},
}


@pytest.mark.parametrize("spoil", GOOD.values(), ids=GOOD)
def test_m6_commit_is_made_on_top_of_the_last_in_these_states(store, spoil):
    parent = store.get_current_head()
    spoil(store)

    commit = store.save_and_commit({"facts.md": "- three\r\n"}, "Learn three")

    assert store.obstacle == ""
    assert [(each.id, each.parent) for each in store.log(1)] == [(commit, parent)]
    assert store.text_at(commit, "facts.md") == "- three\r\n"
    assert len(store.log()) == 3


@pytest.mark.parametrize(
    "spoil",
    [GOOD[name] for name in GOOD if "lock" not in name],
    ids=[n for n in GOOD if "lock" not in n],
)
def test_m6_in_these_states_plain_git_commits_too(store, spoil):
    spoil(store)
    store.save_and_commit({"facts.md": "- three\n"}, "Learn three")
    (store.folder / "preferences.md").write_text("- tabs\r\n")

    plain(store, "add", "preferences.md")
    plain(store, "commit", "-q", "-m", "By hand")

    assert [each.subject for each in store.log(2)] == ["By hand", "Learn three"]
    assert store.text_at(store.get_current_head(), "preferences.md") == "- tabs\r\n"
    assert plain(store, "status", "--porcelain") == ""


def test_m6_git_environment_variables_have_no_effect(store, tmp_path, monkeypatch):
    other = tmp_path / "other"
    subprocess.run(["git", "init", "-q", other], check=True)
    for name, value in {
        "GIT_DIR": str(other / ".git"), "GIT_WORK_TREE": str(other), "GIT_INDEX_FILE": str(other / "index"),
        "GIT_OBJECT_DIRECTORY": str(other / "objects"), "GIT_NAMESPACE": "x", "GIT_AUTHOR_DATE": "garbage",
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.bare", "GIT_CONFIG_VALUE_0": "garbage",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)

    commit = store.save_and_commit({"facts.md": "- three\n"}, "Learn three")

    assert (store.obstacle, store.get_current_head(), len(store.log())) == ("", commit, 3)
    assert not any((other / ".git" / "refs" / "heads").iterdir())


def test_m6_unreadable_user_git_config_has_no_effect(store, home):
    (home / ".gitconfig").write_text("[core\nthis is no setting")

    commit = store.save_and_commit({"facts.md": "- three\n"}, "Learn three")

    assert (store.obstacle, store.get_current_head(), len(store.log())) == ("", commit, 3)


# -- states in which no commit can be made


def detached(store: GitMemoryStore) -> None:
    plain(store, "checkout", "-q", "--detach", "HEAD")


def merging(store: GitMemoryStore) -> None:
    (store.repository.git_dir / "MERGE_HEAD").write_text(f"{store.get_current_head()}\n")


def rebasing(store: GitMemoryStore) -> None:
    (store.repository.git_dir / "rebase-merge").mkdir()


def empty_head(store: GitMemoryStore) -> None:
    (store.repository.git_dir / "HEAD").write_text("")


def garbage_head(store: GitMemoryStore) -> None:
    (store.repository.git_dir / "HEAD").write_text("ref: refs/heads/../../x\n")


def empty_branch(store: GitMemoryStore) -> None:
    (store.repository.git_dir / "refs/heads/main").write_text("")


def branch_gone(store: GitMemoryStore) -> None:
    (store.repository.git_dir / "refs/heads/main").unlink()


def no_head_commit(store: GitMemoryStore) -> None:
    object_file(store, "HEAD").unlink()


def empty_head_commit(store: GitMemoryStore) -> None:
    path = object_file(store, "HEAD")
    path.chmod(0o600)
    path.write_bytes(b"")


def garbage_head_tree(store: GitMemoryStore) -> None:
    path = object_file(store, "HEAD^{tree}")
    path.chmod(0o600)
    path.write_bytes(b"garbage")


def objects_gone(store: GitMemoryStore) -> None:
    shutil.rmtree(store.repository.git_dir / "objects")
    (store.repository.git_dir / "objects").mkdir()


def unknown_format(store: GitMemoryStore) -> None:
    config = store.repository.git_dir / "config"
    config.write_text(
        config.read_text().replace("repositoryformatversion = 0", "repositoryformatversion = 99")
    )


def held_lock(store: GitMemoryStore) -> None:
    """The lock of a git process that runs now."""
    (store.repository.git_dir / "refs/heads/main.lock").touch()


LOUD = {
    each.__name__.replace("_", " "): each
    for each in (
        detached, merging, rebasing, empty_head, garbage_head, empty_branch, branch_gone, no_head_commit,
        empty_head_commit, garbage_head_tree, objects_gone, unknown_format, held_lock,
    )
}  # fmt: skip


def history_files(folder: Path) -> dict[str, bytes]:
    """The refs, HEAD and objects of the history, byte for byte."""
    names = [folder / "HEAD", *(folder / "refs").rglob("*"), *(folder / "objects").rglob("*")]
    return {str(each): each.read_bytes() for each in names if each.is_file()}


@pytest.mark.parametrize("spoil", LOUD.values(), ids=LOUD)
def test_m6_text_and_history_are_kept_and_the_reason_reported(store, spoil):
    spoil(store)
    before = history_files(store.repository.git_dir)

    commit = store.save_and_commit({"facts.md": "- three\n"}, "Learn three")

    assert commit == ""
    assert "left alone" in store.obstacle
    assert len(store.obstacle.splitlines()) == 2  # what happened, and what to do
    assert (store.folder / "facts.md").read_text() == "- three\n"
    now = history_files(store.repository.git_dir)
    assert {name: now.get(name) for name in before} == before
    assert store.load_all().core == {"facts": "- three\n"}


@pytest.mark.parametrize(
    ("spoil", "reason", "hint"),
    [
        (detached, "HEAD is on no branch.", "switch main"),
        (merging, "a merge is not finished.", "finish it, or end it with --abort"),
        (branch_gone, "refs/heads/main is gone.", "update-ref refs/heads/main"),
        (empty_branch, "refs/heads/main is empty or unreadable.", "write the last commit into"),
        (held_lock, "the branch is held by another git.", "what changed is committed next time"),
    ],
)
def test_m6_reason_names_the_problem_and_the_remedy(store, spoil, reason, hint):
    spoil(store)
    store.save_and_commit({"facts.md": "- three\n"}, "Learn three")

    said, advice = store.obstacle.splitlines()
    assert said.endswith(reason)
    assert hint in advice


@pytest.mark.parametrize("spoil", [detached, merging, rebasing, held_lock, empty_head])
def test_m6_kept_text_is_committed_once_the_state_is_repaired(store, spoil):
    git_dir = store.repository.git_dir
    saved = {name: (git_dir / name).read_bytes() for name in ("HEAD", "refs/heads/main")}
    spoil(store)
    store.save_and_commit({"facts.md": "- three\n"}, "Learn three")

    for name, data in saved.items():
        (git_dir / name).write_bytes(data)
    for name in ("MERGE_HEAD", "refs/heads/main.lock"):
        (git_dir / name).unlink(missing_ok=True)
    shutil.rmtree(git_dir / "rebase-merge", ignore_errors=True)

    commit = store.commit_changes("What was kept")
    assert (store.obstacle, len(store.log()), store.accepted) == ("", 3, commit)


def test_m6_empty_object_of_new_content_is_rewritten(store):
    """A power cut has left an empty object; git would use it."""
    text = "- three\n"
    name = subprocess.run(
        ["git", "hash-object", "--stdin"], input=text, capture_output=True, text=True, check=True
    ).stdout.strip()
    path = store.repository.git_dir / "objects" / name[:2] / name[2:]
    path.parent.mkdir(exist_ok=True)
    path.touch(0o444)

    commit = store.save_and_commit({"facts.md": text}, "Learn three")

    assert store.text_at(commit, "facts.md") == text
    assert plain(store, "fsck", "--strict") == ""


def test_m6_without_git_text_is_kept_and_committed_later(store, monkeypatch, tmp_path):
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        assert store.save_and_commit({"facts.md": "- three\n"}, "Learn three") == ""
        assert store.obstacle.startswith("git is not installed")
        assert store.load_all().core == {"facts": "- three\n"}
        assert store.get_current_head()

    assert store.commit_changes("What was kept")
    assert (store.obstacle, len(store.log())) == ("", 3)


def new_store(store: GitMemoryStore) -> GitMemoryStore:
    """The store as the next ouro opens it: nothing of the history was read yet."""
    return GitMemoryStore(store.folder, "user", store.repository.state_dir)


@pytest.mark.parametrize("is_packed", [False, True], ids=["loose", "packed"])
def test_m6_memory_is_read_when_git_is_gone(store, monkeypatch, tmp_path, is_packed):
    store.save_and_commit({"archive/mem_1.md": "old\n", "mem_2.md": "new\n"}, "Learn notes")
    if is_packed:
        plain(store, "gc", "-q", "--prune=now")
    tree = dict(new_store(store).repository.tree(store.accepted))
    (store.folder / "facts.md").write_text("- one\n")
    monkeypatch.setenv("PATH", str(tmp_path))

    later = new_store(store)

    assert dict(later.repository.tree(later.accepted)) == tree
    assert later.accepted_texts(["facts.md", "archive/mem_1.md"]) == {
        "facts.md": "- one\n- two\n",
        "archive/mem_1.md": "old\n",
    }
    assert [edit.name for edit in unapproved(later)] == ["facts.md"]


def test_m6_history_goes_on_when_git_is_back(store, monkeypatch, tmp_path):
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        for text in ("- one\n- three\n", "- one\n- four\n"):
            later = new_store(store)
            ScopeMemory(later).open()
            seen = {"facts.md": later.read("facts.md") or ""}
            assert later.save_and_commit({"facts.md": text}, "Learn", seen=seen) == ""
        assert later.obstacle_notice.startswith("Memory (user) has no history now: git is not")
        reopened = ScopeMemory(new_store(store))
        reopened.open()
        assert (reopened.texts, reopened.foreign) == ({"facts": "- one\n- four\n"}, {})

    with_git = new_store(store)
    commit = with_git.save_and_commit({"facts.md": "- one\n- four\n- five\n"}, "Learn five")

    assert [commit.subject for commit in with_git.log()] == [
        "Learn five",
        "Keep what could not be committed before",
        "Learn two",
        "Learn one",
    ]
    assert (with_git.accepted, unapproved(with_git)) == (commit, ())


def test_m6_damaged_history_is_not_approved_without_git(store, monkeypatch, tmp_path):
    tree_file = object_file(store, "HEAD^{tree}")
    tree_file.chmod(0o600)
    tree_file.write_bytes(b"garbage")
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(MemoryUnusable, match="left alone"):
        new_store(store).accepted_texts(["facts.md"])


def test_m6_a_first_write_without_git_is_kept_too(home, monkeypatch, tmp_path):
    new = GitMemoryStore(home / "m", "user", home / "h" / "user.git")
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        assert new.save_and_commit({"facts.md": "- one\n"}, "Learn") == ""

    assert new.load_all().core == {"facts": "- one\n"}
    commit = new.commit_changes("What was kept")
    assert (new.accepted, unapproved(new)) == (commit, ())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_m6_history_of_another_owner_is_used_where_possible(store):
    for path in [store.repository.git_dir, *store.repository.git_dir.rglob("*")]:
        os.chown(path, 12345, 12345)

    assert store.save_and_commit({"facts.md": "- three\n"}, "Learn three")
    assert len(store.log()) == 3


def test_m6_existing_folder_gets_a_history_and_needs_approval(home):
    folder = home / "memory"
    folder.mkdir()
    (folder / "facts.md").write_text("- found here\n")
    store = GitMemoryStore(folder, "user", home / "h" / "user.git")

    assert [each.name for each in unapproved(store)] == ["facts.md"]
    commit = store.commit_changes("Take in what was found")
    assert (store.accepted, [each.name for each in unapproved(store)]) == ("", ["facts.md"])

    store.accept(commit)
    assert unapproved(store) == ()


@pytest.mark.parametrize("second", [-86_400.0, -1.0, 1e18])
def test_m6_wrong_clock_makes_no_unreadable_commit(store, monkeypatch, second):
    monkeypatch.setattr(history.time, "time", lambda: second)

    assert store.save_and_commit({"facts.md": "- three\n"}, "Learn three")

    assert len(store.log()) == 3
    assert plain(store, "fsck", "--strict", "--no-dangling") == ""


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("author a <b> -5 +0000\ncommitter a <b> -5 +0000", "odd"),
        ("author a <b> 99999999999999 +9999\ncommitter a <b> 99999999999999 +9999", "odd"),
        ("author a <b>", "odd"),
        ("", "odd"),
        ("author a\x1fb <b> 1 +0000\ncommitter a\x1fb <b> 1 +0000", "odd\x1ein\x1fits\x1ewords"),
    ],
)
def test_m6_commit_with_an_odd_header_is_readable_in_the_log(store, head, message):
    lines = [
        f"tree {plain(store, 'rev-parse', 'HEAD^{tree}')}",
        f"parent {plain(store, 'rev-parse', 'HEAD')}",
        head,
    ]
    text = "\n".join([*filter(None, lines), "", f"{message}\n"])
    made = [
        "git",
        "-C",
        store.folder,
        "hash-object",
        "-t",
        "commit",
        "-w",
        "--stdin",
        "--literally",
    ]
    odd = subprocess.run(
        made, input=text, capture_output=True, text=True, check=True
    ).stdout.strip()
    plain(store, "update-ref", "refs/heads/main", odd)

    assert store.save_and_commit({"facts.md": "- three\n"}, "Learn three")

    assert [commit.subject[:3] for commit in store.log()] == ["Lea", "odd", "Lea", "Lea"]
    assert store.revert(store.get_current_head()).commit
    assert store.read("facts.md") == "- one\n- two\n"


def test_m6_hanging_git_costs_one_timeout_and_is_retried_later(store, monkeypatch, tmp_path):
    (tmp_path / "git").write_text(f"#!/bin/sh\necho x >> {tmp_path}/calls\nexec sleep 60\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setattr(process, "_TIMEOUT", 0.2)
    monkeypatch.setattr(process, "_SLOW_COMMANDS", set())
    monkeypatch.setattr(process._pause, "until", 0.0)
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{tmp_path}:{path}")

    obstacles = set()
    for line in ("three", "four", "five"):
        assert store.save_and_commit({"facts.md": f"- {line}\n"}, "Learn") == ""
        obstacles.add(store.obstacle)

    assert len((tmp_path / "calls").read_text().splitlines()) == 1
    assert [text.startswith("git did not answer") for text in obstacles] == [True]
    monkeypatch.setenv("PATH", path)
    process._pause.until = 0.0
    assert store.save_and_commit({"facts.md": "- six\n"}, "Learn")
    assert (store.obstacle, unapproved(store)) == ("", ())


def test_m6_temporary_files_of_git_are_removed_by_the_next_commit(store):
    objects = store.repository.git_dir / "objects"
    left = [
        objects / name
        for name in ("pack/tmp_pack_a1B2c3", "pack/tmp_idx_a1B2c3", "17/tmp_obj_a1B2c3")
    ]
    written_now = objects / "pack" / "tmp_pack_d4E5f6"
    for path in (*left, written_now):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    for path in left:
        os.utime(path, (0, 0))

    assert store.save_and_commit({"facts.md": "- three\n"}, "Learn three")

    assert [path for path in left if path.exists()] == []
    assert written_now.exists()


@pytest.mark.parametrize("left", ["", "\0" * 106, "\n\n", "4b825dc6\n"])
def test_m6_damaged_approval_record_loses_at_most_the_last_change(store, left):
    (store.repository.own_dir / "accepted").write_text(left)

    assert [(edit.before, edit.after) for edit in unapproved(store)] == [
        ("- one\n", "- one\n- two\n")
    ]
    store.accept(store.get_current_head())
    assert unapproved(store) == ()


def test_m6_approval_is_on_disk_before_the_file_is_written(store, monkeypatch):
    order = []
    sync, write = os.fsync, store._files.write
    monkeypatch.setattr(
        os,
        "fsync",
        lambda file: (order.append(str(Path(f"/proc/self/fd/{file}").readlink())), sync(file)),
    )
    monkeypatch.setattr(
        store._files, "write", lambda *file: (order.append("written"), write(*file))
    )

    store.save_and_commit({"facts.md": "- three\n"}, "Learn three")

    assert order[0].endswith("/vouched")
    assert order[1] == "written"
    assert any("accepted" in name for name in order)
