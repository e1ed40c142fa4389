"""Sessions that were left some time ago, in the store of the user."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from fakes.waiting import wait
from ouro.memory.backend import MessageRecord, SessionHeader, TitleRecord
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message
from ouro.utils.runtime import get_sessions_dir


def session_id(number: int) -> str:
    return f"{number:08}-7e1b-4d0a-9a55-3b8f0c1d2e4f"


def old_session(
    project: Path, number: int, days: float, *messages: Message, records=(), memory=True, private=(), **header
) -> str:
    """A session that was last used so many days ago, these messages said with memory off; gives its id."""
    store = YamlFileMemoryStore(get_sessions_dir())
    at = (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    known = {"user": "4be1c0d"} if memory else {}
    found = session_id(number)
    wait(store.create_session(SessionHeader(found, str(project), "m", at, memory=known, **header)))
    for place, message in enumerate(messages, 1):
        wait(store.save_message(found, MessageRecord(place, at, message, place in private)))
    for record in (TitleRecord(f"Session {number}", at), *records):
        wait(store.save_memory(found, record))
    wait(store.close_session(found))
    return found


def records_of(session: str, kind: type) -> list:
    loaded = wait(YamlFileMemoryStore(get_sessions_dir()).load_session(session, read_only=True))
    return [each for each in loaded.records if isinstance(each, kind)]
