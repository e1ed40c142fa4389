"""PromptReader: the prompt of prompt_toolkit, with the output printed above it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.styles import Style

from ouro.commands.command_lookup import matching_commands
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
        """`echo` prints a submitted text above the prompt."""
        self._repl = repl
        self._echo = echo
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        """The submitted texts that were not read; None: the prompt has ended."""
        self._running: asyncio.Task[str] | None = None
        """The prompt of prompt_toolkit, from the first `read` on."""
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
            message=self._label,
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
        self._prompt.default_buffer.on_text_changed += lambda _buffer: repl.draft.save_soon()
        self._prompt.app.ttimeoutlen = ESCAPE_SECONDS
        self._prompt.app.before_render += self._set_key_wait

    def _label(self) -> StyleAndTextTuples:
        """The text before the cursor, in another style while a question is open."""
        style = "class:label.asks" if self._repl.is_asking() else "class:label"
        return [(style, self._repl.label())]

    def _set_key_wait(self, app: Application[str]) -> None:
        """Set how long an Esc waits for a next key. While a turn runs Esc interrupts it, and with
        Vim's keys it is a command, so it acts at once. Otherwise it waits, because Esc and a letter
        may be one key.
        """
        acts_at_once = self._repl.turns.busy or self._prompt.editing_mode is EditingMode.VI
        app.timeoutlen = ESCAPE_SECONDS if acts_at_once else TYPED_ALT_SECONDS

    @property
    def unsent(self) -> str:
        """The message that is not sent yet: the text in the prompt, or the draft that a question hides.
        What is typed as an answer to a question does not count.
        """
        hidden_draft = self._draft.text if self._draft is not None else ""
        if self._repl.is_asking():
            return hidden_draft
        return self._prompt.default_buffer.text or hidden_draft

    def in_use(self) -> AbstractContextManager[None]:
        """In this context, what other code prints is also printed above the prompt."""
        return patch_stdout(raw=True)

    async def read(self) -> str | None:
        """The next submitted text; None when the user has ended the prompt. The first call shows the
        prompt, which runs until `close`.
        """
        if self._running is None:
            self._running = asyncio.create_task(self._prompt.prompt_async(handle_sigint=False))
            self._running.add_done_callback(lambda _: self._lines.put_nowait(None))
        return await self._lines.get()

    async def close(self) -> None:
        """Remove the prompt, and print the output that still waits."""
        if self._running is not None:
            self._running.cancel()
            tasks: list[asyncio.Task[Any]] = [self._running]
            if self._flushing is not None:
                tasks.append(self._flushing)
            await asyncio.gather(*tasks, return_exceptions=True)
        self._print_pending()

    def write(self, text: str) -> None:
        """Print a text above the prompt. It is printed within FLUSH_SECONDS, together with texts
        that come until then. If no prompt is shown, it is printed at once.
        """
        self._pending.append(text)
        if not self._prompt.app.is_running:
            self._print_pending()
        elif self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())

    async def _flush(self) -> None:
        """Print the pending output above the prompt, until there is none. The keyboard stays in raw
        mode meanwhile, so that prompt_toolkit does not switch it for each print.
        """
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
        """Pass the typed text to `read`, print it above the prompt (a secret as dots), and empty the
        prompt. Answers are not added to the history.
        """
        text, is_answer = buffer.text, self._repl.is_asking()
        visible_text = "•" * len(text) if self._repl.is_secret() else text
        self._echo(self._repl.label() + visible_text.replace("\n", f"\n{CONTINUATION}"))
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
        """Put a draft into the prompt, at once or after the open question. Always returns True:
        unlike LineReader, this prompt can show a draft.
        """
        document = Document(text)
        if self._was_asking:
            self._draft = document  # shown when the question is answered
        else:
            self._prompt.default_buffer.document = document
        return True

    def redraw(self) -> None:
        """Draw the prompt again. While a question is open, the draft is hidden, so that it is not
        sent as the answer. After the answer it is shown again.
        """
        if not self._prompt.app.is_running:
            return
        buffer, is_asking = self._prompt.default_buffer, self._repl.is_asking()
        question_was_asked = is_asking and not self._was_asking
        question_has_ended = self._was_asking and not is_asking
        if question_was_asked:
            self._draft = buffer.document
            buffer.reset()
        elif question_has_ended and self._draft is not None:
            if not buffer.text:  # otherwise the user has begun another message
                buffer.document = self._draft
            self._draft = None
        self._was_asking = is_asking
        self._prompt.app.invalidate()


class _Input(Vt100Input):
    """The keyboard. It can stay in raw mode when prompt_toolkit would switch to line mode."""

    stays_raw = False

    def cooked_mode(self) -> AbstractContextManager[None]:
        """The context in which another program may use the terminal, in line mode. prompt_toolkit also
        enters it before ouro prints. With `stays_raw`, which is set for that, nothing changes.
        """
        return nullcontext() if self.stays_raw else super().cooked_mode()


class _FileHistory(History):
    """The prompt history of ouro, for prompt_toolkit."""

    def __init__(self, entries: PromptHistory) -> None:
        super().__init__()
        entries.begin_session(Path.cwd())
        self._entries = entries

    def load_history_strings(self) -> Iterable[str]:
        return reversed(self._entries.entries())

    def store_string(self, string: str) -> None:
        self._entries.add(string)


class _Completer(Completer):
    """Completes `/` commands at the start of the text, and `@` files anywhere."""

    def __init__(self, repl: Repl) -> None:
        self._repl = repl
        self._files = FileIndex(names=[])

    def get_completions(
        self, document: Document, _complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """The commands for a text that is only a `/` word, or the files for an `@` word before the
        cursor.
        """
        before = document.text_before_cursor
        is_command = before.startswith("/") and " " not in before and "\n" not in before
        if is_command:
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
    """The keys of ouro. `submit` is called with the buffer when the user enters it."""
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
        """Interrupt the turn, or clear the text. Without both, the second Ctrl+C ends the prompt."""
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
        """Take the newest queued message out of the queue, to edit it."""
        draft = repl.turns.withdraw()
        if draft is not None:
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
