"""S17: the order of writes and flushes; every state that a crash may leave can be loaded."""

import os
from pathlib import Path

import pytest
from fakes.waiting import wait

from ouro.memory.backend import MessageRecord, SessionHeader
from ouro.memory.sessions.session_file import rewrite_file
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import ToolReply, tool, user

HEADER = SessionHeader(
    "0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", "2026-11-21T20:14:03.120Z"
)


@pytest.fixture
def calls(monkeypatch) -> list[str]:
    """The system calls in order: `write session.yaml`, `fsync session.yaml`, `rename .index.yaml`."""
    made: list[str] = []
    write, fsync, rename = os.write, os.fsync, os.replace

    def name(descriptor: int) -> str:
        return ".".join(
            part
            for part in Path(f"/proc/self/fd/{descriptor}").readlink().name.split(".")
            if not part.isdigit()
        )

    def written(descriptor, data):
        made.append(
            f"write {'a new file' if name(descriptor).startswith('..') else name(descriptor)}"
        )
        return write(descriptor, data)

    def flushed(descriptor):
        file = "a new file" if name(descriptor).startswith("..") else name(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}")
        is_buffered = path.is_file() and (
            name(descriptor).endswith(".tmp") or "unfinished" in str(path.readlink())
        )
        if is_buffered and os.fstat(descriptor).st_size:
            made.append(f"write {file}")  # buffered: the data must be in the file before the flush
        if file:  # not for the journal of written folders, which is named after the process
            made.append(f"fsync {file}")
        return fsync(descriptor)

    def renamed(source, target, **folders):
        made.append(f"rename {Path(target).name}")
        return rename(source, target, **folders)

    monkeypatch.setattr(os, "write", written)
    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    return made


def after_the_mark(steps):
    """The steps after the first: a new store is marked with its layout."""
    mark = ["write a new file", "fsync a new file", "rename .layout", "fsync sessions"]
    assert steps[:4] == mark
    return steps[4:]


@pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="names of descriptors are read from /proc"
)
class TestOrder:
    def test_s17_a_record_is_flushed_before_its_save_returns(self, home, calls):
        store = YamlFileMemoryStore(home / ".ouro" / "sessions")
        wait(store.create_session(HEADER))
        created = list(calls)
        calls.clear()
        wait(store.save_message(HEADER.id, MessageRecord(1, "", user("one"))))

        steps, folder = after_the_mark(created), "2026-11-21_0d9f3c52"
        # Folders are flushed at the same time as the file, which is in its folder before.
        assert sorted(steps) == [
            f"fsync {folder}",
            "fsync session.yaml",
            "fsync sessions",
            "write session.yaml",
        ]
        assert steps.index("write session.yaml") < steps.index("fsync session.yaml")
        assert calls == ["write session.yaml", "fsync session.yaml"]

    def test_s17_long_output_is_flushed_before_its_record(self, home, calls):
        store = YamlFileMemoryStore(home / ".ouro" / "sessions")
        wait(store.create_session(HEADER))
        calls.clear()
        wait(
            store.save_message(
                HEADER.id, MessageRecord(1, "", tool(ToolReply("1", "read", "line\n" * 9000)))
            )
        )

        assert [step.split(" ")[0] if ".txt" in step else step for step in calls] == [
            "fsync 2026-11-21_0d9f3c52",
            "write",
            "fsync",
            "rename",
            "fsync outputs",
            "write session.yaml",
            "fsync session.yaml",
        ]

    def test_s17_whole_session_is_flushed_before_the_rename(self, home, calls, monkeypatch):
        rename = Path.rename
        monkeypatch.setattr(
            Path,
            "rename",
            lambda path, target: calls.append(f"rename to {target.name}") or rename(path, target),
        )
        store = YamlFileMemoryStore(home / ".ouro" / "sessions")
        wait(store.import_session(HEADER, [MessageRecord(1, "", user("one"))]))
        wait(store.delete_session(HEADER.id))
        wait(store.restore_session(HEADER.id))

        folder = "2026-11-21_0d9f3c52"
        steps = [step for step in calls if "lock" not in step]
        assert [step.partition("-2026")[0] for step in steps if "unfinished" in step] == [
            "fsync .unfinished"
        ]
        assert "unfinished" in steps[steps.index(f"rename to {folder}") - 1]
        assert after_the_mark([step for step in steps if "unfinished" not in step]) == [
            "write session.yaml",
            "fsync session.yaml",
            f"rename to {folder}",
            "fsync sessions",
            f"rename to {folder}",
            "fsync .trash",
            "fsync sessions",
            f"rename to {folder}",
            "fsync sessions",
            "fsync .trash",
        ]

    def test_s17_torn_tail_is_saved_before_it_is_cut_off(self, home, calls, monkeypatch):
        store = YamlFileMemoryStore(home / ".ouro" / "sessions")
        wait(store.create_session(HEADER))
        folder = home / ".ouro" / "sessions" / "2026-11-21_0d9f3c52"
        with (folder / "session.yaml").open("ab") as file:
            file.write(b"---\nhalf")
        truncate = os.ftruncate
        monkeypatch.setattr(os, "ftruncate", lambda *of: calls.append("cut off") or truncate(*of))
        calls.clear()
        wait(store.save_message(HEADER.id, MessageRecord(1, "", user("one"))))

        kept = ["write session-1.torn", "fsync session-1.torn", f"fsync {folder.name}"]
        assert calls == [
            *kept,
            "cut off",
            "fsync session.yaml",
            "write session.yaml",
            "fsync session.yaml",
        ]

    def test_s17_replacement_file_is_flushed_before_the_rename(self, tmp_path, calls):
        (tmp_path / ".index.yaml").write_text("old")
        rewrite_file(tmp_path, ".index.yaml", b"new")

        assert calls == [
            "write a new file",
            "fsync a new file",
            "rename .index.yaml",
            f"fsync {tmp_path.name}",
        ]


def test_s17_crash_while_setting_a_tail_aside_loses_nothing(home, monkeypatch):
    root = home / ".ouro" / "sessions"
    store = YamlFileMemoryStore(root)
    wait(store.create_session(HEADER))
    wait(store.save_message(HEADER.id, MessageRecord(1, "", user("one"))))
    wait(store.close_session(HEADER.id))
    path = root / "2026-11-21_0d9f3c52" / "session.yaml"
    path.write_bytes(path.read_bytes() + b"---\nhalf")

    class CrashError(BaseException):
        pass

    truncate = os.ftruncate

    def crash(descriptor, size):
        if size:
            raise CrashError
        truncate(descriptor, size)

    monkeypatch.setattr(os, "ftruncate", crash)
    with pytest.raises(CrashError):
        wait(YamlFileMemoryStore(root).load_session(HEADER.id))
    monkeypatch.undo()
    monkeypatch.setenv("OURO_HOME", str(home / ".ouro"))

    loaded = wait(YamlFileMemoryStore(root).load_session(HEADER.id))

    assert [record.message.text for record in loaded.records] == ["one"]
    assert [each.read_bytes() for each in sorted(path.parent.glob("*.torn"))] == [b"---\nhalf"] * 2


def test_s17_crash_before_the_header_does_not_block_the_session(home):
    root = home / ".ouro" / "sessions"
    (root / "2026-11-21_0d9f3c52").mkdir(parents=True)
    store = YamlFileMemoryStore(root)

    assert wait(store.list_sessions()) == []
    wait(store.create_session(HEADER))
    wait(store.save_message(HEADER.id, MessageRecord(1, "", user("one"))))
    assert len(wait(store.list_sessions())) == 1


@pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="names of descriptors are read from /proc"
)
def test_s17_private_file_is_flushed_before_the_rename(tmp_path, calls):
    from ouro.utils.files import write_private

    write_private(tmp_path / "config.yaml", "mode: ask\n")
    flushed = next(
        number for number, made in enumerate(calls) if made.startswith("fsync .config.yaml.")
    )
    assert flushed < next(number for number, made in enumerate(calls) if made.startswith("rename"))
    assert calls[-1] == f"fsync {tmp_path.name}"
