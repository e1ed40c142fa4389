"""TerminalDriver: Textual's driver, which takes over from the first frame and outlives a terminal that closes."""

from __future__ import annotations

import asyncio
import os
import selectors
from codecs import getincrementaldecoder
from collections.abc import Callable
from threading import Event
from typing import Any, TextIO

from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Paste
from textual.message import Message

from ouro.frontends.tui.first_frame import FirstFrame

_ESCAPE_WAIT = 0.02
"""Seconds after which an Esc is taken for the key, not for the begin of a paste."""
_ALTERNATE_SCREEN = "\x1b[?1049h"


class TerminalDriver(LinuxDriver):
    """LinuxDriver with six differences.

    It does not clear a first frame that is already there; passes on what was typed before it started; reads no key
    before there is a prompt to take it, where Textual would lose it; keeps a paste whole whatever it contains; drops
    what is drawn while another program has the terminal, where its queue would fill and block the loop; and ends the
    program when the terminal is gone, where LinuxDriver would read the end of the file for ever.
    """

    def __init__(self, app: App[Any], *, frame: FirstFrame | None, output: TextIO, **options: Any) -> None:
        super().__init__(app, **options)
        self._file = _Outlet(output)  # type: ignore[assignment]
        self._loop = asyncio.get_running_loop()
        self._frame = frame
        self._has_first_frame = frame is not None
        self._typed = frame.typed if frame else ""
        self._lent = False
        self._listens = Event()

    def listen(self) -> None:
        """Start reading keys: a prompt has the focus."""
        self._listens.set()

    def write(self, data: str) -> None:
        """Draw; nothing is drawn while the terminal is lent to another program."""
        if self._lent and self._writer_thread is None:
            return
        if self._has_first_frame and data == _ALTERNATE_SCREEN:
            self._has_first_frame = False
            return
        super().write(data)

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self._lent = False
        if self._frame is not None:  # Textual saved the modes of the first frame, not the user's
            self.attrs_before = self._frame.attributes

    def close(self) -> None:
        super().close()
        self._lent, self._writer_thread = True, None

    def run_input_thread(self) -> None:
        """Read keys until the end, first those from before."""
        keys = _Keys(XTermParser(self._debug), self.process_message)
        while not self._listens.wait(0.1) and not self.exit_event.is_set():
            pass
        typed, self._typed = self._typed, ""
        keys.take(typed)
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(_ESCAPE_WAIT if keys.wait_briefly else 0.1):
                    data = self._read()
                    if not data:
                        self._loop.call_soon_threadsafe(self._terminal_is_gone)
                        return
                    keys.take(keys.decode(data))
                else:
                    keys.nothing_came()

    def _read(self) -> bytes:
        try:
            return os.read(self.fileno, 65536)
        except OSError:  # EIO: the other end of the pseudo-terminal was closed
            return b""

    def _terminal_is_gone(self) -> None:
        self._app.exit(return_code=129)


class _Keys:
    """Parses terminal input into Textual's events."""

    def __init__(self, parser: XTermParser, give_on: Callable[[Message], None]) -> None:
        self.decode = getincrementaldecoder("utf-8")(errors="replace").decode
        self._parser = parser
        self._give_on = give_on
        self._splitter = PasteSplitter()

    @property
    def wait_briefly(self) -> bool:
        """Whether the held input may be just the Esc key."""
        return self._splitter.holds

    def take(self, text: str) -> None:
        for pasted, part in self._splitter.feed(text):
            if pasted:
                self._give_on(Paste(part.replace("\x00", "")))
            else:
                self._parse(part)
        self._tick()

    def nothing_came(self) -> None:
        if held := self._splitter.release():
            self._parse(held)
        self._tick()

    def _parse(self, text: str) -> None:
        for event in self._parser.feed(text):
            self._give_on(event)

    def _tick(self) -> None:
        for event in self._parser.tick():
            self._give_on(event)


class _Outlet:
    def __init__(self, file: TextIO | None) -> None:
        self._file = file

    def write(self, text: str) -> int:
        try:
            return self._file.write(text) if self._file else 0
        except (OSError, ValueError):
            self._file = None
            return 0

    def flush(self) -> None:
        try:
            if self._file:
                self._file.flush()
        except (OSError, ValueError):
            self._file = None

    def fileno(self) -> int:
        return self._file.fileno() if self._file else -1


_BEGIN, _END = "\x1b[200~", "\x1b[201~"


class PasteSplitter:
    """Splits input that arrives in pieces into keys and whole pastes.

    Textual's own parser takes an escape sequence inside a paste for keys, a line end after it for Enter.
    """

    def __init__(self) -> None:
        self._held = ""
        self._pasted: list[str] | None = None

    @property
    def holds(self) -> bool:
        """Whether input is held that may be the beginning of a paste, or just the Esc key."""
        return bool(self._held) and self._pasted is None

    def feed(self, text: str) -> list[tuple[bool, str]]:
        """The complete input so far: pairs of (is paste, text)."""
        given: list[tuple[bool, str]] = []
        rest, self._held = self._held + text, ""
        while rest:
            mark = _BEGIN if self._pasted is None else _END
            before, found, after = rest.partition(mark)
            if not found:
                self._held = _beginning_of(mark, rest)
                before = rest[: len(rest) - len(self._held)]
            if self._pasted is not None:
                self._pasted.append(before)
            elif before:
                given.append((False, before))
            if found and self._pasted is not None:
                given.append((True, "".join(self._pasted)))
            if found:
                self._pasted = [] if self._pasted is None else None
            rest = after
        return given

    def release(self) -> str:
        """The held input, as keys: nothing followed it."""
        held, self._held = self._held, ""
        return held


def _beginning_of(mark: str, text: str) -> str:
    """The end of `text` that `mark` may begin with."""
    return next((text[-size:] for size in range(len(mark) - 1, 0, -1) if text.endswith(mark[:size])), "")
