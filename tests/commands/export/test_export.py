import json
import os
import subprocess
import sys
import time

import pytest
from fakes.fake_front_end import FakeFrontEnd
from fakes.fake_session import FakeSession
from fakes.stored_sessions import ID, PNG, everything
from fakes.waiting import wait

from ouro.commands.export import document
from ouro.commands.render import date_and_time
from ouro.commands.slash import dispatch
from ouro.errors import UsageError
from ouro.importers.ouro_files import read_export
from ouro.memory.backend import MessageRecord, SessionHeader
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import ToolReply, tool
from ouro.utils.files import write_document


def test_json_has_one_record_per_line_and_marks_undone_ones():
    lines = "".join(document(everything(), "json")).splitlines()
    found = json.loads("\n".join(lines))

    assert found["session"] == {"format": 1, "id": ID, "created_at": "2026-11-21T20:14:00.000Z"}
    assert (found["project"], found["model"], found["title"], found["messages"]) == (
        "/home/me/app", "a/one", "A *title*", 10,
    )  # fmt: skip
    kinds = [next(iter(each)) for each in found["records"]]
    assert kinds == [
        *["message"] * 7, "rewind", "model", *["message"] * 2,
        "recalled", "cost", "title", "pin", "compaction", "message",
    ]  # fmt: skip
    assert [each["message"] for each in found["records"] if each.get("taken_back")] == [6, 7]
    assert found["records"][0]["images"][0]["data"] == "iVBORw0KGgo="
    assert len(lines) == len(found["records"]) + 9


def test_exported_json_can_be_imported_unchanged(tmp_path):
    session = everything()
    write_document(tmp_path / "a.json", document(session, "json"))
    again = read_export(tmp_path / "a.json")

    assert again.header == session.header
    assert again.left_out == {}
    messages = [each for each in again.records if isinstance(each, MessageRecord)]
    assert messages[0].message.parts[2].data == PNG
    store = YamlFileMemoryStore(tmp_path / "sessions")
    wait(store.import_session(again.header, again.records))
    written = "".join(document(wait(store.read_whole(ID)), "json"))
    assert json.loads(written) == json.loads((tmp_path / "a.json").read_text())


@pytest.mark.parametrize("ending", ["md", "html", "json"])
async def test_export_format_follows_the_file_ending(tmp_path, ending):
    front_end = FakeFrontEnd(FakeSession(cwd=tmp_path))
    front_end.session.rewind.session = everything()
    await dispatch(front_end, f"/export out.{ending}")

    to = {"md": "markdown"}.get(ending, ending)
    assert (tmp_path / f"out.{ending}").read_text() == "".join(document(everything(), to))
    assert (tmp_path / f"out.{ending}").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [f"out.{ending}"]
    assert front_end.lines == [("info", f"Written to {tmp_path / f'out.{ending}'}.")]


async def test_export_without_a_name_makes_one(tmp_path):
    front_end = FakeFrontEnd(FakeSession(cwd=tmp_path))
    front_end.session.rewind.session = everything()
    await dispatch(front_end, "/export")
    await dispatch(front_end, "/export html")
    await dispatch(front_end, "/export .json")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "ouro-s-1.html",
        "ouro-s-1.json",
        "ouro-s-1.md",
    ]


async def test_export_overwrites_a_file_only_with_force(tmp_path):
    front_end = FakeFrontEnd(FakeSession(cwd=tmp_path))
    front_end.session.rewind.session = everything()
    (tmp_path / "out.md").write_text("mine")
    await dispatch(front_end, "/export out.md")
    assert (tmp_path / "out.md").read_text() == "mine"
    assert "exists" in front_end.lines[-1][1]

    await dispatch(front_end, "/export --force out.md")
    assert (tmp_path / "out.md").read_text().startswith("# A")


async def test_an_option_that_export_does_not_have_makes_no_file_of_that_name(tmp_path):
    front_end = FakeFrontEnd(FakeSession(cwd=tmp_path))
    front_end.session.rewind.session = everything()
    await dispatch(front_end, "/export --first out.md")
    assert front_end.lines[-1][0] == "error"
    assert "--first" in front_end.lines[-1][1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", ["/export last out.md", "/export out.md --last"])
async def test_export_last_writes_only_the_last_answer(tmp_path, line):
    front_end = FakeFrontEnd(FakeSession(cwd=tmp_path))
    front_end.session.rewind.session = everything()

    await dispatch(front_end, line)

    assert (tmp_path / "out.md").read_text() == "Done: `b`.\n"


async def test_export_last_names_its_file_and_refuses_another_format(tmp_path):
    front_end = FakeFrontEnd(FakeSession(cwd=tmp_path))
    front_end.session.rewind.session = everything()
    session = front_end.session.id[:8]

    await dispatch(front_end, "/export last")
    await dispatch(front_end, "/export last html")

    assert "written as Markdown, not as html" in front_end.lines[-1][1]
    assert [path.name for path in tmp_path.iterdir()] == [f"ouro-answer-{session}.md"]


async def test_export_of_an_empty_session_is_an_error(tmp_path):
    front_end = FakeFrontEnd(FakeSession(cwd=tmp_path))
    await dispatch(front_end, "/export out.md")
    assert front_end.lines == [("error", "Nothing was said in it yet.")]
    assert list(tmp_path.iterdir()) == []


def test_failed_export_keeps_the_old_file_and_leaves_no_other(tmp_path):
    def broken():
        yield "half"
        raise OSError(28, "No space left on device")

    (tmp_path / "out.md").write_text("old")
    with pytest.raises(UsageError, match="No space left on device"):
        write_document(tmp_path / "out.md", broken(), force=True)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out.md", "old")]


def test_file_created_during_the_export_is_not_overwritten(tmp_path):
    def slow():
        yield "ours"
        (tmp_path / "out.md").write_text("theirs")

    with pytest.raises(UsageError, match="exists"):
        write_document(tmp_path / "out.md", slow())
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out.md", "theirs")]


def test_dangling_link_is_not_followed(tmp_path):
    (tmp_path / "out.md").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="exists"):
        write_document(tmp_path / "out.md", ["x"])
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.slow
def test_session_larger_than_memory_is_exported(tmp_path, home):
    store = YamlFileMemoryStore(home / ".ouro" / "sessions")
    text = "x" * 98 + "\n"
    records = [
        MessageRecord(
            number, "2026-11-21T20:14:00.000Z", tool(ToolReply(str(number), "read", text * 10_000))
        )
        for number in range(1, 121)
    ]
    wait(store.import_session(SessionHeader(ID, "/p", "m", "2026-11-21T20:14:00.000Z"), records))
    del records
    program = (
        "import resource, sys; from ouro.cli import main;"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        f"main(['sessions', 'export', '{ID}', '-o', sys.argv[1]]);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "big.json")], capture_output=True, text=True, check=True,
        env={**os.environ}, cwd=tmp_path,
    )  # fmt: skip

    size = (tmp_path / "big.json").stat().st_size
    assert size > 110_000_000
    grown = int(done.stderr.split()[-1]) * (1 if sys.platform == "darwin" else 1024)
    assert grown < size  # holding the whole session would take several times as much


def test_a_timestamp_without_local_time_is_left_out(monkeypatch):
    with monkeypatch.context() as here:
        here.setenv("TZ", "UTC-9")
        time.tzset()
        shown = date_and_time("9999-12-31T23:59:59Z")
    time.tzset()
    assert shown == ""


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"There is no folder .*/sub\."):
        write_document(tmp_path / "sub" / "out.md", ["x"])
