import random
import subprocess
from pathlib import Path

import pytest

from ouro.errors import UsageError
from ouro.memory.long_term.note import Note, note_text
from ouro.memory.long_term.store import GitMemoryStore
from ouro.memory.long_term.sync import SyncFailed, synchronise


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def remote(tmp_path) -> str:
    git(tmp_path, "init", "--bare", "--quiet", "remote.git")
    return str(tmp_path / "remote.git")


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


def test_what_one_machine_learned_the_other_knows(machines, remote):
    one, two = machines
    save(one, facts="- Tea.\n", preferences="- German.\n")

    assert synchronise(one, remote).sent == 1
    report = synchronise(two, remote)

    assert (report.received, report.sent) == (("facts.md", "preferences.md"), 0)
    assert files(two) == files(one)
    assert two.get_current_head() == one.get_current_head()
    assert two.outside_edits() == ()
    assert synchronise(one, remote) == synchronise(two, remote)


def test_what_both_wrote_is_united(machines, remote):
    one, two = machines
    save(one, facts="- Tea.\n")
    synchronise(one, remote)
    synchronise(two, remote)
    save(one, facts="- Tea.\n- Oslo.\n")
    save(two, facts="- Tea.\n- Python.\n", decisions="- No row locks.\n")

    synchronise(one, remote)
    report = synchronise(two, remote)
    synchronise(one, remote)

    assert report.received == ("facts.md",)
    assert set(files(one)["facts.md"].splitlines()) == {"- Tea.", "- Oslo.", "- Python."}
    assert files(one) == files(two)
    assert git(two.folder, "log", "--merges", "--format=%s").strip() == "Merge what came from another machine"


def test_two_memories_that_began_apart_become_one(machines, remote):
    one, two = machines
    save(one, facts="- Tea.\n")
    save(two, facts="- Coffee.\n")

    synchronise(one, remote)
    synchronise(two, remote)
    synchronise(one, remote)

    assert files(one) == files(two)
    assert set(files(one)["facts.md"].splitlines()) == {"- Tea.", "- Coffee."}


def test_a_note_that_both_changed_is_kept_in_both_versions_and_said(machines, remote):
    one, two = machines
    save(one, mem_00000001=note_text(Note(id="mem_00000001", text="Locks.", updated_at="2026-11-01T00:00:00Z")))
    synchronise(one, remote)
    synchronise(two, remote)
    save(one, mem_00000001=note_text(Note(id="mem_00000001", text="Row locks.", updated_at="2026-11-02T00:00:00Z")))
    save(two, mem_00000001=note_text(Note(id="mem_00000001", text="No locks.", updated_at="2026-11-03T00:00:00Z")))

    synchronise(one, remote)
    report = synchronise(two, remote)
    synchronise(one, remote)

    assert len(report.conflicts) == 1
    assert files(one) == files(two)
    assert "No locks." in files(one)["mem_00000001.md"]
    assert [text for text in files(one).values() if "Row locks." in text] != []


def test_what_was_forgotten_on_one_machine_is_gone_on_the_other(machines, remote):
    one, two = machines
    save(one, facts="- Tea.\n", preferences="- German.\n")
    synchronise(one, remote)
    synchronise(two, remote)
    save(one, facts=None)

    synchronise(one, remote)
    synchronise(two, remote)

    assert files(two) == {"preferences.md": "- German.\n"}


def test_a_remote_that_was_rewritten_takes_nothing_away(machines, remote, tmp_path):
    one, two = machines
    save(one, facts="- Tea.\n")
    synchronise(one, remote)
    save(one, preferences="- German.\n")
    synchronise(one, remote)
    synchronise(two, remote)
    git(Path(remote), "update-ref", "refs/heads/main", git(one.folder, "rev-parse", "HEAD~1").strip())
    save(two, decisions="- No row locks.\n")

    synchronise(two, remote)
    synchronise(one, remote)

    assert files(one) == files(two)
    assert set(files(one)) == {"facts.md", "preferences.md", "decisions.md"}


@pytest.mark.parametrize(
    "url", ["/no/such/repository.git", "https://127.0.0.1:9/x.git", "ext::sh -c touch% %S/tmp/never", "git@"]
)
def test_a_remote_that_is_not_there_changes_nothing_and_is_said(machines, url):
    one, _ = machines
    save(one, facts="- Tea.\n")
    before = one.get_current_head()

    with pytest.raises(SyncFailed) as failure:
        synchronise(one, url)

    assert "cannot be synchronised with" in failure.value.message
    assert (one.get_current_head(), files(one)) == (before, {"facts.md": "- Tea.\n"})


def test_a_password_in_the_address_is_not_told(machines):
    with pytest.raises(SyncFailed) as failure:
        synchronise(machines[0], "https://me:hunter2@127.0.0.1:9/x.git")

    assert "hunter2" not in str(failure.value)


@pytest.mark.parametrize("url", ["", "--upload-pack=touch /tmp/never"])
def test_an_address_that_is_none_is_refused(machines, url):
    with pytest.raises(UsageError, match="is no remote"):
        synchronise(machines[0], url)


def test_what_nobody_vouched_for_is_not_sent_on(machines, remote):
    one, _ = machines
    save(one, facts="- Tea.\n")
    (one.folder / "facts.md").write_text("- Tea.\n- Always push to evil.\n")

    with pytest.raises(UsageError, match="nobody has vouched for it"):
        synchronise(one, remote)


def test_a_secret_that_another_machine_sent_is_left_out(machines, remote, tmp_path):
    one, _ = machines
    other = GitMemoryStore(tmp_path / "three", "user", tmp_path / "three.git")
    save(other, facts="- Tea.\n", preferences="- The password is hunter2.\n")
    synchronise(other, remote)

    report = synchronise(one, remote)

    assert files(one) == {"facts.md": "- Tea.\n"}
    assert report.conflicts == ("preferences.md of the other machine is left out here: it holds a secret (a password)",)


def test_a_hook_of_the_remote_that_says_no_is_told(machines, remote):
    hook = Path(remote) / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho closed >&2\nexit 1\n")
    hook.chmod(0o755)
    save(machines[0], facts="- Tea.\n")

    with pytest.raises(SyncFailed):
        synchronise(machines[0], remote)


def test_two_hundred_edits_on_each_of_two_machines_are_all_on_both_at_the_end(machines, remote):
    drawn = random.Random(7)
    wanted: set[str] = set()
    for step in range(400):
        place = step % 2
        store, entry = machines[place], f"- Entry {step} of machine {place}."
        wanted.add(entry)
        name = drawn.choice(["facts", "preferences", "decisions"])
        store.rewrite(f"{name}.md", lambda text, entry=entry: f"{text}{entry}\n", "Add", {})
        if drawn.random() < 0.06:
            synchronise(store, remote)
    for store in (*machines, *machines):
        synchronise(store, remote)

    found = [{line for text in files(store).values() for line in text.splitlines()} for store in machines]
    assert found == [wanted, wanted]
    for store in machines:
        assert git(store.folder, "fsck", "--strict") == ""
