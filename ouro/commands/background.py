"""The session in the background: `/bg`."""

from __future__ import annotations

from ouro.commands.slash import SessionContext


async def detach(context: SessionContext) -> None:
    await context.front_end.detach()
