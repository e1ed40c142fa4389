"""The command line: its words and flags."""

from __future__ import annotations

# Nothing else is imported here: it is loaded before the first frame, and for `--version`.
import sys
from types import SimpleNamespace

from ouro import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from typing import Any

GROUPS = {
    "sessions": "list, show, export, import, rename, delete and repair sessions",
    "plugin": "add, list, update and remove plugins",
    "hooks": "list the hooks of this folder, and try one",
    "tools": "list the tools of the agent, with their sources and tokens",
    "permissions": "list, save and revoke permission rules",
    "checkpoints": "list and delete the files kept for undo",
    "usage": "show tokens and cost by model: today, this month, all",
    "models": "list usable models, and why others are not usable; set one up",
    "memory": "list, search, change, import, export and check long-term memory",
    "mcp": "list, test, add, import and log in to MCP servers",
    "config": "show and change settings, with their values and sources",
    "doctor": "check the installation",
    "help": "print a page of the documentation, or what a setting means",
    "completion": "print a script that completes this command line in bash, zsh or fish",
    "acp": "work in an editor, as Zed, JetBrains and Neovim do",
    "batch": "run tasks in many repositories, and decide about their changes",
    "eval": "run tasks with checks, and compare models, with and without memory",
    "agents": "list, answer and stop the sessions that run in the background",
    "attach": "see and steer a session that runs in the background",
    "serve": "see and answer the background sessions in a browser, also on a phone",
    "sync": "fetch and send memory, sessions and settings over your git remote",
    "demo": "watch ouro repair a small program and remember, without a model or a key",
}
"""The words that may follow `ouro`, with their help. Their actions are in `ouro/commands/all_actions.py`,
which is loaded when one is run.
"""

VERSION_LINE = f"ouro {__version__}"
PICK = "?"
"""The value of `--resume` without one. `session/opening.py` has the same constant, but is loaded after
the first frame.
"""

HOST_FLAG = "--background-host"
"""The flag of the process that `--bg` starts; not for users."""

EXAMPLES = """\
examples:
  ouro                              a full-screen session in this folder
  ouro "fix the failing test"       the same, with a first message
  ouro -p "what does api.py do?"    answer on standard output, then end
  ouro --bg "fix the failing test"  the same in the background: `ouro agents` lists them
  git diff | ouro -p "review this"  with standard input as material
  ouro --resume latest              continue the last session
  ouro demo                         see it work without a model or a key

exit codes: 0 done, 1 could not finish, 2 wrong usage, 3 no model or key, 4 a limit was reached,
            5 permission refused, 130 interrupted"""


def read_flags(given: Sequence[str] = ()) -> SimpleNamespace:
    """Return the values of the flags by their destinations. Ends the program after `--version`,
    `--help`, and a message about a wrong flag.

    argparse is loaded only for what `_plain_flags` cannot read: it makes the first frame of the
    screen a sixth later, and is eleven modules of a headless start.
    """
    flags = SimpleNamespace(**_DEFAULTS)
    if not given:
        return flags
    if given in (["--version"], ["-V"]):  # without argparse
        sys.stdout.write(f"{VERSION_LINE}\n")
        sys.stdout.flush()
        raise SystemExit(0)
    if list(given) == [HOST_FLAG]:
        flags.background_host = True
        return flags
    if plain := _plain_flags(given):
        return SimpleNamespace(**{**_DEFAULTS, **plain})
    _refuse_misspelt_command(given)
    parser = _parser()
    parsed, unknown = parser.parse_known_args(given, flags)
    if unknown:
        words = (word.partition("=")[0] for word in unknown)
        equivalents = ", ".join(
            f"{word} is {_FLAG_OF_OTHER_PROGRAM[word]}"
            for word in words
            if word in _FLAG_OF_OTHER_PROGRAM
        )
        hint = f". Here {equivalents}." if equivalents else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return parsed


def _plain_flags(given: Sequence[str]) -> dict[str, Any]:
    """The values of the flags by their destinations, if all of them are plain: written in full, given
    once, with a value that cannot be a flag. Empty if argparse must parse them.
    """
    flags: dict[str, Any] = {}
    words = iter(given)
    for word in words:
        value: str | bool
        if word in _PLAIN_SWITCHES:
            name, value = _PLAIN_SWITCHES[word], True
        elif word in _PLAIN_VALUES:
            name, choices = _PLAIN_VALUES[word]
            value = next(words, "")
            is_choice = not choices or value in choices
            if not is_choice or not _is_plain(value):
                return {}
        else:
            return {}
        if name in flags:  # given twice
            return {}
        flags[name] = value
    if "trust" in flags and "no_trust" in flags:
        return {}
    return flags


def _is_plain(value: str) -> bool:
    """Whether a value can be read without argparse: it is UTF-8 text, and no flag."""
    is_readable = not any("\ud800" <= character <= "\udfff" for character in value)
    return is_readable and bool(value.strip()) and not value.startswith("-")


def _refuse_misspelt_command(given: Sequence[str]) -> None:
    """Raise UsageError if the first words are probably meant as a command."""
    meant_command = _meant_command(given)
    if not meant_command:
        return
    from ouro.errors import UsageError

    message = " ".join(given).partition(" -")[0]  # without the flags after it
    hint = f'To send it as a message: ouro -- "{message}"'
    raise UsageError(
        f"There is no command `{given[0]}`. Did you mean `ouro {meant_command}`?", hint
    )


def _meant_command(given: Sequence[str]) -> str:
    """The command that is probably meant by `memroy`, `memroy list`, `"memory list"` as one word, or a
    command of another program. Empty for a message, as `"model the domain"` is: there is no such
    action. Raises UsageError for a command of another program that ouro does not have.
    """
    word, _, action = given[0].partition(" ")
    if not word.isalpha():
        return ""
    if word in _UPDATE_OF_OTHER_PROGRAM and len(given) == 1 and not action:
        from ouro.commands.slash import UPDATE_HINT
        from ouro.errors import UsageError

        raise UsageError(f"There is no command `ouro {word}`.", UPDATE_HINT)
    if given[0] in _SET_UP_OF_OTHER_PROGRAM:
        return "models --setup"
    if given[0] in _COMMAND_OF_OTHER_PROGRAM:
        return " ".join([_COMMAND_OF_OTHER_PROGRAM[word], *given[1:]])
    from difflib import get_close_matches

    similar = get_close_matches(word, GROUPS, 1, MIN_LIKENESS)
    if not similar:
        return ""
    from ouro.commands.all_actions import ACTIONS

    meant_command = given[0].replace(word, similar[0], 1)
    if action and not any(meant_command in known_action.names for known_action in ACTIONS):
        return ""
    return meant_command


MIN_LIKENESS = 0.8
"""How similar a word must be to a command to count as misspelt: `memroy` has .83 to `memory`,
`configure` .80 and `continue` .57 to `config`.
"""
_COMMAND_OF_OTHER_PROGRAM = {
    "resume": "--resume",
    "exec": "-p",
    "run": "-p",
    "export": "sessions export",
    "import": "sessions import",
    "stats": "usage",
    "help": "--help",
    "version": "--version",
}
_UPDATE_OF_OTHER_PROGRAM = ("update", "upgrade")
_SET_UP_OF_OTHER_PROGRAM = ("login", "logout", "auth")
"""Words that set a key in other programs. As a message each of them would cost a request."""
_FLAG_OF_OTHER_PROGRAM = {
    "--output-format": "--output",
    "--input-format": "--input",
    "--json-schema": "--schema",
    "--permission-mode": "--mode",
    "--approval-mode": "--mode",
    "--dangerously-skip-permissions": "--mode auto",
    "--yolo": "--mode auto",
    "--full-auto": "--mode edit",
    "--allowedTools": "--allow",
    "--allowed-tools": "--allow",
    "--disallowedTools": "--deny",
    "--max-budget-usd": "--max-cost",
    "--fork-session": "--fork",
    "--verbose": "--debug",
}
"""The flags of other programs, and what they are here."""
_MODES = ("ask", "edit", "plan", "auto")
_OUTPUTS = ("text", "json", "stream-json")
_PLAIN_VALUES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "-p": ("prompt", ()),
    "--print": ("prompt", ()),
    "-m": ("model", ()),
    "--model": ("model", ()),
    "--mode": ("mode", _MODES),
    "--output": ("output", _OUTPUTS),
}
"""Flags with a value that are read without argparse: their destinations and choices."""
_PLAIN_SWITCHES = {
    "-c": "latest",
    "--continue": "latest",
    "--debug": "debug",
    "--ephemeral": "ephemeral",
    "--no-memory": "no_memory",
    "--no-sandbox": "no_sandbox",
    "--no-trust": "no_trust",
    "--plain": "plain",
    "--safe": "safe",
    "--trust": "trust",
}
_DEFAULTS: Mapping[str, Any] = {
    "message": "",
    "model": "",
    "resume": "",
    "latest": False,
    "fork": False,
    "part": "full",
    "mode": None,
    "allow": [],
    "deny": [],
    "cd": "",
    "add_dir": [],
    "worktree": "",
    "append_system_prompt": "",
    "safe": False,
    "plain": False,
    "bg": False,
    "background_host": False,
    "trust": False,
    "no_trust": False,
    "no_sandbox": False,
    "ephemeral": False,
    "no_memory": False,
    "debug": False,
    "prompt": None,
    "output": "text",
    "input": "text",
    "schema": "",
    "retry": None,
    "max_turns": None,
    "max_cost": None,
}


def _readable(text: str) -> str:
    """The argument, in which a byte that is not UTF-8 is written as `\\xff`."""
    from ouro.utils.text import readable_bytes  # not for `--help`

    return readable_bytes(text)


def _non_empty(text: str) -> str:
    """Check that an argument is not blank; returns it. Raises ArgumentTypeError."""
    if not text.strip():  # for example from a variable that is not set
        import argparse

        raise argparse.ArgumentTypeError("the value is empty")
    return text


def _parser(with_message: bool = True) -> argparse.ArgumentParser:
    """The parser of the flags. With `with_message`, it also takes a first message as an argument; for
    shell completion it does not.
    """
    import argparse

    commands = "\n".join(f"  ouro {name:<12} {text}" for name, text in GROUPS.items())
    parser = argparse.ArgumentParser(
        prog="ouro",
        usage="ouro [options] [message]\n       ouro COMMAND ...",
        description="A terminal coding agent that remembers.",
        epilog=f"commands:\n{commands}\n\n{EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=True,
    )
    if with_message:
        parser.add_argument(
            "message", nargs="?", default="", type=_readable, help="a first message"
        )

    _add_session_flags(parser)
    _add_safety_flags(parser)
    parser.add_argument("--debug", action="store_true", help="log more to ~/.ouro/logs/ouro.log")
    parser.add_argument(
        "-V", "--version", action="version", version=VERSION_LINE, help="print the version"
    )
    _add_headless_flags(parser)
    return parser


def _add_session_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say which session it is, and where and how it works."""
    parser.add_argument(
        "-m", "--model", type=_non_empty, help="the model to use, by name or a part of it"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "-r",
        "--resume",
        nargs="?",
        const=PICK,
        metavar="SESSION",
        type=lambda name: name or PICK,
        help="an id, its start, words of its title, or `latest` (without -p: the last one that you"
        " used, not one of `ouro -p`); nothing: pick one",
    )
    which.add_argument(
        "-c", "--continue", dest="latest", action="store_true", help="the same as --resume latest"
    )
    parser.add_argument(
        "--fork", action="store_true", help="with --resume or --continue: in a copy of the session"
    )
    parser.add_argument(
        "--part",
        choices=("full", "tail", "summary", "then"),
        help=(
            "with --resume: what the model is sent of it, all, a tail, or a summary; "
            "`then`: all, with memory as it was"
        ),
    )
    parser.add_argument("--mode", choices=_MODES, help="what is asked before it is done")
    parser.add_argument(
        "--allow", action="append", metavar="RULE", help="such as 'shell(pytest *)'"
    )
    parser.add_argument("--deny", action="append", metavar="RULE", help="such as 'write(.env)'")
    parser.add_argument("--cd", type=_non_empty, metavar="FOLDER", help="work in this folder")
    parser.add_argument(
        "--add-dir", type=_non_empty, action="append", metavar="FOLDER", help="a further folder"
    )
    parser.add_argument(
        "--worktree",
        type=_non_empty,
        metavar="NAME",
        help="work in a git worktree, on the branch ouro/NAME",
    )
    parser.add_argument(
        "--append-system-prompt",
        type=_non_empty,
        metavar="TEXT",
        help="more instructions for the model",
    )
    parser.add_argument(
        "--plain",
        action="store_true",
        help="a line prompt in the terminal's own scrollback; with ACCESSIBLE=1, for screen readers,"
        " nothing is redrawn",
    )
    parser.add_argument(
        "--bg", action="store_true", help="in the background: `ouro agents` lists these sessions"
    )


def _add_safety_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags about trust, the sandbox, and what is saved."""
    trust = parser.add_mutually_exclusive_group()
    trust.add_argument(
        "--trust", action="store_true", help="trust this folder's instructions and settings"
    )
    trust.add_argument(
        "--no-trust",
        action="store_true",
        help="work without obeying them, and without the question",
    )
    parser.add_argument(
        "--safe",
        action="store_true",
        help="without extensions, instructions, project settings and memory, to find what is wrong",
    )
    parser.add_argument("--no-sandbox", action="store_true", help="run commands unconfined")
    parser.add_argument("--ephemeral", action="store_true", help="do not save the session")
    parser.add_argument(
        "--no-memory", action="store_true", help="neither read nor write long-term memory"
    )


def _add_headless_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `-p`."""
    headless = parser.add_argument_group("headless")
    headless.add_argument(
        "-p",
        "--print",
        dest="prompt",
        nargs="?",
        const="",
        type=_readable,
        metavar="PROMPT",
        help="answer PROMPT (and standard input) on standard output",
    )
    headless.add_argument("--output", choices=_OUTPUTS)
    headless.add_argument("--input", choices=("text", "stream-json"))
    headless.add_argument(
        "--schema",
        type=_non_empty,
        metavar="FILE",
        help="the answer must fit this JSON schema, of a file or as text",
    )
    headless.add_argument(
        "--retry",
        type=int,
        metavar="SECONDS",
        help="wait so long for a model server that cannot be reached",
    )
    headless.add_argument("--max-turns", type=int, metavar="N", help="model calls")
    headless.add_argument("--max-cost", type=float, metavar="DOLLARS")


def whole_parser() -> argparse.ArgumentParser:
    """The command line with all actions, for shell completion."""
    from ouro.commands.subcommands import add_arguments

    parser = _parser(with_message=False)
    groups = parser.add_subparsers(prog="ouro")
    for name, text in GROUPS.items():
        add_arguments(groups.add_parser(name, help=text), name)
    return parser
