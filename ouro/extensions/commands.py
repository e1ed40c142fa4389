"""Custom commands: prompts that users call by name, from files, skills and MCP servers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec

from ouro.extensions.discovery import ExtensionFile
from ouro.extensions.hook_files import Hook
from ouro.extensions.tool_names import own_rule
from ouro.utils.late_pattern import late_pattern
from ouro.utils.ouro_paths import tilde
from ouro.utils.text import shell_words
from ouro.utils.yaml import words_in

_INSERT = late_pattern(
    r"^```!\n(?P<block>.*?)\n```$"
    r"|(?<![\w`=!$])!`(?P<line>[^`\n]+)`"
    r"|(?<!`)(?P<code>`+)(?!`)[^\n]+?(?<!`)(?P=code)(?!`)"
    r"|(?<![\w@./`])@(?P<path>(?:~/)?[\w./$+-]*[\w/$])",
    re.DOTALL | re.MULTILINE,
)
"""Matches what is replaced in a prompt: a block of shell lines, a line such as `` !`git status` ``,
or a path such as `@src/main.py`. Also matches inline code, which is not replaced: in
`` the mark `!` begins `code` `` there is no shell line.
"""
_ARGUMENT = late_pattern(r"\$(ARGUMENTS\[\d+\]|\d(?!\d)|[A-Za-z_]\w*)")
"""Matches the place of an argument: `$1`, `$name`, `$ARGUMENTS`, `$ARGUMENTS[0]`."""
_FROM_ZERO = late_pattern(r"\$(?:0(?!\d)|ARGUMENTS\[)")
"""Matches arguments counted from 0, as in Claude Code; Codex and older files count from 1."""
_COMMAND_CALL = late_pattern(r"/(?P<name>\w[\w:-]*)(?:\s+(?P<arguments>.*))?\Z", re.DOTALL)
"""Matches a typed command with its arguments: `/review:pdf paper.pdf`."""
_NAMED_ARGUMENT = late_pattern(r"(?P<name>[A-Z][A-Z0-9_]*)=(?P<value>.*)", re.DOTALL)
"""Matches an argument with its name: `FILE=main.py`."""


_SETS_KEYS = "`ouro models --setup` sets a key, and /model uses another model."
_NAMES_ELSEWHERE = {
    **dict.fromkeys(("login", "auth", "connect"), _SETS_KEYS),
    "logout": "`ouro models logout NAME` deletes a key from the keyring.",
    **dict.fromkeys(("approvals", "yolo", "allowed-tools"), "/permissions sets what is asked."),
    **dict.fromkeys(("directory", "dir"), "/add-dir adds a folder."),
    "summarize": "/compact shortens the session.",
    "about": "/status shows the session.",
    "bashes": "/tasks lists what runs.",
    **dict.fromkeys(("checkpoint", "checkpoints"), "/rewind lists your messages."),
    "chat": "/resume continues an earlier session.",
    "details": "Ctrl+O unfolds tool calls.",
    "docs": "/help PAGE shows a page.",
    **dict.fromkeys(("edit", "editor"), "Ctrl+G opens your editor."),
    "fast": "/model uses a faster model, and /think sets how long it thinks.",
    "ide": "`ouro acp` runs in an editor: /help editors.",
    "insights": "/usage shows what was used.",
    "keybindings": "? shows the keys; `tui.keys` in config.yaml changes them.",
    "mention": "@ attaches a file.",
    "personality": "/style sets how the agent answers.",
    **dict.fromkeys(("plugin", "plugins", "marketplace"), "`ouro plugin` adds and lists plugins."),
    **dict.fromkeys(("release-notes", "changelog"), "CHANGELOG.md lists the changes."),
    "restore": "/undo restores files.",
    "security-review": "/review security does it.",
    "stash": "Ctrl+S puts the text of the prompt aside.",
    "share": "/export writes the session to a file.",
    "statusline": "`tui.status_command` is a script for it: /config.",
    "terminal-setup": "There is nothing to set up: Alt+Enter and Ctrl+J begin a new line.",
    "themes": "/theme sets the colours.",
    "thinking": "/think sets how long the model thinks.",
    **dict.fromkeys(("update", "upgrade"), "Update ouro as it was installed."),
    "timeline": "/rewind lists your messages.",
}
"""What to use instead of a command of another agent. Without it `/login` means `/pin`."""


class Insert(msgspec.Struct, frozen=True):
    """A part of a prompt that is replaced when the command runs: `` !`git status` `` or `@path`."""

    kind: Literal["shell", "file"]
    what: str
    """The shell line, or the path."""

    @property
    def written(self) -> str:
        """The insert as it is written in the prompt."""
        return f"!`{self.what}`" if self.kind == "shell" else f"@{self.what}"


class CommandPrompt(msgspec.Struct, frozen=True):
    """What a custom command sends, and the settings of its turn."""

    pieces: tuple[str | Insert, ...]
    model: str = ""
    """The model of the turn; empty: that of the session."""
    mode: str = ""
    """The permission mode of the turn; empty: that of the session."""
    allow: tuple[str, ...] = ()
    """Permission rules; empty if the command is not the user's own: a project cannot permit more.
    """
    is_own: bool = True
    """Whether the user wrote the command; a project's command can only make the mode narrower."""
    agent: str = ""
    """The kind of subagent that runs it; empty: the agent of the session."""
    hooks: tuple[Hook, ...] = ()
    """Hooks that run only during the turn."""


class CustomCommand(msgspec.Struct, frozen=True):
    """A prompt that the user calls by `/NAME`."""

    name: str
    help: str
    argument: str
    """The hint for its argument: `[file]`."""
    place: str
    """The file or server that it comes from, as it is shown."""
    prompt: Callable[[str], Awaitable[CommandPrompt]]
    """Returns the prompt for what was typed after the name; raises OuroError if there is none."""
    is_off: bool = False
    """Whether it is switched off: it is not listed, and `prompt` raises the reason."""

    @property
    def names(self) -> tuple[str, ...]:
        """The words that call it, as a built-in command has them."""
        return (self.name,)

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.argument}".rstrip()


class CommandRegistry:
    """The custom commands of a session.

    Args:
        sources: each returns commands. They are called repeatedly, because the commands of a server
            change. If two commands have the same name, the first one counts.
        reserved: returns the names of the built-in commands, which no other command can have; called
            when there is another command, because it imports all of them.
        connect: waits for the server with this name, as `github` for `/github:review`. Raises OuroError.
        own: returns the built-in commands that send a prompt; they are not in `commands`.
    """

    def __init__(
        self,
        sources: Sequence[Callable[[], Sequence[CustomCommand]]],
        reserved: Callable[[], Collection[str]],
        connect: Callable[[str], Awaitable[None]] | None = None,
        own: Callable[[], Sequence[CustomCommand]] = tuple,
    ) -> None:
        self._sources = sources
        self._own = own
        self._connect = connect
        self._get_reserved = reserved

    @cached_property
    def _reserved(self) -> dict[str, None]:
        """The names of the built-in commands, in lower case and in their order."""
        return dict.fromkeys(name.casefold() for name in self._get_reserved())

    def commands(self) -> list[CustomCommand]:
        """The commands that can be called, sorted by name. If two have the same name, the first one
        counts.
        """
        by_name: dict[str, CustomCommand] = {}
        for command in self._all():
            if not command.is_off and command.name.casefold() not in self._reserved:
                by_name.setdefault(command.name.casefold(), command)
        return [by_name[name] for name in sorted(by_name)]

    def find(self, name: str) -> CustomCommand | None:
        """The command with this name in upper or lower case; None if there is none. If an active
        command and one that is off have the name, the active one is returned. The prompt of a
        command that is off says why it cannot be used.
        """
        commands_off = (command for command in self._all() if command.is_off)
        for command in (*self._own(), *self.commands(), *commands_off):
            if command.name.casefold() == name.casefold():
                return command
        return None

    def find_called(self, text: str) -> tuple[CustomCommand, str] | None:
        """The command that a typed text `/name …` calls, and what follows the name; None if it
        calls none.
        """
        call = _COMMAND_CALL.match(text)
        if call is None:
            return None
        command = self.find(call["name"])
        return (command, (call["arguments"] or "").strip()) if command else None

    async def find_connected(self, text: str) -> tuple[CustomCommand, str] | None:
        """What `find_called` returns. If no command has the typed name, but the name begins with that
        of an MCP server, this waits until the server is connected, because the server may offer the
        command. Raises OuroError if the server cannot be used.
        """
        called = self.find_called(text)
        call = _COMMAND_CALL.match(text)
        if called is None and call and ":" in call["name"] and self._connect:
            await self._connect(call["name"].partition(":")[0])
            called = self.find_called(text)
        return called

    def explain_unknown(self, text: str) -> str:
        """A sentence for the user about why a typed `/name …` calls no custom command, and what to
        use instead. Empty if it calls one, or is a path or an ordinary message.
        """
        call = _COMMAND_CALL.match(text)
        if call is None:
            return ""
        name = call["name"]
        if self.find(name) or Path(f"/{name}").exists():
            return ""
        word = name.casefold()
        if word in self._reserved:
            return f"/{name} is for sessions on the screen."
        if word in _NAMES_ELSEWHERE:
            return f"There is no command /{word}. {_NAMES_ELSEWHERE[word]}"
        from difflib import get_close_matches  # imported late: few names are misspelt

        names = [*self._reserved, *(command.name for command in self.commands())]
        longer_names = [name for name in names if name.startswith(word)]
        similar_names = longer_names[:3] or get_close_matches(word, names, n=3, cutoff=0.6)
        if similar_names:
            hint = f"Did you mean {' or '.join(f'/{name}' for name in similar_names)}?"
        else:
            hint = "/help lists them all."
        return f"There is no command /{word}. {hint}"

    def problems(self) -> list[str]:
        """A line for each command that cannot be called, because a command of ouro or an earlier
        one has its name.
        """
        by_name: dict[str, CustomCommand] = {}
        lines: list[str] = []
        for command in self._all():
            name = command.name.casefold()
            if command.is_off:
                continue
            if name in self._reserved:
                lines.append(
                    f"{command.place} is not used: /{command.name} is a command of ouro. Rename it."
                )
                continue
            first = by_name.setdefault(name, command)
            if first is not command:
                lines.append(
                    f"Two are named /{command.name}: {first.place} is used, {command.place} is not."
                    " Rename one."
                )
        return lines

    def _all(self) -> Iterator[CustomCommand]:
        """Yields the commands of all sources, also those that are off or have the name of another."""
        return (command for source in self._sources for command in source())


def command_of(file: ExtensionFile) -> CustomCommand:
    """The command that a file defines. The text of the file is its prompt; without a description,
    its first line is its help.
    """
    hint = file.meta.get("argument-hint", "")
    if isinstance(hint, list):  # `[file]` without quotes is a list in YAML
        hint = f"[{', '.join(map(str, hint))}]"
    first_line = file.body.lstrip("#> ").partition("\n")[0]

    async def prompt(arguments: str) -> CommandPrompt:
        return prompt_of(file, arguments)

    return CustomCommand(
        name=file.name,
        help=file.description or first_line[:100],
        argument=str(hint),
        place=tilde(file.path),
        prompt=prompt,
    )


def prompt_of(file: ExtensionFile, arguments: str) -> CommandPrompt:
    """The prompt in the file of a command or skill, with the typed arguments filled in. If the
    prompt has no place for them, they are added at its end.
    """
    is_own = file.source == "user"
    # A file of a project or plugin permits nothing.
    rules = [own_rule(word) for word in _allowed_tools(file)] if is_own else []
    model = str(file.meta.get("model", ""))
    argument_names = " ".join(words_in(file.meta.get("arguments", ""))).split()
    return CommandPrompt(
        pieces=tuple(_pieces(file.body, arguments, argument_names)),
        model="" if model == "inherit" else model,
        mode=str(file.meta.get("mode", "")),
        allow=tuple(filter(None, rules)),
        is_own=is_own,
        agent=agent_of(file),
        hooks=file.hooks,
    )


def agent_of(file: ExtensionFile) -> str:
    """The kind of subagent that the file of a command or skill wants to be run by; empty: the agent
    of the session runs it.
    """
    if file.meta.get("context") != "fork":
        return ""
    return str(file.meta.get("agent") or "general")


def _allowed_tools(file: ExtensionFile) -> list[str]:
    """The permission rules in `allowed-tools` of the front matter, as they are written there."""
    tools = file.meta.get("allowed-tools", "")
    # Skills separate tools by blanks: `Read Bash(git diff:*)`.
    if isinstance(tools, str) and "," not in tools:
        return re.findall(r"[\w.*-]+(?:\([^()]*\))?", tools)
    return words_in(tools)


def _pieces(body: str, arguments: str, argument_names: Sequence[str]) -> Iterator[str | Insert]:
    """Yields the prompt `body` in pieces: texts, and inserts that are replaced when it is sent. In
    both, arguments are filled in for `$ARGUMENTS`, `$1` and `$name`, and an argument `NAME=value`
    for `$NAME`. Arguments that the prompt does not use are added as a last piece.

    Inserts are found before arguments are filled in, so that an argument cannot add one.

    Args:
        argument_names: the names of the positional arguments, from the front matter.
    """
    first_number = 0 if _FROM_ZERO.search(body) else 1
    filler = _ArgumentFiller(arguments, _argument_values(arguments, argument_names, first_number))
    end_of_last = 0
    for insert in _INSERT.finditer(body):
        if insert["code"]:
            continue
        yield filler.fill_in(body[end_of_last : insert.start()])
        if path := insert["path"]:
            yield Insert("file", filler.fill_in(path))
        else:
            yield Insert("shell", filler.fill_in_line(insert["block"] or insert["line"]))
        end_of_last = insert.end()
    yield filler.fill_in(body[end_of_last:])
    if arguments and not filler.is_used:
        yield f"\n\nArguments: {arguments}"


class _ArgumentFiller:
    """Fills arguments in for placeholders, and notes whether there was a place for them.

    Args:
        arguments: what was typed after the command.
        values: the value of each placeholder, by its name without the `$`.
    """

    def __init__(self, arguments: str, values: Mapping[str, str]) -> None:
        self._arguments = arguments
        self._values = values
        self.is_used = False

    def fill_in(self, text: str) -> str:
        """A text of a prompt with its arguments."""
        return _ARGUMENT.sub(self._value_for, text)

    def fill_in_line(self, line: str) -> str:
        """A shell line with its arguments, which are words there, never code."""
        from ouro.utils.shell_quoting import insert_values

        return insert_values(line, _ARGUMENT, self._words_for)

    def _value_for(self, match: re.Match[str]) -> str:
        """The value of a placeholder in a text. The placeholder stays if it is a name without a value:
        then it is a variable. A number without a value becomes empty.
        """
        if self._is_variable(match[1]):
            return str(match[0])
        return self._values.get(match[1], "")

    def _words_for(self, match: re.Match[str]) -> Sequence[str] | None:
        """The words for a placeholder in a shell line. None, so that it stays, if it has no value: it
        may be a parameter of a shell function.
        """
        name = match[1]
        if self._is_variable(name) or name not in self._values:
            return None
        return shell_words(self._arguments) if name == "ARGUMENTS" else [self._values[name]]

    def _is_variable(self, name: str) -> bool:
        """Whether a placeholder is no place for an argument, but a variable of the shell. Any other is
        noted.
        """
        is_variable = name not in self._values and name.isidentifier()
        self.is_used = self.is_used or not is_variable
        return is_variable


def _argument_values(arguments: str, names: Sequence[str], first_number: int) -> dict[str, str]:
    """The value of each placeholder in a prompt, by its name without the `$`. A name in `names`
    without an argument is empty.

    Args:
        arguments: what was typed after the command.
        names: the names of the positional arguments, from the front matter.
        first_number: the number of the first positional argument, 0 or 1.
    """
    positional: list[str] = []
    named: dict[str, str] = {}
    for word in shell_words(arguments):
        if match := _NAMED_ARGUMENT.fullmatch(word):
            named[match["name"]] = match["value"]
        else:
            positional.append(word)
    values = {
        "ARGUMENTS": arguments,
        **dict.fromkeys(names, ""),
        **dict(zip(names, positional, strict=False)),
        **named,
    }
    values |= {str(number): word for number, word in enumerate(positional, first_number)}
    return values | {f"ARGUMENTS[{index}]": word for index, word in enumerate(positional)}
