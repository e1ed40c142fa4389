import pytest
from fakes.waiting import wait

from ouro.errors import SessionDamaged, SessionInUse
from ouro.memory.backend import MessageRecord, SessionHeader
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import user

HEADER = SessionHeader(
    "0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", "2026-11-21T20:14:03.120Z"
)
NEWER = b"---\nhologram: 4\nsummary: x\n...\n"
BAD = b"---\nmessage: 7\nrole: nobody\n...\n"


@pytest.fixture
def store(home):
    store = YamlFileMemoryStore(home / ".ouro" / "sessions")
    wait(store.create_session(HEADER))
    for number, text in enumerate(("one", "two\nlines"), 1):
        wait(store.save_message(HEADER.id, MessageRecord(number, "", user(text))))
    wait(store.close_session(HEADER.id))
    return store


@pytest.fixture
def path(store, home):
    return home / ".ouro" / "sessions" / "2026-11-21_0d9f3c52" / "session.yaml"


def test_sound_session_is_unchanged(store, path):
    before = path.read_bytes()

    assert wait(store.repair_session(HEADER.id)) == ()
    assert path.read_bytes() == before


def test_damage_is_set_aside_and_the_rest_kept_byte_for_byte(store, path):
    good = path.read_bytes()
    path.write_bytes(good + BAD + NEWER + b"---\nhalf")

    done = wait(store.repair_session(HEADER.id))

    torn = path.with_name("session-1.torn")
    assert path.read_bytes() == good + NEWER
    assert torn.read_bytes() == BAD + b"---\nhalf"
    assert done == (f"Moved 1 record and 8 bytes at the end to {torn}.", "Kept 3 records.")
    assert wait(store.repair_session(HEADER.id)) == ()


def test_lost_header_is_recreated(store, path):
    path.write_bytes(path.read_bytes().replace(b"session: {format", b"session: {{format"))

    listed = wait(store.list_sessions())[0]
    done = wait(store.repair_session(listed.id))

    found = wait(store.list_sessions())[0]
    assert "The header was lost. A new one was made." in done
    assert (found.id[:8], found.messages) == ("0d9f3c52", 2)
    assert [record.message.text for record in wait(store.load_session(found.id)).records] == [
        "one",
        "two\nlines",
    ]


def test_session_of_a_newer_version_is_not_repaired(store, path):
    path.write_bytes(path.read_bytes().replace(b"format: 1", b"format: 2") + b"---\nhalf")
    before = path.read_bytes()

    with pytest.raises(SessionDamaged, match="newer ouro"):
        wait(store.repair_session(HEADER.id))
    assert path.read_bytes() == before


def test_an_open_session_is_not_repaired(store):
    wait(store.load_session(HEADER.id))

    with pytest.raises(SessionInUse):
        wait(store.repair_session(HEADER.id))
