"""The stored checkpoints of files: list and clean."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING

from ouro.commands.action import Answer
from ouro.commands.render import line, table
from ouro.errors import UsageError
from ouro.safety import clean_checkpoints, stored_checkpoints
from ouro.utils.runtime import get_checkpoints_dir
from ouro.utils.text import plural

if TYPE_CHECKING:
    from ouro.commands.shell import ShellContext


async def list_checkpoints(_context: ShellContext) -> Answer:
    found = await asyncio.to_thread(stored_checkpoints, get_checkpoints_dir())
    rows = [
        (f"{datetime.fromtimestamp(one.last).astimezone():%Y-%m-%d %H:%M}", f"{one.bytes / 1e6:.1f} MB", one.workspace)
        for one in found
    ]
    value = [{"workspace": one.workspace, "bytes": one.bytes, "last": one.last} for one in found]
    return Answer(value, table(rows) or [line("No checkpoints are stored.")])


async def clean(context: ShellContext, days: int | None) -> Answer:
    settings = context.folder.settings.checkpoints
    days = settings.keep_days if days is None else days
    if days < 0:
        raise UsageError(f"--days is {days}: it cannot be less than 0.")
    limit = settings.max_mb * 1_000_000
    freed = await asyncio.to_thread(clean_checkpoints, get_checkpoints_dir(), days=days, max_bytes=limit)
    text = f"Deleted checkpoints older than {plural(days, 'day')}: {freed / 1e6:.1f} MB."
    return Answer({"days": days, "freed": freed}, [line(text)])
