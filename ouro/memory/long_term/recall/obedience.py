"""Whether a turn kept to a remembered rule that forbids a file or a command by name.

Judged by effects: the files that changed and the commands that ran. A refused call has none. What
cannot be judged is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Literal

import msgspec

from ouro.display import CommandOutput, Diff
from ouro.memory.long_term.recall.recall_log import RecallCounts
from ouro.messages import Message, ToolCall, ToolReply
from ouro.utils.prohibitions import breaks_prohibition, forbidden_names, is_command, only_reads

Verdict = Literal["obeyed", "broken", "unknown"]


class TurnEffects(msgspec.Struct, frozen=True):
    """What a turn did, as far as a rule can be judged by it."""

    asked: str
    """What the user said in the turn."""
    commands: tuple[str, ...]
    files: tuple[str, ...]
    """The files that tools changed; commands may have changed others."""


def effects_of(turn: Sequence[Message]) -> TurnEffects:
    """What the user asked for in a turn, the commands that ran and the files that changed."""
    tool_calls = chain.from_iterable(message.tool_calls for message in turn)
    calls = {call.id: call for call in tool_calls}
    asked_text = " ".join(message.text for message in turn if message.role == "user")
    commands: list[str] = []
    files: list[str] = []
    for reply in chain.from_iterable(message.parts_of(ToolReply) for message in turn):
        commands += _commands_of(reply, calls.get(reply.call_id))
        files += _files_of(reply)
    return TurnEffects(asked_text, tuple(commands), tuple(files))


def judge_rule(rule: str, effects: TurnEffects) -> Verdict:
    """Whether a turn kept to a rule that forbids files or commands by name.

    "broken": it ran or changed what the rule forbids. "obeyed": it did not, although there was an
    occasion for each name that the rule forbids. "unknown": there was no such occasion, the rule
    forbids nothing by name, or the user asked by name for what it forbids.
    """
    names = forbidden_names(rule)
    if not names or any(_is_asked_for(name, effects.asked) for name in names):
        return "unknown"
    for line in effects.commands:
        if breaks_prohibition(rule, "shell", {"command": line}):
            return "broken"
    for path in effects.files:
        if breaks_prohibition(rule, "edit", {"path": path}):
            return "broken"
    return "obeyed" if all(_had_occasion(name, effects) for name in names) else "unknown"


def broken_among(rules: Mapping[str, str], turn: Sequence[Message]) -> dict[str, str]:
    """The rules that a turn broke; as in `rules`, the text of each by the id of its entry."""
    effects = effects_of(turn)
    return {key: text for key, text in rules.items() if judge_rule(text, effects) == "broken"}


def count_turn(
    texts: Mapping[str, str], used: Collection[str], turn: Sequence[Message]
) -> RecallCounts:
    """What one turn adds to the counts of the entries that were sent with it.

    Args:
        texts: id -> text of each entry that was sent. All count as judged, and those whose text is
            a rule also as obeyed or broken, if the effects of the turn show it.
        used: the ids of the entries that the answer used.
        turn: the messages of the turn.
    """
    effects = effects_of(turn)
    verdicts = {key: judge_rule(text, effects) for key, text in texts.items()}
    return RecallCounts(
        judged=dict.fromkeys(texts, 1.0),
        used=dict.fromkeys(used, 1.0),
        obeyed={key: 1.0 for key, verdict in verdicts.items() if verdict == "obeyed"},
        broken={key: 1.0 for key, verdict in verdicts.items() if verdict == "broken"},
    )


def _commands_of(reply: ToolReply, call: ToolCall | None) -> list[str]:
    """The shell line that a call ran, also if it runs in the background; empty if it ran none."""
    body = reply.display.body if reply.display else None
    if isinstance(body, CommandOutput):
        return [body.command]
    if call is None or reply.failed:
        return []
    # The result of a command in the background shows no output yet.
    command = call.arguments.get("command")
    return [command] if isinstance(command, str) else []


def _files_of(reply: ToolReply) -> list[str]:
    """The files that a tool changed, by its result; of a move both paths. Empty if it failed."""
    body = reply.display.body if reply.display else None
    if reply.failed or not isinstance(body, Diff):
        return []
    paths = chain.from_iterable((change.path, change.moved_to) for change in body.changes)
    return [*filter(None, paths)]


def _had_occasion(name: str, effects: TurnEffects) -> bool:
    """Whether the turn could have broken a rule about this name. For a command: it ran commands
    that do more than read. For a file: tools changed files, and no command did more than read,
    because such a command may have changed any file without a trace.
    """
    only_read = all(map(only_reads, effects.commands))
    if is_command(name):
        return not only_read
    return bool(effects.files) and only_read


def _is_asked_for(name: str, asked: str) -> bool:
    """Whether the user asked by name for what a rule forbids: the messages `asked` have the name as
    a whole word, and do not forbid it themselves.
    """
    whole_word = rf"(?<![\w-]){re.escape(name.strip('/'))}(?![\w-])"
    return bool(re.search(whole_word, asked, re.IGNORECASE)) and name not in forbidden_names(asked)
