import pytest

from ouro.errors import SessionDamaged, SessionInUse
from ouro.memory.backend import MessageRecord, SessionHeader
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import user

HEADER = SessionHeader("0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", "2026-11-21T20:14:03.120Z")
NEWER = b"---\nhologram: 4\nsummary: x\n...\n"
BAD = b"---\nmessage: 7\nrole: nobody\n...\n"


@pytest.fixture
def store(home):
    store = YamlFileMemoryStore(home / ".ouro" / "sessions")
    store.create_session(HEADER)
    for number, text in enumerate(("one", "two\nlines"), 1):
        store.save_message(HEADER.id, MessageRecord(number, "", user(text)))
    store.close_session(HEADER.id)
    return store


@pytest.fixture
def path(store, home):
    return home / ".ouro" / "sessions" / "2026-11-21_0d9f3c52" / "session.yaml"


def test_a_sound_session_is_left_alone(store, path):
    before = path.read_bytes()

    assert store.repair_session(HEADER.id) == ()
    assert path.read_bytes() == before


def test_damage_is_set_aside_and_the_rest_kept_byte_for_byte(store, path):
    good = path.read_bytes()
    path.write_bytes(good + BAD + NEWER + b"---\nhalf")

    done = store.repair_session(HEADER.id)

    torn = path.with_name("session-1.torn")
    assert path.read_bytes() == good + NEWER
    assert torn.read_bytes() == BAD + b"---\nhalf"
    assert done == (f"Set aside: 1 records and 8 bytes at the end, in {torn}.", "Kept: 3 records.")
    assert store.repair_session(HEADER.id) == ()


def test_a_lost_header_is_made_again(store, path):
    path.write_bytes(path.read_bytes().replace(b"session: {format", b"session: {{format"))

    listed = store.list_sessions()[0]
    done = store.repair_session(listed.id)

    found = store.list_sessions()[0]
    assert "The header was lost: a new one was made." in done
    assert (found.id[:8], found.messages) == ("0d9f3c52", 2)
    assert [record.message.text for record in store.load_session(found.id).records] == ["one", "two\nlines"]


def test_a_session_of_a_newer_ouro_is_left_alone(store, path):
    path.write_bytes(path.read_bytes().replace(b"format: 1", b"format: 2") + b"---\nhalf")
    before = path.read_bytes()

    with pytest.raises(SessionDamaged, match="newer ouro"):
        store.repair_session(HEADER.id)
    assert path.read_bytes() == before


def test_an_open_session_is_not_repaired(store):
    store.load_session(HEADER.id)

    with pytest.raises(SessionInUse):
        store.repair_session(HEADER.id)
