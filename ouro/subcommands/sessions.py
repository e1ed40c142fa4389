"""`ouro sessions`: list, show, export, import, rename, remove and repair sessions."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from ouro.errors import UsageError
from ouro.memory.backend import LoadedSession, MessageRecord, SessionInfo, TitleRecord, timestamp
from ouro.memory.find import find_session
from ouro.memory.manager import title_of
from ouro.memory.whole_session import read_whole
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message, ToolCall
from ouro.subcommands import session_import
from ouro.subcommands.output import show, show_json, show_table
from ouro.utils.runtime import get_sessions_dir
from ouro.utils.terminal_text import clean

EXAMPLE = """\
examples:
  ouro sessions list --all
  ouro sessions show latest
  ouro sessions export 0d9f3c52 --output chat.html
  ouro sessions import --all
  ouro sessions rename latest "the broken import"
  ouro sessions rm 0d9f3c52 --yes"""

_SESSION_HELP = "an id, its start, `latest`, or words of its title"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions of `ouro sessions` and their flags."""
    parser.epilog = EXAMPLE
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = _action(actions, "list", "the sessions of this folder, last used first", _list)
    listed.add_argument("--all", action="store_true", help="of every folder")
    shown = _action(actions, "show", "what is known of a session", _show)
    exported = _action(actions, "export", "a session as Markdown, HTML or JSON, all of it", _export)
    exported.add_argument("-o", "--output", default="", metavar="FILE", help="a new file, in place of standard output")
    exported.add_argument("--format", choices=("markdown", "html", "json"), help="else what the file's ending says")
    exported.add_argument("--force", action="store_true", help="write over a file that is there")
    imported = _action(actions, "import", "take sessions of Claude Code, Codex or an export over", _import)
    session_import.add_arguments(imported)
    renamed = _action(actions, "rename", "give a session another title", _rename)
    removed = _action(actions, "rm", "remove sessions for good", _remove)
    removed.add_argument("sessions", nargs="+", metavar="SESSION", help=_SESSION_HELP)
    removed.add_argument("--yes", action="store_true", help="without asking")
    repaired = _action(actions, "repair", "set damage aside, keep the rest, make the index again", _repair)
    repaired.add_argument("session", nargs="?", default="", metavar="SESSION", help=f"{_SESSION_HELP}; none: all")
    for each in (shown, exported, renamed):
        each.add_argument("session", metavar="SESSION", help=_SESSION_HELP)
    renamed.add_argument("title")


def run(args: argparse.Namespace) -> int:
    """Do what was asked; gives the exit code."""
    return int(args.do(args, YamlFileMemoryStore(get_sessions_dir())))


def _action(actions: Any, name: str, help_text: str, do: Any) -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    example = "\n".join(["example:", *(line for line in EXAMPLE.splitlines() if f"sessions {name}" in line)])
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=help_text, description=help_text, epilog=example, formatter_class=formatter
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(do=do)
    return parser


def _list(args: argparse.Namespace, store: YamlFileMemoryStore) -> int:
    everywhere = store.list_sessions()
    found = everywhere if args.all else [each for each in everywhere if each.project == _project()]
    if args.json:
        show_json([_data(each) for each in found])
    elif found:
        show_table([_row(each, with_project=args.all) for each in found])
    else:
        more = f" `ouro sessions list --all` shows {len(everywhere)} of other folders." if everywhere else ""
        show(f"No session {'yet' if args.all else 'of this folder yet'}.{more}")
    return 0


def _data(info: SessionInfo) -> dict[str, Any]:
    spent = [{"day": each.day, "model": each.model, "calls": each.calls, **asdict(each.usage)} for each in info.spent]
    return {**asdict(info), "spent": spent}


def _row(info: SessionInfo, *, with_project: bool) -> list[str]:
    cells = [info.id[:8], _when(info.updated_at), f"{info.messages:>5} messages", _cost(info.cost)]
    return [*cells, *([info.project] if with_project else []), info.title]


def _show(args: argparse.Namespace, store: YamlFileMemoryStore) -> int:
    info = store.get_session_stats(_find(store, args.session).id)
    if args.json:
        show_json(_data(info))
        return 0
    loaded = store.load_session(info.id, read_only=True)
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
    for name, role in (("first said", "user"), ("last answer", "assistant")):
        texts = [each.text for each in _messages(loaded) if each.role == role and each.text.strip()]
        if texts:
            show(f"\n{name}:\n{_excerpt(texts[0] if role == 'user' else texts[-1])}")
    return 0


def _export(args: argparse.Namespace, store: YamlFileMemoryStore) -> int:
    from ouro.commands.transcripts.export import document, format_of, write_document

    info = _find(store, args.session)
    path = Path(args.output).expanduser() if args.output else None
    to = args.format or ("json" if args.json else format_of(path) if path else "markdown")
    pieces = document(read_whole(store, info.id), to)
    if path is None:
        sys.stdout.writelines(pieces)
        return 0
    write_document(path, pieces, force=args.force)
    show(f"Written to {args.output}.")
    return 0


def _import(args: argparse.Namespace, _store: YamlFileMemoryStore) -> int:
    return session_import.import_sessions(args)


def _rename(args: argparse.Namespace, store: YamlFileMemoryStore) -> int:
    title = title_of(args.title)
    if not title:
        raise UsageError("A title needs words.")
    found = _find(store, args.session)
    loaded = store.load_session(found.id)
    try:
        store.save_memory(found.id, TitleRecord(title, timestamp(loaded.records[-1].at if loaded.records else "")))
    finally:
        store.close_session(found.id)
    if args.json:
        show_json(_data(store.get_session_stats(found.id)))
    else:
        show(f"{found.id[:8]} is now called {title}.")
    return 0


def _remove(args: argparse.Namespace, store: YamlFileMemoryStore) -> int:
    doomed = [_find(store, query) for query in dict.fromkeys(args.sessions)]
    for info in doomed:
        if args.yes or _is_sure(info):
            store.delete_session(info.id)
            if not args.json:
                show(f"Removed {info.id[:8]} {info.title}")
    if args.json:
        show_json({"removed": [info.id for info in doomed]})
    return 0


def _is_sure(info: SessionInfo) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("Nobody is there to ask.", "`--yes` removes without asking.")
    about = f"{info.id[:8]}, {info.messages} messages, last used {_when(info.updated_at)}"
    sys.stdout.write(clean(f"Remove “{info.title}” ({about}) for good? [y/N] "))
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _repair(args: argparse.Namespace, store: YamlFileMemoryStore) -> int:
    chosen = [_find(store, args.session)] if args.session else store.list_sessions()
    done = {info.id: store.repair_session(info.id) for info in chosen}
    count = store.rebuild_index()
    if args.json:
        show_json({"repaired": {key: list(lines) for key, lines in done.items() if lines}, "sessions": count})
        return 0
    for session_id, lines in done.items():
        for line in lines:
            show(f"{session_id[:8]}  {line}")
    sound = sum(not lines for lines in done.values())
    show(f"{sound} of {len(done)} needed nothing. The index was made again: {count} sessions.")
    return 0


def _find(store: YamlFileMemoryStore, query: str) -> SessionInfo:
    return find_session(store.list_sessions(), query, _project())


def _project() -> str:
    return str(Path.cwd().resolve())


def _messages(loaded: LoadedSession) -> list[Message]:
    return [record.message for record in loaded.records if isinstance(record, MessageRecord)]


def _call_title(call: ToolCall) -> str:
    first = next((value for value in call.arguments.values() if isinstance(value, str)), "")
    return f"{call.name} {first.partition(chr(10))[0][:80]}".strip()


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
