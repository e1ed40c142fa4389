"""Which session a front end asks for, and the questions that opening it may need."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec
from msgspec.structs import replace

from ouro.display import Choice
from ouro.errors import (
    AttachRequested,
    DemoRequested,
    NoModelError,
    OuroError,
    SessionInUse,
    SessionOpenHere,
    SessionRunning,
    SeveralSessions,
    TrustNeeded,
)
from ouro.utils.ouro_paths import tilde

if TYPE_CHECKING:
    from ouro.memory.backend import SessionInfo
    from ouro.memory.sessions.session_catalog import SessionCatalog
    from ouro.session.session import Session

PICK = "?"
"""Used instead of a session: the user picks one first."""
Part = Literal["full", "tail", "summary", "then"]
"""The part of a resumed session that is sent to the model: everything, its last turns, or a summary
made first.

`then`: everything, with memory as it was when the session was last used.
"""
TRUST_CHOICES = (
    Choice("yes", "yes", "trust this folder, now and later"),
    Choice("no", "no", "work here without obeying these files"),
    Choice(value="", label="quit"),
)
IN_USE_CHOICES = (
    Choice("read", "open it read-only", "nothing that is said here is saved"),
    Choice("copy", "continue in a copy", "the session itself stays as it is"),
    Choice(value="", label="leave it"),
)
OPEN_HERE_CHOICES = (
    Choice(value="", label="stay in it"),
    Choice("copy", "continue in a copy", "the session itself stays as it is"),
)
LEAVE_CHOICES = (Choice("back", "go back"), Choice(value="", label="quit"))
USE_PREFIX = "use "
"""Begins the choice of a model that can be used; its name follows."""
ABOUT = (
    "ouro is a coding agent in your terminal. It reads, changes and runs what is in this folder,"
    " asks before it acts, can undo what it did, and remembers what you decide."
)
NEEDS_MODEL = (
    "It needs a model: with a key, or from a server on this machine (Ollama, LM Studio, llama.cpp,"
    " vLLM)."
)
NO_MODEL_CHOICES = (
    Choice("set up", "set up a model", "a key, or your own server"),
    Choice(
        "demo",
        "see the demo",
        "a recorded model, without a key: nothing is sent",
    ),
    Choice(value="", label="quit"),
)


class OpenRequest(msgspec.Struct, frozen=True):
    """Which session a front end asks for."""

    resume: str = ""
    """Empty: a new one. Otherwise an id or its beginning, words of a title or of messages,
    `latest`, or `PICK`.
    """
    fork: bool = False
    """Continue in a copy: the session itself is not changed."""
    read_only: bool = False
    """Nothing is saved. Thus a session can be viewed while another process has it open."""
    message: int = 0
    """The number of the message to show first; 0: the last one."""
    part: Part = "full"
    model: str = ""
    """The model that the user chose because the requested one is not usable."""
    trust: Literal["unknown", "yes", "no"] = "unknown"
    """The user's answer about the folder: `yes` is saved, `no` opens it without obeying its files.
    """
    new_id: str = ""
    """The id of a new session, if the id was published before the session was open."""


OpenSession = Callable[[OpenRequest], Awaitable["Session"]]
OpenCatalog = Callable[[], Awaitable["SessionCatalog"]]


class OpenDialog(Protocol):
    """Asks the user the questions that opening a session needs."""

    async def choose_open(
        self,
        title: str,
        choices: Sequence[Choice],
        *,
        esc: str = "closes",
        ctrl_c: str | None = None,
    ) -> str | None:
        """Return the value of the choice; None or empty if the user declines. It must be hard to
        choose by accident.

        Args:
            esc: what the caller does when the list is closed, as a label of the Esc key.
            ctrl_c: the result of Ctrl+C, if it is not the same as that of Esc.
        """

    async def pick_open(self, ids: Sequence[str]) -> OpenRequest | None:
        """Let the user pick one of the sessions with these ids, or of all sessions if `ids` is
        empty. None if the user declines.
        """

    async def set_up_model(self) -> str:
        """Set up a model with the user; return its name, empty if they cancel."""


async def open_interactively(
    open_session: OpenSession,
    request: OpenRequest,
    dialog: OpenDialog | None,
    *,
    has_open_session: bool = False,
) -> Session | None:
    """Open the session of a request, and return it. If something is missing, the user is asked:
    which session, whether they trust the folder, how to open a session that is in use, which model.
    None if the user declines.

    Args:
        dialog: asks the questions; None if no user can be asked, as in a script: then the error that
            would lead to a question is raised.
        has_open_session: whether another session is open, which stays if the user declines;
            otherwise declining ends ouro, and the user is asked once more before that.

    Raises:
        DemoRequested: the user asked for the demo.
        AttachRequested: the session runs in the background.
        OuroError: the session cannot be opened.
    """
    while True:
        try:
            if request.resume == PICK:
                # Handled below: with a dialog the user picks a session. The text is for the case
                # without one.
                raise SeveralSessions(
                    "stdin is not a terminal.", "Name a session: --resume latest", ids=()
                )
            return await open_session(request)
        except (SeveralSessions, SessionInUse, TrustNeeded, NoModelError) as error:
            if dialog is None:
                raise
            if isinstance(error, SessionRunning):  # a kind of SessionInUse
                raise AttachRequested(error.session_id) from error
            questions = _OpenQuestions(dialog, has_open_session=has_open_session)
            next_request = await _ask_how_to_open(questions, request, error)
        if next_request is None:
            return None
        request = next_request


async def find_session_to_resume(
    catalog: SessionCatalog, request: OpenRequest, *, is_interactive: bool
) -> SessionInfo:
    """The session that `request.resume` names. For a user (`is_interactive`), `latest` is the last
    session that a user has used, if there is one; for a program it is the last one of all.

    Raises:
        SessionNotFound: there is none, or there are several.
        SessionRunning: it runs in the background, and the request wants neither a copy of it nor only
            to read it.
    """
    info = await catalog.find(request.resume, prefers_listed=is_interactive)
    if not request.fork and not request.read_only:
        from ouro.session.background_record import require_foreground  # only to resume

        await asyncio.to_thread(require_foreground, info.id)
    return info


def trust_question(error: TrustNeeded) -> tuple[str, tuple[Choice, ...]]:
    """The question whether the user trusts a folder, and the choices of the answer. The files that
    ouro would obey are listed with what they do; without a summary, only their names.
    """
    folder = tilde(error.folder)
    if error.summary:
        files = "".join(f"\n- {line}" for line in error.summary)
    else:
        files = " " + ", ".join(tilde(file).removeprefix(f"{folder}/") for file in error.files)
    return f"Do you trust {folder}?\nouro would obey what is written in:{files}", TRUST_CHOICES


class _OpenQuestions:
    """Asks the questions of one opening.

    Args:
        has_open_session: whether another session is open, which stays if the user declines.
    """

    def __init__(self, dialog: OpenDialog, *, has_open_session: bool) -> None:
        self._has_open_session = has_open_session
        self.dialog = dialog

    async def choose(self, title: str, choices: Sequence[Choice]) -> str:
        """The value of the choice; empty if the user declines.

        If no session stays open, declining means to leave ouro. Then Esc is not enough, because it
        may have been pressed once too often: it leads to the question whether to leave.
        """
        choose = self.dialog.choose_open
        if self._has_open_session:
            return await choose(title, choices) or ""
        while (answer := await choose(title, choices, esc="asks to quit")) is None:
            # Both the choice `quit` and Ctrl+C are the empty text; Esc is None.
            leaves = await choose("Leave ouro?", LEAVE_CHOICES, esc="goes back", ctrl_c="") == ""
            if leaves:
                return ""
        return answer


async def _ask_how_to_open(
    questions: _OpenQuestions, request: OpenRequest, error: OuroError
) -> OpenRequest | None:
    """Ask the question that solves the error: which session, trust, a model, or how to open a
    session that is in use. Returns the request with the answer.

    If the user declines: None for a session to pick, for trust, and for the session that is open
    here. For a model, and for a session that another process has open, `error` is raised.
    """
    match error:
        case SeveralSessions(ids=ids):
            picked = await questions.dialog.pick_open(ids)
            if picked is None or not picked.resume:
                return picked  # the user declines, or wants a new session: nothing is copied then
            return replace(request, resume=picked.resume, fork=request.fork or picked.fork)
        case TrustNeeded():
            answer = await questions.choose(*trust_question(error))
            if not answer:
                return None
            return replace(request, trust="yes" if answer == "yes" else "no")
        case NoModelError():
            return replace(request, model=await _ask_for_model(questions, error))
        case SessionOpenHere():
            choice = await questions.choose(error.message, OPEN_HERE_CHOICES)
            return replace(request, fork=True) if choice else None
        case _:  # SessionInUse: another process has it open
            choice = await questions.choose(error.message, IN_USE_CHOICES)
            if not choice:
                raise error
            return replace(request, read_only=choice == "read", fork=choice == "copy")


async def _ask_for_model(questions: _OpenQuestions, error: NoModelError) -> str:
    """The name of the model that the user chooses or sets up. If a set-up is cancelled, the choice
    is shown again. Raises DemoRequested if they choose the demo, and `error` if they choose
    nothing.
    """
    usable_choices = [Choice(f"{USE_PREFIX}{name}", f"use {name}") for name in error.usable]
    title = _no_model_text(error)
    while chosen := await questions.choose(title, [*usable_choices, *NO_MODEL_CHOICES]):
        if chosen == "demo":
            raise DemoRequested("The user chose the demo.")
        if chosen.startswith(USE_PREFIX):
            return chosen.removeprefix(USE_PREFIX)
        if name := await questions.dialog.set_up_model():
            return name
    raise error


def _no_model_text(error: NoModelError) -> str:
    """The title of the choice of a model. If nothing is set up yet, it says what ouro is and needs.
    Otherwise it is the error, without backticks, because dialogs do not draw Markdown.
    """
    if not error.is_nothing_set_up:
        return str(error).replace("`", "")
    return f"{error.message}\n{ABOUT} {NEEDS_MODEL}"
