"""SessionChanges: sessions of the picker get other names, go to the trash and come back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ouro.errors import OuroError
from ouro.frontends.session_lines import title
from ouro.frontends.tui.widgets.session_foot import SessionFoot
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.session import SessionCatalog, SessionInfo


class SessionChanges:
    """Tells at the foot what is asked and what came of it.

    Args:
        foot: where it is told.
        back_key: the key that takes a session back, as people write it.
        rename_open: is asked first to name a session; False: it is not the one that is open here.
        changed: lists the sessions again.
    """

    def __init__(
        self,
        foot: SessionFoot,
        back_key: str,
        rename_open: Callable[[str, str], bool],
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        self.session_catalog: SessionCatalog | None = None
        self.doomed: SessionInfo | None = None
        """Waits for the second step of its deletion."""
        self._foot = foot
        self._back_key = back_key
        self._rename_open = rename_open
        self._changed = changed
        self._deleted: list[SessionInfo] = []

    @property
    def can_restore(self) -> bool:
        """Whether something was put into the trash here."""
        return bool(self._deleted)

    async def rename(self, info: SessionInfo, said: str) -> None:
        """Call it what was said, where anything was."""
        name = " ".join(clean(said).split())
        if name and self.session_catalog is not None and name != info.title:
            if not self._rename_open(info.id, name):
                await self._do(self.session_catalog.rename, info.id, name)
            await self._changed()

    def doom(self, info: SessionInfo) -> None:
        """The first step: ask."""
        self.doomed = info
        self._foot.tell(f"To the trash? y: yes · else: no · “{title(info)}”")

    def spare(self) -> SessionInfo | None:
        """It is answered; gives what was asked about."""
        info, self.doomed = self.doomed, None
        self._foot.hear()
        return info

    async def delete(self, info: SessionInfo) -> None:
        """The second step."""
        if self.session_catalog is not None and await self._do(self.session_catalog.delete, info.id):
            self._deleted.append(info)
            await self._changed()
            self._foot.tell(f"In the trash: {self._back_key} takes it back. “{title(info)}”")

    async def restore(self) -> None:
        """Take back what went last."""
        info = self._deleted.pop()
        if self.session_catalog is not None and await self._do(self.session_catalog.restore, info.id):
            await self._changed()
            self._foot.tell(f"“{title(info)}” is back.")

    async def _do(self, what: Callable[..., None], *arguments: str) -> bool:
        """Do it beside the loop; what went wrong is told."""
        try:
            await asyncio.to_thread(what, *arguments)
        except (OuroError, OSError) as error:
            self._foot.tell(" ".join(str(error).split("\n")), "-failed")
            return False
        return True
