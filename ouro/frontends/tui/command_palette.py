"""The command palette (Ctrl+P): commands, keys, sessions, models, settings, pages, files in one list."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from ouro.commands.command_lookup import matching_commands
from ouro.commands.help_topics import page_files, page_text
from ouro.commands.setting_helps import setting_helps
from ouro.display import Choice
from ouro.errors import OuroError
from ouro.frontends.file_index import FileIndex, mention
from ouro.frontends.session_format import format_age, now, session_labels, session_title
from ouro.frontends.tui.keymap import ACTIONS, Keymap
from ouro.session import OpenRequest
from ouro.session.turn_queue import Draft
from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.frontends.tui.app import OuroApp
    from ouro.session import Session, SessionInfo

MAX_FILES = 20_000
"""Files that are listed: outer ones first."""
MAX_SESSIONS = 200
MODELS_TIMEOUT = 0.4
"""Seconds for the list of models: servers on this machine are asked."""
_PROMPT_ACTIONS = {"search_history", "editor", "paste_image", "help", "rewind"}
"""Actions of the prompt that the palette can carry out."""


async def palette_choices(session: Session, keymap: Keymap) -> list[Choice]:
    """All choices of the palette. The value of each begins with its kind, which `run_choice` reads:
    `model:sonnet`.
    """
    reading = asyncio.gather(  # runs while the thread below makes the other choices
        _session_choices(session),
        _model_choices(session),
        asyncio.to_thread(_file_choices, session),
    )
    built_in = await asyncio.to_thread(_built_in_choices, session, keymap)
    sessions, models, files = await reading
    return [*built_in, *models, *sessions, *files]


def _built_in_choices(session: Session, keymap: Keymap) -> list[Choice]:
    """The choices that every session has: commands, keys, settings and pages. Blocks."""
    choices = [
        Choice(f"command:{command.value}", command.label, command.detail)
        for command in matching_commands(session, typed="")
    ]
    choices += _key_choices(keymap)
    choices += [
        Choice(f"setting:{key}", key, f"setting · {text}".rstrip(" ·"))
        for key, text in setting_helps().items()
    ]
    choices += [Choice(f"page:{name}", name, "page of the documentation") for name in page_files()]
    return choices


def _key_choices(keymap: Keymap) -> Iterator[Choice]:
    """Yield a choice for each action of a key that the palette can run. The palette runs an action by
    its name: one whose Textual action has another name (`run`) is left out. So is one without a key.
    """
    for action in ACTIONS:
        is_of_app = action.place == "app" and not action.run
        is_offered = is_of_app or action.name in _PROMPT_ACTIONS
        if is_offered and keymap.keys(action.name):
            detail = f"key · {keymap.key_text(action.name)}"
            yield Choice(f"key:{action.name}", action.help, detail)


async def _session_choices(session: Session) -> list[Choice]:
    """The other sessions of this project, the last used first; none if the list cannot be read."""
    try:
        all_sessions = await session.session_catalog.sessions()
    except (OuroError, OSError) as error:
        log.warning("the palette lists no sessions: %s", error)
        return []
    is_here = session.session_catalog.is_here
    listed = [info for info in all_sessions if info.is_listed and is_here(info.project)]
    others = [info for info in listed if info.id != session.id]
    return [_session_choice(info) for info in others[:MAX_SESSIONS]]


def _session_choice(info: SessionInfo) -> Choice:
    about = (f"session · {format_age(info.updated_at, now())}", session_labels(info))
    return Choice(f"session:{info.id}", session_title(info), " · ".join(filter(None, about)))


async def _model_choices(session: Session) -> list[Choice]:
    """The models that can be used; none if their list cannot be read within MODELS_TIMEOUT."""
    try:
        async with asyncio.timeout(MODELS_TIMEOUT):
            models = await session.models()
    except (OuroError, OSError, TimeoutError) as error:
        log.warning("the palette lists no models: %s", error)
        return []
    usable = (choice.name for choice in models if choice.usable)
    return [Choice(f"model:{name}", name, "model") for name in usable]


def _file_choices(session: Session) -> list[Choice]:
    """The files of the project; none if they cannot be listed. Blocks."""
    try:
        index = FileIndex(chain.from_iterable(session.find_files()))
    except OSError as error:
        log.warning("the palette lists no files: %s", error)
        return []
    names = islice(index.names(), MAX_FILES)
    return [Choice(f"file:{name}", name, "file") for name in names]


async def run_choice(app: OuroApp, choice: str) -> None:
    """Run a choice of the palette, such as `command:/help`. It runs a command or key, uses a model,
    opens a session, setting or page, or inserts a file. A command that needs an argument is put
    into the prompt instead.
    """
    kind, _, name = choice.partition(":")
    prompt, front_end = app.conversation.prompt, app.front_end
    match kind:
        case "command" if _needs_argument(front_end.session, name):
            prompt.fill(name)
        case "command":
            app.turns.say(Draft(name.strip()))
        case "key":
            await app.action_press(name)
        case "model":
            app.turns.say(Draft(f"/model {name}"))
        case "session":
            await front_end.open(OpenRequest(name))
        case "setting":
            app.turns.say(Draft(f"/config {name}"))
        case "page":
            front_end.show(await asyncio.to_thread(page_text, name), name)
        case _:
            prompt.put(f"{mention(name)} ")


def _needs_argument(session: Session, command: str) -> bool:
    """Whether the user should type an argument for a command: if it needs one (`/btw <question>`), or
    if it is a custom command with an optional argument.
    """
    choices = matching_commands(session, command.strip().removeprefix("/"))
    label = _label_of(choices, command)
    is_needed = "<" in label
    is_optional = label.endswith("]")
    return is_needed or (is_optional and not _is_built_in(label))


def _label_of(choices: Sequence[Choice], command: str) -> str:
    """The label of the choice with this value; empty if there is none."""
    return next((choice.label for choice in choices if choice.value == command), "")


def _is_built_in(label: str) -> bool:
    """Whether the command with this label, `/NAME …`, is one of ouro's own."""
    from ouro.commands.command_lookup import find_command

    return find_command(label.split()[0].removeprefix("/")) is not None
