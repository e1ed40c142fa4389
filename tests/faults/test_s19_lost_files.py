"""S19: the file of an open session is deleted, cut or replaced."""

import shutil
from contextlib import nullcontext, suppress

import pytest

from ouro.errors import SaveFailed
from ouro.memory.backend import MessageRecord
from ouro.memory.manager import MemoryManager
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import ToolCall, ToolReply, assistant, tool, user

OTHER = (
    b"---\nsession: {format: 1, id: x, created_at: ''}\n...\n---\nmessage: 1\nrole: user\ntext:"
    b" other words\n...\n"
)


def deleted(path):
    path.unlink()


def folder_removed(path):
    shutil.rmtree(path.parent)


def emptied(path):
    path.write_bytes(b"")


def cut(path):
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"message: 3") + 20])


def replaced(path):
    path.with_name("new").write_bytes(OTHER)
    path.with_name("new").replace(path)


def rewritten(path):
    path.write_bytes(OTHER * 20)


async def talk(store, count=4, **options):
    memory = MemoryManager.start(store, project="/p", model="m", **options)
    for number in range(1, count + 1):
        await memory.add(
            user(f"question {number}") if number % 2 else assistant(f"answer {number}")
        )
    return memory


async def texts(store, session_id):
    loaded = await store.load_session(session_id)
    await store.close_session(session_id)
    assert loaded.notices == ()
    return [record.message.text for record in loaded.records if isinstance(record, MessageRecord)]


@pytest.mark.parametrize("resumed", [False, True], ids=["new", "resumed"])
@pytest.mark.parametrize("harm", [deleted, folder_removed, emptied, cut, replaced, rewritten])
async def test_s19_session_file_lost_while_open_is_rewritten(home, harm, resumed):
    store, notices = YamlFileMemoryStore(), []
    memory = await talk(store, on_notice=notices.append)
    if resumed:
        await memory.close()
        memory = await MemoryManager.resume(
            store, memory.session_id, project="/p", on_notice=notices.append
        )
    (path,) = (home / ".ouro" / "sessions").glob("2*/session.yaml")
    harm(path)
    left = path.read_bytes() if path.exists() else b""

    await memory.add(user("question 5"))
    await memory.add(assistant("answer 6"))
    await memory.close()

    words = [f"{'question' if number % 2 else 'answer'} {number}" for number in range(1, 7)]
    assert await texts(YamlFileMemoryStore(), memory.session_id) == words
    assert len(notices) == 1
    assert (
        "by another program while the session was open. The session was written again" in notices[0]
    )
    found = [each.read_bytes() for each in path.parent.glob("session-*.found")]
    assert found == ([left] if left else [])
    assert all(str(each) in notices[0] for each in path.parent.glob("session-*.found"))


@pytest.mark.parametrize("is_link", [False, True])
async def test_s19_long_output_after_the_folder_was_removed(home, is_link):
    store, notices, output = YamlFileMemoryStore(), [], "output\n" * 10_000
    memory = await talk(store, 2, on_notice=notices.append)
    await memory.add(assistant("", ToolCall("1", "shell", {})))
    (path,) = (home / ".ouro" / "sessions").glob("2*/session.yaml")
    folder_removed(path)
    (elsewhere := home / "elsewhere").mkdir()
    if is_link:
        path.parent.symlink_to(elsewhere)

    with suppress(SaveFailed) if is_link else nullcontext():
        await memory.add(tool(ToolReply("1", "shell", output)))
    if is_link:
        path.parent.unlink()
    await memory.close()

    assert list(elsewhere.iterdir()) == []
    assert any("The session was written again" in notice for notice in notices)
    loaded = await store.load_session(memory.session_id, read_only=True)
    assert [record.number for record in loaded.records if isinstance(record, MessageRecord)] == [
        1,
        2,
        3,
        4,
    ]
    assert loaded.records[-1].message.parts_of(ToolReply)[0].text == output


async def test_s19_text_appended_by_another_program_is_kept(home):
    store, notices = YamlFileMemoryStore(), []
    memory = await talk(store, 2, on_notice=notices.append)
    (path,) = (home / ".ouro" / "sessions").glob("2*/session.yaml")
    with path.open("ab") as file:
        file.write(b"---\nrole: user\ntext: added by hand\n...\n")

    await memory.add(user("question 3"))
    await memory.close()

    assert notices == []
    assert await texts(store, memory.session_id) == [
        "question 1",
        "answer 2",
        "added by hand",
        "question 3",
    ]


async def test_s19_title_pins_and_mode_are_rewritten_too(home):
    store = YamlFileMemoryStore()
    memory = await talk(store, 2)
    memory.set_title("A good name")
    memory.set_mode("plan")
    await memory.add(user("question 3"))
    (path,) = (home / ".ouro" / "sessions").glob("2*/session.yaml")
    emptied(path)
    await memory.add(assistant("answer 4"))
    await memory.close()

    again = await MemoryManager.resume(store, memory.session_id, project="/p")
    assert (again.title, again.mode, again.model) == ("A good name", "plan", "m")
    await again.close()
