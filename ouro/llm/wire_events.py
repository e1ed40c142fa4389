"""What both wires do with the events of an answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

from ouro.errors import ModelError, StreamCut
from ouro.llm.sse import ServerEvent

DONE = "[DONE]"
AFTERWORD = 2.0
"""Seconds that a complete answer waits for its usage: some servers never close."""


async def until_done(
    events: AsyncGenerator[ServerEvent, None], is_complete: Callable[[], bool]
) -> AsyncGenerator[ServerEvent, None]:
    """The events; once the answer is complete neither silence nor a broken connection is an error."""
    while True:
        try:
            async with asyncio.timeout(AFTERWORD if is_complete() else None):
                event = await anext(events, None)
        except (TimeoutError, ModelError):
            if is_complete():
                return
            raise
        if event is None:
            return
        yield event


def decoded(data: str) -> dict[str, Any]:
    """The object in an event.

    Raises:
        StreamCut: there is none.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StreamCut("The answer broke off: the server sent a line that cannot be read.") from error
    if not isinstance(value, dict):
        raise StreamCut("The answer broke off: the server sent something that is no event.")
    return value
