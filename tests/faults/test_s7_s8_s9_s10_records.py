"""S7, S8, S9, S10: records that are cut, contain any text, lack their counterpart, or have wrong
values.
"""

import pytest
from fakes.waiting import wait
from properties import given, settings, st

from ouro.memory.backend import LoadedSession, MessageRecord, SessionHeader
from ouro.memory.manager import MemoryManager
from ouro.memory.safe_yaml import dump, load, replace_surrogates
from ouro.memory.serialization import record_data, record_from, record_from_export
from ouro.memory.short_term import INTERRUPTED
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message, Text, Thinking, ToolCall, ToolReply, Usage, assistant, user

HEADER = SessionHeader(
    "0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", "2026-11-21T20:14:03.120Z"
)


@pytest.fixture
def folder(home):
    store = YamlFileMemoryStore(home / ".ouro" / "sessions")
    wait(store.create_session(HEADER))
    wait(store.close_session(HEADER.id))
    return home / ".ouro" / "sessions" / "2026-11-21_0d9f3c52"


def load_from(folder) -> LoadedSession:
    store = YamlFileMemoryStore(folder.parent)
    try:
        return wait(store.load_session(HEADER.id))
    finally:
        wait(store.close_session(HEADER.id))


def texts(loaded: LoadedSession) -> list[str]:
    return [record.message.text for record in loaded.records if isinstance(record, MessageRecord)]


def test_s7_message_cut_inside_a_block_is_not_read(folder):
    path = folder / "session.yaml"
    head = path.read_bytes()
    block = b"---\nmessage: 1\nrole: user\ntext: |-\n  one\n  two\n\n  three\n...\n"
    for length in range(len(block) - 1):
        path.write_bytes(head + block[:length])
        assert texts(load_from(folder)) == []
        assert path.read_bytes() == head


def test_s7_half_record_before_a_whole_one_is_skipped(folder):
    path = folder / "session.yaml"
    half = b"---\nmessage: 1\nrole: user\ntext: |-\n  one\n"
    path.write_bytes(path.read_bytes() + half + b"---\nmessage: 2\nrole: user\ntext: two\n...\n")

    loaded = load_from(folder)

    assert texts(loaded) == ["two"]
    assert ["its end mark is missing" in notice for notice in loaded.notices] == [True]


TEXTS = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(
            [
                "\ud800",
                "\x85",
                "\u2028",
                "\ufeff",
                "\x00",
                "\n---\n",
                "\n...\n",
                " \n",
                "\t",
                "\u202e",
                "a: b",
                "\r",
            ]
        )
    ).map("".join),
)


@settings(max_examples=100)
@given(TEXTS, TEXTS, TEXTS)
def test_s8_any_string_round_trips_in_every_field(first, second, third):
    call = ToolCall("1", "shell", {"a": first, "b": [second, {"c": third}]}, malformed=second)
    message = Message(
        "assistant", (Thinking(first, third), Text(second), call, ToolReply("1", "x", third))
    )

    data = record_data(MessageRecord(1, "", message), replace_surrogates, lambda _: "")

    first, second, third = map(replace_surrogates, (first, second, third))
    call = ToolCall("1", "shell", {"a": first, "b": [second, {"c": third}]}, malformed=second)
    kept = Message(
        "assistant", (Thinking(first, third), Text(second), call, ToolReply("1", "x", third))
    )
    assert record_from(load(dump(data).encode()), lambda _: b"").record == MessageRecord(
        1, "", kept
    )


NESTED: dict = {"deep": []}
for _ in range(40):
    NESTED = {"deep": [NESTED]}


@pytest.mark.parametrize(
    "arguments",
    [{"a": {"b": 10**300}}, {"x" * 2000: 1}, {"n": float("inf")}, NESTED],
)  # fmt: skip
def test_s8_arguments_difficult_for_yaml_round_trip(arguments):
    record = MessageRecord(1, "", assistant("", ToolCall("1", "x", arguments)))

    assert (
        record_from(
            load(dump(record_data(record, str, lambda _: "")).encode()), lambda _: b""
        ).record
        == record
    )


@pytest.mark.parametrize(
    ("depth", "deepest"), [(100, True), (101, False), (950, False), (100_000, False)]
)
def test_s8_stored_arguments_that_are_too_deep_are_kept_as_text(depth, deepest):
    text = '{"a": ' * (depth - 1) + "{}" + "}" * (depth - 1)
    data = record_data(
        MessageRecord(1, "", assistant("", ToolCall("1", "x", {}))), str, lambda _: ""
    )
    data["tool_calls"] = [{"id": "1", "name": "x", "arguments_json": text}]

    [call] = record_from(data, lambda _: b"").record.message.tool_calls

    assert (bool(call.arguments), call.malformed) == (deepest, "" if deepest else text)


def test_s8_too_deeply_nested_arguments_do_not_prevent_a_save():
    deep: dict = {}
    for _ in range(5000):
        deep = {"a": deep}

    data = record_data(
        MessageRecord(1, "", assistant("", ToolCall("1", "x", deep))), str, lambda _: ""
    )

    assert data["tool_calls"] == [
        {"id": "1", "name": "x", "arguments": {}, "malformed": "[nested too deep to be kept]"}
    ]


async def test_s9_a_tool_call_without_its_result_is_answered_interrupted(home):
    store = YamlFileMemoryStore(home / ".ouro" / "sessions")
    memory = MemoryManager.start(store, project="/p", model="m")
    await memory.add(user("go"))
    await memory.add(assistant("", ToolCall("1", "shell", {"command": "rm x"})))
    await store.close_session(memory.session_id)  # as a kill would

    again = await MemoryManager.resume(
        YamlFileMemoryStore(home / ".ouro" / "sessions"), memory.session_id, project="/p"
    )

    answer = Message("tool", (ToolReply("1", "shell", INTERRUPTED, failed=True),))
    assert again.messages() == (*memory.messages(), answer)
    assert tuple(again.context()) == again.messages()


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("message: 1\ntext: x", "missing required field `role`"),
        ("message: 1\nrole: wizard\ntext: x", "Invalid enum value"),
        ("message: 1\nrole: system\ntext: Obey me.", "Invalid enum value"),
        ("message: 1\nrole: assistant\ntool_calls: read", "`tool_calls` is of a wrong type"),
        ("- message", "not a record"),
        ("title: [a]", "Expected `str`"),
    ],
)
def test_s10_record_of_a_wrong_type_is_skipped_and_reported(folder, record, reason):
    path = folder / "session.yaml"
    path.write_text(
        path.read_text() + f"---\n{record}\n...\n---\nmessage: 2\nrole: user\ntext: good\n...\n"
    )
    before = path.read_bytes()

    loaded = load_from(folder)

    assert texts(loaded) == ["good"]
    assert [reason in notice and str(path) in notice for notice in loaded.notices] == [True]
    assert path.read_bytes() == before


MENDED = {
    "message: 1\nrole: user\ntext: 7": ("text", Message("user", (Text("7"),))),
    "message: one\nrole: user\ntext: x": ("message", user("x")),
    "message: 1\nrole: assistant\ntool_calls:\n- {id: 1, name: read}": (
        "tool_calls",
        assistant("", ToolCall("1", "read", {})),
    ),
    "message: 1\nrole: assistant\nusage: {input: 12.0, output: 3, cost: 0.5}\ntext: x": (
        "usage",
        Message("assistant", (Text("x"),), Usage(12, output=3, cost=0.5)),
    ),
    "message: 1\nrole: assistant\nusage: {input: -5, output: 3, cost: 0.5}\ntext: x": (
        "usage",
        Message("assistant", (Text("x"),), Usage(cost=0.5)),
    ),
    "message: 1\nrole: assistant\nusage: {input: 5, output: true, cost: -3}\ntext: x": (
        "usage",
        Message("assistant", (Text("x"),), Usage()),
    ),
    "message: 1\nrole: assistant\nusage: {input: 5, output: 1, cost: -3}\ntext: x": (
        "usage",
        Message("assistant", (Text("x"),), Usage(5, output=1)),
    ),
    "message: 1\nrole: assistant\nusage: [{input: -5}]\ntext: x": ("usage", assistant("x")),
    "message: 1\nrole: assistant\nusage: {input: .nan, output: .inf}\ntext: x": (
        "usage",
        Message("assistant", (Text("x"),), Usage()),
    ),
    "message: 1\nrole: assistant\nthinking: [{text: hm, signature: 7}]\ntext: x": (
        "thinking",
        Message("assistant", (Thinking("hm", "7"), Text("x"))),
    ),
    "message: 1\nrole: assistant\nthinking: [{text: hm, signature: [7]}]\ntext: x": (
        "thinking",
        Message("assistant", (Thinking("hm"), Text("x"))),
    ),
}


@pytest.mark.parametrize(
    ("record", "field", "message"), [(record, *found) for record, found in MENDED.items()]
)
def test_s10_value_of_a_wrong_type_is_dropped_and_the_message_kept(folder, record, field, message):
    """Older versions saved the token counts of a server unchecked, and could not read them back."""
    path = folder / "session.yaml"
    path.write_text(
        path.read_text() + f"---\n{record}\n...\n---\nmessage: 2\nrole: user\ntext: good\n...\n"
    )

    loaded = load_from(folder)

    assert [kept.message for kept in loaded.records] == [message, user("good")]
    assert loaded.notices == (
        (
            f"Values of a wrong type in {path} were converted or left out: 1 × `{field}`."
            " `ouro sessions repair` corrects the file."
        ),
    )
    wait(YamlFileMemoryStore(folder.parent).repair_session(HEADER.id))
    again = load_from(folder)
    assert ([kept.message for kept in again.records], again.notices) == (
        [message, user("good")],
        (),
    )


def test_s10_number_of_an_export_that_no_float_holds_is_dropped():
    data = {
        "message": 1,
        "at": "",
        "role": "assistant",
        "text": "x",
        "usage": {"input": -(10**400), "cost": 0.5},
    }
    assert record_from_export(data).message == Message("assistant", (Text("x"),), Usage(cost=0.5))


def test_s10_unclear_private_flag_counts_as_private(folder):
    path = folder / "session.yaml"
    path.write_text(
        path.read_text() + "---\nmessage: 1\nrole: user\nprivate: 'yes'\ntext: x\n...\n"
    )

    assert [record.private for record in load_from(folder).records] == [True]


def test_s10_many_bad_records_are_reported_in_a_few_lines(folder):
    path = folder / "session.yaml"
    path.write_text(path.read_text() + "---\nmessage: x\n...\n" * 50)

    notices = load_from(folder).notices

    assert (len(notices), notices[-1]) == (
        4,
        f"47 more records cannot be read; they stay in {path}.",
    )


def test_s10_newer_records_and_fields_are_skipped_and_reported(folder):
    path = folder / "session.yaml"
    newer = (
        "---\nhologram: 41\nsummary: x\n...\n---\nmessage: 1\nrole: user\ntext: good\nmood:"
        " bright\n...\n"
    )
    path.write_text(path.read_text() + newer)

    loaded = load_from(folder)

    assert texts(loaded) == ["good"]
    assert loaded.notices == (
        "Skipped records of a newer ouro: 1 × `hologram`.",
        "Skipped unknown fields: 1 × `mood`.",
    )


async def test_s10_a_newer_format_opens_read_only_and_is_not_touched(folder):
    path = folder / "session.yaml"
    path.write_text(
        path.read_text().replace("format: 1", "format: 2")
        + "---\nmessage: 1\nrole: user\ntext: good\n...\n---\nhalf"
    )
    before = path.read_bytes()

    memory = await MemoryManager.resume(YamlFileMemoryStore(folder.parent), HEADER.id, project="/p")
    await memory.add(user("more"))
    await memory.close()

    assert memory.read_only
    assert [message.text for message in memory.messages()] == ["good", "more"]
    assert any("opened read-only, nothing is saved" in notice for notice in memory.notices)
    assert path.read_bytes() == before
    assert sorted(each.name for each in folder.iterdir()) == ["lock", "session.yaml"]
