"""Shell lines on long-term memory: reading and a few git commands are allowed, anything else needs a question."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ouro.safety.guarded_memory import GuardedMemory
from ouro.safety.shell.command import Command, Redirect, Word
from ouro.safety.shell.parse import ShellLine
from ouro.safety.shell.paths import Places
from ouro.safety.shell.reading import CommandReading, may_name, reading
from ouro.safety.workspace import Workspace

_FLAGS = {
    "add": r"-A|--all|-u|--update|-v|--verbose|--",
    "commit": r"-q|--quiet|-a|--all|--no-edit|--allow-empty|--trailer=.*|--message=.*|--",
    "mv": r"-v|--verbose|--",
    "rm": r"-q|--quiet|--cached|--",
    "restore": r"--staged|-S|-q|--quiet|--",
}
"""The git subcommands that run on memory unasked, and their options."""
_MIN_WORDS = 3
_TAKES_TEXT = re.compile(r"-[aq]*m|--message|--trailer")
_NAMED = re.compile(r"\.ouro/+memory\b")


def memory_git(command: Command, places: Places) -> GuardedMemory | None:
    """The memory that a command only commits to; None for any other command."""
    words = command.arguments
    if command.kind != "plain" or command.name != "git" or command.assignments or command.piped:
        return None
    if not all(word.exact for word in words) or len(words) < _MIN_WORDS or words[0].text != "-C":
        return None
    folders = {(places.workspace.memory_at(path), path) for path in places.named(words[1].text)}
    folder, path = folders.pop()
    if folders or folder is None or path != folder.path:
        return None
    return folder if _is_listed(words[2].text, words[3:], folder) else None


def _is_listed(subcommand: str, words: tuple[Word, ...], folder: GuardedMemory) -> bool:
    if subcommand not in _FLAGS:
        return False
    rest, texts, paths = [word.text for word in words], 0, []
    while rest:
        text = rest.pop(0)
        if subcommand == "commit" and _TAKES_TEXT.fullmatch(text) and rest:
            rest.pop(0)
            texts += 1
        elif text.startswith("-"):
            if not re.fullmatch(_FLAGS[subcommand], text, re.DOTALL):
                return False
            texts += text.startswith("--message=")
        else:
            paths.append(text)
    if subcommand == "commit" and not texts:
        return False  # it would open an editor
    if subcommand == "restore" and not {"--staged", "-S"}.intersection(word.text for word in words):
        return False  # it discards uncommitted changes
    return all(_is_inside(text, folder, whole=subcommand in ("add", "commit", "restore")) for text in paths)


def _is_inside(text: str, folder: GuardedMemory, *, whole: bool) -> bool:
    """Whether a path, as git reads it, names memory files; pathspec magic and patterns do not."""
    if whole and text in (".", "archive", "archive/"):
        return True
    if re.search(r"[:*?\[\\]", text):
        return False
    return folder.keeps(Path(os.path.normpath(folder.path / text)))


def memory_reason(line: ShellLine, text: str, places: Places) -> str:
    """Why a line on memory needs a question in every mode; empty if it only reads or runs listed git commands."""
    workspace = places.workspace
    if not workspace.memory:
        return ""
    for redirect in line.redirects:
        if redirect.writes and _opens_memory(redirect, places):
            return "it writes into long-term memory without the file tools"
    inside = any(_is_near(folder, workspace) for folder in places.folders[1:])
    named = False
    for command in (command for command in line.commands if command.kind != "wrapper"):
        touches = _names_memory(command, places)
        named = named or touches
        # A command that gets the path of memory from a pipe may do anything with it.
        if not (touches or inside or (named and command.piped)):
            continue
        if folder := memory_git(command, places):
            if reason := folder.tampered():
                return f"it runs git on long-term memory, but {reason}"
        elif not isinstance(reading(command), CommandReading) or not all(one.harmless for one in command.assignments):
            return f"{command.program} may change long-term memory without the file tools"
    is_hidden = not named and any(spelling in text for spelling in _spellings(workspace))
    return "it names long-term memory in a way that is not understood" if is_hidden else ""


def _is_near(folder: Path, workspace: Workspace) -> bool:
    """Whether a folder is in memory, or above memory and not above the workspace."""
    if workspace.memory_at(folder):
        return True
    return folder not in (workspace.root, *workspace.root.parents) and any(
        folder in memory.path.parents for memory in workspace.memory
    )


def _opens_memory(redirect: Redirect, places: Places) -> bool:
    return any(places.workspace.memory_at(path) for path in places.named(redirect.target.text))


def _names_memory(command: Command, places: Places) -> bool:
    workspace = places.workspace
    if any(
        _spells(text, workspace) for text in (command.stdin or "", *(one.value.text for one in command.assignments))
    ):
        return True
    for word in command.words:
        if _spells(word.text, workspace):
            return True
        paths = places.read(word) if word.glob else (path for text in may_name(word) for path in places.named(text))
        if any(workspace.memory_at(path) for path in paths):
            return True
    return False


def _spells(text: str, workspace: Workspace) -> bool:
    return any(spelling in text for spelling in _spellings(workspace)) or bool(_NAMED.search(text))


def _spellings(workspace: Workspace) -> Iterator[str]:
    """The texts that name a memory folder or its history."""
    for folder in workspace.memory:
        yield from (str(folder.path), workspace.shown(folder.path))
        if folder.state_dir is not None:
            yield str(folder.state_dir.parent)
