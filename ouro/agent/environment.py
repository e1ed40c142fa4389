"""Environment: what the model is sent about where it works (date, git state, mode); files named in messages."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Callable
from datetime import date
from pathlib import Path

import msgspec

from ouro.errors import ToolError
from ouro.messages import Image
from ouro.utils.git import Git, GitError, git_branch
from ouro.utils.late_pattern import late_pattern
from ouro.utils.text import clean, plural

GIT_TIMEOUT = 1.0
"""Seconds; a repository for which git needs longer is described without its state."""

_NAMED_FILE = late_pattern(r"(?<!\S)@([^\s:\0]+)(?=\s|$)")
_IMAGE = late_pattern(r"(?i:\.(?:gif|jpe?g|png|webp))")
_ENDING = late_pattern(
    r"\.(?:c|cfg|cpp|css|csv|go|h|hpp|html|ini|ipynb|java|jpg|jsx?|json|lock|log|md|pdf|php|png|py|rb|rs|sh|sql|svg"
    r"|toml|tsx?|txt|xml|ya?ml)"
)

MODE_NOTES = {
    "ask": "ask (the user is asked before files are changed and commands are run)",
    "edit": "edit (files in the working folder may be changed without asking)",
    "plan": "plan (nothing may be changed: read, think, and answer with a plan that the user can approve)",
    "auto": "auto (work without asking; the user trusts you to be careful)",
}


class _State(msgspec.Struct, frozen=True):
    today: date
    branch: str
    git: str
    mode: str


class Environment:
    """Where, when and in which permission mode the agent works: the model is sent what has changed."""

    def __init__(self, cwd: Path, mode: Callable[[], str]) -> None:
        self._cwd = cwd
        self._mode = mode
        self._sent: _State | None = None

    async def changes(self) -> str:
        """What has changed since the last call, for the model; empty if nothing has."""
        state = await self._now(self._sent)
        before, self._sent = self._sent, state
        return self._text(state, before)

    async def whole(self) -> str:
        return self._text(await self._now(None), None)

    def missing_files(self, text: str) -> list[str]:
        """The files that a message names with `@` and that do not exist. `@app.get` and `@types/node` name none."""
        return [
            name
            for name, path in self._find_paths(text).items()
            if (_ENDING.fullmatch(path.suffix) or ("/" in name and path.parent.is_dir())) and not os.path.lexists(path)
        ]

    def images(self, text: str) -> tuple[tuple[Image, ...], tuple[str, ...]]:
        """The images that a message names with `@`, and why others of them cannot be sent."""
        images, problems = list[Image](), list[str]()
        for name, path in self._find_paths(text).items():
            if not _IMAGE.fullmatch(path.suffix) or not path.is_file():
                continue
            from ouro.tools.read import read_picture

            try:
                images.append(read_picture(path, name))
            except (OSError, ToolError) as error:
                why = f"{name} cannot be read: {error.strerror}." if isinstance(error, OSError) else str(error)
                problems.append(f"{why} The message was sent without it.")
        return tuple(images), tuple(problems)

    def _find_paths(self, text: str) -> dict[str, Path]:
        named = dict.fromkeys(found[1].rstrip(".,;:!?)") for found in _NAMED_FILE.finditer(text))
        return {name: self._cwd / os.path.expanduser(name) for name in named}  # noqa: PTH111 - Path's raises for ~nobody

    def clear(self) -> None:
        """Let `changes` return everything again: the model's context no longer holds it."""
        self._sent = None

    async def _now(self, sent: _State | None) -> _State:
        branch = git_branch(self._cwd)
        is_new = branch and (sent is None or sent.branch != branch)  # git is run only if its state is sent
        git = await _git_state(self._cwd, branch) if is_new else ""
        return _State(date.today(), branch, git, self._mode())  # noqa: DTZ011

    def _text(self, state: _State, sent: _State | None) -> str:
        lines = []
        if sent is None:
            lines.append(f"Working folder: {self._cwd}")
            lines.append(f"Platform: {platform.system()} {platform.release()}, {platform.machine()}")
        if sent is None or sent.today != state.today:
            lines.append(f"Date: {state.today:%Y-%m-%d}")
        if sent is None or sent.branch != state.branch:
            lines.append(state.git or "Not a git repository.")
        if sent is None or sent.mode != state.mode:
            lines.append(f"Permission mode: {MODE_NOTES[state.mode]}")
        text = clean("\n".join(lines)).replace("</environment", "< /environment")  # the name of a branch is untrusted
        return f"<environment>\n{text}\n</environment>" if lines else ""


async def _git_state(cwd: Path, branch: str) -> str:
    """The branch and the number of changed files.

    File names and commit subjects are text from outside, which the model could take for the user's. If the model needs
    them, it runs git, and the output counts as data.
    """
    named = f"Git branch: {branch}"
    try:
        status = await asyncio.to_thread(Git(cwd, GIT_TIMEOUT).ask, "status", "--short")
    except GitError:
        return named
    return f"{named}\nGit status: {plural(status.count(chr(10)), 'changed file')}"
