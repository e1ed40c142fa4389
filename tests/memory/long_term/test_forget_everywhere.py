"""A text to forget is found in its usual forms; nothing else is changed."""

import base64
import json
import os
import random
import shutil
import tarfile
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from fakes.knowledge import editor_of, unapproved
from fakes.stored_sessions import StoredSession
from fakes.waiting import wait

from ouro.errors import UsageError
from ouro.memory.long_term import (
    GitMemoryStore,
    OuroHome,
    TrueForget,
    back_up_home,
    export_to_agent,
    remember_text,
    synchronize,
)
from ouro.memory.long_term.forgotten_text import ForgottenText
from ouro.memory.long_term.store import repo_store
from ouro.memory.long_term.sync_merge import SyncFailed
from ouro.memory.safe_yaml import dump
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message, Text, ToolCall, ToolReply, assistant, user
from ouro.safety import TrustStore, acting_files
from ouro.utils.ouro_paths import get_trust_path

TEXT = 'Zoë\'s key is "a/b+c\\d" & more'


@pytest.fixture
def place(home) -> OuroHome:
    root = home / ".ouro"
    return OuroHome(root, root / "history.git", root / "sessions", root / "cache" / "index.db")


def user_memory(place: OuroHome) -> GitMemoryStore:
    return GitMemoryStore(place.path / "memory", "user", place.histories / "user.git")


@pytest.mark.parametrize(
    "form",
    [
        TEXT,
        TEXT.upper(),
        TEXT.replace(" ", "\n"),
        TEXT.replace(" ", "\n| "),
        TEXT.replace(" ", "  \t"),
        quote(TEXT),
        quote(TEXT, safe=""),
        quote_plus(TEXT),
        json.dumps(TEXT),
        json.dumps(json.dumps(TEXT)),
        json.dumps(TEXT, ensure_ascii=False),
        base64.b64encode(TEXT.encode()).decode(),
        base64.b64encode(f"1{TEXT}".encode()).decode(),
        base64.b64encode(f"12{TEXT}3".encode()).decode(),
        base64.urlsafe_b64encode(TEXT.encode()).decode(),
        base64.encodebytes(f"{'x' * 40}{TEXT}".encode()).decode(),
        dump({"text": TEXT}),
        dump({"text": f"{TEXT}\x07\nsecond"}),
        TEXT.replace("ë", "e\u0308"),
        TEXT.replace("key", "k\ney"),
    ],
)
def test_each_form_of_the_text_is_found_and_removed(form):
    needle = ForgottenText(TEXT)
    text = f"before {form} behind"

    assert needle.count(text) == 1
    assert needle.count_bytes(text.encode()) == 1
    assert needle.count(needle.remove_from(text)) == 0
    assert needle.remove_from(text).startswith("before ")
    assert needle.remove_from(text).endswith(" behind")
    assert len(needle.star_out(text.encode())) == len(text.encode())


@pytest.mark.parametrize(
    "text", ["Zoë's key", "Zoë's key is a/b+c and more", "zoes key is abcd more", "", "\\" * 5_000]
)
def test_similar_text_is_kept(text):
    assert ForgottenText(TEXT).remove_from(text) == text


@pytest.mark.parametrize("text", ["", "abc", "  ab  ", "----", "x" * 10_001])
def test_text_that_is_too_short_or_long_is_refused(text):
    with pytest.raises(UsageError):
        ForgottenText(text)


def test_placeholder_does_not_contain_the_forgotten_text():
    assert ForgottenText("forgotten").remove_from("It is forgotten.") == "It is [gone]."


def test_forgetting_a_field_name_keeps_session_records_valid(place):
    talk = StoredSession(place.sessions, 1, "/home/me/assistant")
    call = ToolCall("call_shell", "shell", {"pin": 123456, "role": "the assistant"})
    talk.say(user("the assistant"), Message("assistant", (Text("as the assistant"), call)))
    talk.say(
        Message("user", (ToolReply("call_shell", "shell", "123456 shell"),)), assistant("123456")
    )
    talk.end()

    for text in ("assistant", "shell", "123456", "message", "2026"):
        TrueForget(text, place).forget()

    loaded = wait(YamlFileMemoryStore(place.sessions).load_session(talk.id, read_only=True))
    assert loaded.notices == ()
    assert [each.message.role for each in loaded.records] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert loaded.records[0].message.text == "the [forgotten]"
    assert loaded.records[1].message.tool_calls[0].arguments == {
        "pin": "[forgotten]",
        "role": "the [forgotten]",
    }


def test_files_without_the_text_stay_byte_identical(place):
    drawn = random.Random(11)
    alphabet = "abc xyz\n\t-:#'\"\\|>[]{}é€😀&%+0\x85"
    store, plain = user_memory(place), {}
    for number in range(6):
        words = "".join(drawn.choice(alphabet) for _ in range(drawn.randrange(1, 400)))
        talk = StoredSession(place.sessions, number + 1)
        talk.say(*(user(words + str(each)) for each in range(5)))
        talk.say(user(f"{words} Blackbird-77 {words}"))
        talk.end()
        plain[talk.id] = words
    store.save_and_commit(
        {"facts.md": "- One.\n- Blackbird-77\n", "decisions.md": "- Two \u2028 lines.\n"}, "Learn"
    )
    store.save_and_commit({"facts.md": "- One.\n"}, "Learn")
    files = {
        each: each.read_bytes()
        for each in place.path.rglob("*")
        if each.is_file() and not {".git", "history.git"}.intersection(each.parts)
    }

    assert TrueForget("Blackbird-77", place).forget().left == []

    for path, data in files.items():
        if b"Blackbird-77" not in data and path.name != "lock":
            assert path.read_bytes() == data
    sessions = YamlFileMemoryStore(place.sessions)
    for session_id, words in plain.items():
        said = [
            each.message.text
            for each in wait(sessions.load_session(session_id, read_only=True)).records
        ]
        assert said == [*(words + str(each) for each in range(5)), f"{words} [forgotten] {words}"]
    assert (store.folder / "decisions.md").read_text() == "- Two \u2028 lines.\n"
    assert [each.subject for each in store.log()] == ["Learn", "Learn"]
    assert unapproved(store) == ()


def test_remote_with_the_text_is_reported_and_cannot_restore_it(place, tmp_path):
    os.system(f"git init -q --bare {tmp_path / 'remote.git'}")
    remote, store = str(tmp_path / "remote.git"), user_memory(place)
    other = GitMemoryStore(tmp_path / "two", "user", tmp_path / "history" / "user.git")
    store.save_and_commit({"facts.md": "- Tea.\n- Blackbird-77\n"}, "Learn")
    synchronize(store, remote)
    synchronize(other, remote)

    done = TrueForget("Blackbird-77", place).forget()

    assert ["it was sent to" in each for each in done.left] == [True]
    with pytest.raises(SyncFailed, match="still holds what was forgotten here"):
        synchronize(store, remote)
    other.save_and_commit({"preferences.md": "- Tabs.\n"}, "Learn")
    synchronize(other, remote)
    for _ in range(2):
        with pytest.raises(SyncFailed, match="still holds what was forgotten here"):
            synchronize(store, remote)
    assert TrueForget("Blackbird-77", place).search().count == 0

    TrueForget(
        "Blackbird-77", OuroHome(tmp_path, tmp_path / "history", tmp_path / "s", tmp_path / "i")
    ).forget()
    os.system(f"git --git-dir={remote} update-ref -d refs/heads/main")
    synchronize(other, remote)
    synchronize(store, remote)
    assert (store.folder / "preferences.md").read_text() == "- Tabs.\n"
    assert (store.folder / "facts.md").read_text() == "- Tea.\n"


def test_backup_is_complete_and_private(place, tmp_path):
    user_memory(place).save_and_commit({"facts.md": "- Blackbird-77\n"}, "Learn")

    made = back_up_home(place, tmp_path / "b.tar")

    assert made.stat().st_mode & 0o777 == 0o600
    with tarfile.open(made) as tar:
        names = tar.getnames()
    assert any(name.endswith("memory/facts.md") for name in names)
    assert any("memory/.git/objects" in name for name in names)
    for target in (made, place.path / "b.tar"):
        with pytest.raises(UsageError):
            back_up_home(place, target)


def test_links_are_not_followed(place, tmp_path):
    outside = tmp_path / "outside.txt"
    outside.write_text("Blackbird-77")
    user_memory(place).save_and_commit({"facts.md": "- Tea.\n"}, "Learn")
    (place.path / "memory" / "x.md").symlink_to(outside)
    (place.path / "linked").symlink_to(tmp_path)

    TrueForget("Blackbird-77", place).forget()

    assert outside.read_text() == "Blackbird-77"


def test_settings_with_the_text_are_reported_and_unchanged(place):
    place.path.mkdir(parents=True)
    (place.path / "models.yaml").write_text("api_key: Blackbird-77\n")

    done = TrueForget("Blackbird-77", place).forget()

    assert (place.path / "models.yaml").read_text() == "api_key: Blackbird-77\n"
    assert done.left == [
        f"{place.path / 'models.yaml'}: these are your settings. Remove it there yourself if you do"
        " not need it."
    ]


def test_memory_of_a_project_that_was_moved_is_searched_at_its_new_place(place, tmp_path):
    first = repo_store(tmp_path / "app", place.histories, lambda _text: "")
    first.save_and_commit({"facts.md": "- Tea.\n- Blackbird-77\n"}, "Learn")
    (tmp_path / "app").rename(tmp_path / "moved")
    moved = repo_store(tmp_path / "moved", place.histories, lambda _text: "")
    moved.open()

    done = TrueForget("Blackbird-77", place).forget()

    assert done.left == []
    assert (moved.folder / "facts.md").read_text() == "- Tea.\n"
    assert TrueForget("Blackbird-77", place).search().count == 0


def test_records_of_a_deleted_project_are_forgotten(place, tmp_path):
    store = repo_store(tmp_path / "app", place.histories, lambda _text: "")
    store.save_and_commit({"facts.md": "- Tea.\n"}, "Learn")
    store.repository.write_record("core-records", "Blackbird-77")
    shutil.rmtree(tmp_path / "app")

    done = TrueForget("Blackbird-77", place).forget()

    assert done.left == []
    assert done.unsearched == [
        f"{store.folder}: it is gone. If you have moved it, start ouro there, then forget again."
    ]
    assert TrueForget("Blackbird-77", place).search().count == 0


def test_unwritten_project_memory_does_not_touch_user_memory(place, tmp_path):
    mine = user_memory(place)
    mine.save_and_commit(
        {"facts.md": "- Lives in Trondheim.\n- Works with uv.\n", "decisions.md": None}, "Say it"
    )
    mine.save_and_commit({"preferences.md": "- Lives in Trondheim.\n"}, "Say it again")
    other = repo_store(tmp_path / "app", place.histories, lambda _text: "")
    other.repository.create()
    other.repository.write_record("crystallized", "{}")
    before = (mine.folder / ".git" / "config").read_text()

    found = TrueForget("Lives in Trondheim", place).forget()

    assert found.left == []
    assert [each.place for each in found.places if each.count] == [
        "your memory: core, notes, archive",
        "your memory: git history (objects that can be read)",
    ]
    assert {path.name: path.read_text() for path in mine.folder.glob("*.md")} == {
        "facts.md": "- Works with uv.\n"
    }
    assert (mine.folder / ".git" / "config").read_text() == before
    assert (other.repository.read_record("folder"), other.get_current_head(), unapproved(mine)) == (
        "",
        "",
        (),
    )


def test_file_too_large_to_search_is_reported(place):
    user_memory(place).save_and_commit({"facts.md": "- The blue heron.\n"}, "Learn")
    large = place.path / "cache" / "weights.bin"
    large.parent.mkdir()
    with large.open("wb") as file:
        file.truncate(257 << 20)

    for found in (TrueForget("gray owl", place).search(), TrueForget("blue heron", place).forget()):
        assert found.unsearched == [f"{large}: 257 MB, larger than the 256 MB that are read."]
        assert found.left == []


def test_text_exported_to_other_agents_is_forgotten_there(home, place, repository):
    editor = editor_of(place.path, repository)
    remember_text(editor, f"We use {TEXT} here")
    remember_text(editor, f"Always answer with {TEXT}")
    (repository / "CLAUDE.md").write_text("# Ours\n")
    TrustStore(get_trust_path()).trust(repository, [repository / "CLAUDE.md"])
    files = export_to_agent(editor, "claude")
    assert all(ForgottenText(TEXT).count(file.read_text()) for file in files)

    done = TrueForget(TEXT, place).forget()

    assert (done.left, len(files)) == ([], 2)
    assert not any(ForgottenText(TEXT).count(file.read_text()) for file in files)
    assert (repository / "CLAUDE.md").read_text().startswith("# Ours\n\n<!-- ouro")
    assert TrustStore(get_trust_path()).is_trusted(repository, acting_files(repository))

    files[0].write_text(f"{TEXT}\n{files[0].read_text()}")
    assert str(files[0]) in TrueForget(TEXT, place).search().left[0]


@pytest.mark.parametrize("is_shared", [True, False])
def test_host_repository_history_is_reported_with_a_rewrite_command(place, repository, is_shared):
    store = repo_store(repository, place.histories, lambda _text: "", is_shared=is_shared)
    store.save_and_commit({"facts.md": "- The blue heron.\n"}, "Learn")

    done = TrueForget("blue heron", place).forget()

    named = [
        each for each in done.unsearched if "filter-repo --invert-paths --path .ouro/memory" in each
    ]
    assert [each.startswith(f"{repository}: its own git history") for each in named] == (
        [True] if is_shared else []
    )


def test_an_edit_that_was_refused_is_searched_too(place, home):
    edited = place.path / "cache" / "edited-user-facts.md"
    edited.parent.mkdir(parents=True)
    edited.write_text("- The blue heron.\n- The gray owl.\n")

    done = TrueForget("blue heron", place).forget()

    assert [each.place for each in done.places if each.count] == ["edits that could not be saved"]
    assert edited.read_text() == "- The [forgotten].\n- The gray owl.\n"


def test_file_that_cannot_be_read_does_not_end_the_search(place, monkeypatch):
    user_memory(place).save_and_commit({"facts.md": "- The blue heron.\n"}, "Learn")
    cache = place.path / "cache"
    cache.mkdir()
    for name in ("a-removed.tmp", "b-locked.bin", "c-found.txt"):
        (cache / name).write_text("The blue heron.")
    read_bytes = Path.read_bytes

    def read(path):
        if path.name == "a-removed.tmp":
            raise FileNotFoundError(2, "No such file or directory")
        if path.name == "b-locked.bin":
            raise PermissionError(13, "Permission denied")
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", read)
    report = TrueForget("blue heron", place).forget()
    assert report.unsearched == [
        f"{cache / 'b-locked.bin'}: it cannot be read (Permission denied)."
    ]
    assert "heron" not in (cache / "c-found.txt").read_text()
