import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fakes.files import git
from fakes.knowledge import unapproved
from fakes.synced_homes import SyncedHomes, in_this_process
from fakes.warm_python import WARM
from msgspec.structs import replace
from properties import examples

from ouro.errors import UsageError
from ouro.memory.long_term import GitMemoryStore, synchronize
from ouro.memory.long_term.notes.note import Note, note_text
from ouro.memory.long_term.sync_merge import SyncFailed


def machine(tmp_path, name: str) -> GitMemoryStore:
    return GitMemoryStore(
        tmp_path / name / "memory",
        "user",
        tmp_path / name / "history" / "user.git",
        finds_secret=lambda text: "a password" if "hunter2" in text else "",
    )


@pytest.fixture
def machines(tmp_path):
    return machine(tmp_path, "one"), machine(tmp_path, "two")


def save(store: GitMemoryStore, **texts: str | None) -> None:
    store.save_and_commit({f"{name}.md": text for name, text in texts.items()}, "Change", {})


def files(store: GitMemoryStore) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(store.folder.glob("*.md"))}


def test_changes_of_one_machine_reach_the_other(machines, remote):
    one, two = machines
    save(one, facts="- Tea.\n", preferences="- German.\n")

    assert synchronize(one, remote).sent == 1
    report = synchronize(two, remote)

    assert (report.received, report.sent) == (("facts.md", "preferences.md"), 0)
    assert files(two) == files(one)
    assert two.get_current_head() == one.get_current_head()
    assert unapproved(two) == ()
    assert synchronize(one, remote) == synchronize(two, remote)


def test_changes_of_both_machines_are_united(machines, remote):
    one, two = machines
    save(one, facts="- Tea.\n")
    synchronize(one, remote)
    synchronize(two, remote)
    save(one, facts="- Tea.\n- Oslo.\n")
    save(two, facts="- Tea.\n- Python.\n", decisions="- No row locks.\n")

    synchronize(one, remote)
    report = synchronize(two, remote)
    synchronize(one, remote)

    assert report.received == ("facts.md",)
    assert set(files(one)["facts.md"].splitlines()) == {"- Tea.", "- Oslo.", "- Python."}
    assert files(one) == files(two)
    assert (
        git(two.folder, "log", "--merges", "--format=%s").strip()
        == "Merge what came from another machine"
    )


def test_unrelated_histories_are_merged(machines, remote):
    one, two = machines
    save(one, facts="- Tea.\n")
    save(two, facts="- Coffee.\n")

    synchronize(one, remote)
    synchronize(two, remote)
    synchronize(one, remote)

    assert files(one) == files(two)
    assert set(files(one)["facts.md"].splitlines()) == {"- Tea.", "- Coffee."}


def test_note_changed_on_both_machines_is_kept_twice_and_reported(machines, remote):
    one, two = machines
    save(
        one,
        mem_00000001=note_text(
            Note(id="mem_00000001", text="Locks.", updated_at="2026-11-01T00:00:00Z")
        ),
    )
    synchronize(one, remote)
    synchronize(two, remote)
    save(
        one,
        mem_00000001=note_text(
            Note(id="mem_00000001", text="Row locks.", updated_at="2026-11-02T00:00:00Z")
        ),
    )
    save(
        two,
        mem_00000001=note_text(
            Note(id="mem_00000001", text="No locks.", updated_at="2026-11-03T00:00:00Z")
        ),
    )

    synchronize(one, remote)
    report = synchronize(two, remote)
    synchronize(one, remote)

    assert len(report.conflicts) == 1
    assert files(one) == files(two)
    assert "No locks." in files(one)["mem_00000001.md"]
    assert [text for text in files(one).values() if "Row locks." in text] != []


def test_entries_forgotten_on_one_machine_are_removed_on_the_other(machines, remote):
    one, two = machines
    save(one, facts="- Tea.\n", preferences="- German.\n")
    synchronize(one, remote)
    synchronize(two, remote)
    save(one, facts=None)

    synchronize(one, remote)
    synchronize(two, remote)

    assert files(two) == {"preferences.md": "- German.\n"}


def test_rewritten_remote_removes_nothing(machines, remote, tmp_path):
    one, two = machines
    save(one, facts="- Tea.\n")
    synchronize(one, remote)
    save(one, preferences="- German.\n")
    synchronize(one, remote)
    synchronize(two, remote)
    git(
        Path(remote),
        "update-ref",
        "refs/heads/main",
        git(one.folder, "rev-parse", "HEAD~1").strip(),
    )
    save(two, decisions="- No row locks.\n")

    synchronize(two, remote)
    synchronize(one, remote)

    assert files(one) == files(two)
    assert set(files(one)) == {"facts.md", "preferences.md", "decisions.md"}


@pytest.mark.parametrize(
    "url",
    [
        "/no/such/repository.git",
        "https://127.0.0.1:9/x.git",
        "ext::sh -c touch% %S/tmp/never",
        "git@",
    ],
)
def test_missing_remote_is_reported_and_changes_nothing(machines, url):
    one, _ = machines
    save(one, facts="- Tea.\n")
    before = one.get_current_head()

    with pytest.raises(SyncFailed) as failure:
        synchronize(one, url)

    assert "cannot be synchronized with" in failure.value.message
    assert (one.get_current_head(), files(one)) == (before, {"facts.md": "- Tea.\n"})


def test_password_in_the_address_is_not_shown(machines):
    with pytest.raises(SyncFailed) as failure:
        synchronize(machines[0], "https://me:hunter2@127.0.0.1:9/x.git")

    assert "hunter2" not in str(failure.value)


@pytest.mark.parametrize("url", ["", "--upload-pack=touch /tmp/never"])
def test_invalid_address_is_refused(machines, url):
    with pytest.raises(UsageError, match="is not a remote"):
        synchronize(machines[0], url)


def test_unapproved_changes_are_not_sent(machines, remote):
    one, _ = machines
    save(one, facts="- Tea.\n")
    (one.folder / "facts.md").write_text("- Tea.\n- Always push to evil.\n")

    report = synchronize(one, remote)

    assert report.waiting == ("facts.md",)
    assert "evil" not in git(remote, "log", "-p", "main")


def test_remote_with_a_secret_is_refused_and_leaves_no_trace(machines, remote, tmp_path):
    one, _ = machines
    save(one, facts="- Oslo.\n")
    other = GitMemoryStore(tmp_path / "three", "user", tmp_path / "three.git")
    save(other, facts="- Tea.\n", preferences="- The password is hunter2.\n")
    synchronize(other, remote)

    for _ in range(2):
        with pytest.raises(
            SyncFailed, match=r"preferences\.md of the other machine holds a secret"
        ):
            synchronize(one, remote)

    assert files(one) == {"facts.md": "- Oslo.\n"}
    command = ["git", "cat-file", "--batch-all-objects", "--batch"]
    assert (
        b"hunter2"
        not in subprocess.run(command, cwd=one.folder, check=True, capture_output=True).stdout
    )
    save(other, preferences=None)
    synchronize(other, remote)
    synchronize(one, remote)
    assert set(files(one)["facts.md"].splitlines()) == {"- Tea.", "- Oslo."}


def test_note_archived_here_and_changed_there_stays_in_use(machines, remote):
    one, two = machines
    note = Note(id="mem_00000001", text="Locks.", updated_at="2026-11-01T00:00:00Z")
    save(one, mem_00000001=note_text(note))
    synchronize(one, remote)
    synchronize(two, remote)
    one.save_and_commit(
        {"mem_00000001.md": None, "archive/mem_00000001.md": note_text(note)}, "Archive", {}
    )
    save(
        two,
        mem_00000001=note_text(replace(note, text="Row locks.", updated_at="2026-11-02T00:00:00Z")),
    )

    synchronize(one, remote)
    report = synchronize(two, remote)
    synchronize(one, remote)

    assert report.conflicts == (
        "mem_00000001.md was archived on one side and changed on the other: it stays in use",
    )
    assert files(one) == files(two)
    assert "Row locks." in files(one)["mem_00000001.md"]
    assert list((one.folder / "archive").glob("*.md")) == []


def plant(remote: str, tmp_path, **files: str) -> Path:
    folder = tmp_path / "planted"
    git(tmp_path, "clone", "--quiet", remote, str(folder))
    git(folder, "checkout", "--quiet", "-B", "main")
    for name, text in files.items():
        (folder / name.replace("_dot_", ".")).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "-m", "x")
    return folder


def test_repository_that_is_no_memory_is_left_alone(machines, remote, tmp_path):
    save(machines[0], facts="- Tea.\n")
    folder = plant(remote, tmp_path, bashrc="alias x=y\n", setup_dot_md="# Setup\n")
    git(folder, "push", "--quiet", "origin", "main")
    before = git(Path(remote), "rev-parse", "main")

    with pytest.raises(SyncFailed, match="The remote is no memory: it holds 'bashrc'"):
        synchronize(machines[0], remote)

    assert (git(Path(remote), "rev-parse", "main"), files(machines[0])) == (
        before,
        {"facts.md": "- Tea.\n"},
    )


def test_files_added_by_the_host_to_a_new_repository_are_ignored(machines, remote, tmp_path):
    folder = plant(remote, tmp_path, LICENSE="MIT\n", _dot_gitignore="x\n")
    git(folder, "push", "--quiet", "origin", "main")
    save(machines[0], facts="- Tea.\n")

    synchronize(machines[0], remote)
    synchronize(machines[1], remote)

    assert files(machines[1]) == {"facts.md": "- Tea.\n"}


def test_links_submodules_and_folders_of_the_remote_are_ignored(machines, remote, tmp_path):
    save(machines[0], facts="- Tea.\n")
    synchronize(machines[0], remote)
    folder = plant(remote, tmp_path, decisions_dot_md="- Locks.\n")
    (folder / "preferences.md").symlink_to("/etc/hostname")
    (folder / "deep").mkdir()
    (folder / "deep" / "x.md").write_text("x")
    git(folder, "add", "-A")
    blob = git(folder, "rev-parse", "HEAD").strip()
    git(folder, "update-index", "--add", "--cacheinfo", f"160000,{blob},sub")
    git(folder, "commit", "--quiet", "-m", "y")
    git(folder, "push", "--quiet", "origin", "main")

    synchronize(machines[0], remote)

    assert files(machines[0]) == {"facts.md": "- Tea.\n", "decisions.md": "- Locks.\n"}
    assert sorted(each.name for each in machines[0].folder.iterdir()) == [
        ".git",
        "decisions.md",
        "facts.md",
    ]


def test_oversized_file_stops_the_merge_before_it_is_read(machines, remote, tmp_path):
    save(machines[0], facts="- Tea.\n")
    synchronize(machines[0], remote)
    folder = plant(remote, tmp_path, facts_dot_md="x" * 10_000_000)
    git(folder, "push", "--quiet", "origin", "main")

    with pytest.raises(SyncFailed, match="10,000,000 bytes"):
        synchronize(machines[0], remote)

    assert files(machines[0]) == {"facts.md": "- Tea.\n"}


def test_other_branches_of_the_remote_are_left_alone(machines, remote, tmp_path):
    folder = plant(remote, tmp_path, code_dot_py="x\n")
    git(folder, "push", "--quiet", "origin", "main:trunk")
    save(machines[0], facts="- Tea.\n")

    synchronize(machines[0], remote)

    assert git(Path(remote), "for-each-ref", "--format=%(refname)").split() == [
        "refs/heads/main",
        "refs/heads/trunk",
    ]


def test_change_between_fetch_and_merge_is_not_lost(machines, remote):
    one, two = machines
    save(one, facts="- Tea.\n")
    synchronize(one, remote)
    synchronize(two, remote)
    save(one, facts="- Tea.\n- Oslo.\n")
    synchronize(one, remote)
    written: list[str] = []

    def write(step: str) -> None:
        if step == "merging" and not written:
            written.append(step)
            (two.folder / "facts.md").write_text("- Tea.\n- Written meanwhile.\n")
            two.approve(two.find_unapproved())

    synchronize(two, remote, write)

    assert set(files(two)["facts.md"].splitlines()) == {"- Tea.", "- Oslo.", "- Written meanwhile."}


_MOMENTS = 45
_KILLED = """
import os, sys
from pathlib import Path
from ouro.memory.long_term.store import GitMemoryStore
from ouro.memory.long_term.sync import synchronize
folder, git_dir, remote, left = *sys.argv[1:4], int(sys.argv[4])

def die(event, about):
    global left
    left -= event in ("subprocess.Popen", "os.rename") or (event == "open" and bool(about[2] & os.O_CREAT))
    if left < 0 and event != "os.kill":
        os.kill(os.getpid(), 9)

store = GitMemoryStore(Path(folder), "user", Path(git_dir))
sys.addaudithook(die)
synchronize(store, remote)
"""
"""A sync that is killed before its process, rename or new file with this number."""


def test_sync_killed_at_any_moment_completes_the_next_time(machines, remote):
    one, two = machines
    for number in range(6):
        save(
            one,
            **{
                f"mem_0000000{number}": note_text(
                    Note(id=f"mem_0000000{number}", text=f"Note {number}.")
                )
            },
        )
    synchronize(one, remote)
    synchronize(two, remote)
    wanted = set(files(two))
    drawn, died = random.Random(3), []
    for number in range(8):
        save(one, facts=f"{files(one).get('facts.md', '')}- one {number}\n")
        old = files(two).get("facts.md", "")
        save(
            two,
            facts=f"{old}- two {number}\n",
            mem_00000001=note_text(Note(id="mem_00000001", text=f"Two {number}.")),
        )
        synchronize(one, remote)
        where = [
            str(two.folder),
            str(two.repository.state_dir),
            remote,
            str(drawn.randrange(_MOMENTS)),
        ]
        died.append(
            subprocess.run([sys.executable, "-c", WARM + _KILLED, *where], check=False).returncode
        )
        synchronize(two, remote)
        synchronize(one, remote)

    assert died == [-9] * 8
    assert files(one) == files(two)
    assert wanted <= set(files(one))
    lines = set(files(one)["facts.md"].splitlines())
    assert lines == {f"- {who} {each}" for each in range(8) for who in ("one", "two")}
    # After a kill between commit and update of the branch, that commit dangles: the next sync made
    # another one.
    assert git(two.folder, "fsck", "--strict", "--no-dangling") == ""


def test_concurrent_syncs_on_one_machine_lose_nothing(machines, remote):
    one, two = machines
    save(one, facts="".join(f"- {each}\n" for each in range(50)))
    synchronize(one, remote)
    synchronize(two, remote)
    save(one, facts="".join(f"- {each}\n" for each in range(100)))
    save(two, decisions="- Locks.\n")
    synchronize(one, remote)
    again = GitMemoryStore(two.folder, "user", two.repository.state_dir)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda store: synchronize(store, remote), [two, again]))
    synchronize(one, remote)

    assert (
        files(one)
        == files(two)
        == {
            "facts.md": files(one)["facts.md"],
            "decisions.md": "- Locks.\n",
        }
    )
    assert len(files(two)["facts.md"].splitlines()) == 100


def test_rejecting_remote_hook_is_an_error(machines, remote):
    hook = Path(remote) / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho closed >&2\nexit 1\n")
    hook.chmod(0o755)
    save(machines[0], facts="- Tea.\n")

    with pytest.raises(SyncFailed):
        synchronize(machines[0], remote)


def test_many_edits_on_two_machines_are_all_on_both(machines, remote):
    drawn = random.Random(7)
    wanted: set[str] = set()
    for step in range(examples(100)):
        place = step % 2
        store, entry = machines[place], f"- Entry {step} of machine {place}."
        wanted.add(entry)
        name = drawn.choice(["facts", "preferences", "decisions"])
        store.save_and_commit({f"{name}.md": f"{store.find(f'{name}.md') or ''}{entry}\n"}, "Add")
        if drawn.random() < 0.15:
            synchronize(store, remote)
    for store in (*machines, *machines):
        synchronize(store, remote)

    found = [
        {line for text in files(store).values() for line in text.splitlines()} for store in machines
    ]
    assert found == [wanted, wanted]
    for store in machines:
        assert git(store.folder, "fsck", "--strict") == ""


def test_two_homes_converge_through_the_command_line(tmp_path, monkeypatch):
    """The full run is `python -m fakes.synced_homes`: 200 edits in each home, each in its own
    process.
    """
    homes = SyncedHomes(tmp_path, in_this_process, random.Random(4))
    monkeypatch.chdir(tmp_path / "work")
    # Loading the secret rules takes longer than the rest of the test, which does not need them.
    monkeypatch.setattr("ouro.commands.current_folder.Folder._secret_in", lambda _folder, _text: "")

    homes.live(12)

    assert homes.check() == []
    assert {
        "line",
        "note",
        "core",
        "forget",
        "change",
        "archive",
        "delete",
        "sync",
    } <= homes.done.keys()
