"""`ouro sessions rm`, `restore` and `clean`: into the trash, out of it, and what is old into it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from ouro.errors import UsageError
from ouro.frontends.session_lines import figures, now
from ouro.memory.backend import SessionInfo
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.memory.sessions.session_search import find_session
from ouro.subcommands.output import show, show_json
from ouro.utils.text import clean

_SHOWN = 20


def add_clean_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `ouro sessions clean`."""
    parser.add_argument("--days", type=int, default=None, metavar="N", help="in place of sessions.keep_days")
    parser.add_argument("--yes", action="store_true", help="without asking")


async def remove(args: argparse.Namespace, session_catalog: SessionCatalog) -> int:
    """Move sessions to the trash, or with `--purge` remove them for good; gives the exit code."""
    deleted = await session_catalog.deleted() if args.purge else []
    everything = [*await session_catalog.sessions(), *deleted]
    doomed = [find_session(everything, query, session_catalog.project) for query in dict.fromkeys(args.sessions)]
    removed = [info for info in doomed if args.yes or _is_sure(_question(info, args.purge))]
    for info in removed:
        if info not in deleted:
            await session_catalog.delete(info.id)
        if args.purge:
            await session_catalog.purge(info.id)
        if not args.json:
            show(f"{'Removed' if args.purge else 'Moved to the trash:'} {info.id[:8]} {info.title}")
    if args.json:
        show_json({"removed": [info.id for info in removed], "for_good": args.purge})
    elif removed and not args.purge:
        show(f"`ouro sessions restore {removed[-1].id[:8]}` takes it back.")
    return 0


async def restore(args: argparse.Namespace, session_catalog: SessionCatalog) -> int:
    """Take a session out of the trash, or list what is in it; gives the exit code."""
    deleted = await session_catalog.deleted()
    if not args.session:
        if args.json:
            show_json([{"id": info.id, "title": info.title, "updated_at": info.updated_at} for info in deleted])
        else:
            _list(deleted)
            show("" if deleted else "The trash is empty.")
        return 0
    info = find_session(deleted, args.session, session_catalog.project)
    await session_catalog.restore(info.id)
    if args.json:
        show_json({"restored": info.id})
    else:
        show(f"{info.id[:8]} {info.title} is back.")
    return 0


async def clean_up(args: argparse.Namespace, session_catalog: SessionCatalog, keep_days: int | None) -> int:
    """Move sessions that were not used for so many days to the trash, after a look at them; gives the exit code."""
    days = keep_days if args.days is None else args.days
    if days is None:
        raise UsageError("Sessions are kept for good.", "Say how many days: --days 90, or sessions.keep_days.")
    if days < 1:
        raise UsageError("A session is kept for a day at least.")
    old = [info for info in await session_catalog.sessions() if info.updated_at < _before(days)]
    is_moved = bool(old) and (args.yes or (not args.json and _looked_at(old, days)))
    moved = [info for info in old if is_moved and await _moved(session_catalog, info)]
    if args.json:
        show_json({"days": days, "old": [info.id for info in old], "moved": [info.id for info in moved]})
    elif not old:
        show(f"No session was left alone for {days} days.")
    elif is_moved:
        show(f"{len(moved)} sessions are in the trash; `ouro sessions restore ID` takes one back.")
    else:
        show("Nothing was moved.")
    return 0


async def _moved(session_catalog: SessionCatalog, info: SessionInfo) -> bool:
    from ouro.errors import SessionInUse

    try:
        await session_catalog.delete(info.id)
    except SessionInUse as error:
        show(f"{info.id[:8]} {info.title}: {error.message}")
        return False
    return True


def _looked_at(old: Sequence[SessionInfo], days: int) -> bool:
    _list(old)
    size = sum(info.size for info in old)
    if not sys.stdin.isatty():
        show("Nobody is there to ask: `--yes` moves them to the trash.")
        return False
    return _is_sure(f"Move {len(old)} sessions ({size:,} bytes), not used for {days} days, to the trash? [y/N] ")


def _list(sessions: Sequence[SessionInfo]) -> None:
    for info in sessions[:_SHOWN]:
        show(f"{info.id[:8]}  {figures(info, now())}  {info.title}")
    if len(sessions) > _SHOWN:
        show(f"… and {len(sessions) - _SHOWN} more")


def _question(info: SessionInfo, for_good: bool) -> str:
    what = "Remove" if for_good else "Move to the trash:"
    return f"{what} “{info.title}” ({info.id[:8]}, {figures(info, now())}){' for good' if for_good else ''}? [y/N] "


def _is_sure(question: str) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("Nobody is there to ask.", "`--yes` does it without asking.")
    sys.stdout.write(clean(question))
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _before(days: int) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
