"""`ouro memory remember`, `forget`, `edit`, `confirm` …: what a person changes, without session and model."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ouro.errors import UsageError
from ouro.memory.long_term import remember as forgetting
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entries import MemoryEntry, find_entry
from ouro.memory.long_term.remember import archive_note, confirm, open_file, remember, restore, save
from ouro.memory.long_term.scope import ScopeMemory, switch
from ouro.memory.long_term.trust.proposals import Proposal
from ouro.subcommands import memory_forget
from ouro.subcommands.memory_action import Do, add_action
from ouro.subcommands.memory_entries import show_entries
from ouro.subcommands.opened_memory import opened_memory
from ouro.subcommands.output import show, show_json

_NOTE_HELP = "a note's id, or its start"


def add_arguments(actions: Any) -> None:
    """The actions that write."""
    help_text = "keep something, in the place where it belongs; `-`: from standard input"
    example = 'remember "Run the tests with pytest -q"'
    parser = add_action(actions, "remember", help_text, _remember, example, "remember --scope user I prefer tabs")
    parser.add_argument("text", nargs="+", metavar="TEXT")
    parser.add_argument("--scope", choices=("user", "repo"), default=None, help="where the rules would say otherwise")
    parser = add_action(actions, "forget", "take out of use what fits, after a look at it", _forget,
                        "forget staging password", "forget mem_3f6c1e --yes", "forget heron --pick 1,3",
                        "forget --everywhere --secret", "forget --everywhere Miller --backup b.tar")  # fmt: skip
    parser.add_argument("text", nargs="*", metavar="WORDS|ID")
    memory_forget.add_flags(parser)
    parser.add_argument("--yes", action="store_true", help="all that fits, without a question")
    parser.add_argument("--pick", default="", metavar="NUMBERS", help="of what fits: 1,3")
    parser = add_action(actions, "edit", "a note or a core file in $EDITOR", _edit,
                        "edit preferences", "edit repo/facts.md", "edit mem_3f6c1e")  # fmt: skip
    parser.add_argument("entry", metavar="ID|FILE")
    _add_note_action(actions, "confirm", "a note still holds: it is no longer doubted, and does not fade", _confirm)
    _add_note_action(actions, "archive", "keep a note, but do not recall it any more", _archive)
    _add_note_action(actions, "restore", "take a note out of the archive", _restore)
    for name, help_text, do in (
        ("accept", "let a change that waits take effect", _accept),
        ("reject", "drop a change that waits; git has it still", _reject),
    ):
        parser = add_action(actions, name, help_text, do, f"{name} 3f6c1e")
        parser.add_argument("proposal", nargs="?", default="", metavar="ID", help="where several wait")
    add_action(actions, "on", "read and write memory of this repository again", _on, "on")
    add_action(actions, "off", "read and write no memory of this repository; yours stays", _off, "off")


def _add_note_action(actions: Any, name: str, help_text: str, do: Do) -> None:
    parser = add_action(actions, name, help_text, do, f"{name} mem_3f6c1e")
    parser.add_argument("note", metavar="ID", help=_NOTE_HELP)


def _remember(args: argparse.Namespace) -> int:
    text = sys.stdin.read() if args.text == ["-"] else " ".join(args.text)
    with opened_memory() as memory:
        done = remember(memory.desk, text, args.scope)
    if args.json:
        show_json(msgspec.to_builtins(done))
        return 0
    place = f"{done.entry.scope}/{done.entry.file}"
    words = {"kept": f"Remembered in {place}: {done.why}.", "restored": f"Remembered again: {place}."}
    show(words.get(done.state, f"Known already, and confirmed: {place}."))
    _show_undo(done.undo)
    return 0


def _forget(args: argparse.Namespace) -> int:
    if args.everywhere:
        return memory_forget.forget_everywhere(args)
    if args.secret or args.backup or args.no_backup or not args.text:
        raise UsageError("Say what is to be forgotten.", "--secret and --backup belong to `--everywhere`.")
    with opened_memory() as memory:
        found = forgetting.fitting(memory.desk, " ".join(args.text))
        chosen = _chosen(args, found)
        done = forgetting.forget(memory.desk, chosen) if chosen else None
    undo = {each.scope: each.undo for each in done.changes} if done else {}
    if args.json:
        show_json({"fits": msgspec.to_builtins(found), "forgotten": [each.id for each in chosen], "undo": undo})
    elif not found:
        show("Nothing that is remembered fits.")
    else:
        show(f"{len(chosen)} forgotten; the history has them." if chosen else "Nothing was forgotten.")
        for each in undo.values():
            _show_undo(each)
    return 0 if chosen else 1


def _chosen(args: argparse.Namespace, found: list[MemoryEntry]) -> list[MemoryEntry]:
    """What is to go: all with --yes, those of --pick, else what the person says to the preview."""
    if args.yes or not found:
        return found
    if args.pick:
        return _picked(args.pick, found)
    if args.json:
        return []
    show("This would be forgotten:")
    for number, each in enumerate(found, 1):
        show(f"{number}.")
        show_entries([each])
    if not sys.stdin.isatty():
        show("Say which with --pick 1,3, or --yes for all.")
        return []
    answer = input("Which? Numbers, `all`, or Enter for none: ").strip()
    return found if answer == "all" else _picked(answer, found) if answer else []


def _picked(numbers: str, found: list[MemoryEntry]) -> list[MemoryEntry]:
    words = numbers.replace(",", " ").split()
    if not all(each.isdecimal() and 1 <= int(each) <= len(found) for each in words):
        raise UsageError(f"Say numbers from 1 to {len(found)}, such as 1,3.")
    return [found[number - 1] for number in sorted({int(each) for each in words})]


def _edit(args: argparse.Namespace) -> int:
    with opened_memory() as memory:
        opened = open_file(memory.desk, args.entry)
        done = save(memory.desk, opened, _edited(opened.text, opened.name.replace("/", "-")))
    if args.json:
        show_json(msgspec.to_builtins(done))
        return 0
    show(f"{opened.scope}/{opened.name} was changed." if done.changed else "Nothing was changed.")
    for each in done.complaints:
        show(f"It is kept as you wrote it, but {each}.")
    _show_undo(done.undo)
    return 0


def _edited(text: str, name: str) -> str:
    """`text` after the person's editor."""
    found = (each for each in ("nano", "vim", "vi") if shutil.which(each))
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or next(found, "")
    if not command:
        raise UsageError("No editor was found.", "Set VISUAL or EDITOR.")
    with tempfile.TemporaryDirectory(prefix="ouro-") as folder:
        file = Path(folder, name)
        file.write_text(text, encoding="utf-8")
        try:
            code = subprocess.run([*shlex.split(command), str(file)], check=False).returncode
        except OSError as error:
            raise UsageError(f"{command} could not be started: {error.strerror}.") from error
        if code:
            raise UsageError(f"{command} ended with exit code {code}; nothing was changed.")
        return file.read_text(encoding="utf-8", errors="replace")


def _confirm(args: argparse.Namespace) -> int:
    return _with_note(args, confirm, "confirmed")


def _restore(args: argparse.Namespace) -> int:
    return _with_note(args, restore, "restored")


def _archive(args: argparse.Namespace) -> int:
    return _with_note(args, archive_note, "in the archive now")


def _with_note(args: argparse.Namespace, act: Callable[[MemoryEditor, MemoryEntry], str], said: str) -> int:
    with opened_memory() as memory:
        entry = find_entry(memory.desk, args.note)
        if entry.kind == "core":
            raise UsageError(f"{entry.id} is a line of the core.", "It counts as it stands: `edit` or `forget` it.")
        undo = act(memory.desk, entry)
    if args.json:
        show_json({"id": entry.id, "scope": entry.scope, "undo": undo})
    else:
        show(f"{entry.id} is {said}.")
        _show_undo(undo)
    return 0


def _accept(args: argparse.Namespace) -> int:
    with opened_memory() as memory:
        scope, proposal = _waiting(memory.desk, args.proposal)
        scope.accept(proposal, memory.desk.moment)
    return _answered(args, proposal, "It is remembered now.")


def _reject(args: argparse.Namespace) -> int:
    with opened_memory() as memory:
        scope, proposal = _waiting(memory.desk, args.proposal)
        scope.reject(proposal, memory.desk.moment)
    return _answered(args, proposal, "It is not remembered.")


def _waiting(desk: MemoryEditor, number: str) -> tuple[ScopeMemory, Proposal]:
    waiting = [(scope, each) for scope in desk.scopes for each in scope.proposals()]
    found = [each for each in waiting if each[1].id.startswith(number)]
    if len(found) != 1:
        if not waiting:
            raise UsageError("No change of memory waits.")
        known = ", ".join(each.id for _, each in waiting)
        raise UsageError("Say which change: several wait." if found else "No such change waits.", f"There is: {known}.")
    return found[0]


def _answered(args: argparse.Namespace, proposal: Proposal, said: str) -> int:
    if args.json:
        show_json({"id": proposal.id, "scope": proposal.scope, "files": [each.name for each in proposal.edits]})
    else:
        show(said)
    return 0


def _on(args: argparse.Namespace) -> int:
    return _switch(args, on=True)


def _off(args: argparse.Namespace) -> int:
    return _switch(args, on=False)


def _switch(args: argparse.Namespace, *, on: bool) -> int:
    with opened_memory() as memory:
        found = next((each for each in memory.stores if each.scope == "repo"), None)
    if found is None:
        raise UsageError("This repository has no memory of its own here.", "See `memory.repo.enabled`, and trust.")
    switch(found, on=on)
    if args.json:
        show_json({"folder": str(found.folder), "on": on})
    else:
        show(f"Memory of this repository is {'on' if on else 'off: nothing of it is read or written'}.")
    return 0


def _show_undo(commit: str) -> None:
    if commit:
        show(f"Undo: ouro memory undo {commit[:7]}")
