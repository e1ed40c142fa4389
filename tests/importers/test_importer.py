import json
import shutil
from pathlib import Path

import pytest
from fakes.waiting import wait

from ouro.importers import importer
from ouro.importers.importer import Importer, ImportLedger, ImportResult, find_sources, usual_places
from ouro.memory.backend import MessageRecord, ModeRecord, RewindRecord, SessionHeader, TitleRecord
from ouro.memory.manager import MemoryManager
from ouro.memory.serialization import header_data, record_data
from ouro.memory.short_term import make_sendable
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Context, user

DATA = Path(__file__).parent / "data"
CART = "6a1d2c3b-4e5f-4061-9b7c-8d9e0f1a2b3c"


@pytest.fixture
def store(home) -> YamlFileMemoryStore:
    return YamlFileMemoryStore(
        home / ".ouro" / "sessions", lambda text: text.replace("hunter2hunter2", "[secret]")
    )


def take(store, home, *paths, program=None) -> list[ImportResult]:
    ledger = ImportLedger()
    reader = Importer(store, ledger, {info.id for info in wait(store.list_sessions())})
    done = [wait(reader.import_source(each)) for each in find_sources(paths, program)]
    ledger.save()
    return done


def outcomes(done) -> list[str]:
    return [each.outcome for each in done]


def texts(store, session_id) -> list[str]:
    found = wait(store.read_whole(session_id)).records()
    return [
        each.message.text for each in found if isinstance(each, MessageRecord) and each.message.text
    ]


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines(keepends=True)


def test_every_format_is_recognized_by_its_first_lines():
    found = find_sources([DATA])
    assert sorted((each.program, each.path.name) for each in found) == [
        ("claude-code", "claude-code-1.0.jsonl"),
        ("claude-code", "claude-code-2.1.jsonl"),
        ("codex", "codex-0.2.jsonl"),
        ("codex", "codex-0.98.jsonl"),
        ("ouro-old", "session.yaml"),
    ]
    by_name = {each.path.name: (each.project, each.first_words) for each in found}
    assert by_name["codex-0.98.jsonl"] == ("/home/me/src/shop", "add a test for the cart")
    assert by_name["claude-code-1.0.jsonl"] == (
        "/home/me/src/shop",
        "fix the broken import in api.py",
    )


def test_default_folders_are_searched(home, monkeypatch):
    for name in (".claude/projects/-home-me", ".codex/sessions/2026/02/03"):
        (home / name).mkdir(parents=True)
    shutil.copy(
        DATA / "claude-code-2.1.jsonl", home / ".claude/projects/-home-me" / f"{CART}.jsonl"
    )
    shutil.copy(DATA / "codex-0.98.jsonl", home / ".codex/sessions/2026/02/03/rollout-x.jsonl")
    agent = {
        "type": "user",
        "isSidechain": True,
        "sessionId": CART,
        "message": {"role": "user", "content": "x"},
    }
    (home / ".claude/projects/-home-me" / "agent-1.jsonl").write_text(json.dumps(agent) + "\n")

    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.delenv("CODEX_HOME", raising=False)
    assert sorted(each.program for each in find_sources(usual_places())) == ["claude-code", "codex"]


async def test_imported_session_can_be_listed_read_and_continued(store, home):
    assert outcomes(take(store, home, DATA)) == ["new"] * 5
    assert {each.title for each in await store.list_sessions()} == {
        "The cart", "Cart test", "read api.py", "list the files", "Flask import repaired",
    }  # fmt: skip
    assert [each.updated_at[:10] for each in await store.list_sessions()] == [
        "2026-03-02", "2026-02-03", "2025-09-01", "2025-06-20", "2025-05-16",
    ]  # fmt: skip

    for info in await store.list_sessions():
        memory = await MemoryManager.resume(store, info.id, project="/home/me/src/shop")
        sent = memory.context()
        assert sent == make_sendable(sent)
        assert sent
        await memory.add(user("and now?"))
        await memory.close()
        assert texts(store, info.id)[-1] == "and now?"


def test_second_import_adds_and_reads_nothing(store, home):
    take(store, home, DATA)
    before = {each.id: each.size for each in wait(store.list_sessions())}
    assert outcomes(take(store, home, DATA)) == ["known"] * 5
    (home / ".ouro" / "cache" / "imports.json").unlink()
    assert outcomes(take(store, home, DATA)) == ["known"] * 5
    assert {each.id: each.size for each in wait(store.list_sessions())} == before


@pytest.mark.parametrize(
    "name",
    ["claude-code-1.0.jsonl", "claude-code-2.1.jsonl", "codex-0.2.jsonl", "codex-0.98.jsonl"],
)
def test_growing_log_is_imported_as_if_read_at_once(store, home, tmp_path, name):
    path = tmp_path / name
    path.touch()
    for line in lines(DATA / name):
        with path.open("a") as file:
            file.write(line)
        take(store, home, tmp_path)
    (session,) = wait(store.list_sessions())
    grown = list(wait(store.read_whole(session.id)).records())

    fresh = YamlFileMemoryStore(tmp_path / "fresh")
    wait(Importer(fresh, ImportLedger(), set()).import_source(find_sources([path])[0]))
    assert texts_that_go_on(grown) == texts_that_go_on(
        list(wait(fresh.read_whole(session.id)).records())
    )


def texts_that_go_on(records) -> list:
    from ouro.memory.transcript import Transcript

    transcript = Transcript()
    for record in records:
        transcript.add_record(record)
    return [(each.message.role, each.message.parts) for each in transcript.entries]


def test_appended_messages_are_imported_once(store, home, tmp_path):
    path = tmp_path / "log.jsonl"
    whole = lines(DATA / "claude-code-2.1.jsonl")
    path.write_text("".join(whole[:5]))
    assert [(each.outcome, each.messages) for each in take(store, home, path)] == [("new", 2)]
    path.write_text("".join(whole))
    assert [(each.outcome, each.messages) for each in take(store, home, path)] == [("more", 9)]
    assert outcomes(take(store, home, path)) == ["known"]
    numbers = [
        each.number
        for each in wait(store.read_whole(CART)).records()
        if isinstance(each, MessageRecord)
    ]
    assert numbers == sorted(set(numbers))
    assert RewindRecord(2, "2026-03-02T10:02:00.000Z") in list(
        wait(store.read_whole(CART)).records()
    )


def test_a_session_that_went_on_in_both_places_keeps_both(store, home, tmp_path):
    path = tmp_path / "log.jsonl"
    whole = lines(DATA / "claude-code-2.1.jsonl")
    path.write_text("".join(whole[:5]))
    take(store, home, path)
    loaded = wait(store.load_session(CART))
    number = max(each.number for each in loaded.records if isinstance(each, MessageRecord)) + 1
    wait(
        store.save_message(
            CART, MessageRecord(number, "2026-03-05T00:00:00.000Z", user("said here"))
        )
    )
    wait(store.save_memory(CART, TitleRecord("My own title", "2026-03-05T00:00:01.000Z")))
    wait(store.close_session(CART))
    path.write_text("".join(whole))
    (done,) = take(store, home, path)

    assert (done.outcome, done.messages) == ("more", 9)
    assert "continued in both places" in done.reason
    said = texts(store, CART)
    assert said.index("said here") < said.index("draw it as SVG")
    contexts = [
        part.text
        for each in wait(store.read_whole(CART)).records()
        if isinstance(each, MessageRecord)
        for part in each.message.parts
        if isinstance(part, Context)
    ]
    assert contexts == [
        "What follows was said in Claude Code, where this session was continued too."
    ]
    assert wait(store.get_session_stats(CART)).title == "My own title"
    assert outcomes(take(store, home, path)) == ["known"]
    assert texts(store, CART) == said


def test_existing_session_with_the_same_id_is_kept(store, home):
    wait(store.create_session(SessionHeader(CART, "/mine", "m", "2026-01-01T00:00:00.000Z")))
    wait(store.save_message(CART, MessageRecord(1, "2026-01-01T00:00:00.000Z", user("mine"))))
    wait(store.close_session(CART))
    (done,) = take(store, home, DATA / "claude-code-2.1.jsonl")

    assert done.outcome == "new"
    assert done.session_id != CART
    assert texts(store, CART) == ["mine"]
    assert outcomes(take(store, home, DATA / "claude-code-2.1.jsonl")) == ["known"]


def test_open_session_is_skipped_and_reported(store, home, tmp_path):
    path = tmp_path / "log.jsonl"
    whole = lines(DATA / "claude-code-2.1.jsonl")
    path.write_text("".join(whole[:5]))
    take(store, home, path)
    path.write_text("".join(whole))
    holder = YamlFileMemoryStore(home / ".ouro" / "sessions")
    wait(holder.load_session(CART))
    (done,) = take(store, home, path)
    assert done.outcome == "failed"
    wait(holder.close_session(CART))
    assert outcomes(take(store, home, path)) == ["more"]


def test_a_file_that_cannot_be_read_to_its_end_does_not_stop_the_others(store, home, monkeypatch):
    def fail(_path):
        raise OSError(5, "Input/output error")

    monkeypatch.setitem(importer.READERS, "codex", fail)
    done = take(store, home, DATA)
    failed = [result for result in done if result.source.program == "codex"]
    assert {result.outcome for result in failed} == {"failed"}
    assert "Input/output error" in failed[0].reason
    assert "new" in outcomes(done)


def test_secrets_are_masked_on_import(store, home, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(
        (DATA / "codex-0.98.jsonl")
        .read_text()
        .replace("add a test", "use hunter2hunter2 to add a test")
    )
    take(store, home, path)
    kept = "".join(
        each.read_text(errors="replace") for each in (home / ".ouro").rglob("*") if each.is_file()
    )
    assert "hunter2hunter2" not in kept
    assert (
        texts(store, "019c22a0-1111-7222-8333-444455556666")[0]
        == "use [secret] to add a test for the cart"
    )


HOSTILE = [
    b"\0" * 4096 + b"\n",
    b'{"type":"user","uuid":"a","parentUuid":"a","message":{"role":"user","content":' + b"[" * 100_000 + b"\n",
    b'{"type":"user","message":{"role":"user","content":"' + b"x" * 10_000_000 + b'"}}\n',
    b'{"type":"user","message":{"role":"user","content":"\\ud800 \\u0000 \\u202e \xff\xfe"}}\n',
    b'{"type":"user","cwd":"/../../etc","sessionId":"../../../etc/passwd","gitBranch":["x"],"timestamp":1e400,'
    b'"message":{"role":"user","content":[{"type":"text","text":7},null,{"type":"image","source":{"data":"%%%"}}]}}\n',
    b'{"type":"assistant","uuid":{},"message":{"id":[],"model":7,"content":[{"type":"tool_use","id":"../x","name":"'
    + b"n" * 5000 + b'","input":{"k":' + b'{"k":' * 40 + b"1" + b"}" * 40 + b'}}],"usage":{"input_tokens":-5}}}\n',
    b'{"type":"summary","leafUuid":null,"summary":{}}\n',
    b'{"type":"system","subtype":"compact_boundary","compactMetadata":[]}\n',
    b'{"type":"user","isCompactSummary":true,"message":{"role":"user","content":""}}\n',
    b'{"type":"response_item","payload":{"type":"function_call","arguments":{"a":[]},"call_id":7,"name":null}}\n',
    b'{"type":"response_item","payload":{"type":"message","role":"user","content":[{"image_url":"data:x"},[]]}}\n',
    b'{"type":"response_item","payload":{"type":"reasoning","summary":{},"content":[7]}}\n',
    b'{"type":"event_msg","payload":{"type":"thread_rolled_back","num_turns":99999999}}\n',
    b'{"type":"event_msg","payload":{"type":"token_count","info":{"last_token_usage":{"input_tokens":1e99}}}}\n',
    b'{"type":"session_meta","payload":{"id":{},"cwd":7,"git":7,"timestamp":[]}}\n',
    b'[1]\n7\n"x"\nnull\ntrue\n{}\n',
    b'{"type":[]}\n{"type":"response_item","payload":{"type":[]}}\n',
    b'{"type":"user","parentUuid":[],"message":{"role":"user","content":"an odd parent"}}\n',
    b'{"type":"response_item","payload":{"type":"message","role":"user","content":"the end"}}\n',
    b'{"type":"user","sessionId":"../../../etc/passwd","message":{"role":"user","content":"the end"}}\n',
    b'{"type":"user","message":{"role":"user","content":"cut off in the mid',
]  # fmt: skip


@pytest.mark.parametrize("program", ["claude-code", "codex"])
async def test_hostile_lines_do_not_stop_the_import(store, home, tmp_path, program):
    path = tmp_path / "hostile.jsonl"
    path.write_bytes(b"".join(HOSTILE))
    (done,) = take(store, home, path, program=program)

    assert done.outcome == "new"
    assert done.left_out["lines that cannot be read"] >= 7
    assert texts(store, done.session_id)[-1] == "the end"
    assert (await store.get_session_stats(done.session_id)).project == ""
    memory = await MemoryManager.resume(store, done.session_id, project="/p")
    assert memory.context()
    await memory.close()
    assert sorted(each.name for each in home.iterdir()) == [".gitconfig", ".ouro"]


@pytest.mark.parametrize("program", ["ouro-old", "json", "codex", "claude-code"])
def test_foreign_files_are_reported_and_not_imported(store, home, tmp_path, program):
    for name, data in (
        ("a.jsonl", b"\xff\xfe\0"),
        ("b.jsonl", b""),
        ("c.jsonl", b'{"session": {"id": "../x"}}'),
    ):
        (tmp_path / name).write_bytes(data)
    done = take(store, home, tmp_path, program=program)
    assert len(done) == 3
    assert set(outcomes(done)) <= {"failed", "empty"}
    assert wait(store.list_sessions()) == []


def test_pipes_and_link_loops_are_not_followed(store, home, tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "inner").symlink_to(tmp_path)
    assert find_sources([tmp_path]) == []


def test_m1_export_of_another_user_sets_no_mode_and_counts_as_imported(store, home, tmp_path):
    """Memory is made of own sessions only, and the mode of a session is restored when it is
    resumed.
    """
    header = SessionHeader(CART, "/p", "m", "2026-02-03T10:00:00.000Z")
    records = [
        ModeRecord("auto", header.created_at),
        MessageRecord(1, header.created_at, user("Always use tabs.")),
    ]
    document = {
        **header_data(header),
        "records": [record_data(item, str, lambda *_: None) for item in records],
    }
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(document))

    assert outcomes(take(store, home, path)) == ["new"]

    whole = wait(store.read_whole(CART))
    assert [type(record) for record in whole.records()] == [MessageRecord]
    assert whole.header.origin["from"] == "json"
    (home / ".ouro" / "cache" / "imports.json").unlink()
    assert outcomes(take(store, home, path)) == ["known"]
