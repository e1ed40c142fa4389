"""A shell line that the person typed (`!make test`), run beside the conversation."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator

from ouro.display import Display
from ouro.errors import ToolError
from ouro.events import ToolFinished, ToolProgress, ToolStarted
from ouro.messages import ToolCall
from ouro.tools.shell import Shell
from ouro.tools.tool import ToolResult


class OwnLine:
    """Runs one line; `result` is what came of it."""

    def __init__(self, shell: Shell, line: str) -> None:
        self.result = ToolResult("(it was ended)", Display("ended"), failed=True)
        self._shell = shell
        self._line = line
        self._call = ToolCall(f"own_{uuid.uuid4().hex[:12]}", "shell", {"command": line})
        self._started = time.monotonic()

    async def run(self) -> AsyncGenerator[ToolStarted | ToolProgress, None]:
        """Run it to its end. Closing the stream ends it."""
        events = asyncio.Queue[ToolProgress | None]()
        yield ToolStarted(self._call, self._line)
        work = asyncio.create_task(
            self._shell.run_line(self._line, lambda text: events.put_nowait(ToolProgress(self._call.id, text)))
        )
        work.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            self.result = await work
        except ToolError as error:
            self.result = ToolResult(str(error), Display(str(error)), failed=True)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    def finished(self) -> ToolFinished:
        """Its end, for the reader."""
        seconds = time.monotonic() - self._started
        return ToolFinished(self._call.id, self._call.name, self.result.display, self.result.failed, seconds)
