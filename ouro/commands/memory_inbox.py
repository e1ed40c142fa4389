"""`memory inbox`: what waits for a decision of the user, as one list."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from ouro.commands.action import ActionContext, Answer, MemoryAccess, parse_indexes
from ouro.commands.render import CommandText, View, ViewItem, line, table
from ouro.errors import OuroError, UsageError
from ouro.extensions import Checks
from ouro.memory import long_term
from ouro.utils.files import write_private
from ouro.utils.git import find_root
from ouro.utils.lenient_json import read_state
from ouro.utils.log import log
from ouro.utils.ouro_paths import get_home
from ouro.utils.prohibitions import forbidden_names
from ouro.utils.text import one_line, plural

if TYPE_CHECKING:
    from ouro.memory.long_term import CommandRecord, MemoryEntry, Proposal

_MIN_PASSES = 5
"""How often a command must have passed for a skill."""
_MIN_COMMANDS = 2
"""How many such commands a skill needs."""
_MAX_TEXT = 100
_SKILL_FILE = Path(".ouro") / "skills" / "project-commands" / "SKILL.md"
_SKILL_HEAD = """\
---
name: project-commands
description: The commands that pass in this project. Use them to build, test and check it.
---

These commands passed again and again here:

"""


class InboxItem(msgspec.Struct, frozen=True):
    """What waits for a decision of the user."""

    kind: Literal["memory", "check", "skill"]
    id: str
    text: str
    why: str
    """Why it waits, and its source."""


async def inbox(context: ActionContext, words: Sequence[str]) -> Answer:
    """List the waiting items with their numbers, if there are no words; else accept or reject some. If
    an item cannot be decided, a warning is shown, and the other items are decided.

    Args:
        words: `accept` or `reject`, then numbers of the list that was shown last in this project, as
            `parse_indexes` reads them, or `all`.
    """
    items = await context.memory(lambda memory: _items(memory, context.cwd), reports=False)
    if not words:
        await asyncio.to_thread(_note_shown, context.cwd, items)
        return Answer(items, _list_view(items))
    verb, *number_words = words
    numbers = " ".join(number_words)
    if verb not in ("accept", "reject") or not numbers:
        raise UsageError(
            "Name what to decide: `accept 1,3`, `reject 2-5`, `accept all`.",
            commands=["memory inbox"],
        )
    decide = _accept if verb == "accept" else _reject
    chosen, view = items, list[ViewItem]()
    if numbers != "all":
        shown_ids = await asyncio.to_thread(_read_shown_ids, context.cwd)
        chosen, view = _choose_by_number(items, shown_ids, numbers)
    for item in chosen:
        try:
            view += await decide(context, item)
        except OuroError as error:
            view.append(line(f"{item.id}: {error.message}", level="warning"))
    return Answer(chosen, view or [line("There is nothing to decide.")])


def _choose_by_number(
    items: Sequence[InboxItem], shown_ids: Sequence[str] | None, numbers: str
) -> tuple[list[InboxItem], View]:
    """The items that numbers name, and a warning for each that does not wait any more. A number is that
    of the list that the user has seen: since then, items may have come or were decided, and another
    item than the user read must not be accepted.

    Args:
        shown_ids: the ids of the list that was shown last; None if none was: then the present list
            counts.

    Raises:
        UsageError: the list has no such number.
    """
    ids = [item.id for item in items] if shown_ids is None else shown_ids
    if not ids and items:
        raise UsageError("The list was empty when it was shown.", commands=["memory inbox"])
    items_by_id = {item.id: item for item in items}
    chosen: list[InboxItem] = []
    view: View = []
    for index in parse_indexes(numbers, len(ids)):
        item = items_by_id.get(ids[index])
        if item is not None:
            chosen.append(item)
        else:
            view.append(line(f"{ids[index]} does not wait any more.", level="warning"))
    return chosen, view


def _note_shown(cwd: Path, items: Sequence[InboxItem]) -> None:
    """Record which items were shown in this project, in this order. A failure is only logged: where
    nothing can be written, nothing can be accepted either.
    """
    shown = read_state(_shown_path(), dict[str, list[str]])
    shown[str(find_root(cwd))] = [item.id for item in items]
    try:
        write_private(_shown_path(), msgspec.json.encode(shown))
    except OSError as error:
        log.warning("the list of the inbox was not recorded: %s", error)


def _read_shown_ids(cwd: Path) -> Sequence[str] | None:
    """The ids of the items that were shown last in this project; None if no list was shown."""
    return read_state(_shown_path(), dict[str, list[str]]).get(str(find_root(cwd)))


def _items(memory: MemoryAccess, cwd: Path) -> list[InboxItem]:
    """The waiting items: pending changes, then offers of checks and skills that the user has not
    rejected. Blocks.
    """
    editor, root = memory.editor, find_root(cwd)
    pending = chain.from_iterable(scope.proposals() for scope in editor.scopes)
    offers = [
        *_check_items(long_term.all_entries(editor), root),
        *_skill_items(long_term.project_commands(editor), root),
    ]
    dismissed = set(read_state(_dismissed_path(), list[str]))
    open_offers = [item for item in offers if f"{root} {item.id}" not in dismissed]
    return [*map(_memory_item, pending), *open_offers]


def _memory_item(proposal: Proposal) -> InboxItem:
    """The item for a pending change of memory, with its changed rows on one line."""
    source = f" ({', '.join(proposal.sources)})" if proposal.sources else ""
    text = one_line(" · ".join(long_term.changed_rows(proposal)), 200)
    return InboxItem(
        "memory", proposal.id, text, why=f"{proposal.scope}: {proposal.reason}{source}"
    )


def _check_items(entries: Sequence[MemoryEntry], root: Path) -> list[InboxItem]:
    """An item for each entry that forbids something by name (`use pnpm, not npm`), and that no check
    enforces.
    """
    # The text of a check is cut in this way when the check is added (`checks.py`).
    enforced_texts = {check.text for check in Checks(root).list_here()}
    return [
        InboxItem("check", entry.id, entry.text, why="a rule that a check can enforce")
        for entry in entries
        if one_line(entry.text, 300) not in enforced_texts and forbidden_names(entry.text)
    ]


def _skill_items(records: Mapping[str, CommandRecord], root: Path) -> list[InboxItem]:
    """One item for a skill that lists the commands which passed often here; none if they are too few,
    or the skill exists.

    Args:
        records: what is known of each command of the project, by its text.
    """
    frequent = [name for name, record in records.items() if record.passed >= _MIN_PASSES]
    if len(frequent) < _MIN_COMMANDS or (root / _SKILL_FILE).exists():
        return []
    reason = f"{plural(len(frequent), 'command')} passed {_MIN_PASSES} times or more here"
    return [InboxItem("skill", id=str(_SKILL_FILE), text="\n".join(frequent), why=reason)]


async def _accept(context: ActionContext, item: InboxItem) -> View:
    """Accept an item: approve the change, name the command that drafts the check, or write the
    skill.
    """
    if item.kind == "memory":
        await context.answer_proposal(item.id, accept=True)
        return [line(f"Remembered: {one_line(item.text, _MAX_TEXT)}")]
    if item.kind == "check":  # a model drafts it, and the user reviews the draft
        return [line("To have it enforced: ", CommandText(f"check {one_line(item.text, 200)}"))]
    root = find_root(context.cwd)
    # The id of a skill is the path of its file; its text has a command on each line.
    text = _SKILL_HEAD + "".join(f"- `{name}`\n" for name in item.text.splitlines())
    await asyncio.to_thread(long_term.write_for_agents, {root / item.id: text}, root)
    return [line(f"Wrote {item.id}: read it before you commit it.")]


async def _reject(context: ActionContext, item: InboxItem) -> View:
    """Reject an item: a change of memory; or a check or skill, which is then never offered again in
    this project.
    """
    if item.kind == "memory":
        await context.answer_proposal(item.id, accept=False)
        return [line(f"Rejected: {one_line(item.text, _MAX_TEXT)}")]
    name = f"{find_root(context.cwd)} {item.id}"

    def dismiss() -> None:
        dismissed = dict.fromkeys([*read_state(_dismissed_path(), list[str]), name])
        write_private(_dismissed_path(), msgspec.json.encode(list(dismissed)))

    await asyncio.to_thread(dismiss)
    return [line(f"Not offered again: {one_line(item.text, _MAX_TEXT)}")]


def _dismissed_path() -> Path:
    """The file of the offers that the user rejected: `ROOT ID` of each."""
    return get_home() / "inbox_dismissed.json"


def _shown_path() -> Path:
    """The file of the lists that were shown last: the ids of each, by the root of the project."""
    return get_home() / "inbox_shown.json"


def _list_view(items: Sequence[InboxItem]) -> View:
    """The items with their numbers, and the commands that decide."""
    if not items:
        return [line("The inbox is empty.")]
    rows = [
        (str(number), item.kind, one_line(item.text, _MAX_TEXT), one_line(item.why, _MAX_TEXT))
        for number, item in enumerate(items, 1)
    ]
    accept, reject = CommandText("memory inbox accept 1"), CommandText("memory inbox reject all")
    return [*table(rows), line("Decide: ", accept, " · ", reject)]
