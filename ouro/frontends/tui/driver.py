"""TerminalDriver: Textual's driver, adapted to the first frame, to pastes, and to terminals that
close.
"""

from __future__ import annotations

import asyncio
import os
import re
import selectors
import signal
import unicodedata
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from threading import Event
from typing import Any, NamedTuple, TextIO

from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual._time import get_time
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key, Paste
from textual.message import Message

from ouro.frontends.tui.first_frame import RESTORE_TITLE, SAVE_TITLE, FirstFrame
from ouro.frontends.tui.key_events import EscapedKey, TextKey
from ouro.frontends.tui.output_pace import STATUS_ANSWER, OutputPace
from ouro.frontends.tui.terminal_output import TerminalOutput
from ouro.frontends.tui.terminal_progress import NO_PROGRESS, shows_progress
from ouro.frontends.tui.themes import BACKGROUND_ANSWER, OTHER_ANSWER, THEMES, theme_for

_ESCAPE_WAIT = 0.02
"""Seconds after which an Esc is the key, not the beginning of a paste."""
_ANSWER_WAIT = 0.5
"""Seconds for the rest of an answer of the terminal, whose parts may come apart from a remote one."""
_BEGUN_ANSWER = re.compile(r"\x1b\](\d+(;[^\x07\x1b]{0,4000}\x1b?)?)?\Z")
"""The beginning of an answer at the end of the input, such as `ESC ] 11 ; rgb:ff`. `ESC ]` alone may
also be Alt with a bracket; no user types more of it.
"""
_BACKGROUND_ANSWER = re.compile(BACKGROUND_ANSWER)
"""The terminal's answer about its background, which may come late from a remote terminal."""
_OTHER_ANSWER = re.compile(OTHER_ANSWER)
_MAX_WAITING_WRITES = 12
"""If more writes wait for the terminal, it takes no output: a frame is three writes."""
_LAST_ANSWER_TIMEOUT = 1.0
"""Seconds that the end waits for the terminal's answer about its status."""
_ALTERNATE_SCREEN = "\x1b[?1049h"
_MODIFIED_KEYS, _PLAIN_KEYS = "\x1b[>4;1m", "\x1b[>4m"
"""xterm's modifyOtherKeys: with it, tmux and terminals without the kitty protocol send Shift+Enter
as another key.
"""


class TerminalDriver(LinuxDriver):
    """LinuxDriver with these differences:

    - It keeps the first frame on the screen, and holds output, until the prompt has received what was typed there.
    - It reads keys only when a prompt can receive them. Textual loses earlier keys.
    - It knows Alt+Enter and Shift+Enter in terminals without the kitty keyboard protocol.
    - It keeps a paste whole, whatever it contains.
    - It gives the title of the window back with the terminal.
    - It drops output while another program has the terminal. Textual's queue would fill and block the loop.
    - It never waits for a terminal that takes no output, as when SSH stalls. Textual's queue would block the turn.
    - It writes at once what the terminal takes. Textual's thread is woken later than the text could be written.
    - It knows when a slow link is behind, and then draws nothing, so that keys have their effect soon.
    - It ends the program when the terminal is gone. LinuxDriver would read the end of the file endlessly.
    - It handles changes of size in order. LinuxDriver's signal handler interrupts itself, and an older size may win.
    - It stops only where a shell can continue it. LinuxDriver's SIGSTOP blocks a terminal without a shell permanently.
    - It resumes once. LinuxDriver starts a second reader of the terminal at a second SIGCONT, and then cannot end.
    """

    def __init__(self, app: App[Any], *, frame: FirstFrame, output: TextIO, **options: Any) -> None:
        super().__init__(app, **options)
        self._output = TerminalOutput(output)
        self._file = self._output  # type: ignore[assignment]
        self._loop = asyncio.get_running_loop()
        self._frame = frame
        self._held_output: list[str] | None = []
        """Output that waits until `replace_first_frame`; None from then on."""
        self._pace = OutputPace()
        self.is_lent = False
        """Whether another program has the terminal."""
        self._is_continued = False
        """Whether a signal has continued the process, and the terminal was not taken since."""
        self._is_resuming = False
        """Whether `resume_application_mode` runs."""
        self.can_be_continued = True
        """Whether a shell can continue this program; known after the first Ctrl+Z."""
        self.listens = Event()
        """Set when a widget can receive keys."""
        self._exit = ExitEvent(self.listens)
        self.exit_event = self._exit  # the name that LinuxDriver uses

    @property
    def uses_mouse(self) -> bool:
        """Whether the terminal reports the mouse to ouro, and does not use it itself."""
        return self._mouse

    def use_mouse(self, uses: bool) -> None:
        """Let the terminal report the mouse to ouro, or leave the mouse to the terminal."""
        if uses:
            self._mouse = True
            self._enable_mouse_support()
        else:
            self._disable_mouse_support()
            self._mouse = False
        self.flush()

    def write(self, data: str) -> None:
        """Write to the terminal. Output is held while the first frame is shown, and dropped while
        another program has the terminal.
        """
        # Textual starts its writer thread when it takes the terminal, before `is_lent` is reset.
        if self.is_lent and self._writer_thread is None:
            return
        if self._held_output is None:
            self._send(self._pace.add_request(data))
        elif data != _ALTERNATE_SCREEN:  # the first frame uses it already
            self._held_output.append(data)

    def _send(self, data: str) -> None:
        """Write at once what the terminal takes now, and the rest in Textual's thread."""
        rest = self._output.write_at_once(data)
        if rest:
            super().write(rest)  # type: ignore[arg-type]  # the queue of the thread takes bytes, too

    @property
    def is_behind(self) -> bool:
        """Whether the terminal takes no output, or takes it slowly: much was written that it has not
        read.
        """
        writer = self._writer_thread
        if writer is None:
            return False
        return writer._queue.qsize() > _MAX_WAITING_WRITES or self._pace.is_behind

    def replace_first_frame(self) -> None:
        """Write the held output over the first frame. From now on output is written at once. Does
        nothing the second time.

        The held output includes the codes that set the terminal modes of Textual. Until now the
        terminal has sent keys in a form that the first frame can read.
        """
        held_output, self._held_output = self._held_output, None
        for data in held_output or ():
            self._send(data)

    def _sigtstp_application(self, *_: object) -> None:
        """Give the terminal back, and stop the process. If no shell can continue it, such as in a
        terminal window that runs only ouro, the kernel does not stop it. Then it uses the terminal
        again.
        """
        if self._auto_restart:
            self.suspend_application_mode()
            self._must_signal_resume = True
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, handler)
        # Without a writer thread nothing has taken the terminal again: no signal has continued us.
        if self._auto_restart and self._writer_thread is None:
            self.can_be_continued = False
            self.resume_application_mode()

    def resume_application_mode(self) -> None:
        """Use the terminal again after the process was continued.

        Two signals may come: from the shell, which continues all processes of the job, and from the
        launcher. Python may call this for the second signal while it runs for the first. The inner
        call then only sets `_is_continued`, and the loop of the outer call does the work again.
        """
        self._is_continued = True
        while self._is_continued and not self._is_resuming:
            self._is_continued, self._is_resuming = False, True
            try:
                if self._writer_thread is None:
                    super().resume_application_mode()
            finally:
                self._is_resuming = False

    def start_application_mode(self) -> None:
        """Take the terminal, unless this process is in the background. From then on, changes of its
        size are handled in order by the loop, and modified keys reach the app.
        """
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if self._writer_thread is None:
            return  # LinuxDriver did not take the terminal: this process is in the background
        self.is_lent = False
        # No limit: a full queue would block the loop. The app draws nothing while it `is_behind`.
        self._writer_thread._queue.maxsize = 0
        resized = signal.getsignal(signal.SIGWINCH)  # the handler of LinuxDriver
        if callable(resized):
            self._loop.add_signal_handler(signal.SIGWINCH, resized, signal.SIGWINCH, None)
        self.write(_MODIFIED_KEYS)
        if self._held_output is None:  # the first frame has saved the title already
            self.write(SAVE_TITLE)
        # Textual saved the modes of the first frame, not the user's.
        self.attrs_before = self._frame.attributes

    def stop_application_mode(self) -> None:
        """Give the terminal back, after writing the output that is still held."""
        if self._held_output is not None:
            # The program ended before there was a prompt. This also ends the thread of the frame.
            self._frame.take_keys()
        self.replace_first_frame()
        self.write(_PLAIN_KEYS + RESTORE_TITLE)
        if shows_progress(os.environ):
            self.write(NO_PROGRESS)
        super().stop_application_mode()

    def disable_input(self) -> None:
        """Stop reading keys, after the terminal's last answer: else a shell would read it."""
        self._pace.stop(_LAST_ANSWER_TIMEOUT)
        super().disable_input()

    def close(self) -> None:
        """Give up the terminal. Output that comes afterwards is dropped, as it is while another
        program has the terminal.
        """
        super().close()
        self.is_lent, self._writer_thread = True, None
        self._output.close()

    def run_input_thread(self) -> None:
        """Read keys until the app ends, or the terminal is gone. First come the keys that the first
        frame has read.
        """
        keys = KeyReader(self._debug, self._use_theme, self._pace.on_answer)
        self.listens.wait()
        self._pace.start()
        if not self.exit_event.is_set():
            self._take_keys_of_frame(keys)
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            selector.register(self._exit.readable, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                ready = [key.fd for key, _ in selector.select(keys.wait())]
                if not ready:
                    self._process(keys.release())
                elif self.fileno in ready and not self._read_keys(keys):
                    return

    def _read_keys(self, keys: KeyReader) -> bool:
        """Process what the terminal has sent; returns False if the terminal is gone."""
        try:
            data = os.read(self.fileno, 65536)
        except OSError:  # EIO: the other end of the pseudo-terminal was closed
            data = b""
        if not data:
            self._loop.call_soon_threadsafe(partial(self._app.exit, return_code=129))
            return False
        self._process(keys.read(data))
        return True

    def _take_keys_of_frame(self, keys: KeyReader) -> None:
        """Pass to the app the keys that the first frame has read, and the theme that fits the
        terminal. The bytes of an incomplete character go into `keys`, which reads the rest of it.
        After the keys were handled, the driver calls `replace_first_frame`.
        """
        typed, incomplete_character = self._frame.take_keys()
        # The terminal may have answered after the app was created.
        if (theme := self._frame.settings.theme) in THEMES:
            self._loop.call_soon_threadsafe(setattr, self._app, "theme", theme)
        for pressed_at, text in typed:
            self._process(keys.feed(text), pressed_at)
        self._process(keys.read(incomplete_character))
        self._loop.call_soon_threadsafe(self._app.call_later, self._replace_frame_after_keys)

    def _process(self, messages: Iterable[Message], time: float | None = None) -> None:
        """Pass events to the app. If `time` is given, the events get it: their keys were pressed at
        this time, and read by the first frame.
        """
        for event in messages:
            if time is not None:
                event.time = time
            self.process_message(event)

    def _use_theme(self, answer: re.Match[str]) -> str:
        """Use the theme that fits the background which the terminal has reported. Returns the text
        that replaces the answer in the input, which is always empty.
        """
        theme = theme_for(answer["background"])
        self._loop.call_soon_threadsafe(setattr, self._app, "theme", theme)
        return ""

    def _replace_frame_after_keys(self) -> None:
        """Call `replace_first_frame` after the widget with the focus has handled the keys that the
        first frame has read, and the screen has drawn them.
        """
        screen = self._app.screen
        receiver = self._app.focused or screen
        receiver.call_later(screen.call_after_refresh, self.replace_first_frame)


class ExitEvent(Event):
    """An event that ends the input thread at once. Setting it makes `readable` ready, and sets
    `listens`.

    The event of LinuxDriver is checked every 0.1 s. Each exit waits for it, and an idle program
    wakes 600 times a minute.
    """

    def __init__(self, listens: Event) -> None:
        super().__init__()
        self._listens = listens
        self.readable, self._write_end = os.pipe()
        os.set_blocking(self.readable, False)

    def set(self) -> None:
        super().set()
        self._listens.set()
        os.write(self._write_end, b"x")

    def clear(self) -> None:
        super().clear()
        with suppress(BlockingIOError):
            os.read(self.readable, 4096)

    def __del__(self) -> None:
        os.close(self.readable)
        os.close(self._write_end)


class KeyReader:
    """Turns what a terminal sends into events of Textual.

    Args:
        on_background: called with the terminal's answer about its background; returns the
            text that is read instead of it.
        on_status: called for each answer of the terminal about its status.
    """

    def __init__(
        self,
        debug: bool,
        on_background: Callable[[re.Match[str]], str],
        on_status: Callable[[], None] = lambda: None,
    ) -> None:
        self._parser = KeyParser(debug)
        self._splitter = PasteSplitter()
        self._decode = getincrementaldecoder("utf-8")(errors="replace").decode
        self._on_background = on_background
        self._on_status = on_status

    def wait(self) -> float | None:
        """How many seconds to wait for more input before `release` is called. Some input is held if
        it may be the beginning of a longer sequence. None if nothing is held.
        """
        if self._splitter.holds_answer:
            return _ANSWER_WAIT
        return _ESCAPE_WAIT if self._splitter.holds else self._parser.wait()

    def read(self, data: bytes) -> list[Message]:
        """The events of bytes from the terminal, as `feed` returns them for a text."""
        return self.feed(self._decode(data))

    def feed(self, text: str) -> list[Message]:
        """Read a text, and return the events that are complete now. Input that was held before may
        be complete now, too. The end of the text is held if it may be the beginning of a longer
        sequence.
        """
        return self._events(self._splitter.feed(text))

    def release(self) -> list[Message]:
        """The events of the held input, if nothing has followed it in time: it is keys then."""
        held_text = self._splitter.release()
        return self._events([InputPiece(False, held_text)] if held_text else [])

    def _events(self, pieces: list[InputPiece]) -> list[Message]:
        """The events of Textual for pieces of input. Answers of the terminal are removed from pieces
        that are no paste.
        """
        events: list[Message] = []
        for piece in pieces:
            if piece.is_paste:
                events.append(Paste(piece.text.replace("\x00", "")))  # as Textual's parser does
                continue
            for _ in range(piece.text.count(STATUS_ANSWER)):
                self._on_status()
            text = piece.text.replace(STATUS_ANSWER, "")
            text = _BACKGROUND_ANSWER.sub(self._on_background, text)
            text = _OTHER_ANSWER.sub("", text)
            typed = _ALT_ARROW.sub(r"\g<1>1;3\2", text)
            if typed:  # for the parser, an empty text means the end
                events += self._parser.feed(typed)
        # An Esc that has waited for long enough is a key.
        return [*events, *self._parser.tick()]


_UNPRINTABLE_TEXT = {"Cf", "Zs", "Cn", "Co"}
"""Categories of Unicode that Python does not call printable, but that are text: joiners of emoji
and Persian words, no-break spaces, characters newer than Python's tables, private characters.
"""


def _is_unprintable_text(sequence: str) -> bool:
    if len(sequence) != 1 or sequence.isprintable():
        return False
    return unicodedata.category(sequence) in _UNPRINTABLE_TEXT


_BEGINS_SEQUENCE = ("[", "]", "O", "P")
"""After Esc, these may be the beginning of a longer sequence."""


class KeyParser(XTermParser):
    """Textual's parser, which also knows all keys with Alt (ESC and a character), the keys of xterm's
    modifyOtherKeys, and all characters that are text.

    For ESC p, Textual's own waits 0.1 s and returns a key with a character, which the prompt would
    insert.
    """

    _MODIFIED_KEY = re.compile(r"\x1b\[27;(\d{1,9});(\d{1,9})~")
    _ALT_KEY = re.compile(r"\x1b(?![\[\]OP])([\r\x20-\x7f])")
    _KEY_WITHOUT_TEXT = re.compile(r"\x1b\[(\d{1,9})(?:;(\d{0,9}))?u")

    def wait(self) -> float | None:
        """Seconds until a held Esc is taken for the key; None if nothing is held."""
        if self._timeout_time is None:
            return None
        return max(0.0, self._timeout_time - get_time())

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[Key]:
        """The keys of a sequence. A character that came right after Esc becomes an EscapedKey: Alt with
        the character, or two keys. A character that is text, but that Python does not call
        printable, becomes a TextKey.
        """
        character_after_escape = _escaped_character(sequence, alt=alt)
        sequence = self._in_known_form(sequence)
        keys = super()._sequence_to_key_events(sequence, alt)
        if character_after_escape:
            return [EscapedKey(key.key, key.character, character_after_escape) for key in keys]
        if _is_unprintable_text(sequence):
            return [TextKey(key.key, key.character) for key in keys]
        return keys

    def _in_known_form(self, sequence: str) -> str:
        """The sequence of a key in the form of the kitty protocol, and with the text of the key, if it
        is one that Textual does not know. Otherwise the sequence itself.
        """
        if sequence == _ALT_CTRL_H:
            return _ALT_BACKSPACE
        alt_key = self._ALT_KEY.fullmatch(sequence)
        if alt_key and sequence not in ANSI_SEQUENCES_KEYS:
            return f"\x1b[{ord(alt_key[1])};3u"
        if modified_key := self._MODIFIED_KEY.fullmatch(sequence):
            sequence = f"\x1b[{modified_key[2]};{modified_key[1]}u"
        key = self._KEY_WITHOUT_TEXT.fullmatch(sequence)
        if key is None:
            return sequence
        number, modifiers = int(key[1]), int(key[2] or 1)
        text = _text_of_key(number, modifiers - 1)  # the sequence has the bits of modifiers plus 1
        return f"\x1b[{number};{modifiers};{ord(text)}u" if text else sequence


_SHIFT_AND_LOCKS = 1 | 64 | 128
"""The bits of modifiers in the kitty protocol with which a key types a character: Shift, and the locks
of capitals and of the number pad.
"""
_SHIFT, _CAPS_LOCK = 1, 64
_NUMBER_PAD = dict(zip(range(57399, 57417), "0123456789./*-+\r=,", strict=True))
"""The characters of the keys of the number pad, by their number in the kitty protocol."""
_PRIVATE_USE = range(0xE000, 0xF900)
"""Numbers of keys that are no characters: F13, Play, a modifier alone."""


def _text_of_key(number: int, modifiers: int) -> str:
    """The character that a key of the kitty protocol types, if the terminal has not sent it. Some
    terminals report all keys, but not their text: then Textual would type nothing. Empty for a key
    that types none, and with modifiers such as Ctrl.
    """
    has_other_modifiers = bool(modifiers & ~_SHIFT_AND_LOCKS)
    if has_other_modifiers:
        return ""
    character = _NUMBER_PAD.get(number, "")
    if not character and number not in _PRIVATE_USE and number <= _LAST_CHARACTER:
        character = chr(number)
    # With Caps Lock, Shift types a small letter.
    is_shifted = bool(modifiers & _SHIFT) != bool(modifiers & _CAPS_LOCK)
    if is_shifted and len(character.upper()) == 1:  # not `ß`, whose upper case is two letters
        character = character.upper()
    return character if character.isprintable() else ""


_LAST_CHARACTER = 0x10FFFF
_ALT_CTRL_H, _ALT_BACKSPACE = "\x1b\x08", "\x1b[127;3u"
"""Alt+Backspace, in a terminal whose Backspace sends Ctrl+H, and in all others."""
_ALT_ARROW = re.compile(r"\x1b(\x1b\[)([A-DFH])")
"""Alt with an arrow, Home or End, as PuTTY, rxvt and iTerm send it: Esc before the key. Textual knows
only the form of xterm, in which the modifier is a number: `ESC [ 1 ; 3 A`.
"""


def _escaped_character(sequence: str, *, alt: bool) -> str:
    """The printable character that came right after Esc. Empty if the sequence is anything else, or
    if the character may be the beginning of a longer sequence.

    With `alt` the sequence is without its Esc: the parser has removed it, because it did not know
    both together.
    """
    if alt:
        after_escape = sequence
    else:
        after_escape = sequence.removeprefix("\x1b")
        has_escape = after_escape != sequence
        if not has_escape or after_escape in _BEGINS_SEQUENCE:
            return ""
    is_character = len(after_escape) == 1 and after_escape.isprintable()
    return after_escape if is_character else ""


_PASTE_BEGIN, _PASTE_END = "\x1b[200~", "\x1b[201~"


def _partial_mark(text: str, mark: str) -> str:
    """The part of `mark` that the text ends with, if the rest of the mark may still come. Empty if
    there is none. The text must not contain the whole mark.
    """
    for size in range(len(mark) - 1, 0, -1):
        if text.endswith(mark[:size]):
            return mark[:size]
    return ""


class InputPiece(NamedTuple):
    """A piece of what the terminal has sent: keys, or a whole paste."""

    is_paste: bool
    text: str


class PasteSplitter:
    """Splits input that arrives in pieces into keys and whole pastes.

    Textual's own parser reads an escape sequence inside a paste as keys.
    """

    def __init__(self) -> None:
        self._held = ""
        """The end of the input, if it may be the first part of a mark of a paste, or of an answer of the
        terminal.
        """
        self._paste_parts: list[str] | None = None
        """The parts of the paste that is being read; None outside of a paste."""

    @property
    def holds(self) -> bool:
        """Whether the held input may be the Esc key as well as the beginning of a paste."""
        return bool(self._held) and self._paste_parts is None

    @property
    def holds_answer(self) -> bool:
        """Whether the held input is the beginning of an answer, and not a key."""
        is_key = len(self._held) <= len("\x1b]")
        return not is_key and self._paste_parts is None and bool(_BEGUN_ANSWER.match(self._held))

    def feed(self, text: str) -> list[InputPiece]:
        """Read a further text. Returns the pieces that are complete now. A paste is kept until its end
        has come. The end of the text is kept if it may be the first part of a mark.
        """
        pieces: list[InputPiece] = []
        rest, self._held = self._held + text, ""
        while rest:
            mark = _PASTE_BEGIN if self._paste_parts is None else _PASTE_END
            before, found_mark, after = rest.partition(mark)
            if not found_mark:
                self._held = self._part_to_hold(rest, mark)
                before = rest.removesuffix(self._held)
            if self._paste_parts is not None:
                self._paste_parts.append(before)
            elif before:
                pieces.append(InputPiece(False, before))
            if found_mark and self._paste_parts is not None:
                pieces.append(InputPiece(True, "".join(self._paste_parts)))
            if found_mark:
                self._paste_parts = [] if self._paste_parts is None else None
            rest = after
        return pieces

    def _part_to_hold(self, text: str, mark: str) -> str:
        """The end of a text that may be the first part of this mark of a paste, or, outside of a paste,
        of an answer of the terminal.
        """
        if self._paste_parts is not None:
            return _partial_mark(text, mark)
        # First: an answer may end with an Esc, which may also begin a mark.
        if begun_answer := _BEGUN_ANSWER.search(text):
            return begun_answer[0]
        return _partial_mark(text, mark) or _partial_mark(text, STATUS_ANSWER)

    def release(self) -> str:
        """Remove the held input, because nothing followed it, and return it: it is keys."""
        held_text, self._held = self._held, ""
        return held_text
