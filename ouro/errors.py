"""The errors that users see; a front end shows the message and the hint."""

from __future__ import annotations

import errno
import os

from ouro.utils.sections import section

TYPE_CHECKING = False  # without `typing`, which no first frame needs
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class OuroError(Exception):
    """Any failure that the user sees: what happened, the value it happened with, and what to do.

    Args:
        message: what happened.
        hint: what to do.
        commands: actions that help, without the prefix of a front end: `memory show`. In a session it is printed as
            `/memory show`, on the command line as `ouro memory show`.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "", commands: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.commands = tuple(commands)

    def __str__(self) -> str:
        return self.text()

    def text(self, prefix: str = "/") -> str:
        """The message and, on a separate line, the hint with the commands; a command begins with
        `prefix`.
        """
        commands = " or ".join(f"`{prefix}{command}`" for command in self.commands)
        hint = " ".join(filter(None, (self.hint, f"See {commands}." if commands else "")))
        return f"{self.message}\n{hint}" if hint else self.message


class UsageError(OuroError):
    """The command line or a slash command was used wrongly."""

    exit_code = 2


class ConfigError(OuroError):
    """A settings file has a value that is not valid; the message names file and line."""

    exit_code = 2


class NoModelError(OuroError):
    """The named model, or any model, cannot be used."""

    exit_code = 3
    usable: Sequence[str] = ()
    """The models that the user could use instead."""
    is_nothing_set_up: bool = False
    """Whether no model is set up at all, as before the first start."""


class DemoRequested(OuroError):
    """There is no model, and the user asked for `ouro demo`."""

    exit_code = 3


class LimitReached(OuroError):
    """A limit on turns, money or repetition ended the turn."""

    exit_code = 4


class TrustNeeded(OuroError):
    """The folder holds files that ouro would obey, and the user has not approved them."""

    exit_code = 5

    def __init__(
        self,
        folder: Path,
        files: Sequence[Path],
        summary: Sequence[str] = (),
        *,
        was_trusted: bool = False,
    ) -> None:
        """
        Args:
            summary: what the files are, and the programs that they name, in lines.
            was_trusted: the user has trusted the folder, and the files are new or have changed since.
        """
        names = ", ".join(str(file) for file in files)
        reason = f"{folder} is not trusted, and holds files that ouro would obey"
        if was_trusted:
            reason = f"Files that ouro would obey are new or changed since you trusted {folder}"
        super().__init__(
            f"{reason}: {names}. Look at them. Then add `--trust` to the command, as in"
            ' `ouro --trust -p "…"`, or answer the question of `ouro` in a terminal;'
            ' `ouro --no-trust -p "…"` works without them.'
        )
        self.folder = folder
        self.files = tuple(files)
        self.summary = tuple(summary)


class PromptRefused(OuroError):
    """A hook refused the user's message, or the user withdrew it."""


class StoppedByUser(OuroError):
    """The user refused a tool call, and with it the rest of the turn."""


class ToolError(OuroError):
    """A tool could not do its task. The message is for the model, which can react to it."""


class SessionError(OuroError):
    """A session could not be opened or saved."""


class SessionNotFound(SessionError):
    """No session matches that id, prefix or title."""

    exit_code = 2


class SeveralSessions(SessionNotFound):
    """More than one session matches; the message lists them."""

    def __init__(self, message: str, hint: str, ids: Sequence[str]) -> None:
        super().__init__(message, hint)
        self.ids = tuple(ids)


class SessionInUse(SessionError):
    """Another process has the session open."""


class SessionOpenHere(SessionInUse):
    """This process has the session open."""

    def __init__(self) -> None:
        super().__init__(
            "This session is already open in this ouro.", "Continue there, or close it first."
        )


class SessionRunning(SessionInUse):
    """A background process has the session open: one can attach to it."""

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"This session runs in the background: {session_id[:8]}.",
            f"Attach to it: `ouro attach {session_id[:8]}`. `--fork` opens a copy.",
        )
        self.session_id = session_id


class AttachRequested(OuroError):
    """The user wants to see a session that runs in the background."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"Session {session_id[:8]} runs in the background.")
        self.session_id = session_id


class SocketRefused(OuroError):
    """A socket, its folder or the process at its other end is not the user's own."""


class HostGone(OuroError):
    """The process of a background session has ended, or does not answer."""


class SessionDamaged(SessionError):
    """The session file has content that is not valid."""


class SaveFailed(SessionError):
    """A record could not be written; it is still in memory."""


class SessionLost(SaveFailed):
    """The file of an open session was deleted, cut or replaced by another program."""


class SpendingUnreadable(SessionError):
    """The file with the spending outside of sessions cannot be read; it is not changed."""


class LongTermMemoryError(OuroError):
    """Long-term memory could not be read or changed."""


class MemoryUnusable(LongTermMemoryError):
    """The memory folder or its history is damaged; it is not changed."""


class GitUnavailable(MemoryUnusable):
    """git is missing, or does not answer: the history of memory is not damaged, but cannot grow."""


class SecretInMemory(LongTermMemoryError):
    """The text to remember holds a secret; nothing was written."""


class NoteError(LongTermMemoryError):
    """A note cannot be changed: it does not exist, or its scope is off."""


class SearchUnavailable(OuroError):
    """The index cannot be read or written just now. It is derived from the files: nothing is lost."""


@section
class ProviderAnswer:
    """What a provider answered instead of a message; keys are hidden."""

    status: int
    text: str
    """The whole error, as the provider wrote it."""
    param: str = ""
    """The field of the request that it names as the reason."""


class ModelError(OuroError):
    """A model did not answer."""

    answer: ProviderAnswer | None = None
    """The provider's own words; None if it did not answer at all."""


class AuthenticationFailed(ModelError):
    """The provider does not accept the key."""

    exit_code = 3


class RequestRefused(ModelError):
    """The provider will never accept this request; a retry does not help."""


class ToolsRefused(RequestRefused):
    """The model takes no tools; it can still be asked to write calls as text."""


class WireRefused(RequestRefused):
    """The server has this model under another protocol."""


class NotAStream(RequestRefused):
    """The server answered with a success and something else, such as a web page: nothing for models may
    be at this address.
    """


class ContextTooLong(ModelError):
    """The messages do not fit the model's window."""


class TransientModelError(ModelError):
    """A temporary failure: a retry can help."""

    def __init__(self, message: str, hint: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, hint)
        self.retry_after = retry_after
        """Seconds that the provider asks to wait, if it names them."""


class RateLimited(TransientModelError):
    """There were too many requests."""


class ModelUnavailable(TransientModelError):
    """The provider is overloaded, broken, unreachable, or silent for too long."""


class ServerUnreachable(ModelUnavailable):
    """There is no connection: nothing listens, the name is unknown, or TLS failed."""


class StreamCut(TransientModelError):
    """The answer stopped before its end."""


class AnswerUnfinished(StreamCut):
    """The provider ended the answer in the middle, on a connection that works."""


class EmptyAnswer(TransientModelError):
    """The model returned no text and no tool call."""


def reason_of(error: Exception) -> str:
    """The reason of a failure: the text of an error of ouro, or the message of the operating system."""
    if isinstance(error, OuroError):
        return str(error)
    return getattr(error, "strerror", None) or str(error)


def plain_error(error: OSError | OuroError) -> OuroError:
    """An error of ouro unchanged; for an error of the operating system, which is logged, one that says
    which file could not be read or written, and what to do.
    """
    if isinstance(error, OuroError):
        return error
    from ouro.utils.log import log

    log.error("a file could not be read or written", exc_info=error)
    advice = "Run `ouro doctor`; `logs/ouro.log` has the details."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "Free some space, then run it again: what was saved before is not touched."
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        advice = "Make it writable, or set OURO_HOME to a folder that is."
    where = f"{os.fsdecode(error.filename)}: " if error.filename is not None else ""
    return OuroError(f"{where}{error.strerror or error}.", advice)
