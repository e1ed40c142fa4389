"""M5: several agents write memory at the same time."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from fakes.warm_python import WARM

from ouro.memory.long_term import GitMemoryStore

PROCESSES, EACH = 4, 12
WRITER = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from ouro.memory.long_term.store import GitMemoryStore
who, count, way, folder, git_dir = sys.argv[1:]
store = GitMemoryStore(Path(folder), "repo", Path(git_dir))
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(count)):
    line = f"- fact {who}.{number}\\n"
    if way == "lines":
        store.ensure_repo()
        with store.repository.hold_lock():
            seen = {"facts.md": store.find("facts.md") or ""}
            commit = store.save_and_commit({"facts.md": seen["facts.md"] + line}, f"Learn {who}.{number}", seen=seen)
    else:
        commit = store.save_and_commit({f"mem_{int(who):04}{number:04}.md": line}, f"Learn {who}.{number}")
    assert commit and not store.obstacle, store.obstacle
"""


def write_at_once(store: GitMemoryStore, way: str) -> None:
    command = [sys.executable, "-c", WARM + WRITER]
    folders = [str(store.folder), str(store.repository.state_dir)]
    running = [
        subprocess.Popen(
            [*command, str(who), str(EACH), way, *folders],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for who in range(PROCESSES)
    ]
    for each in running:  # otherwise the first may end before the last has started
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in running:
        assert each.stdin is not None
        each.stdin.write("begin\n")
        each.stdin.flush()
    errors = [each.communicate()[1] for each in running]
    assert [each.returncode for each in running] == [0] * PROCESSES, errors


def all_facts() -> set[str]:
    return {f"- fact {who}.{number}\n" for who in range(PROCESSES) for number in range(EACH)}


def git(store: GitMemoryStore, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", store.folder, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def store(tmp_path) -> GitMemoryStore:
    return GitMemoryStore(tmp_path / "memory", "repo", tmp_path / "history.git" / "app.git")


def test_m5_four_processes_writing_one_file_lose_no_line(store):
    write_at_once(store, "lines")

    assert set(store.read("facts.md").splitlines(keepends=True)) == all_facts()
    assert len(store.log(1000)) == PROCESSES * EACH
    assert store.accepted == store.get_current_head()
    assert git(store, "fsck", "--strict", "--no-dangling") == ""
    assert git(store, "status", "--porcelain") == ""


def test_m5_four_processes_writing_notes_lose_none(store):
    write_at_once(store, "notes")

    committed = {git(store, "show", f"HEAD:{name}") for name in store.load_all().notes}
    assert committed == all_facts()
    assert len(store.log(1000)) == PROCESSES * EACH
    assert git(store, "fsck", "--strict", "--no-dangling") == ""
    assert git(store, "status", "--porcelain") == ""


def test_m5_plain_git_commits_in_between_are_kept(store):
    store.save_and_commit({"decisions.md": "- first\n"}, "Begin")
    folders = [str(store.folder), str(store.repository.state_dir)]
    running = subprocess.Popen([sys.executable, "-c", WARM + WRITER, "0", "40", "notes", *folders])
    made = 0
    for number in range(40):
        (store.folder / f"mem_person{number}.md").write_text(f"{number}\n")
        add = subprocess.run(
            ["git", "-C", store.folder, "add", f"mem_person{number}.md"], capture_output=True
        )
        if add.returncode == 0:
            done = subprocess.run(
                ["git", "-C", store.folder, "commit", "-qm", f"Person {number}"],
                capture_output=True,
            )
            made += done.returncode == 0

    assert running.wait() == 0
    store.commit_changes("What is left")

    assert made > 0
    subjects = [each.subject for each in store.log(1000)]
    assert sum(each.startswith("Learn") for each in subjects) == 40
    assert sum(each.startswith("Person") for each in subjects) == made
    tree = store.repository.tree(store.get_current_head())
    assert len([name for name in tree if name.startswith("mem_")]) == 80
    assert git(store, "fsck", "--strict", "--no-dangling") == ""


def test_m5_change_already_committed_by_another_is_no_error(store):
    commit = store.save_and_commit({"facts.md": "- one\n"}, "Learn")

    assert store.save_and_commit({"facts.md": "- one\n"}, "Learn it again") == commit
    assert store.commit_changes("Nothing") == ""
    assert (store.obstacle, len(store.log())) == ("", 1)


def test_m5_only_one_holds_the_lock(store):
    store.ensure_repo()

    def take_lock() -> None:
        with store.repository.hold_lock(timeout=0):
            pass

    with ThreadPoolExecutor(1) as thread:
        with store.repository.hold_lock(), pytest.raises(BlockingIOError):
            thread.submit(take_lock).result()
        thread.submit(take_lock).result()
