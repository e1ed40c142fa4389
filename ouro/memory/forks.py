"""Forks: a session that begins as a copy of another one. The one that is copied stays as it is."""

from __future__ import annotations

import uuid

from ouro.memory.backend import MemoryStore, SessionHeader, TitleRecord, timestamp
from ouro.memory.manager import title_of

_WIDTH = 60
"""Characters of a title."""


def fork_session(store: MemoryStore, source_id: str, number: int | None, title: str, project: str) -> str:
    """Copy a session up to its message `number` (None: all of it); gives the id of the copy, which is not open. Blocks.

    Args:
        store: keeps both.
        source_id: of the session that is copied; it may be open, also elsewhere.
        number: of the last message that is copied; 0: none.
        title: what the copy is called; empty: like the other one, with a mark.
        project: the folder that the copy belongs to.

    Raises:
        SessionNotFound: there is no such session, or no such message in it.
        SaveFailed: there is no copy.
    """
    source = store.get_session_stats(source_id)
    header = SessionHeader(str(uuid.uuid4()), project, source.model, timestamp())
    store.fork_session(source_id, number, header)
    loaded = store.load_session(header.id, reach="screen")
    try:
        at = timestamp(max((each.at for each in loaded.records), default=""))
        store.save_memory(header.id, TitleRecord(title_of(title) or fork_title(source.title), at))
    finally:
        store.close_session(header.id)
    return header.id


def fork_title(title: str) -> str:
    """What a copy is called: `Mend the parser (fork)`, then `(fork 2)` and so on."""
    name, mark, number = title.removesuffix(")").rpartition(" (fork")
    if title.endswith(")") and mark and (not number or number.strip().isdigit()):
        return _marked(name, f" (fork {int(number or 1) + 1})")
    return _marked(title, " (fork)")


def _marked(name: str, mark: str) -> str:
    """Both within the width of a title, the mark whole."""
    room, words = _WIDTH - len(mark), title_of(name)
    return (words if len(words) <= room else words[: room - 1].rstrip("… ") + "…") + mark
