"""The first start in a folder: what other agents know there can be imported with one key."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.errors import OuroError, UsageError
from ouro.memory import long_term
from ouro.utils.git import find_root
from ouro.utils.log import log
from ouro.utils.ouro_paths import get_import_offers_path

if TYPE_CHECKING:
    from ouro.memory.long_term import AgentMemory
    from ouro.session import Session


async def find_offer(session: Session) -> AgentMemory | None:
    """What other agents know about the folder of a session. None if they know nothing, if it was
    offered before, or if memory is off. Nothing is imported.
    """
    try:
        memory = session.session_memory
    except UsageError:  # the session runs in another process, and that one has made the offer
        return None
    if memory.manager is None or memory.is_held:
        return None
    root, offers = find_root(session.cwd), long_term.ImportOffers(get_import_offers_path())
    sent_paths = [
        file.path for file in session.extensions.instructions.report() if file.state == "sent"
    ]
    try:
        if await asyncio.to_thread(offers.was_made, root):
            return None
        agent_memory = await memory.with_editor(
            lambda editor: long_term.find_agent_memory(editor, root, sent_paths), quiet=True
        )
    except (OuroError, OSError) as error:
        log.warning("the memory of other agents: %s", error)
        return None
    return agent_memory if agent_memory.entries else None


async def note_offer(session: Session) -> None:
    """Record that the offer was shown, because it is made only once in a folder."""
    offers = long_term.ImportOffers(get_import_offers_path())
    await asyncio.to_thread(offers.record, find_root(session.cwd))


def import_commands(session: Session, paths: Sequence[Path]) -> list[str]:
    """The slash commands that import these files: one for the user's own files, one for those of the
    project, one for the memory of other clones. So if one group waits for approval, the others do
    not wait with it.

    They ask nothing: the key that the user pressed is the consent.
    """
    root = find_root(session.cwd).resolve()
    project_paths = [path for path in paths if root in path.resolve().parents]
    clone_paths = [path for path in paths if path.parts[-2:] == long_term.MEMORY.parts]
    user_paths = [path for path in paths if path not in (*project_paths, *clone_paths)]
    groups = (group for group in (user_paths, project_paths, clone_paths) if group)
    return [f"/memory import --yes {shlex.join(map(str, group))}" for group in groups]
