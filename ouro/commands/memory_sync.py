"""/memory sync: the same memory on several machines."""

from __future__ import annotations

from ouro.commands.command import FrontEnd
from ouro.errors import UsageError
from ouro.memory.long_term.session_sync import synchronised
from ouro.session import LongTermMemoryManager, Scope


async def sync(front_end: FrontEnd, known: LongTermMemoryManager, rest: str) -> None:
    """Fetch, merge entry by entry, and push: `/memory sync [user|repo] [URL]`."""
    words = rest.split()
    scope: Scope = "repo" if words[:1] == ["repo"] else "user"
    words = words[1:] if words[:1] in (["user"], ["repo"]) else words
    if len(words) > 1:
        raise UsageError("It is written `/memory sync [user|repo] [URL]`.")
    await front_end.run(synchronised(known, scope, words[0] if words else ""))
