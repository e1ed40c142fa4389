"""`ouro sessions`: list, show, export, import, rename, remove, restore and repair sessions."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from ouro.errors import UsageError
from ouro.memory.backend import LoadedSession, MessageRecord, SessionInfo, SummaryRecord
from ouro.memory.sessions.session_catalog import SessionCatalog, catalog_on
from ouro.memory.sessions.session_reader import read_whole
from ouro.memory.transcript import title_of
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message
from ouro.subcommands import session_import, session_trash
from ouro.subcommands.output import show, show_json, show_table
from ouro.utils.runtime import get_index_path, get_sessions_dir

EXAMPLE = """\
examples:
  ouro sessions list --all
  ouro sessions show latest
  ouro sessions export 0d9f3c52 --output chat.html
  ouro sessions import --all
  ouro sessions rename latest "the broken import"
  ouro sessions rm 0d9f3c52
  ouro sessions restore 0d9f3c52
  ouro sessions clean --days 180"""

_SESSION_HELP = "an id, its start, `latest`, or words of its title or of what was said"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions of `ouro sessions` and their flags."""
    parser.epilog = EXAMPLE
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    listed = _action(actions, "list", "the sessions of this folder, last used first", _list)
    listed.add_argument("--all", action="store_true", help="of every folder")
    listed.add_argument("words", nargs="*", metavar="WORD", help="of the title, or of what was said")
    shown = _action(actions, "show", "what is known of a session", _show)
    exported = _action(actions, "export", "a session as Markdown, HTML or JSON, all of it", _export)
    exported.add_argument("-o", "--output", default="", metavar="FILE", help="a new file, in place of standard output")
    exported.add_argument("--format", choices=("markdown", "html", "json"), help="else what the file's ending says")
    exported.add_argument("--force", action="store_true", help="write over a file that is there")
    imported = _action(actions, "import", "take sessions of Claude Code, Codex or an export over", _import)
    session_import.add_arguments(imported)
    renamed = _action(actions, "rename", "give a session another title", _rename)
    removed = _action(actions, "rm", "move sessions to the trash", _remove)
    removed.add_argument("sessions", nargs="+", metavar="SESSION", help=_SESSION_HELP)
    removed.add_argument("--yes", action="store_true", help="without asking")
    removed.add_argument("--purge", action="store_true", help="remove them for good, those in the trash too")
    restored = _action(actions, "restore", "take a session out of the trash; without one, what is in it", _restore)
    restored.add_argument("session", nargs="?", default="", metavar="SESSION", help=_SESSION_HELP)
    cleaned = _action(actions, "clean", "move sessions to the trash that were not used for long, after a look", _clean)
    session_trash.add_clean_arguments(cleaned)
    repaired = _action(actions, "repair", "set damage aside, keep the rest, make the index again", _repair)
    repaired.add_argument("session", nargs="?", default="", metavar="SESSION", help=f"{_SESSION_HELP}; none: all")
    for each in (shown, exported, renamed):
        each.add_argument("session", metavar="SESSION", help=_SESSION_HELP)
    renamed.add_argument("title")


def run(args: argparse.Namespace) -> int:
    """Do what was asked; gives the exit code."""
    code = args.do(args, YamlFileMemoryStore(get_sessions_dir()))
    return int(asyncio.run(code) if asyncio.iscoroutine(code) else code)


def _action(actions: Any, name: str, help_text: str, do: Any) -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    example = "\n".join(["example:", *(line for line in EXAMPLE.splitlines() if f"sessions {name}" in line)])
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=help_text, description=help_text, epilog=example, formatter_class=formatter
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(do=do)
    return parser


async def _list(args: argparse.Namespace, store: YamlFileMemoryStore) -> int:
    session_catalog = _session_catalog(store)
    everywhere = await session_catalog.sessions()
    found = everywhere if args.all else [each for each in everywhere if session_catalog.is_here(each.project)]
    if args.words:
        found = await session_catalog.matching(found, " ".join(args.words))
    if args.json:
        show_json([_data(each) for each in found])
    elif found:
        show_table([_row(each, with_project=args.all) for each in found])
    elif args.words:
        show("No session has these words, in its title or in what was said.")
    else:
        more = f" `ouro sessions list --all` shows {len(everywhere)} of other folders." if everywhere else ""
        show(f"No session {'yet' if args.all else 'of this folder yet'}.{more}")
    return 0


def _data(info: SessionInfo) -> dict[str, Any]:
    spent = [{"day": each.day, "model": each.model, "calls": each.calls, **asdict(each.usage)} for each in info.spent]
    return {**asdict(info), "cost": info.cost, "spent": spent}


def _row(info: SessionInfo, *, with_project: bool) -> list[str]:
    cells = [info.id[:8], _when(info.updated_at), f"{info.messages:>5} messages", _cost(info.cost)]
    return [*cells, *([info.project] if with_project else []), info.title]


async def _show(args: argparse.Namespace, store: YamlFileMemoryStore) -> int:
    info = await store.get_session_stats((await _find(store, args.session)).id)
    if args.json:
        show_json(_data(info))
        return 0
    loaded = await store.load_session(info.id, read_only=True)
    rows = [
        ["title", info.title],
        ["id", info.id],
        ["folder", info.project],
        ["model", info.model],
        ["started", _when(info.created_at)],
        ["last used", _when(info.updated_at)],
        ["messages", str(info.messages)],
        ["cost", _cost(info.cost).strip()],
        ["file", f"{get_sessions_dir() / info.folder / 'session.yaml'} ({info.size:,} bytes)"],
    ]
    show_table([row for row in rows if row[1]])
    for notice in loaded.notices:
        show(f"! {notice}")
    summaries = [each.summary for each in loaded.records if isinstance(each, SummaryRecord)]
    if summaries and summaries[-1]:
        show(f"\nsummary:\n{_excerpt(summaries[-1])}")
    for name, role in (("first said", "user"), ("last answer", "assistant")):
        texts = [each.text for each in _messages(loaded) if each.role == role and each.text.strip()]
        if texts:
            show(f"\n{name}:\n{_excerpt(texts[0] if role == 'user' else texts[-1])}")
    return 0


async def _export(args: argparse.Namespace, store: YamlFileMemoryStore) -> int:
    from ouro.commands.export.export import document, format_of
    from ouro.utils.files import write_document

    info = await _find(store, args.session)
    path = Path(args.output).expanduser() if args.output else None
    to = args.format or ("json" if args.json else format_of(path) if path else "markdown")
    pieces = document(await read_whole(store, info.id), to)
    if path is None:
        sys.stdout.writelines(pieces)
        return 0
    write_document(path, pieces, force=args.force)
    show(f"Written to {args.output}.")
    return 0


def _import(args: argparse.Namespace, _store: YamlFileMemoryStore) -> int:
    return session_import.import_sessions(args)


async def _rename(args: argparse.Namespace, store: YamlFileMemoryStore) -> int:
    title = title_of(args.title)
    if not title:
        raise UsageError("A title needs words.")
    session_catalog = _session_catalog(store)
    found = await session_catalog.find(args.session)
    await session_catalog.rename(found.id, title)
    if args.json:
        show_json(_data(await session_catalog.info(found.id)))
    else:
        show(f"{found.id[:8]} is now called {title}.")
    return 0


async def _remove(args: argparse.Namespace, store: YamlFileMemoryStore) -> int:
    return await session_trash.remove(args, _session_catalog(store))


async def _restore(args: argparse.Namespace, store: YamlFileMemoryStore) -> int:
    return await session_trash.restore(args, _session_catalog(store))


async def _clean(args: argparse.Namespace, store: YamlFileMemoryStore) -> int:
    from ouro.config import load_settings

    return await session_trash.clean_up(args, _session_catalog(store), load_settings().sessions.keep_days)


async def _repair(args: argparse.Namespace, store: YamlFileMemoryStore) -> int:
    chosen = [await _find(store, args.session)] if args.session else await store.list_sessions()
    done = {info.id: await store.repair_session(info.id) for info in chosen}
    count = await store.rebuild_index()
    if args.json:
        show_json({"repaired": {key: list(lines) for key, lines in done.items() if lines}, "sessions": count})
        return 0
    for session_id, lines in done.items():
        for line in lines:
            show(f"{session_id[:8]}  {line}")
    sound = sum(not lines for lines in done.values())
    show(f"{sound} of {len(done)} needed nothing. The index was made again: {count} sessions.")
    return 0


async def _find(store: YamlFileMemoryStore, query: str) -> SessionInfo:
    return await _session_catalog(store).find(query)


def _session_catalog(store: YamlFileMemoryStore) -> SessionCatalog:
    return catalog_on(store, get_sessions_dir(), get_index_path(), str(Path.cwd().resolve()))


def _messages(loaded: LoadedSession) -> list[Message]:
    return [record.message for record in loaded.records if isinstance(record, MessageRecord)]


def _when(at: str) -> str:
    from datetime import datetime

    try:
        return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return at[:16]


def _cost(cost: float | None) -> str:
    return ("" if cost is None else f"${cost:.4f}").rjust(8)


def _excerpt(text: str) -> str:
    lines: Sequence[str] = text.strip().splitlines()
    shown = [f"  {line[:200]}" for line in lines[:8]]
    return "\n".join([*shown, f"  … {len(lines) - 8} more lines"] if len(lines) > 8 else shown)
