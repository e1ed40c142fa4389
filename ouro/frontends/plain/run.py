"""The plain prompt: a conversation in the terminal's own scrollback."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ouro.commands.dispatch import dispatch
from ouro.frontends.plain.front_end import OpenCatalog, OpenSession, ReplFrontEnd
from ouro.frontends.plain.host import ReplHost
from ouro.frontends.plain.lines import LineReader
from ouro.frontends.plain.paper import Paper
from ouro.frontends.plain.printer import Printer
from ouro.frontends.plain.questions import Questions
from ouro.frontends.plain.resumed import ResumeOffer
from ouro.frontends.plain.turns import Turns
from ouro.session import OpenRequest

if TYPE_CHECKING:
    from ouro.frontends.plain.prompt import PromptReader

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


async def run_repl(
    open_session: OpenSession, request: OpenRequest, first_message: str, open_catalog: OpenCatalog | None = None
) -> int:
    """Talk at a line prompt until the person leaves; gives the exit code.

    `open_catalog` gives the sessions that are kept, to pick one before any is open.

    Raises:
        OuroError: no session could be opened.
    """
    repl = Repl(open_session, open_catalog, plain=is_plain())
    with repl.reader.in_use():
        return await repl.run(request, first_message)


def is_plain() -> bool:
    """The terminal can only take lines, or there is none."""
    return os.environ.get("TERM", "dumb") in ("dumb", "") or not (sys.stdin.isatty() and sys.stdout.isatty())


class Repl:
    """Reads lines, and hands each to whom it is for: an open question, a command, the shell, the agent."""

    def __init__(self, open_session: OpenSession, open_catalog: OpenCatalog | None = None, *, plain: bool) -> None:
        self._printer = Printer(Paper(self._write, plain=plain))
        self._questions = Questions(self._changed)
        ring = (lambda: None) if plain else (lambda: self._write("\a"))
        self._turns = Turns(self._printer, self._questions, ring, self._changed)
        self._offer = ResumeOffer(self._printer, self._questions, self._turns, self._at_rest, self._take)
        self._front_end = ReplFrontEnd(
            open_session,
            open_catalog,
            self._printer,
            self._questions,
            self._turns,
            redraw=self._changed,
            fill=self._fill,
            opened=self._offer.begin,
            leave=self._leave,
        )
        host = ReplHost(self._front_end, self._printer, self._questions, self._turns, self._cancel_work)
        self.reader: LineReader | PromptReader = LineReader(host)
        if not plain:
            from ouro.frontends.plain.prompt import PromptReader

            self.reader = PromptReader(host, self._printer.typed)
        self._work: set[asyncio.Task[None]] = set()
        self._in_order = asyncio.Lock()
        self._reading: asyncio.Task[str | None] | None = None
        self._exit_code: int | None = None
        self._failure: Exception | None = None

    async def run(self, request: OpenRequest, first_message: str) -> int:
        """Open a session, read and do, until the person leaves; gives the exit code.

        Raises:
            OuroError: no session could be opened.
        """
        loop = asyncio.get_running_loop()
        for number in ENDING_SIGNALS:
            loop.add_signal_handler(number, self._leave, 128 + number)
        try:
            self._in_background(self._begin(request, first_message))
            await self._read_lines()
        finally:
            try:
                await self._end()
            finally:
                for number in ENDING_SIGNALS:
                    loop.remove_signal_handler(number)
        if self._failure is not None:
            raise self._failure
        return self._exit_code or 0

    def _fill(self, text: str) -> bool:
        return self.reader.fill(text)

    async def _begin(self, request: OpenRequest, first_message: str) -> None:
        try:
            opened = await self._front_end.begin(request)
        except Exception as error:  # noqa: BLE001  # without a session there is nothing to go on with: `run` raises it
            self._failure, opened = error, False
        if not opened:
            self._leave()
            return
        if first_message and not await dispatch(self._front_end, first_message):
            await self._front_end.send(first_message)

    async def _read_lines(self) -> None:
        while not self._is_leaving():
            self._reading = asyncio.ensure_future(self.reader.read())
            try:
                line = await self._reading
            except asyncio.CancelledError:
                if not self._is_leaving():
                    raise
                return
            if line is None:
                return
            self._take(line)
            if not sys.stdin.isatty():
                await self._until_it_waits()

    def _take(self, line: str) -> None:
        if self._questions.open is not None:
            if hint := self._questions.take(line):
                self._printer.say(hint, "warning")
            self._changed()
        elif line.strip():
            self._in_background(self._do(line))
        else:
            self._changed()

    async def _do(self, line: str) -> None:
        if line.startswith("!"):
            self._turns.run_shell(line.lstrip("!").strip(), share=not line.startswith("!!"))
        elif not await dispatch(self._front_end, line):
            self._printer.echoed(line)
            await self._front_end.send(line)

    def _in_background(self, work: Awaitable[None]) -> None:
        """One after the other, in the order typed; the prompt goes on reading meanwhile: they may ask something."""

        async def in_order() -> None:
            async with self._in_order:
                await work

        task = asyncio.create_task(in_order())
        self._work.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()):
            asyncio.get_running_loop().call_exception_handler({"message": "a command failed", "exception": error})
        self._changed()

    async def _until_it_waits(self) -> None:
        """A script is read line by line: the next one when this one is done, or asks something."""
        while self._questions.open is None and (self._work or self._turns.is_busy):
            await self._questions.or_asked(self._turns.finish(), *self._work)

    async def _at_rest(self) -> bool:
        await asyncio.gather(*self._work, return_exceptions=True)
        return not self._turns.is_busy and self._questions.open is None

    def _cancel_work(self) -> bool:
        for task in tuple(self._work):
            task.cancel()
        return self._offer.cancel() or bool(self._work)

    def _changed(self) -> None:
        if self._work and self._questions.open is None:
            return
        self.reader.changed()

    def _write(self, text: str) -> None:
        self.reader.write(text)

    def _is_leaving(self) -> bool:
        return self._exit_code is not None

    def _leave(self, code: int = 0) -> None:
        self._exit_code = code
        if self._reading is not None:
            self._reading.cancel()

    async def _end(self) -> None:
        self._turns.stop()
        self._cancel_work()
        await asyncio.gather(*self._work, self._turns.finish(), return_exceptions=True)
        await self.reader.close()
        if self._turns.has_session:
            session = self._front_end.session
            await session.close()
            await self._turns.close()
            if session.is_kept:
                self._printer.say(f"To go on: ouro --resume {session.id}")
