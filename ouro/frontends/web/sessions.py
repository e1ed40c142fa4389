"""SavedSessions: saved transcripts for `ouro serve`, and new processes of sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ouro.commands.export import SessionDocument, survey
from ouro.frontends.background.process import StartReport, start_host
from ouro.frontends.web.feed import MAX_CARDS
from ouro.frontends.web.pages import PAGE_FORMAT
from ouro.utils.path_encoding import path_text

if TYPE_CHECKING:
    from ouro.commands.shell_context import ShellContext

HostFlags = Callable[[Path, str, str], tuple[str, Mapping[str, Any]]]
"""The flag and the flags of the process that hosts a session: folder, message, session to resume."""


class SavedSessions:
    """The sessions of this user on disk, and the start of a session in the background."""

    def __init__(self, context: ShellContext, host_flags: HostFlags) -> None:
        self._context = context
        self._host_flags = host_flags

    def folders(self) -> Sequence[str]:
        """The folder of this process: a session can always be started there."""
        return (path_text(Path.cwd()),)

    def start(self, folder: str, message: str, *, resume: str = "") -> StartReport:
        """Start a session in the background, or resume the one with the id `resume`. Blocks. Raises
        OuroError.
        """
        path = Path(folder)
        flag, flags = self._host_flags(path, message, resume)
        return start_host(flag, flags, path)

    async def transcript(self, session_id: str) -> list[str]:
        """The last cards of a saved session as HTML. Raises OuroError."""
        session = await self._context.store.read_whole(session_id)
        return await asyncio.to_thread(_last_cards, session)


def _last_cards(session: Any) -> list[str]:
    """The last MAX_CARDS cards of a saved session as HTML."""
    document = SessionDocument(session, survey(session), PAGE_FORMAT)
    return list(document.pieces())[-MAX_CARDS:]
