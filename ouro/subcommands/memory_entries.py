"""`ouro memory list`, `show`, `stats`, `doctor`: what is remembered, and how it is."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ouro.memory.long_term.doctor import diagnose, named
from ouro.memory.long_term.entries import MemoryEntry, details_of, list_entries, provenance
from ouro.memory.long_term.git.values import CORE
from ouro.memory.long_term.remember import open_file
from ouro.memory.long_term.stats import stats
from ouro.subcommands.memory_action import add_action
from ouro.subcommands.opened_memory import opened_memory
from ouro.subcommands.output import show, show_json, show_table
from ouro.utils.runtime import get_sessions_dir, tilde
from ouro.utils.text import one_line

_WIDTH = 100
_MARKS = {"ok": "ok", "warning": "!", "problem": "✗"}


def add_arguments(actions: Any) -> None:
    """The actions that read."""
    parser = add_action(actions, "list", "what is remembered, entry by entry, with provenance it is", _list,
                        "list repo", "list coding-preferences", "list archived --json")  # fmt: skip
    parser.add_argument("what", nargs="*", metavar="WHAT", help="a scope, a category, core, note, archived, replaced")
    parser.add_argument("-n", "--max", type=int, default=0, metavar="N", help="entries to show (all)")
    parser = add_action(actions, "show", "one note with its chain, a core line, or a whole core file", _show,
                        "show mem_3f6c1e", "show user/preferences.md", "show repo/facts.md:3")  # fmt: skip
    parser.add_argument("entry", metavar="ID|FILE")
    add_action(actions, "stats", "how much is remembered, of what sort and age, and what it costs", _stats, "stats")
    add_action(actions, "doctor", "what is wrong with memory, and what to do about it; exit code 1 for a problem",
               _doctor, "doctor")  # fmt: skip


def show_entries(entries: list[MemoryEntry]) -> None:
    """Two lines for each: what it says, and provenance it is."""
    for each in entries:
        show(f"{_place(each):<28}{one_line(each.text, _WIDTH)}")
        about = " · ".join(filter(None, (each.category if each.kind == "note" else "", provenance(each))))
        show(f"{'':<28}{about}")


def _place(entry: MemoryEntry) -> str:
    return entry.id if entry.kind == "core" else f"{entry.scope}/{entry.id[:14]}"


def _list(args: argparse.Namespace) -> int:
    with opened_memory() as memory:
        entries = list_entries(memory.desk, " ".join(args.what))
        shown = entries[: args.max] if args.max > 0 else entries
        if args.json:
            show_json(msgspec.to_builtins(shown))
            return 0
        show_entries(shown)
        rest = len(entries) - len(shown)
        show(f"{len(entries)} entries{f', {rest} of them not shown' if rest else ''}." if entries else "Nothing yet.")
        for scope in memory.desk.scopes:
            for each in scope.proposals():
                files = named([edit.name for edit in each.edits])
                show(f"Waits for you: {scope.scope}/{files}: {each.reason}. ouro memory accept {each.id}, or reject.")
    return 0


def _show(args: argparse.Namespace) -> int:
    with opened_memory() as memory:
        if args.entry.rpartition("/")[2].removesuffix(".md") in CORE:
            file = open_file(memory.desk, args.entry)
            if args.json:
                show_json(msgspec.to_builtins(file))
            else:
                show(file.text.rstrip() or f"{file.scope}/{file.name} is empty.")
            return 0
        found = details_of(memory.desk, args.entry)
    if args.json:
        show_json(msgspec.to_builtins(found))
        return 0
    show(f"{found.entry.id}  {found.entry.scope}  {found.entry.category}")
    show(provenance(found.entry))
    show(tilde(Path(found.path)))
    if found.stale:
        show(f"May be out of date: {', '.join(found.stale)} changed since.")
    show()
    show(found.entry.text)
    for each in found.chain if len(found.chain) > 1 else ():
        show(
            f"{'→' if each.id == found.entry.id else ' '} {each.id[:14]}  "
            f"{provenance(each)}  {one_line(each.text, _WIDTH)}"
        )
    if found.note is not None:
        _show_note(found.note.note, found.note.complaints)
    return 0


def _show_note(note: Any, complaints: tuple[str, ...]) -> None:
    rows = [[each.relationship, each.id] for each in note.related]
    rows += [["names", ", ".join(note.entities)]] if note.entities else []
    rows += [[each.rel, f"{each.source} → {each.target}"] for each in note.relations]
    rows += [["written by", note.trigger], ["confidence", f"{note.confidence:.2f}, confirmed {note.confirmed_at[:10]}"]]
    rows += [[name, str(value)] for name, value in note.extra.items()]
    rows += [["cannot be read", each] for each in complaints]
    show()
    show_table(rows)


def _stats(args: argparse.Namespace) -> int:
    from ouro.memory.long_term.stats import recall_counts

    with opened_memory() as memory:
        found = stats(memory.desk, recall_counts(get_sessions_dir()))
    if args.json:
        show_json(msgspec.to_builtins(found))
        return 0
    for title, rows in (
        ("core lines", found.core),
        ("notes", found.notes),
        ("said by", found.sources),
        ("written by", found.triggers),
        ("last changed within", found.ages),
        ("tokens in each prompt", found.prompt_tokens),
        ("bytes", found.sizes),
        ("recalled most often", found.recalled),
    ):
        _show_counts(title, rows)
    show(f"{found.archived} archived, {found.replaced} replaced, {found.contradicted} contradicted")
    return 0


def _show_counts(title: str, rows: Mapping[str, int]) -> None:
    if rows:
        show(title)
        show_table([[f"  {name}", f"{count:,}"] for name, count in rows.items()])


def _doctor(args: argparse.Namespace) -> int:
    with opened_memory() as memory:
        settings = memory.settings
        found = diagnose(memory.desk, settings.consolidation_threshold, tuple(settings.categories))
        off = [store.scope for store in memory.stores if store.scope not in memory.desk.names]
    if args.json:
        show_json({"findings": msgspec.to_builtins(found), "off": off})
    else:
        for each in found:
            show(f"{_MARKS[each.level]:<3}{each.where:<6} {each.what}")
            if each.advice:
                show(f"{'':<10}{each.advice}")
        for scope in off:
            show(f"!  {scope:<6} it is switched off here, or cannot be read: ouro memory on")
    return int(any(each.level == "problem" for each in found))
