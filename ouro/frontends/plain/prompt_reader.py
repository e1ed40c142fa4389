"""PromptReader: the prompt of prompt_toolkit, with the output printed above it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, get_app, in_terminal, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import (
    Condition,
    emacs_mode,
    has_completions,
    vi_navigation_mode,
)
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import History
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.styles import Style

from ouro.commands.builtin import matching_commands
from ouro.frontends.file_index import FileIndex, mention, mentioned_name, typed_mention
from ouro.frontends.headless.output import Pipe
from ouro.frontends.history import PromptHistory
from ouro.utils.editor import edit_text
from ouro.utils.ouro_paths import get_history_path

if TYPE_CHECKING:
    from ouro.frontends.plain.repl import Repl

STYLE = Style.from_dict(
    {
        "bottom-toolbar": "noreverse fg:ansibrightblack",
        "label": "bold",
        "label.asks": "bold ansiyellow",
    }
)
CONTINUATION = ". "
"""Before the second and later lines of a message."""
FLUSH_SECONDS = 0.03
"""Output is collected for this long, because the prompt is drawn again after each write."""
REFRESH_SECONDS = 1.0
ESCAPE_SECONDS = 0.05
"""After this long Esc is a key, and not the beginning of what another key sends; as in Vim."""
TYPED_ALT_SECONDS = 1.0
"""After this long Esc does not begin a key that is typed as Esc and a letter."""


class PromptReader:
    """Reads messages of several lines, with history, completion and keys that act at once.

    One prompt runs for the whole session, and the terminal stays in raw mode while text is printed
    above it: in line mode, typed keys would be echoed into the output, and Enter would arrive as a
    newline.
    """

    def __init__(self, repl: Repl, echo: Callable[[str], None]) -> None:
        self._repl = repl
        self._echo = echo
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._running: asyncio.Task[str] | None = None
        self._draft: Document | None = None
        """The unsent message, while a question is asked."""
        self._was_asking = False
        """Whether a question was open when the prompt was drawn last."""
        self._pipe = Pipe(sys.stdout)
        self._pending: list[str] = []
        """Output that is not printed yet."""
        self._flushing: asyncio.Task[None] | None = None
        self._input = _Input(sys.stdin)
        self._prompt: PromptSession[str] = PromptSession(
            message=lambda: [
                ("class:label.asks" if repl.is_asking() else "class:label", repl.label())
            ],
            history=_FileHistory(PromptHistory(get_history_path())),
            completer=ThreadedCompleter(_Completer(repl)),
            complete_while_typing=Condition(lambda: not repl.is_asking()),
            key_bindings=_key_bindings(repl, self._submit),
            is_password=Condition(repl.is_secret),
            input=self._input,
            multiline=True,
            prompt_continuation=CONTINUATION,
            bottom_toolbar=lambda: ANSI(repl.toolbar()),
            refresh_interval=REFRESH_SECONDS,
            enable_suspend=True,
            enable_open_in_editor=True,
            erase_when_done=True,
            style=STYLE,
            reserve_space_for_menu=6,
            editing_mode=EditingMode.VI if repl.editing == "vim" else EditingMode.EMACS,
        )
        self._prompt.default_buffer.on_text_changed += lambda _buffer: repl.draft.change()
        self._prompt.app.ttimeoutlen = ESCAPE_SECONDS
        self._prompt.app.before_render += self._set_key_wait

    def _set_key_wait(self, app: Application[str]) -> None:
        """Let Esc act at once where it interrupts or is a key of Vim; else it may begin a key that
        is typed as Esc and a letter.
        """
        acts_at_once = self._repl.turns.busy or self._prompt.editing_mode is EditingMode.VI
        app.timeoutlen = ESCAPE_SECONDS if acts_at_once else TYPED_ALT_SECONDS

    @property
    def unsent(self) -> str:
        """The text that is not sent yet. What is typed as an answer to a question does not count."""
        hidden = self._draft.text if self._draft is not None else ""
        return hidden if self._repl.is_asking() else self._prompt.default_buffer.text or hidden

    def in_use(self) -> AbstractContextManager[None]:
        """Print above the prompt also what other code prints, as long as the block runs."""
        return patch_stdout(raw=True)

    async def read(self) -> str | None:
        """The next line or message; None when the user ends the prompt."""
        if self._running is None:
            self._running = asyncio.create_task(self._prompt.prompt_async(handle_sigint=False))
            self._running.add_done_callback(lambda _: self._lines.put_nowait(None))
        return await self._lines.get()

    async def close(self) -> None:
        """Remove the prompt, and print the output that still waits."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(
                self._running, *filter(None, (self._flushing,)), return_exceptions=True
            )
        self._print_pending()

    def write(self, text: str) -> None:
        """Print a text above the prompt, soon and together with later texts."""
        self._pending.append(text)
        if not self._prompt.app.is_running:
            self._print_pending()
        elif self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())

    async def _flush(self) -> None:
        """Print the pending output above the prompt, until there is none."""
        while self._pending:
            await asyncio.sleep(FLUSH_SECONDS)
            self._input.stays_raw = True
            try:
                await run_in_terminal(self._print_pending)
            finally:
                self._input.stays_raw = False

    def _print_pending(self) -> None:
        text, self._pending = "".join(self._pending), []
        self._pipe.write(text)

    def _submit(self, buffer: Buffer) -> None:
        """Pass the typed text to `read`, print it above the prompt, and empty the prompt. Answers
        are not added to the history.
        """
        text, is_answer = buffer.text, self._repl.is_asking()
        visible = "•" * len(text) if self._repl.is_secret() else text
        self._echo(self._repl.label() + visible.replace("\n", f"\n{CONTINUATION}"))
        buffer.reset(append_to_history=not is_answer)
        self._lines.put_nowait(text)

    def toggle_vim(self) -> str:
        """Change between the keys of Emacs and of Vim; returns `emacs` or `vim`."""
        is_vi = self._prompt.editing_mode is EditingMode.VI
        self._prompt.editing_mode = EditingMode.EMACS if is_vi else EditingMode.VI
        return "emacs" if is_vi else "vim"

    async def edit(self, text: str) -> str:
        """Edit a text in the user's editor and return it. Raises UsageError if the editor fails."""
        async with in_terminal():
            return await edit_text("message.md", text)

    def fill(self, text: str) -> bool:
        """Put a draft into the prompt, at once or after the open question. Always returns True."""
        document = Document(text)
        if self._was_asking:
            self._draft = document  # shown when the question is answered
        else:
            self._prompt.default_buffer.document = document
        return True

    def redraw(self) -> None:
        """Draw the prompt again. While a question is open the draft is hidden, so that none of its
        keys answers the question.
        """
        if not self._prompt.app.is_running:
            return
        buffer, is_asking = self._prompt.default_buffer, self._repl.is_asking()
        if is_asking and not self._was_asking:
            self._draft = buffer.document
            buffer.reset()
        elif self._was_asking and not is_asking and self._draft is not None:
            if not buffer.text:
                buffer.document = self._draft
            self._draft = None
        self._was_asking = is_asking
        self._prompt.app.invalidate()


class _Input(Vt100Input):
    """The keyboard. It can stay in raw mode when prompt_toolkit would switch to line mode."""

    stays_raw = False

    def cooked_mode(self) -> AbstractContextManager[None]:
        """Switch to line mode for editors and the shell, but not while ouro itself prints."""
        return nullcontext() if self.stays_raw else super().cooked_mode()


class _FileHistory(History):
    """The prompt history of ouro, for prompt_toolkit."""

    def __init__(self, entries: PromptHistory) -> None:
        super().__init__()
        entries.use(Path.cwd())
        self._entries = entries

    def load_history_strings(self) -> Iterable[str]:
        return reversed(self._entries.entries())

    def store_string(self, string: str) -> None:
        self._entries.add(string)


class _Completer(Completer):
    """Completes `/` commands at the start of the text, and `@` files anywhere."""

    def __init__(self, repl: Repl) -> None:
        self._repl = repl
        self._files = FileIndex([])

    def get_completions(
        self, document: Document, _complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """The commands for a `/` word at the beginning, or the files for an `@` word."""
        before = document.text_before_cursor
        if before.startswith("/") and " " not in before and "\n" not in before:
            return self._commands(before)
        word = typed_mention(before.rpartition("\n")[2])
        return self._mentions(word) if word else ()

    def _commands(self, typed: str) -> Iterator[Completion]:
        """The slash commands that the typed text may mean."""
        for command in matching_commands(self._repl.turns.session, typed[1:]):
            yield Completion(
                command.value.rstrip(),
                -len(typed),
                display=command.label,
                display_meta=command.detail,
            )

    def _mentions(self, word: str) -> Iterator[Completion]:
        """The files that an `@word` may mean. A new `@` reads the list of files again."""
        if word == "@" or not self._files.size:
            session = self._repl.turns.session
            name_lists = session.find_files() if session else ()
            self._files = FileIndex(chain.from_iterable(name_lists))
        for name in self._files.search(mentioned_name(word)):
            yield Completion(mention(name), -len(word), display=name)


def _key_bindings(repl: Repl, submit: Callable[[Buffer], None]) -> KeyBindings:
    """The keys that act at once, beside those of prompt_toolkit."""
    keys = KeyBindings()
    is_empty = Condition(lambda: not get_app().current_buffer.text)
    is_busy = Condition(lambda: repl.turns.busy)

    @keys.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        """Submit; after a backslash begin a new line instead."""
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\") and not repl.is_asking():
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        elif buffer.text.strip() or repl.is_asking():
            submit(buffer)

    @keys.add("escape", "enter", filter=emacs_mode)
    @keys.add("c-j")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    def _interrupt(event: KeyPressEvent) -> None:
        if event.current_buffer.text and not repl.turns.busy:
            event.current_buffer.reset()
        elif repl.interrupt():
            event.app.exit(exception=EOFError)

    @keys.add("escape", filter=is_busy & (emacs_mode | vi_navigation_mode))
    def _escape(_event: KeyPressEvent) -> None:
        repl.interrupt()

    @keys.add("tab", filter=is_busy & ~is_empty & ~has_completions)
    def _queue(event: KeyPressEvent) -> None:
        text = event.current_buffer.text
        event.current_buffer.reset(append_to_history=True)
        repl.queue(text)

    @keys.add("up", filter=is_empty & Condition(lambda: bool(repl.turns.waiting)))
    def _unqueue(event: KeyPressEvent) -> None:
        if draft := repl.turns.withdraw():
            event.current_buffer.insert_text(draft.text)

    @keys.add("s-tab")
    def _mode(_event: KeyPressEvent) -> None:
        repl.cycle_mode()

    @keys.add("escape", "t", filter=emacs_mode)
    async def _effort(_event: KeyPressEvent) -> None:
        await repl.cycle_effort()

    @keys.add("c-g")
    def _editor(event: KeyPressEvent) -> None:
        event.current_buffer.open_in_editor()

    return keys
