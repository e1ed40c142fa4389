"""The stored checkpoints of files, which undo uses: list them, and delete old ones."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING

from ouro.commands.action import Answer
from ouro.commands.render import line, table
from ouro.errors import UsageError
from ouro.safety import clean_checkpoints, stored_checkpoints
from ouro.utils.ouro_paths import get_checkpoints_dir
from ouro.utils.text import byte_size, plural

if TYPE_CHECKING:
    from ouro.commands.shell_context import ShellContext


async def list_checkpoints(_context: ShellContext) -> Answer:
    """List the stored checkpoints of all folders, with their sizes."""
    checkpoints = await asyncio.to_thread(stored_checkpoints, get_checkpoints_dir())
    rows = [
        (
            f"{datetime.fromtimestamp(checkpoint.last).astimezone():%Y-%m-%d %H:%M}",
            byte_size(checkpoint.bytes),
            checkpoint.workspace,
        )
        for checkpoint in checkpoints
    ]
    value = [
        {"workspace": checkpoint.workspace, "bytes": checkpoint.bytes, "last": checkpoint.last}
        for checkpoint in checkpoints
    ]
    return Answer(value, table(rows) or [line("No checkpoints are stored.")])


async def clean_old_checkpoints(context: ShellContext, days: int | None) -> Answer:
    """Delete checkpoints older than `days` (None: as in the settings), then the oldest above the
    maximum size. Raises UsageError for a negative number of days.
    """
    settings = context.folder.settings.checkpoints
    days = settings.keep_days if days is None else days
    if days < 0:
        raise UsageError(f"--days is {days}: it cannot be less than 0.")
    max_bytes = settings.max_mb * 1_000_000
    freed_bytes = await asyncio.to_thread(
        clean_checkpoints, get_checkpoints_dir(), days=days, max_bytes=max_bytes
    )
    outcome = "No checkpoints to delete"
    if freed_bytes:
        outcome = f"Deleted {byte_size(freed_bytes)} of checkpoints"
    selection = (
        f"those older than {plural(days, 'day')}, and the oldest above {settings.max_mb:,} MB"
    )
    return Answer({"days": days, "freed": freed_bytes}, [line(f"{outcome}: {selection}.")])
