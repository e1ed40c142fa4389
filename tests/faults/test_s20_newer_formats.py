"""S20: sessions of a newer ouro are read-only: rename, repair, fork and forget report it and change
nothing.
"""

import re

import pytest
from fakes.waiting import wait
from msgspec.structs import replace

from ouro.errors import SessionError
from ouro.memory.backend import MessageRecord, SessionHeader
from ouro.memory.long_term import OuroHome, TrueForget
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import user

HEADER = SessionHeader(
    "0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", "2026-11-21T20:14:03.120Z"
)
OTHER = replace(HEADER, id="1d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f")


@pytest.fixture
def root(home):
    store = YamlFileMemoryStore(home / ".ouro" / "sessions")
    wait(store.create_session(HEADER))
    wait(store.save_message(HEADER.id, MessageRecord(1, "", user("secret words"))))
    wait(store.close_session(HEADER.id))
    return home / ".ouro" / "sessions"


def rename(root):
    wait(SessionCatalog(YamlFileMemoryStore(root), "/p").rename(HEADER.id, "Another name"))


def repair(root):
    wait(YamlFileMemoryStore(root).repair_session(HEADER.id))


def fork(root):
    wait(YamlFileMemoryStore(root).fork_session(HEADER.id, None, OTHER))


def forget(root):
    home = OuroHome(
        root.parent, root.parent / "history.git", root, root.parent / "cache" / "index.db"
    )
    left = TrueForget("secret words", home).forget().left
    raise SessionError(" ".join(left))


@pytest.mark.parametrize(
    "written", ["format: 2", "format: '2.1'", "format: next", "format: 9, kind: {a: b}"]
)
@pytest.mark.parametrize("action", [rename, repair, fork, forget])
def test_s20_newer_format_is_left_unchanged_and_reported(root, written, action):
    (path,) = root.glob("2*/session.yaml")
    newer = (
        path.read_text().replace("format: 1", written)
        + "---\nhologram: {text: secret words}\n...\n---\nhalf"
    )
    path.write_text(newer)

    with pytest.raises(SessionError) as error:
        action(root)

    assert path.read_text() == newer
    assert [folder.name for folder in root.glob("2*")] == [path.parent.name]
    assert re.search("newer ouro|cannot be read", str(error.value))
