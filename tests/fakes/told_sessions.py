"""Sessions that grow record by record, and a note: what an index follows."""

from __future__ import annotations

import itertools

from fakes.waiting import wait
from ouro.memory.backend import MessageRecord, SessionHeader
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message

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


class Conversation:
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
