"""The call of a tool as the input of a hook, with the names of ouro and of Claude Code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ouro.extensions.tool_names import names_elsewhere
from ouro.utils.lenient_json import dictionaries
from ouro.utils.ouro_paths import expand_home
from ouro.utils.text import cut

MAX_RESULT = 30_000
"""Characters of the result of a call that a hook gets."""
_EDIT_FIELDS = {"old_string": "old_text", "new_string": "new_text"}
"""The texts of an edit, by their names in Claude Code."""
_EDIT_KEYS = (*_EDIT_FIELDS, "replace_all")
"""The keys of a single edit, by their names in Claude Code."""


def tool_data(
    tool: str, effect: str, arguments: Mapping[str, Any], targets: Sequence[str], cwd: Path
) -> dict[str, Any]:
    """The fields of a tool call for hooks: the tool and its arguments, with the names of Claude
    Code and with ouro's own.
    """
    claude_name, *_ = names_elsewhere(tool)
    names = {"tool_name": claude_name, "tool": tool, "effect": str(effect)}
    tool_input = _with_claude_arguments(tool, arguments, targets, cwd)
    return {**names, "tool_input": tool_input, "targets": list(targets)}


def response_data(text: str, *, failed: bool, call_data: Mapping[str, Any]) -> dict[str, Any]:
    """The field `tool_response` of an event after a call: its result, with ouro's names and those that
    hooks of Claude Code read.

    Args:
        text: the result, as the model gets it.
        call_data: the fields of the call, as `tool_data` returns them.
    """
    text = cut(text, MAX_RESULT)
    theirs: dict[str, Any] = {"success": not failed}
    if path := call_data["tool_input"].get("file_path"):
        theirs["filePath"] = path
    if call_data["tool"] == "shell":
        # ouro reads both outputs of a command as one, as a terminal does.
        theirs |= {"stdout": text, "stderr": "", "interrupted": False}
    return {**theirs, "text": text, "failed": failed}


def _with_claude_arguments(
    tool: str, arguments: Mapping[str, Any], targets: Sequence[str], cwd: Path
) -> dict[str, Any]:
    """The arguments of a call, and in addition the same with the names of Claude Code. There an
    edit has one old and one new text, so the texts of several edits are joined.
    """
    theirs: dict[str, Any] = {}
    if targets and tool in ("read", "write", "edit", "notebook_edit", "apply_patch"):
        theirs["file_path"] = str(cwd / expand_home(targets[0]))
    edits = dictionaries(arguments.get("edits"))
    if tool == "apply_patch":
        theirs |= _patch_fields(str(arguments.get("input", "")).splitlines())
    elif tool == "notebook_edit":
        theirs |= _notebook_fields(theirs, edits)
    elif edits:
        for name, own in _EDIT_FIELDS.items():
            theirs[name] = "\n".join(str(edit.get(own, "")) for edit in edits)
        theirs["replace_all"] = any(edit.get("replace_all") for edit in edits)
    return {**theirs, **arguments}


def _patch_fields(lines: Sequence[str]) -> dict[str, str]:
    """The fields of Claude Code's Edit for a patch: all removed and all added lines, joined."""
    removed = [line[1:] for line in lines if line.startswith("-")]
    added = [line[1:] for line in lines if line.startswith("+")]
    return {"old_string": "\n".join(removed), "new_string": "\n".join(added)}


def _notebook_fields(
    theirs: Mapping[str, Any], edits: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The fields of Claude Code's NotebookEdit for the edits of a notebook. The sources of several
    edits are joined; the mode is that of the first. `theirs` has the path of the file.
    """
    path = theirs.get("file_path", "")
    sources = [str(edit["source"]) for edit in edits if edit.get("source") is not None]
    first = edits[0] if edits else {}
    return {
        "notebook_path": path,
        "new_source": "\n".join(sources),
        "edit_mode": first.get("mode", "replace"),
    }


def own_arguments(
    tool: str,
    arguments: Mapping[str, Any],
    hook_input: Mapping[str, Any],
    targets: Sequence[str],
    cwd: Path,
) -> dict[str, Any]:
    """The arguments of a call with the changes of a hook, in the names of the tool.

    Args:
        hook_input: the arguments as the hook returned them, with the names of the tool or of Claude Code.
    """
    offered = _with_claude_arguments(tool, arguments, targets, cwd)
    # What the hook returned as it had got it is no change.
    changes = {
        key: value
        for key, value in hook_input.items()
        if key not in offered or value != offered[key]
    }
    if "path" in arguments and "file_path" in changes:
        changes["path"] = changes.pop("file_path")
    if tool == "edit" and not changes.keys().isdisjoint(_EDIT_KEYS):
        # A hook returns only one edit. Joined texts of several are not in the file: the call fails.
        edit = {key: changes.pop(key, offered.get(key)) for key in _EDIT_KEYS}
        changes["edits"] = [{_EDIT_FIELDS.get(key, key): value for key, value in edit.items()}]
    return {**arguments, **changes}
