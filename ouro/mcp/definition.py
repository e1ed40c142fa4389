"""Definitions of an MCP server, as values: tools, resources, prompts; and which definitions of
tools are approved (E1).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from ouro.llm import ToolSpec
from ouro.utils.decoding import decode_json
from ouro.utils.files import write_private
from ouro.utils.late_pattern import late_pattern
from ouro.utils.log import log
from ouro.utils.ouro_paths import get_home
from ouro.utils.text import clean, cut

MAX_NAME = 64
"""Maximum characters of a tool name that all providers accept."""
MAX_DESCRIPTION = 2_000
"""Maximum characters of a description that the model reads."""
MAX_SCHEMA = 20_000
"""Maximum characters of a schema in the request; tools with longer ones are found only by
`tool_search`.
"""
_REFUSED_KEYWORDS = {"oneOf", "anyOf", "allOf", "$ref", "not", "enum"}
"""Keywords that some provider refuses at the top of a schema."""
_PROPERTY_NAME = late_pattern(r"[a-zA-Z0-9_.-]{1,64}")
"""Matches a name of an argument that every provider accepts."""


class ToolDefinition(msgspec.Struct, frozen=True, dict=True):
    """A tool as its server defines it."""

    name: str
    description: str
    schema: Mapping[str, Any]
    title: str = ""
    read_only: bool = False
    """A claim of the server, like `destructive`: it is shown to the user, but no decision depends
    on it.
    """
    destructive: bool = False
    problem: str = ""
    """Why its schema cannot be used; empty if it can."""

    @cached_property
    def digest(self) -> str:
        """The digest of everything that the model and the user see of it."""
        content = {**msgspec.to_builtins(self), "problem": ""}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def spec(self, server: str) -> ToolSpec:
        """The tool for a model, with a name such as `mcp__github__create_issue`, as in Claude Code.
        Signs that providers do not accept in a name become `_`.

        Args:
            server: the name of its server.
        """
        full_name = f"mcp__{server}__{self.name}"
        name = f"mcp__{server}__{re.sub(r'[^a-zA-Z0-9_-]', '_', self.name)}"
        if len(name) > MAX_NAME or name != full_name:
            # Others may become the same name, so a digest keeps them apart.
            digest = hashlib.sha256(f"{server}.{self.name}".encode()).hexdigest()[:6]
            name = f"{name[: MAX_NAME - 7]}_{digest}"
        return ToolSpec(name, self.text, dict(self.schema))

    @property
    def text(self) -> str:
        """The description for the model, cut; the title if there is none."""
        return cut(clean(self.description or self.title), MAX_DESCRIPTION)

    def fits_request(self) -> bool:
        """Whether the tool can be in a request: every provider accepts its name and its schema, and
        the schema is not too long. If one tool did not fit, a provider would refuse the whole
        request.
        """
        schema, properties = self.schema, self.schema.get("properties", {})
        if self.problem or not self.name.isascii() or schema.get("type") != "object":
            return False
        if not isinstance(properties, dict) or not all(map(_PROPERTY_NAME.fullmatch, properties)):
            return False
        has_refused_keyword = bool(_REFUSED_KEYWORDS & schema.keys())
        return not has_refused_keyword and len(json.dumps(schema)) <= MAX_SCHEMA


class Resource(msgspec.Struct, frozen=True):
    """A resource of a server, or a template for the addresses of several."""

    uri: str
    name: str = ""
    is_template: bool = False


class PromptArgument(msgspec.Struct, frozen=True):
    """An argument of a prompt."""

    name: str
    required: bool = False


class ServerPrompt(msgspec.Struct, frozen=True):
    """A prompt of a server."""

    name: str
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()


class ServerListing(msgspec.Struct, frozen=True):
    """What a server offers."""

    version: str = ""
    """The name and version of the server."""
    protocol: str = ""
    """The version of the protocol."""
    instructions: str = ""
    """The server's text about its tools. It is data, like tool results."""
    latency: float = 0.0
    """Seconds that it took to list the tools."""
    tools: tuple[ToolDefinition, ...] = ()
    resources: tuple[Resource, ...] = ()
    prompts: tuple[ServerPrompt, ...] = ()
    left_out: tuple[str, ...] = ()
    """Invalid items of these lists, with the reason."""


def _approvals_path(key: str) -> Path:
    """The file with the approved tools of a server."""
    return get_home() / "mcp" / "approved" / f"{key}.json"


def load_approved(key: str) -> dict[str, ToolDefinition] | None:
    """The approved tools of a server by name. None if the server was never connected; empty if the
    file with them is broken, so that all of its tools must be approved again.

    Args:
        key: what `approval_key` returns for the server.
    """
    try:
        tools = decode_json(_approvals_path(key).read_bytes(), tuple[ToolDefinition, ...])
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        log.warning("the approved tools of %s cannot be read: %s", key, error)
        return {}
    return {tool.name: tool for tool in tools}


def save_approved(key: str, tools: Iterable[ToolDefinition]) -> None:
    """Add these definitions to the approved ones of a server; they replace those with the same
    names. Raises OSError.
    """
    approved = (load_approved(key) or {}) | {tool.name: tool for tool in tools}
    write_private(_approvals_path(key), msgspec.json.encode(list(approved.values())))


def find_changed_tools(
    approved: Mapping[str, ToolDefinition], tools: Iterable[ToolDefinition]
) -> tuple[ToolDefinition, ...]:
    """The tools among `tools` that are not approved as they are now: new ones, and changed ones."""
    changed = []
    for tool in tools:
        before = approved.get(tool.name)
        if before is None or before.digest != tool.digest:
            changed.append(tool)
    return tuple(changed)


def describe_change(before: ToolDefinition | None, after: ToolDefinition) -> str:
    """The difference between two definitions of a tool, as a unified diff for the user. If there
    was none before, the whole new definition.
    """
    import difflib

    new_lines = _lines(after)
    if before is None:
        return "\n".join(new_lines)
    diff = difflib.unified_diff(_lines(before), new_lines, "approved", "now", lineterm="", n=1)
    return "\n".join(diff)


def _lines(tool: ToolDefinition) -> list[str]:
    """The description and the schema of a tool as lines, without characters that cannot be seen."""
    schema = json.dumps(tool.schema, indent=1, ensure_ascii=True)
    return [
        *tool.description.encode("unicode_escape").decode().replace("\\n", "\n").splitlines(),
        *schema.splitlines(),
    ]
