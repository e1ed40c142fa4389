import os
import stat

import pytest
import yaml
from fakes.waiting import wait
from memory.store_contract import AT, EVERY_PART, HEADER, StoreContract, message_record
from msgspec.structs import replace

from ouro.display import CommandOutput, Diff, Display, FileChange, Plain
from ouro.errors import SaveFailed, SpendingUnreadable
from ouro.memory.backend import (
    CompactionRecord,
    CostRecord,
    MessageRecord,
    Record,
    RewindRecord,
    SessionHeader,
    TitleRecord,
)
from ouro.memory.sessions.session_reader import MIN_SHOWN
from ouro.memory.transcript import Transcript
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message, Text, ToolReply, Usage, tool, user


@pytest.fixture
def root(home):
    return home / ".ouro" / "sessions"


class TestYamlFileMemoryStore(StoreContract):
    @pytest.fixture
    def store(self, root):
        return YamlFileMemoryStore(root)

    @pytest.fixture
    def again(self, root):
        return lambda: YamlFileMemoryStore(root)

    def test_file_matches_the_specification(self, store, root):
        call = Message(
            "assistant",
            EVERY_PART[2].parts[2:3],
            Usage(5210, 4800, 0, 41, 0.0031),
            "anthropic/claude",
        )
        wait(store.create_session(HEADER))
        wait(
            store.save_message(
                HEADER.id, message_record(1, user("fix the broken import\n  in api.py"))
            )
        )
        wait(store.save_message(HEADER.id, message_record(2, call)))

        folder = root / "2026-11-21_0d9f3c52"
        assert (folder / "session.yaml").read_text() == (
            "---\n"
            "session: {format: 1, id: 0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f, created_at: 2026-11-21T20:14:03.120Z}\n"
            "project: /home/me/app\n"
            "model: test/model\n"
            "...\n"
            "---\n"
            "message: 1\n"
            "at: 2026-11-21T20:15:01.000Z\n"
            "role: user\n"
            "text: |-\n"
            "  fix the broken import\n"
            "    in api.py\n"
            "...\n"
            "---\n"
            "message: 2\n"
            "at: 2026-11-21T20:15:02.000Z\n"
            "role: assistant\n"
            "model: anthropic/claude\n"
            "text: Let me look.\n"
            "usage: {input: 5210, cached: 4800, output: 41, cost: 0.0031}\n"
            "...\n"
        )

    def test_costs_are_rows_by_day_and_model_and_a_foreign_file_is_kept(self, store, root):
        cost = CostRecord("vectors", HEADER.created_at, "a/b", Usage(7, cost=0.5))
        wait(store.save_cost(cost))
        file = root / "spent.json"
        assert (
            file.read_text()
            == '[\n["2026-11-21","a/b",{"input":7,"cached":0,"cache_written":0,"output":0,"cost":0.5},1,"vectors"]\n]\n'
        )
        earlier = file.read_text().replace(',"vectors"', "")
        file.write_text(earlier)  # as earlier versions write it
        [row] = wait(store.load_costs())
        assert (row.calls, row.purpose) == (1, "")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        file.write_text('{"format": 2}')
        for call in (store.load_costs(), store.save_cost(cost)):
            with pytest.raises(SpendingUnreadable, match=r"spent.json cannot be read"):
                wait(call)
        assert file.read_text() == '{"format": 2}'

    def test_any_yaml_reader_reads_the_file(self, store, root):
        self._saved(store, HEADER, *EVERY_PART)

        text = (root / "2026-11-21_0d9f3c52" / "session.yaml").read_text()

        assert [each.get("message") for each in yaml.safe_load_all(text)] == [
            None,
            *range(1, len(EVERY_PART) + 1),
        ]

    def test_save_cost_does_not_grow_with_the_number_of_messages(self, store, root, monkeypatch):
        wait(store.create_session(HEADER))
        written = []
        write = os.write

        def appended(descriptor, data):
            written.append(len(data))
            return write(descriptor, data)

        monkeypatch.setattr(os, "write", appended)
        for number in range(1000, 1200):
            wait(store.save_message(HEADER.id, message_record(number, user("the same words"))))

        assert len(set(written)) == 1
        assert len(written) == 200

    def test_secrets_are_masked_before_a_record_is_written(self, root):
        store = YamlFileMemoryStore(root, lambda text: text.replace("hunter2", "[secret]"))
        self._saved(store, HEADER, *EVERY_PART, user("my hunter2\nis hunter2"))

        assert "hunter2" not in (root / "2026-11-21_0d9f3c52" / "session.yaml").read_text()

    def test_diff_is_loaded_as_text(self, store, again):
        change = FileChange("api.py", "import os\n", "import sys\n", first_line=40)
        made = FileChange("new.py", None, "x = 1")
        shown = Display("2 files", Diff((change, made)))
        self._saved(store, HEADER, tool(ToolReply("a", "edit", "done", display=shown)))

        record = wait(again().load_session(HEADER.id)).records[0]

        assert isinstance(record, MessageRecord)
        assert record.message.parts_of(ToolReply)[0].display == Display(
            "2 files",
            Plain(
                "--- api.py\n+++ api.py\n@@ -40 +40 @@\n-import os\n+import sys\n"
                "--- /dev/null\n+++ new.py\n@@ -0,0 +1 @@\n+x = 1\n\\ No newline at end of file\n",
                "diff",
            ),
        )

    def test_picture_is_stored_once_beside_the_file(self, store, root):
        self._saved(store, HEADER, EVERY_PART[0], EVERY_PART[0])

        outputs = root / "2026-11-21_0d9f3c52" / "outputs"
        assert [path.read_bytes() for path in outputs.iterdir()] == [b"\x89PNG\r\n"]
        assert stat.S_IMODE(next(outputs.iterdir()).stat().st_mode) == 0o600

    def test_missing_picture_is_named(self, store, root, again):
        self._saved(store, HEADER, EVERY_PART[0])
        next((root / "2026-11-21_0d9f3c52" / "outputs").iterdir()).unlink()

        record = wait(again().load_session(HEADER.id)).records[0]

        assert isinstance(record, MessageRecord)
        assert record.message.parts[1:] == (Text("[the picture shot.png is no longer there]"),)

    def test_manually_edited_record_is_loaded(self, store, root, again):
        self._saved(store, HEADER, user("helo"), user("two"))
        path = root / "2026-11-21_0d9f3c52" / "session.yaml"
        by_hand = path.read_text().replace(
            "text: helo", "text: >\n    hello\n    there # not a comment\n# a remark"
        )
        path.write_text(by_hand.rstrip("\n").replace("\n", "\r\n"), newline="")

        loaded = wait(again().load_session(HEADER.id))

        assert [each.message.text for each in loaded.records] == [
            "hello there # not a comment\n",
            "two",
        ]
        assert loaded.notices == ()

    def test_a_file_that_an_editor_left_without_its_last_newline_is_continued(
        self, store, root, again
    ):
        self._saved(store, HEADER, user("one"))
        path = root / "2026-11-21_0d9f3c52" / "session.yaml"
        path.write_bytes(path.read_bytes().rstrip(b"\n"))

        second = again()
        wait(second.load_session(HEADER.id))
        wait(second.save_message(HEADER.id, message_record(2, user("two"))))
        wait(second.close_session(HEADER.id))

        loaded = wait(again().load_session(HEADER.id))
        assert ([each.message.text for each in loaded.records], loaded.notices) == (
            ["one", "two"],
            (),
        )

    def test_outputs_can_be_saved_before_the_first_message(self, store, again):
        outputs = store.outputs_folder(HEADER)
        outputs.mkdir(parents=True)
        (outputs / "long.txt").write_text("long")
        self._saved(store, HEADER, user("one"))
        wait(again().load_session(HEADER.id))

        assert store.outputs_folder(HEADER) == outputs
        assert [path.name for path in sorted(outputs.parent.iterdir())] == [
            "lock",
            "outputs",
            "session.yaml",
        ]
        assert (outputs / "long.txt").read_text() == "long"

    def test_failed_creation_can_be_retried(self, store, again, monkeypatch):
        def no_room(*_):
            raise OSError(28, os.strerror(28))

        with monkeypatch.context() as full:
            full.setattr(os, "write", no_room)
            with pytest.raises(SaveFailed, match="No space left"):
                wait(store.create_session(HEADER))
        self._saved(store, HEADER, user("one"))

        assert len(wait(again().load_session(HEADER.id)).records) == 1

    def test_long_session_loads_what_is_sent_and_the_rest_by_page(self, store, again):
        count = 4 * MIN_SHOWN
        records: list[Record] = [
            message_record(number % 60, user(str(number))) for number in range(1, count + 1)
        ]
        records = [replace(each, number=number) for number, each in enumerate(records, 1)]
        check = CompactionRecord(
            count + 1, AT, (1, count - 5), (3, 7), "what was said", spent=Usage(input=9)
        )
        records += [TitleRecord("title", AT), check, message_record(1, user("last"))]
        records[-1] = replace(records[-1], number=count + 2)
        wait(store.import_session(HEADER, records))

        loaded = wait(again().load_session(HEADER.id, reach="context"))
        transcript = Transcript.of(loaded)

        assert (loaded.is_complete, loaded.offset > 0, transcript.is_complete) == (True, True, True)
        assert [each.message.text for each in loaded.kept] == ["3", "7"]
        assert len(transcript.entries) == MIN_SHOWN
        whole = Transcript.of(wait(again().load_session(HEADER.id, read_only=True)))
        assert (transcript.sent(), transcript.usage) == (whole.sent(), whole.usage)
        place, pages = loaded.offset, []
        while place:
            records, place = wait(store.load_before(HEADER.id, place, 50))
            pages.append(len(transcript.prepend(records, is_whole=place == 0)))
        assert pages == [50, 50, count + 1 - MIN_SHOWN - 100]
        assert (transcript.entries, transcript.sent()) == (whole.entries, whole.sent())

    def test_place_of_a_message_is_the_end_of_the_page_before(self, store, again):
        wait(store.create_session(HEADER))
        for number in range(1, 8):
            wait(store.save_message(HEADER.id, message_record(number, user(str(number)))))
        records, place = wait(store.load_before(HEADER.id, store.offset_of(HEADER.id, 5), 3))
        assert [each.message.text for each in records] == ["2", "3", "4"]
        assert store.offset_of(HEADER.id, 2) == place
        assert store.offset_of(HEADER.id, 99) is None
        wait(store.close_session(HEADER.id))

        second = again()
        wait(second.load_session(HEADER.id))
        assert second.offset_of(HEADER.id, 2) == place
        wait(second.close_session(HEADER.id))

    def test_rewound_messages_are_skipped_when_loading(self, store, again):
        records: list[Record] = [message_record(1, user(str(number))) for number in range(1, 301)]
        records = [replace(each, number=number) for number, each in enumerate(records, 1)]
        records.insert(100, CompactionRecord(1000, AT, (1, 90), (5,), "first"))
        records.insert(220, CompactionRecord(1001, AT, (1, 200), (5,), "second"))
        records += [RewindRecord(150, AT), replace(message_record(1, user("else")), number=1002)]
        wait(store.import_session(HEADER, records))

        loaded = wait(again().load_session(HEADER.id, reach="screen"))
        transcript = Transcript.of(loaded)

        whole = Transcript.of(wait(again().load_session(HEADER.id, read_only=True)))
        assert transcript.compaction == records[100]
        assert transcript.sent() == whole.sent()
        assert whole.entries[-len(transcript.entries) :] == transcript.entries
        branches = [(each.since, each.entries[-1].number) for each in transcript.branches]
        assert (
            branches
            == [(150, 300)]
            == [(each.since, each.entries[-1].number) for each in whole.branches]
        )

    def test_sessions_with_the_same_id_prefix_get_separate_folders(self, store, root):
        twin = SessionHeader("0d9f3c52-0000-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", HEADER.created_at)
        self._saved(store, HEADER, user("one"))
        self._saved(store, twin, user("two"))

        assert wait(store.load_session(twin.id)).header == twin
        assert wait(store.load_session(HEADER.id)).header == HEADER


def test_output_also_sent_to_the_model_is_stored_once(tmp_path):
    store = YamlFileMemoryStore(tmp_path / "sessions")
    header = SessionHeader(
        "0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", "2026-11-21T20:14:03.120Z"
    )
    output = "line of output\n" * 50 + "the end"
    shown = Display("51 lines", CommandOutput("make", output, 0))
    message = tool(ToolReply("c1", "shell", f"{output}\n[exit code 0, 0.1 s]", display=shown))
    wait(store.create_session(header))
    wait(store.save_message(header.id, MessageRecord(1, header.created_at, message)))
    wait(store.close_session(header.id))
    [file] = tmp_path.rglob("session.yaml")
    assert file.read_text().count("the end") == 1
    assert wait(store.load_session(header.id)).records[0].message == message


def test_a_new_session_lists_the_other_sessions_a_few_times_only(root, monkeypatch):
    for number in range(2_000):
        (root / f"2026-01-01_{number:08x}").mkdir(parents=True)
    listed: list[str] = []
    real = os.listdir

    def counted(folder: str | os.PathLike[str]) -> list[str]:
        listed.append(os.fspath(folder))
        return real(folder)

    monkeypatch.setattr(os, "listdir", counted)
    store = YamlFileMemoryStore(root)
    for _ in range(4):
        store.outputs_folder(HEADER)
    wait(store.create_session(HEADER))
    wait(store.close_session(HEADER.id))

    assert listed.count(str(root)) <= 3
