"""Sessions and a note on disk: sessions that grow record by record, and sessions that were left
some time ago.
"""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fakes.waiting import wait
from ouro.memory.backend import MessageRecord, SessionHeader, TitleRecord
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message
from ouro.utils.runtime import get_sessions_dir

AT = "2026-11-21T20:14:03.120Z"
NOTE = """---
id: mem_{id}
created_at: 2026-11-20T10:00:00Z
scope: user
category: coding-preferences
supersedes: mem_00000000
related:
  - {{id: mem_77777777, relationship: refines}}
session_id: s
turn: 2
confidence: 0.9
entities: [file:api.py, pkg:flask]
relations: [{{from: file:api.py, rel: uses, to: pkg:flask}}]
---
{text}
"""


def session_id(number: int) -> str:
    return f"{number:08}-7e1b-4d0a-9a55-3b8f0c1d2e4f"


class StoredSession:
    """A session that grows record by record."""

    def __init__(self, root, number: int = 1, project: str = "/p") -> None:
        self.id = session_id(number)
        self._store = YamlFileMemoryStore(root)
        self._numbers = itertools.count(1)
        wait(self._store.create_session(SessionHeader(self.id, project, "m", AT)))

    def say(self, *messages: Message) -> None:
        for message in messages:
            wait(self._store.save_message(self.id, MessageRecord(next(self._numbers), AT, message)))

    def change(self, record) -> None:
        wait(self._store.save_memory(self.id, record))

    def end(self) -> None:
        wait(self._store.close_session(self.id))


def old_session(
    project: Path,
    number: int,
    days: float,
    *messages: Message,
    records=(),
    memory=True,
    private=(),
    **header,
) -> str:
    """Store a session in the user's store that was last used `days` ago, and return its id.

    Args:
        private: the numbers of messages that were sent with memory off.
    """
    store = YamlFileMemoryStore(get_sessions_dir())
    at = (
        (datetime.now(UTC) - timedelta(days=days))
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
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
    return [record for record in loaded.records if isinstance(record, kind)]
