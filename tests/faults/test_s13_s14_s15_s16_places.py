"""S13 to S16: file modes and owners, a read-only home, a clock that goes back, ids that would lead
to other folders.
"""

import os
import stat

import msgspec
import pytest
from fakes.waiting import wait

from ouro.errors import ConfigError, SaveFailed, SessionError, SessionNotFound
from ouro.memory.backend import MessageRecord, SessionHeader, TitleRecord, timestamp
from ouro.memory.ephemeral_backend import DictMemoryStore
from ouro.memory.manager import MemoryManager
from ouro.memory.sessions.session_catalog import find_session
from ouro.memory.sessions.session_file import read_file
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Image, ToolReply, tool, user
from ouro.utils.git import same_project
from ouro.utils.ouro_paths import get_home

HEADER = SessionHeader(
    "0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", "2026-11-21T20:14:03.120Z"
)


@pytest.fixture
def root(home):
    return home / ".ouro" / "sessions"


@pytest.fixture
def folder(root):
    store = YamlFileMemoryStore(root)
    wait(store.create_session(HEADER))
    wait(
        store.save_message(HEADER.id, MessageRecord(1, "", user("one", [Image("image/png", b"x")])))
    )
    wait(store.close_session(HEADER.id))
    return root / "2026-11-21_0d9f3c52"


def modes(top) -> set[tuple[str, int]]:
    return {
        ("folder" if path.is_dir() else "file", stat.S_IMODE(path.stat().st_mode))
        for path in [top, *top.rglob("*")]
    }


def test_s13_session_files_are_private_whatever_the_umask(root, request):
    before = os.umask(0)
    request.addfinalizer(lambda: os.umask(before))
    store = YamlFileMemoryStore(root)
    wait(store.create_session(HEADER))
    wait(
        store.save_message(HEADER.id, MessageRecord(1, "", user("one", [Image("image/png", b"x")])))
    )
    wait(store.close_session(HEADER.id))
    wait(store.load_session(HEADER.id))
    wait(store.list_sessions())

    assert modes(root.parent) == {("folder", 0o700), ("file", 0o600)}


def test_s13_loosened_permissions_are_corrected(root, folder):
    (folder / "session.yaml").chmod(0o666)
    root.chmod(0o777)
    store = YamlFileMemoryStore(root)
    wait(store.load_session(HEADER.id))
    wait(
        store.create_session(
            msgspec.structs.replace(HEADER, id="11111111-7e1b-4d0a-9a55-3b8f0c1d2e4f")
        )
    )

    assert stat.S_IMODE((folder / "session.yaml").stat().st_mode) == 0o600
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


@pytest.mark.parametrize("planted", ["symlink", "FIFO", "folder"])
def test_s13_special_file_instead_of_the_session_is_left_alone(root, folder, planted, tmp_path):
    (tmp_path / "victim").write_text("mine")
    store = YamlFileMemoryStore(root)
    wait(store.load_session(HEADER.id))
    (folder / "session.yaml").unlink()
    match planted:
        case "symlink":
            (folder / "session.yaml").symlink_to(tmp_path / "victim")
        case "FIFO":
            os.mkfifo(folder / "session.yaml")
        case _:
            (folder / "session.yaml").mkdir()

    with pytest.raises(SaveFailed):
        wait(store.save_message(HEADER.id, MessageRecord(2, "", user("two"))))
    wait(store.close_session(HEADER.id))
    with pytest.raises(SessionError):
        wait(store.load_session(HEADER.id))
    wait(store.list_sessions())
    assert (tmp_path / "victim").read_text() == "mine"


def test_s13_a_session_file_that_is_a_link_is_not_opened(root, folder, tmp_path):
    (folder / "session.yaml").rename(tmp_path / "elsewhere.yaml")
    (folder / "session.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    with pytest.raises(SessionError):
        wait(YamlFileMemoryStore(root).load_session(HEADER.id))


def test_s13_linked_session_folder_is_refused(root, folder, tmp_path):
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(SessionError, match="not a folder that ouro made"):
        wait(YamlFileMemoryStore(root).load_session(HEADER.id))


def test_s13_files_of_another_user_are_refused(root, folder, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 4242)

    with pytest.raises(SessionError, match="belongs to another user"):
        wait(YamlFileMemoryStore(root).load_session(HEADER.id))
    assert YamlFileMemoryStore(root).obstacle() == f"{root} belongs to another user"


def test_s13_folder_of_another_user_is_refused_with_an_own_file(folder, monkeypatch):
    fstat = os.fstat

    def of_another(descriptor):
        found = fstat(descriptor)
        return (
            os.stat_result((*found[:4], 4242, *found[5:])) if stat.S_ISDIR(found.st_mode) else found
        )

    monkeypatch.setattr(os, "fstat", of_another)
    with pytest.raises(SessionError, match="belongs to another user"):
        read_file(folder)


def test_s13_every_created_file_is_private(root, folder):
    before = os.umask(0)
    try:
        store = YamlFileMemoryStore(root)
        copy = SessionHeader("1d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", HEADER.created_at)
        other = SessionHeader("2d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", HEADER.created_at)
        wait(store.fork_session(HEADER.id, None, copy))
        wait(
            store.import_session(
                other, [MessageRecord(1, "", tool(ToolReply("1", "read", "long\n" * 9000)))]
            )
        )
        wait(store.delete_session(copy.id))
        wait(store.list_sessions()), wait(store.list_deleted())
    finally:
        os.umask(before)

    modes = {path.relative_to(root): stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*")}
    assert {mode for path, mode in modes.items() if (root / path).is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if not (root / path).is_dir()} == {0o600}
    assert len(modes) > 12


def test_s13_foreign_files_in_outputs_are_not_copied(root, folder, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (folder / "outputs" / "link.txt").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "outputs" / "pipe.txt")
    store = YamlFileMemoryStore(root)
    copy = SessionHeader("1d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", HEADER.created_at)
    wait(store.fork_session(HEADER.id, None, copy))

    kept = list(store.outputs_folder(copy).iterdir())
    assert [path.suffix for path in kept] == [".png"]
    assert (
        wait(store.load_session(copy.id)).records[0].message
        == wait(store.load_session(HEADER.id)).records[0].message
    )


def test_s13_picture_name_cannot_leave_the_folder(root, folder):
    (folder.parent / "secret.png").write_bytes(b"secret")
    path = folder / "session.yaml"
    name = next((folder / "outputs").iterdir()).name
    path.write_text(path.read_text().replace(f"outputs/{name}", "outputs/../../secret.png"))

    loaded = wait(YamlFileMemoryStore(root).load_session(HEADER.id))

    assert loaded.records[0].message.parts_of(Image) == ()


async def test_s14_session_continues_if_nothing_can_be_saved(home):
    (home / ".ouro").mkdir(mode=0o700)
    (home / ".ouro" / "sessions").write_text("in the way")
    memory = MemoryManager.start(
        YamlFileMemoryStore(home / ".ouro" / "sessions"), project="/p", model="m"
    )

    with pytest.raises(SaveFailed, match="Not saved"):
        await memory.add(user("one"))

    assert memory.notices == (
        f"This session cannot be saved: {home / '.ouro' / 'sessions'} is not a folder.",
    )
    assert memory.context() == [user("one")]


def test_s14_a_session_in_a_folder_that_cannot_be_written_opens_read_only(
    root, folder, monkeypatch
):
    import ouro.memory.yaml_backend as yaml_backend

    def read_only(_):
        raise OSError(30, os.strerror(30))

    monkeypatch.setattr(yaml_backend, "SessionLock", read_only)

    loaded = wait(YamlFileMemoryStore(root).load_session(HEADER.id))

    assert (loaded.read_only, len(loaded.records)) == (True, 1)
    assert "opened read-only, nothing is saved" in loaded.notices[0]


async def test_s14_an_ephemeral_session_leaves_nothing(home):
    memory = MemoryManager.start(DictMemoryStore(), project="/p", model="m")
    await memory.add(user("one"))
    await memory.close()

    assert list(home.glob(".ouro*")) == []


def test_s14_home_of_an_unknown_user_is_reported(monkeypatch):
    monkeypatch.setenv("OURO_HOME", "~nobody-of-that-name/.ouro")

    with pytest.raises(ConfigError, match="no home folder for ~nobody-of-that-name"):
        get_home()


def test_s15_times_never_run_backwards_within_a_session(monkeypatch):
    assert timestamp("2999-01-01T00:00:00.000Z") == "2999-01-01T00:00:00.000Z"
    assert timestamp("2001-01-01T00:00:00.000Z") > "2026"


async def test_s15_order_is_kept_when_the_clock_goes_back_a_year(root, monkeypatch):
    import ouro.memory.manager as manager

    clock = iter(["2026-06-01T00:00:00.000Z", "2026-06-02T00:00:00.000Z"])
    earlier = "2025-06-01T00:00:00.000Z"
    monkeypatch.setattr(
        manager, "timestamp", lambda not_before="": max(next(clock, earlier), not_before)
    )
    store = YamlFileMemoryStore(root)
    memory = MemoryManager.start(store, project="/p", model="m")
    for text in ("one", "two", "three"):
        await memory.add(user(text))
    await memory.close()

    loaded = (await store.load_session(memory.session_id)).records
    records = [each for each in loaded if isinstance(each, MessageRecord)]

    assert [(record.number, record.message.text) for record in records] == [
        (1, "one"),
        (2, "two"),
        (3, "three"),
    ]
    assert [record.at for record in loaded] == sorted(record.at for record in loaded)
    info = await store.get_session_stats(memory.session_id)
    assert info.created_at <= info.updated_at


def test_s15_two_sessions_of_the_same_second_have_folders_of_their_own(root):
    store = YamlFileMemoryStore(root)
    for tail in ("0000", "0001", "0002"):
        header = SessionHeader(
            f"0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d{tail}", "/p", "m", HEADER.created_at
        )
        wait(store.create_session(header))
        wait(store.save_message(header.id, MessageRecord(1, "", user(tail))))
        wait(store.close_session(header.id))

    assert sorted(
        wait(store.load_session(each.id)).records[0].message.text
        for each in wait(store.list_sessions())
    ) == [
        "0000",
        "0001",
        "0002",
    ]


@pytest.mark.parametrize(
    "name",
    ["../../x", "..", "/etc", "x" * 300, "", "2026-11-21_ffffffff", "a\x00b", "a/b", ".index.yaml"],
)
def test_s16_invalid_id_is_refused(root, folder, name):
    store = YamlFileMemoryStore(root)
    (root.parent / "x").mkdir()
    for ask in (
        store.load_session,
        store.get_session_stats,
        store.delete_session,
        store.repair_session,
    ):
        with pytest.raises(SessionNotFound):
            wait(ask(name))
    with pytest.raises(SaveFailed):
        wait(store.save_memory(name, TitleRecord("x", "")))
    assert (root.parent / "x").exists()


def test_s16_similar_project_paths_are_kept_apart(root):
    store = YamlFileMemoryStore(root)
    paths = ["/home/me/my-app", "/home/me/my_app", "/home/me/my/app", "/home/me/my-app/"]
    for number, path in enumerate(paths):
        header = SessionHeader(
            f"0000000{number}-7e1b-4d0a-9a55-3b8f0c1d2e4f", path, "m", HEADER.created_at
        )
        wait(store.create_session(header))
        wait(store.save_message(header.id, MessageRecord(1, "", user(path))))
        wait(store.close_session(header.id))

    everything = wait(store.list_sessions())

    for path in paths:
        assert [each.project for each in wait(store.list_sessions(path))] == [path]
        assert find_session(everything, "latest", same_project(path)).project == path
