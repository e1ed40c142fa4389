"""`ouro memory consolidate`, `crystallize`, `lessons`: long work on memory, with progress and receipts."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ouro.errors import UsageError
from ouro.memory.long_term.maintenance.report import (
    merge_line,
    merges_line,
    plan_of_notes,
    plan_of_sessions,
    step_line,
    steps_line,
)
from ouro.subcommands.memory_action import add_action
from ouro.subcommands.output import show, show_json

if TYPE_CHECKING:
    from ouro.memory.long_term.maintenance.crystallizer import OldSession, Step
    from ouro.session import Digest, Session
_DAYS = 7


def add_arguments(actions: Any) -> None:
    """The actions that a model works for, and what came of them."""
    parser = add_action(actions, "consolidate", "have a model merge what says the same", _consolidate,
                        "consolidate", "consolidate --notes --yes")  # fmt: skip
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--core", action="store_true", help="only the core files")
    what.add_argument("--notes", action="store_true", help="only the notes")
    parser.add_argument("--yes", action="store_true", help="without asking")
    parser = add_action(actions, "crystallize", "have a model read old sessions of this folder for what lasts",
                        _crystallize, "crystallize", "crystallize --days 30 --yes", "crystallize --all")  # fmt: skip
    parser.add_argument("--days", type=int, default=_DAYS, metavar="N", help=f"older than that ({_DAYS})")
    parser.add_argument("--all", action="store_true", help="however old they are")
    parser.add_argument("--yes", action="store_true", help="without asking")
    add_action(actions, "lessons", "what went wrong here before and what works, newest first", _lessons, "lessons")


def _lessons(args: argparse.Namespace) -> int:
    from ouro.memory.long_term.entries import lessons
    from ouro.subcommands.memory_entries import show_entries
    from ouro.subcommands.opened_memory import opened_memory

    with opened_memory() as memory:
        found = lessons(memory.desk)
    if args.json:
        show_json(msgspec.to_builtins(found))
        return 0
    show_entries(found)
    show("`ouro memory why ID` tells what taught it." if found else "No lesson was learned here yet.")
    return 0


def _consolidate(args: argparse.Namespace) -> int:
    return _with_session(lambda session, digest: _consolidate_all(args, session, digest))


def _crystallize(args: argparse.Namespace) -> int:
    return _with_session(lambda session, digest: _read_all(args, session, digest))


def _with_session(work: Callable[[Session, Digest], Awaitable[int]]) -> int:
    """Do it with a session in which nothing is said, and which is not kept: it has the models, memory and masks.

    What it cost is counted beside the sessions.
    """

    async def run() -> int:
        async with _session() as session:
            if session.memory.maintenance is None or session.memory.manager is None:
                raise UsageError("Memory is off.", "By `memory.enabled` in the settings.")
            if warning := await session.budget.check(0):  # every call from here on keeps to the limits
                _tell(warning)
            return await work(session, session.memory.maintenance)

    return asyncio.run(run())


@asynccontextmanager
async def _session() -> AsyncIterator[Session]:
    from ouro.assemble import Options, open_session
    from ouro.session import OpenRequest

    session = await open_session(Options(Path.cwd().resolve()), OpenRequest())
    for notice in session.notices:
        _tell(notice)
    try:
        yield session
    finally:
        await session.close()


async def _consolidate_all(args: argparse.Namespace, session: Session, digest: Digest) -> int:
    core: dict[str, str] = {}
    if (
        not args.notes
        and session.memory.manager is not None
        and _is_sure(args, "A model merges and compresses the core.")
    ):
        for scope in session.memory.manager.scopes:
            core[scope] = await session.memory.manager.consolidate(scope)
            _progress(args, f"Memory ({scope}): {core[scope]}.")
    merged: list[dict[str, Any]] = []
    if not args.core:
        found, tokens = await digest.find_notes()
        plan = plan_of_notes(found, tokens, digest.price(tokens))
        if not found:
            _progress(args, "No notes say the same.")
        elif _is_sure(args, plan):
            _progress(args, plan)
            merges = []
            async for each in digest.merge_notes(found):
                merges.append(each)
                _progress(args, merge_line(len(merges), len(found), each))
            _progress(args, merges_line(merges, digest.used()))
            merged = [
                {
                    "notes": [note.id for note in each.notes],
                    "into": each.written.note.id if each.written else None,
                    "commit": each.written.commit if each.written else "",
                    "why": each.said,
                }
                for each in merges
            ]
    if args.json:
        show_json({"core": core, "notes": merged, "usage": msgspec.to_builtins(digest.used())})
    return 0


async def _read_all(args: argparse.Namespace, _session: Session, digest: Digest) -> int:
    found = await digest.find_sessions(0 if args.all else args.days)
    plan = plan_of_sessions(found, digest.price(sum(each.tokens for each in found)))
    steps: list[Step] = []
    whole = sum(each.pieces for each in found if not each.skipped)
    if whole and _is_sure(args, plan):
        _progress(args, plan)
        async for each in digest.crystallize(found):
            steps.append(each)
            _progress(args, step_line(len(steps), whole, each))
    if args.json:
        show_json(_receipt(steps, found, digest))
    elif not whole:
        show("There is no old session here that was not read yet.")
    elif steps:
        show(steps_line(steps, [each for each in found if each.skipped], digest.used()))
    return 0


def _receipt(steps: list[Step], found: tuple[OldSession, ...], digest: Digest) -> dict[str, Any]:
    read = [
        {
            "session": each.session.info.id,
            "part": each.piece,
            "kept": [
                {"id": one.note.id, "text": one.note.text, "change": one.change, "commit": one.commit}
                for one in each.captured.written
            ],
            "proposed": [{"id": one.id, "text": one.text} for one in each.captured.proposed],
            "refused": [{"text": one.said, "why": one.reason} for one in each.captured.refused],
        }
        for each in steps
    ]
    skipped = [{"session": each.info.id, "why": each.skipped} for each in found if each.skipped]
    return {"read": read, "skipped": skipped, "usage": msgspec.to_builtins(digest.used())}


def _is_sure(args: argparse.Namespace, plan: str) -> bool:
    """Whether the person wants it, who was told what it would take.

    Raises:
        UsageError: nobody is there to be asked.
    """
    if args.yes:
        return True
    if args.json or not sys.stdin.isatty():
        raise UsageError("Nobody is there to be asked.", f"{plan} Say --yes to have it done.")
    sys.stderr.write(f"{plan} Do it? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _progress(args: argparse.Namespace, line: str) -> None:
    _tell(line) if args.json else show(line)


def _tell(line: str) -> None:
    from ouro.utils.text import clean

    sys.stderr.write(f"{clean(line)}\n")
