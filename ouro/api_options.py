"""What a program passes to the Python API: options of an agent, images, files, scopes, callbacks."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, get_args

from ouro.errors import UsageError
from ouro.events import Event, PermissionAsked, Permit, QuestionAsked
from ouro.images import make_image
from ouro.llm import Effort, Model
from ouro.memory.backend import RewindScope
from ouro.messages import Image
from ouro.safety import Mode
from ouro.session import Session
from ouro.session_options import Options
from ouro.tools.function_tool import FunctionTool
from ouro.utils.ouro_paths import expand_home

Picture = Image | Path | str | bytes
"""An image: its file, or its bytes (png, jpeg, gif, webp)."""


class AgentOptions(TypedDict, total=False):
    """The options of an agent. An option that is missing has the value of the settings."""

    model: str | Model
    """The name of a model or a part of it; or an object that streams answers, as `ScriptedModel`."""
    effort: Effort
    mode: Mode
    """The permission mode (what runs without asking): `plan`, `ask`, `edit` or `auto`."""
    resume: str
    """A session to continue: an id or its beginning, words of its title, or `latest`."""
    fork: bool
    """Continue `resume` in a copy."""
    save: bool
    """Save the session; True by default."""
    memory: bool
    """Read and write long-term memory; True by default."""
    safe: bool
    """Work without extensions, hooks, MCP servers, instructions, project settings and memory."""
    trust: bool
    """Whether files of the folder that ouro would obey (AGENTS.md, .ouro/config.yaml) are read.
    Without it, TrustNeeded is raised if they are new.
    """
    allow: Sequence[str]
    """Rules for calls that run without asking, such as `shell(pytest *)`."""
    deny: Sequence[str]
    max_turns: int
    """Maximum model calls in one turn."""
    max_cost: float
    """Maximum US dollars in the session."""
    add_dirs: Sequence[str | Path]
    """Further folders to work in."""
    settings: Mapping[str, Any]
    """Further settings by dotted name: `{"sandbox.network": True}`."""
    tools: Sequence[FunctionTool]
    """Functions with `@tool`."""
    on_permission: Callable[[PermissionAsked], Permit | bool | Awaitable[Permit | bool]]
    """Decides on calls that neither mode nor rules allow; without it they are refused."""
    on_question: Callable[
        [QuestionAsked], str | Sequence[str] | Awaitable[str | Sequence[str] | None] | None
    ]
    """Answers questions of the agent; without it they stay unanswered."""
    on_background: Callable[[Event], None]
    """Called with events outside of turns, such as a notice of the start or a change of memory."""


def session_options_of(cwd: Path, options: AgentOptions) -> Options:
    """Translate the options that a program passes to the options of a session, which the command
    line also makes from its flags. Raises UsageError if they do not fit together.
    """
    model, tools = options.get("model", ""), tuple(options.get("tools", ()))
    _check_lists(options, tools)
    more = options.get("settings", {})
    settings = {
        "model": model or None,
        "effort": options.get("effort"),
        "permissions.mode": options.get("mode"),
        "permissions.allow": tuple(options.get("allow", ())),
        "permissions.deny": tuple(options.get("deny", ())),
        "limits.max_turns": options.get("max_turns"),
        "limits.max_cost": options.get("max_cost"),
    }
    if twice := next((name for name in more if settings.get(name)), None):
        raise UsageError(
            f"`{twice}` is set twice: as an option, and in `settings`.", "Remove one of them."
        )
    ready_model = None if isinstance(model, str) else model
    if ready_model:
        settings["model"] = None  # not before: an object, too, must not be set twice
    # A tool that asks is a rule of its own: the user is asked before each call.
    asked = [*more.get("permissions.ask", ()), *(tool.name for tool in tools if tool.asks)]
    return Options(
        cwd=cwd,
        settings={**settings, **more, "permissions.ask": asked},
        add_dirs=tuple(expand_home(folder).absolute() for folder in options.get("add_dirs", ())),
        ephemeral=not options.get("save", True),
        memory=options.get("memory", True),
        safe=options.get("safe", False),
        ready_model=ready_model,
        tools=tuple(tool.in_folder(cwd) for tool in tools),
    )


def _check_lists(options: AgentOptions, tools: Sequence[object]) -> None:
    """Raises UsageError for a tool that is not one, and for a text where a list is expected."""
    for tool in tools:
        if not isinstance(tool, FunctionTool):
            raise UsageError(f"{tool!r} is not a tool.", "Decorate the function with @tool.")
    for name in ("allow", "deny", "add_dirs"):
        value = options.get(name)
        if isinstance(value, str | Path):
            raise UsageError(f"`{name}` is a list, not `{value}`.", "Put it in brackets.")


def check_mode(mode: Mode) -> Mode:
    """Returns the mode. Raises UsageError if there is no such mode."""
    if mode not in get_args(Mode):
        raise UsageError(f"There is no mode `{mode}`. There are: {', '.join(get_args(Mode))}.")
    return mode


def check_scopes(scopes: Collection[RewindScope], undoing: Session | None = None) -> None:
    """Raises UsageError if no scope is named, or one is unknown.

    `undoing`: the session in which they are undone, or None. Then UsageError is also raised for the
    scope `files` if that session keeps no files for undo.
    """
    all_scopes = get_args(RewindScope)
    if isinstance(scopes, str):
        raise UsageError(f"`scopes` is a list, not `{scopes}`.", "Put it in brackets.")
    unknown = [scope for scope in scopes if scope not in all_scopes]
    if unknown or not scopes:
        problem = f"There is no scope `{unknown[0]}`." if unknown else "No scope is named."
        raise UsageError(f"{problem} There are: {', '.join(all_scopes)}.")
    if undoing and "files" in scopes and "files" not in undoing.rewind.scopes:
        raise UsageError(
            "Files are not kept for undo in this session.",
            'It needs `checkpoints.enabled` and `save`; `["conversation"]` leaves files as they are.',
        )


def name_in_workspace(session: Session, path: str | Path) -> str:
    """The name of a file in checkpoints and diffs: relative to the folder of the session, with all links
    among the folders above it resolved.
    """
    path_in_session = session.cwd / expand_home(path)
    # The file itself may be a link, which a turn has changed: that link is not followed.
    real_path = Path(os.path.realpath(path_in_session.parent), path_in_session.name)
    return os.path.relpath(real_path, os.path.realpath(session.cwd))


def image_of(picture: Picture) -> Image:
    """Make the image that a program has passed. Raises UsageError, and ToolError as `make_image`."""
    if isinstance(picture, Image):
        return picture
    if isinstance(picture, bytes):
        image, _ = make_image("image", picture)
        return image
    try:
        image, _ = make_image(Path(picture).name, expand_home(picture).read_bytes())
    except OSError as error:
        raise UsageError(f"The image {picture} cannot be read: {error.strerror}.") from error
    return image


async def call_back(function: Callable[[Any], Any], event: Event) -> Any:
    """Call a callback of the program. A coroutine runs in this loop, and a function in a thread: it may
    wait for input.
    """
    answer = await asyncio.to_thread(function, event)
    return await answer if inspect.isawaitable(answer) else answer
