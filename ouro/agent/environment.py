"""Environment: the text for the model about where it works (date, git state, mode); files named in
messages.
"""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path

from ouro.agent.mentions import find_mentions
from ouro.errors import ToolError
from ouro.messages import Image
from ouro.utils.git import Git, GitError, find_root, git_branch, git_operation
from ouro.utils.late_pattern import late_pattern
from ouro.utils.path_encoding import path_text
from ouro.utils.text import clean, plural

_GIT_BRANCH = "Git branch"
"""The name of this entry of the state."""
GIT_TIMEOUT = 1.0
"""Seconds for git; if it needs longer, the repository is described without its state."""
_MAX_COUNT_AGE = 2.0
"""A count that began longer ago is not used: files may have changed since."""

_IMAGE_SUFFIX = late_pattern(r"(?i:\.(?:gif|jpe?g|png|webp))")
_FILE_SUFFIX = late_pattern(
    r"\.(?:c|cfg|cpp|css|csv|go|h|hpp|html|ini|ipynb|java|jpg|jsx?|json|lock|log|md|pdf|php|png|py|rb|rs|sh|sql|svg"
    r"|toml|tsx?|txt|xml|ya?ml)"
)

MODE_NOTES = {
    "ask": "ask (the user is asked before files are changed and commands are run)",
    "edit": "edit (files in the working folder may be changed without asking)",
    "plan": (
        "plan (nothing may be changed: read and think. When you know what to do, answer with a plan"
        " that the user can approve: the heading `# Plan: TITLE`, then numbered steps)"
    ),
    "auto": "auto (work without asking; the user trusts you to be careful)",
}

MODE_NOTES_OF_SUBAGENTS = {**MODE_NOTES, "plan": "plan (nothing may be changed: read and report)"}
"""A subagent answers an agent. It has no plan for the user to approve."""


class Environment:
    """Where, when and in which permission mode the agent works; changes are sent to the model.

    Args:
        further_facts: returns further facts by name. One that was sent and is empty now is sent as
            `none`.
        git_changes: those of the repository that contains `cwd`.
        mode_notes: the text for the model about each mode.
    """

    def __init__(
        self,
        cwd: Path,
        mode: Callable[[], str],
        further_facts: Callable[[], Mapping[str, str]] = dict,
        git_changes: GitChanges | None = None,
        mode_notes: Mapping[str, str] = MODE_NOTES,
    ) -> None:
        self.cwd = cwd
        self._mode_notes = mode_notes
        self._mode = mode
        self._further_facts = further_facts
        self._git_changes = git_changes or GitChanges(cwd)
        self._sent: Mapping[str, str] = {}
        """The facts that were sent last, by name."""

    async def changes(self) -> str:
        """A text for the model about what has changed since the last call; empty if nothing has."""
        text, self._sent = await self._describe_state(self._sent)
        return text

    async def whole(self) -> str:
        """A text for the model about the whole present state. The next `changes` is not affected."""
        text, _ = await self._describe_state(sent={})
        return text

    def missing_files(self, text: str) -> list[str]:
        """The files that a message names with `@` and that do not exist. A word counts as the name
        of a file if it ends like one or is in a folder that exists; `@app.get` and `@types/node` do
        not.
        """
        missing = []
        for name, path in self._find_paths(text).items():
            is_in_folder = "/" in name and path.parent.is_dir()
            is_file_name = bool(_FILE_SUFFIX.fullmatch(path.suffix)) or is_in_folder
            if is_file_name and not os.path.lexists(path):
                missing.append(name)
        return missing

    def folder_problem(self) -> str:
        """A warning for the user if the working folder does not exist any more, so that no tool can
        work; otherwise empty.
        """
        if self.cwd.is_dir():
            return ""
        return f"The working folder {path_text(self.cwd)} was deleted or moved."

    def read_images(self, text: str) -> tuple[tuple[Image, ...], tuple[str, ...]]:
        """The images that a message names with `@`, and a line for the user about each that cannot
        be sent. Blocks.
        """
        images, problems = list[Image](), list[str]()
        for name, path in self._find_paths(text).items():
            if not _IMAGE_SUFFIX.fullmatch(path.suffix) or not path.is_file():
                continue
            from ouro.images import read_image

            try:
                images.append(read_image(path, name))
            except ToolError as error:
                problems.append(f"{error} The message was sent without it.")
            except OSError as error:
                problem = f"{name} cannot be read: {error.strerror}."
                problems.append(f"{problem} The message was sent without it.")
        return tuple(images), tuple(problems)

    def _find_paths(self, text: str) -> dict[str, Path]:
        """The paths that a message names with `@`, by their names in the message; also those that do
        not exist.
        """
        # Whether a file exists only decides where its name ends: `see @a.py.` names `a.py`.
        mentions = find_mentions(text, lambda name: os.path.lexists(self._absolute_path(name)))
        names = dict.fromkeys(item.name for item in mentions if item.kind == "file")
        return {name: self._absolute_path(name) for name in names}

    def _absolute_path(self, name: str) -> Path:
        return self.cwd / os.path.expanduser(name)  # noqa: PTH111 - Path's raises for ~nobody

    def clear(self) -> None:
        """Let `changes` return everything again, because the request no longer contains it."""
        self._sent = {}

    async def _describe_state(self, sent: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
        """Compare the present state with `sent`, an earlier one. Returns a text for the model about
        what differs, empty if nothing does; and the whole present state.
        """
        state = {
            "Working folder": _folder_text(self.cwd),
            "Platform": f"{platform.system()} {platform.release()}, {platform.machine()}",
            "Date": f"{date.today():%Y-%m-%d}",  # noqa: DTZ011
            _GIT_BRANCH: git_branch(self.cwd),
            "Permission mode": self._mode_notes[self._mode()],
        }
        # An empty fact counts if it was sent: the model must learn that it is empty now.
        facts = self._further_facts().items()
        state |= {name: value for name, value in facts if value or name in sent}
        lines = []
        for name, value in state.items():
            if sent.get(name) == value:
                continue
            if name == _GIT_BRANCH:  # git runs only if the branch is sent
                lines.append(await self._git_state(value))
            else:
                lines.append(f"{name}: {value or 'none'}")
        if not lines:
            return "", state
        # A branch name is untrusted text.
        text = clean("\n".join(lines)).replace("</environment", "< /environment")
        return f"<environment>\n{text}\n</environment>", state

    async def _git_state(self, branch: str) -> str:
        """A text for the model with the branch and the number of changed files."""
        if not branch:
            return "Not a git repository."
        return f"Git branch: {branch}{await self._git_changes.describe()}"


class GitChanges:
    """Counts the changed files of a repository. git needs 0.1 s for 50,000 files.

    Args:
        is_needed_soon: whether git begins to count now, while other things are done.
    """

    def __init__(self, cwd: Path, *, is_needed_soon: bool = False) -> None:
        self._cwd = cwd
        self._early_count_began_at = time.monotonic()
        """When the count began: an old one is not used."""
        self._early_count: asyncio.Future[str] | None = None
        """The count that was begun here; None: none was, or it was used."""
        if is_needed_soon and git_branch(cwd):
            self._early_count = asyncio.ensure_future(asyncio.to_thread(_count_git_changes, cwd))

    async def describe(self) -> str:
        """A text for the model with the number of changed files, which follows the name of the
        branch. The first call uses the count that the constructor began, if that is not older than
        _MAX_COUNT_AGE.
        """
        early_count, self._early_count = self._early_count, None
        if (
            early_count is not None
            and time.monotonic() < self._early_count_began_at + _MAX_COUNT_AGE
        ):
            return await early_count
        return await asyncio.to_thread(_count_git_changes, self._cwd)


def _folder_text(folder: Path) -> str:
    """The working folder as a text for the model, with a warning if it is gone or its name is not
    UTF-8.
    """
    text = path_text(folder)
    if not folder.is_dir():
        return f"{text} (it does not exist any more: it was deleted or moved)"
    if text == str(folder):
        return text
    return f"{text} (\\xff stands for a byte that is not UTF-8; in the shell write $'\\xff')"


def _refusal_reason(reason: str) -> str:
    """A text for the model about why git refuses a repository; empty if it does not, but took too
    long.

    Args:
        reason: the error of git.
    """
    if "dubious ownership" in reason:
        return (
            "\ngit refuses: dubious ownership (the folder belongs to another user). Only the user"
            " may allow it, with git config --global --add safe.directory"
        )
    problem = reason.splitlines()[0].removeprefix("fatal: ") if "fatal: " in reason else ""
    return f"\ngit refuses: {problem}" if problem else ""


def _count_git_changes(cwd: Path) -> str:
    """A text for the model with the number of changed files, or why git refuses.

    It has no file names and commit subjects: these are texts from outside, which the model could
    take for the user's. If the model needs them, it runs git, and the output counts as data.
    """
    try:
        status = Git(cwd, GIT_TIMEOUT).read("status", "--short")
    except GitError as error:
        return _refusal_reason(str(error))
    file_count = status.count("\n")
    operation = git_operation(cwd)
    progress = f", a {operation} is in progress" if operation else ""
    return f"\nGit status: {plural(file_count, 'changed file')}{progress}{_missing_submodules(cwd)}"


def _missing_submodules(cwd: Path) -> str:
    """A line for the model if submodules are not checked out, as in a new worktree: their folders are
    empty, and git would use the repository around them there. Empty otherwise.
    """
    root = find_root(cwd)
    if not (root / ".gitmodules").is_file():
        return ""
    from ouro.safety import missing_submodules  # imported late: few repositories have submodules

    missing = len(missing_submodules(root))
    if not missing:
        return ""
    what = "1 is" if missing == 1 else f"{missing} are"
    return f"\nGit submodules: {what} not checked out (`git submodule status` names them)"
