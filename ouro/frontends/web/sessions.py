"""SavedSessions: saved transcripts for `ouro serve`, and new processes of sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ouro.commands.export import SessionDocument, survey
from ouro.frontends.background.process import StartReport, start_host
from ouro.frontends.web.feed import MAX_CARDS
from ouro.frontends.web.pages import FORM
from ouro.utils.path_text import path_text

if TYPE_CHECKING:
    from ouro.commands.subcommands import ShellContext

HostFlags = Callable[[Path, str, str], tuple[str, Mapping[str, Any]]]
"""The flag and the flags of the process that hosts a session: folder, message, session to resume."""


class SavedSessions:
    """Sessions of this user on disk, and how one is started."""

    def __init__(self, context: ShellContext, host_flags: HostFlags) -> None:
        self._context = context
        self._host_flags = host_flags

    def folders(self) -> Sequence[str]:
        return (path_text(Path.cwd()),)

    def start(self, folder: str, message: str, resume: str) -> StartReport:
        path = Path(folder)
        flag, flags = self._host_flags(path, message, resume)
        return start_host(flag, flags, path)

    async def transcript(self, session_id: str) -> list[str]:
        whole = await self._context.store.read_whole(session_id)
        return await asyncio.to_thread(_last_cards, whole)


def _last_cards(whole: Any) -> list[str]:
    """The last cards of a saved session as HTML."""
    document = SessionDocument(whole, survey(whole), FORM)
    cards = list(document.pieces())
    return list(islice(cards, max(0, len(cards) - MAX_CARDS), None))
