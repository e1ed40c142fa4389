"""Skills (agentskills.io): instructions for a kind of task, listed in the system prompt and read
when used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec
from msgspec.structs import replace

from ouro.errors import ToolError, UsageError
from ouro.extensions.commands import CustomCommand, command_of, prompt_of
from ouro.extensions.discovery import ExtensionFile
from ouro.memory.tokens import CHARACTERS_A_TOKEN, estimate
from ouro.safety import files_below
from ouro.utils.files import open_regular
from ouro.utils.text import clean, cut
from ouro.utils.yaml import words_in

SKILLS = """\
# Skills

A skill says how to do one kind of task here. Where a task fits one, call `skill` with its name before you begin, and do
what it returns: those are instructions of the user or of the project."""
"""The head of the section in the system prompt."""
MAX_DESCRIPTION = 1_024
"""Maximum characters of a description in the system prompt."""
MIN_DESCRIPTION = 40
"""If descriptions of this length are still too long together, only names are listed."""
MAX_LISTED = 60
"""Maximum files next to a skill that are listed for the model."""
MAX_FILE = 100_000
"""Maximum characters of a file next to a skill that the model is shown."""


class SkillTokens(NamedTuple):
    """About how many tokens a skill takes."""

    in_list: int
    """In each request, for its line in the list of skills."""
    when_used: int
    """Once it is used, beside its line."""


class Skill(msgspec.Struct, frozen=True):
    """A skill, with what the user decided about it."""

    file: ExtensionFile
    """The SKILL.md as it was at the start of the session."""
    is_on: bool = True
    """Whether the user has left it switched on."""

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def folder(self) -> Path:
        return self.file.path.parent

    @property
    def is_offered(self) -> bool:
        """Whether the model may use it without being asked by the user."""
        is_for_users = str(self.file.meta.get("disable-model-invocation", "")).lower() == "true"
        return self.is_on and not is_for_users

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of the files that it is for; empty if it names none."""
        return tuple(words_in(self.file.meta.get("paths") or ""))

    @property
    def tokens(self) -> SkillTokens:
        """About how many tokens it takes. A skill that is not offered to the model takes none in
        the list.
        """
        in_list = estimate(_line(self, MAX_DESCRIPTION)) if self.is_offered else 0
        return SkillTokens(in_list, estimate(self.file.body))


class Skills:
    """The skills of a session.

    Args:
        files: their SKILL.md files.
        off: the names of skills that are switched off.
        budget: tokens of names and descriptions in the system prompt.
        trusts: whether a file next to a skill of the project may be used with its present content.
        save: saves the names of the skills that are off.
    """

    def __init__(
        self,
        files: Sequence[ExtensionFile],
        off: Collection[str],
        budget: int,
        trusts: Callable[[Path], bool],
        save: Callable[[tuple[str, ...]], None],
    ) -> None:
        self._files = {file.name: file for file in files}
        self._off = set(off)
        self._budget = budget
        self._trusts = trusts
        self._save = save

    def all(self) -> list[Skill]:
        """All skills, also those that are switched off."""
        return [Skill(file, name not in self._off) for name, file in self._files.items()]

    def prompt(self) -> str:
        """The section of the system prompt with a line for each skill that is offered to the model;
        empty if there is none. Descriptions are cut until all lines fit into the budget; if that is
        not enough, only the names are listed.
        """
        offered = [skill for skill in self.all() if skill.is_offered]
        if not offered:
            return ""
        max_characters = int(self._budget * CHARACTERS_A_TOKEN)
        width = MAX_DESCRIPTION
        lines = [_line(skill, width) for skill in offered]
        while sum(map(len, lines)) > max_characters and width > MIN_DESCRIPTION:
            width = width * 3 // 4
            lines = [_line(skill, width) for skill in offered]
        if sum(map(len, lines)) > max_characters:
            lines = [f"By name only: {', '.join(skill.name for skill in offered)}"]
        return "\n".join([SKILLS, "", *lines])

    def find_offered(self, name: str) -> Skill:
        """The skill of this name, for the model. Raises ToolError if there is none, or the model
        may not use it.
        """
        skill = next((skill for skill in self.all() if skill.name == name), None)
        if skill is not None and not skill.is_on:
            raise ToolError(f"The user has switched the skill {name} off.")
        if skill is None or not skill.is_offered:
            names = ", ".join(skill.name for skill in self.all() if skill.is_offered)
            raise ToolError(f"There is no skill `{name}`. There are: {names}.")
        return skill

    def read(self, name: str, file: str = "", arguments: str = "") -> str:
        """The text of a skill, or of a file next to it, for the model.

        Args:
            file: the path of the file below the folder of the skill; empty: the skill itself.
            arguments: what is filled in for the arguments in the skill.

        Raises:
            ToolError: there is no such skill or file, or it may not be used.
        """
        skill = self.find_offered(name)
        if file and file != "SKILL.md":
            return self._read_extra_file(skill, file)
        body = skill.file.body
        if arguments:
            pieces = prompt_of(skill.file, arguments).pieces
            body = "".join(piece if isinstance(piece, str) else piece.written for piece in pieces)
        files = self._describe_extra_files(skill)
        return f'<skill name="{name}" folder="{skill.folder}">\n{body}\n</skill>{files}'

    def commands(self) -> list[CustomCommand]:
        """The command `/NAME` of each skill."""
        return [_command(skill) for skill in self.all()]

    def switch(self, name: str, *, on: bool) -> None:
        """Switch a skill on or off, in this session and in later ones. The system prompt changes
        with the next session.

        Raises:
            UsageError: there is no such skill.
            ConfigError: it could not be saved.
        """
        if name not in self._files:
            raise UsageError(f"There is no skill `{name}`. /skills lists them.")
        off = self._off - {name} if on else self._off | {name}
        self._save(tuple(sorted(off)))
        self._off = off

    def _usable_files(self, skill: Skill) -> list[Path]:
        """The files in and below the folder of a skill, with its SKILL.md; of a project's skill
        only those that the user trusts.
        """
        files = files_below(skill.folder, "skills", inside=skill.folder.resolve())
        return [path for path in files if skill.file.source != "project" or self._trusts(path)]

    def _describe_extra_files(self, skill: Skill) -> str:
        """A paragraph for the model: which files are next to a skill, and how scripts are run.
        Empty if there are none.
        """
        names = [
            str(path.relative_to(skill.folder))
            for path in self._usable_files(skill)
            if path.name != "SKILL.md"
        ]
        if not names:
            return ""
        left_out = len(names) - MAX_LISTED
        more = f", and {left_out} more" if left_out > 0 else ""
        return (
            f"\n\nFiles beside it, for `file`: {', '.join(names[:MAX_LISTED])}{more}."
            f" A script is run with `shell`, by its full path below {skill.folder}."
        )

    def _read_extra_file(self, skill: Skill, name: str) -> str:
        """The text of a file next to a skill, cut to MAX_FILE characters. Raises ToolError if there
        is no such file, or the user does not trust it, or it is not text.

        Args:
            name: its path below the folder of the skill.
        """
        path = skill.folder / name
        if path not in self._usable_files(skill):
            raise ToolError(
                f"There is no file `{name}` beside the skill {skill.name}, or the user does not"
                " trust it."
            )
        try:
            with open_regular(path) as file:
                text = file.read(MAX_FILE + 1).decode("utf-8")
        except OSError as error:
            raise ToolError(f"{path} cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError:
            raise ToolError(f"{path} is not text: use `read` or a script with it.") from None
        note = f"\n[cut: {path} is longer; `read` shows the rest]" if len(text) > MAX_FILE else ""
        return f"{clean(text[:MAX_FILE])}{note}"


def _command(skill: Skill) -> CustomCommand:
    """The slash command of a skill. If only the model may use the skill, or it is switched off, the
    command is off: to call it raises UsageError with the reason.
    """
    command, reason = command_of(skill.file), ""
    if str(skill.file.meta.get("user-invocable", "")).lower() == "false":
        reason = (
            f"Only the model uses the skill {skill.name}: user-invocable is false in"
            f" {command.place}."
        )
    elif not skill.is_on:
        reason = f"The skill {skill.name} is switched off. Switch it on: /skills on {skill.name}"

    async def refuse(_arguments: str) -> NoReturn:
        raise UsageError(reason)

    return replace(command, is_off=True, prompt=refuse) if reason else command


def _line(skill: Skill, width: int) -> str:
    """The line of a skill in the system prompt, with its description cut to `width` characters."""
    return f"- {skill.name}: {cut(skill.file.description, width)}"
