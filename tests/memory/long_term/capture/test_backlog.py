"""The backlog: which earlier sessions are captured later."""

import shutil

from ouro.memory.backend import MessageRecord, SessionHeader, timestamp
from ouro.memory.long_term.capture.session_parts import find_backlog
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import assistant, user

ID = "0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f"


async def test_manually_copied_session_folder_is_not_captured_again(tmp_path):
    root, at = tmp_path / "sessions", timestamp()
    store = YamlFileMemoryStore(root)
    said = [
        MessageRecord(1, at, user("We use tabs here.")),
        MessageRecord(2, at, assistant("Noted.")),
    ]
    await store.import_session(
        SessionHeader(ID, str(tmp_path), "a/b", at, memory={"user": "0" * 40}), said
    )
    (folder,) = root.glob("*_*")
    shutil.copytree(folder, folder.with_name("kept for later"))
    assert len(await store.list_sessions()) == 2
    missed = find_backlog(SessionCatalog(store, str(tmp_path)), "own")
    assert [session_id async for session_id, _, _ in missed] == [ID]
