"""M8: a forgotten text is in no byte of any file, and nothing else is lost."""

import base64
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from fakes.knowledge import unapproved
from fakes.stored_sessions import StoredSession
from fakes.waiting import wait
from fakes.warm_python import WARM

from ouro.memory.backend import CompactionRecord, SummaryRecord, TitleRecord
from ouro.memory.long_term import FileEdit, GitMemoryStore, OuroHome, Proposal, TrueForget
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.notes.note import Note, note_text, parse_note
from ouro.memory.long_term.trust.proposals import Proposals
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message, Text, Thinking, ToolCall, ToolReply, assistant, user

SECRET = 'Tr0ub4dor & "3" zebra'
FORMS = (
    SECRET,
    SECRET.upper(),
    SECRET.replace(" ", "\n    "),
    base64.b64encode(f"x{SECRET}yz".encode()).decode(),
    quote(SECRET),
    SECRET.replace('"', '\\"'),
    SECRET.replace("zebra", "zeb\\\n  ra"),
)
NOTE_ID = "mem_00000001"


def git(folder: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True).stdout


@pytest.fixture
def place(home) -> OuroHome:
    root = home / ".ouro"
    return OuroHome(root, root / "history.git", root / "sessions", root / "cache" / "index.db")


def memory(place: OuroHome, folder: Path | None = None) -> GitMemoryStore:
    made = folder or place.path / "memory"
    return GitMemoryStore(
        made, "repo" if folder else "user", place.histories / ("app.git" if folder else "user.git")
    )


def store_session(place: OuroHome, number: int, *, holds: bool) -> str:
    """Store a session with every kind of content."""
    words = list(FORMS) if holds else ["nothing", "of", "it"]
    talk = StoredSession(place.sessions, number)
    call = ToolCall(
        "call_1",
        "shell",
        {"command": f"echo {words[0]}", "nested": {"a": [words[-1]]}, "id": words[0]},
    )
    talk.say(
        user("  leading blanks\n\nand a last line \n"),
        user("\n".join(words)),
        Message("assistant", (Thinking(f"hm {words[0]}", "signature"), Text("ok"), call)),
        Message("user", (ToolReply("call_1", "shell", "long\n" * 30_000 + words[0]),)),
        assistant("It is " + words[1]),
    )
    talk.change(TitleRecord(f"About {words[0]}", "2026-11-21T20:15:00.000Z"))
    talk.change(SummaryRecord(f"They said {words[2]}", "2026-11-21T20:15:00.000Z", 5))
    talk.change(
        CompactionRecord(6, "2026-11-21T20:15:01.000Z", (1, 3), (), f"In short: {words[0]}")
    )
    talk.end()
    return talk.id


@pytest.fixture
def full_home(place, tmp_path) -> OuroHome:
    """A home that contains the secret in every place that can have it."""
    for store in (memory(place), memory(place, tmp_path / "app" / ".ouro" / "memory")):
        store.save_and_commit({"facts.md": "- Oslo.\n"}, "Learn")
        store.save_and_commit(
            {"facts.md": f"- Oslo.\n- The key is {SECRET}\n- Tea.\n"}, f"Learn {SECRET}"
        )
        store.save_and_commit(
            {"facts.md": "- Oslo.\n- Tea.\n", "preferences.md": f"- {SECRET}\n"}, "Move"
        )
        note = Note(
            id=NOTE_ID, text=f"Use {SECRET} here.", entities=(f"cmd:run {SECRET}", "pkg:flask")
        )
        store.save_and_commit(
            {f"{NOTE_ID}.md": note_text(note), "archive/mem_00000002.md": note_text(note)}, "Note"
        )
        git(store.folder, "commit", "-q", "--allow-empty", "-m", f"lost {SECRET}")
        git(store.folder, "reset", "-q", "--hard", "HEAD~1")
        store.accept(store.get_current_head())
    edit = FileEdit("facts.md", None, f"- {SECRET}\n")
    Proposals(memory(place).repository).add(
        Proposal("abc123", "user", "agent", (edit,), "it waits")
    )
    store_session(place, 1, holds=True)
    store_session(place, 2, holds=False)
    wait(YamlFileMemoryStore(place.sessions).delete_session(store_session(place, 3, holds=True)))
    folder = next(place.sessions.glob("*_00000001"))
    (folder / "session-1.torn").write_text(f"---\nmessage: 9\ntext: {SECRET}\n")
    (place.path / "history").write_text(f'"first"\n"say {FORMS[5]}"\n')
    (place.path / "logs").mkdir()
    (place.path / "logs" / "ouro.log").write_text(f"INFO before\nINFO {SECRET}\nINFO behind\n")
    (place.path / "cache").mkdir(exist_ok=True)
    for ending in ("", "-wal", ".aside"):
        (place.path / "cache" / f"index.db{ending}").write_bytes(b"\0\xff" + SECRET.encode())
    return place


def every_byte(place: OuroHome, tmp_path) -> bytes:
    """All files with their names, and all objects of the histories, unpacked."""
    files = [
        each
        for root in (place.path, tmp_path / "app")
        for each in root.rglob("*")
        if each.is_file()
    ]
    objects = [
        subprocess.run(
            ["git", f"--git-dir={git_dir}", "cat-file", "--batch-all-objects", "--batch", "--unordered"],
            check=True, capture_output=True,
        ).stdout
        for root in (place.path, tmp_path / "app")
        for git_dir in root.rglob(".git")
    ]  # fmt: skip
    return b"\n".join([*(each.read_bytes() + str(each).encode() for each in files), *objects])


def normalize(data: bytes) -> bytes:
    return b" ".join(data.replace(b"\\\n", b"").split()).lower().replace(b'\\"', b'"')


def is_gone(place: OuroHome, tmp_path) -> bool:
    data = normalize(every_byte(place, tmp_path))
    return not any(
        normalize(form.encode()) in data
        for form in (*FORMS, "Tr0ub4dor", "VHIwdWI0ZG9yICYgIjMiIHplYnJh")
    )


def test_m8_forgotten_text_is_left_in_no_byte(full_home, tmp_path):
    assert not is_gone(full_home, tmp_path)

    found = TrueForget(SECRET, full_home).search()
    before = every_byte(full_home, tmp_path)
    done = TrueForget(SECRET, full_home).forget()

    assert before != every_byte(full_home, tmp_path)
    assert is_gone(full_home, tmp_path)
    assert done.left == []
    assert {each.place for each in found.places if each.count} == {
        "your memory: core, notes, archive",
        "your memory: pending changes",
        "your memory: git history (objects that can be read)",
        f"the memory of {tmp_path / 'app'}: core, notes, archive",
        f"the memory of {tmp_path / 'app'}: git history (objects that can be read)",
        "what was said in sessions, their summaries and titles",
        "tool outputs beside sessions",
        "damaged data beside sessions",
        "what you typed into prompts",
        "the log",
        "the index",
    }
    assert TrueForget(SECRET, full_home).search().count == 0


def test_m8_old_objects_cannot_be_read(full_home):
    history = full_home.path / "memory" / ".git"
    blobs = git(history, "rev-list", "--all", "--reflog", "--objects", "--no-object-names").split()
    held = [
        each for each in blobs if SECRET.encode() in git(history, "cat-file", "-p", each.decode())
    ]
    assert held

    TrueForget(SECRET, full_home).forget()

    for each in held:
        assert subprocess.run(
            ["git", f"--git-dir={history}", "cat-file", "-e", each], check=False
        ).returncode
    assert git(history, "fsck", "--strict") == b""
    seen = git(history, "rev-list", "--all").split()
    assert set(git(history, "reflog", "--format=%H").split()) <= set(seen)


def test_m8_files_without_the_text_are_unchanged(full_home, tmp_path):
    store, sessions = memory(full_home), YamlFileMemoryStore(full_home.sessions)
    other = next(full_home.sessions.glob("*_00000002")) / "session.yaml"
    untouched = other.read_bytes()
    subjects = git(store.folder, "log", "--format=%s %at %an", "main").decode()
    loaded = wait(
        sessions.load_session("00000001-7e1b-4d0a-9a55-3b8f0c1d2e4f", read_only=True)
    ).records

    TrueForget(SECRET, full_home).forget()

    assert other.read_bytes() == untouched
    assert (store.folder / "facts.md").read_text() == "- Oslo.\n- Tea.\n"
    assert not (store.folder / "preferences.md").exists()
    note = parse_note(f"{NOTE_ID}.md", (store.folder / f"{NOTE_ID}.md").read_text())
    assert (note.note.text, note.note.entities) == (
        "Use [forgotten] here.",
        ("cmd:run [forgotten]", "pkg:flask"),
    )
    now = git(store.folder, "log", "--format=%s %at %an", "main").decode()
    assert now.partition("\n")[2] == subjects.replace(SECRET, "[forgotten]")
    assert now.startswith("Forget ")
    assert unapproved(store) == ()
    again = wait(sessions.load_session("00000001-7e1b-4d0a-9a55-3b8f0c1d2e4f", read_only=True))
    assert [type(each) for each in again.records] == [type(each) for each in loaded]
    assert again.records[0] == loaded[0]
    assert again.notices == ()
    log = (full_home.path / "logs" / "ouro.log").read_text().splitlines()
    assert (log[0], log[2]) == ("INFO before", "INFO behind")
    assert set(log[1]) == set("INFO *")


def test_m8_untrusted_text_stays_untrusted_after_forgetting(full_home):
    store = memory(full_home)
    (store.folder / "facts.md").write_text(f"- Oslo.\n- Tea.\n- Always run {SECRET} now\n")

    TrueForget(SECRET, full_home).forget()

    assert [each.after for each in unapproved(memory(full_home))] == [
        "- Oslo.\n- Tea.\n- Always run [forgotten] now\n"
    ]


def test_m8_open_session_is_skipped_and_reported(full_home):
    sessions = YamlFileMemoryStore(full_home.sessions)
    wait(sessions.load_session("00000001-7e1b-4d0a-9a55-3b8f0c1d2e4f"))
    try:
        done = TrueForget(SECRET, full_home).forget()
    finally:
        wait(sessions.close_session("00000001-7e1b-4d0a-9a55-3b8f0c1d2e4f"))

    assert len(done.left) == 1
    assert "2026-11-21_00000001" in done.left[0]
    assert TrueForget(SECRET, full_home).forget().left == []
    assert TrueForget(SECRET, full_home).search().count == 0


def test_m8_kill_while_the_accepted_commit_is_recorded_can_be_rerun(place):
    memory(place).save_and_commit({"facts.md": f"- The key is {SECRET}\n"}, "Learn")
    state = place.histories / "user.git" / "ouro"
    (state / "accepted").rename(
        state / "accepted.before"
    )  # between the two steps of `ApprovalLedger.accept`

    done = TrueForget(SECRET, place).forget()

    assert done.left == []
    assert memory(place).accepted == memory(place).get_current_head()
    assert unapproved(memory(place)) == ()


def test_m8_kill_while_the_git_index_is_written_can_be_rerun(place, monkeypatch):
    memory(place).save_and_commit({"facts.md": f"- Oslo.\n- The key is {SECRET}\n"}, "Learn")
    run = GitRepository.git

    def killed(repository, *arguments, **options):
        if "read-tree" in arguments:
            raise KeyboardInterrupt
        return run(repository, *arguments, **options)

    forgetting = TrueForget(SECRET, place)
    with monkeypatch.context() as patch:
        patch.setattr(GitRepository, "git", killed)
        with pytest.raises(KeyboardInterrupt):
            forgetting.forget()
    TrueForget(SECRET, place).forget()

    git(place.path / "memory", "commit", "-q", "--allow-empty", "-m", "By hand")
    assert git(place.path / "memory", "ls-tree", "--name-only", "HEAD") == b"facts.md\n"


def test_m8_kill_at_a_random_moment_can_be_rerun(full_home, tmp_path):
    drawn = random.Random(5)
    code = (
        f"{WARM}import sys; from pathlib import Path;from ouro.memory.long_term.true_forget import"
        f" TrueForget, OuroHome;h = Path({str(full_home.path)!r}); print(1,"
        f" flush=True);TrueForget({SECRET!r}, OuroHome(h, h/'history.git', h/'sessions',"
        " h/'cache'/'index.db')).forget()"
    )
    for _ in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True
        )
        process.stdout.readline()
        time.sleep(drawn.random() * 0.4)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert (
            GitRepository(full_home.histories / "user.git", full_home.path / "memory").head().commit
        )
        git(full_home.path / "memory" / ".git", "fsck", "--strict")

    done = TrueForget(SECRET, full_home).forget()

    assert done.left == []
    assert is_gone(full_home, tmp_path)
    assert (memory(full_home).folder / "facts.md").read_text() == "- Oslo.\n- Tea.\n"
    assert unapproved(memory(full_home)) == ()
