"""From server-sent events to the objects in them, for both wires."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

from ouro.errors import ModelError
from ouro.llm.endpoint import Endpoint
from ouro.llm.provider_errors import error_from_stream
from ouro.llm.sse import ServerEvent
from ouro.llm.wire_json import decoded

DONE = "[DONE]"
AFTERWORD = 2.0
"""Seconds that a complete answer waits for its usage: some servers never close."""
FAREWELL = 0.1
"""Seconds that the end of the body may take after the last event."""


async def objects_of(
    events: AsyncGenerator[ServerEvent, None], is_complete: Callable[[], bool], endpoint: Endpoint
) -> AsyncGenerator[dict[str, Any], None]:
    """The objects, up to the end; once the answer is complete, whatever breaks after it is of no matter.

    Raises:
        ModelError: an event cannot be read, is an error, or does not come.
    """
    while True:
        try:
            async with asyncio.timeout(AFTERWORD if is_complete() else None):
                event = await anext(events, None)
            if event is None or event.data.strip() == DONE:
                return
            data = decoded(event.data)
            if event.event == "error" or data.get("type") == "error" or data.get("error"):
                raise error_from_stream(data.get("error") or data, endpoint)
        except (TimeoutError, ModelError):
            if is_complete():
                return
            raise
        yield data


async def read_to_end(events: AsyncGenerator[ServerEvent, None]) -> None:
    """Read what follows the last event: only a connection that was read to its end serves the next request too."""
    with suppress(TimeoutError, ModelError):
        async with asyncio.timeout(FAREWELL):
            async for _ in events:
                pass
