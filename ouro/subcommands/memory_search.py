"""`ouro memory search`."""

from __future__ import annotations

import argparse
from pathlib import Path

from msgspec.structs import asdict

from ouro.errors import UsageError
from ouro.memory.search.search import Filter, Hit
from ouro.memory.sessions.find import find_session
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.subcommands.memory_index import opened_index, search_of
from ouro.subcommands.output import show, show_json
from ouro.utils.runtime import get_sessions_dir, tilde

_EXCERPT = 300


def search(args: argparse.Namespace) -> int:
    """Find, and print what was found; exit code 1 for nothing."""
    if args.max < 1:
        raise UsageError("--max must be at least 1.")
    wanted = Filter(
        since=args.since,
        scope=args.scope,
        category=args.category,
        project=str(Path(args.project).expanduser().resolve()) if args.project else "",
        session=_session(args.session),
    )
    with opened_index() as index:
        hits = search_of(index).find(" ".join(args.words), args.max, wanted)
    if args.json:
        show_json([asdict(hit) for hit in hits])
    else:
        _print(hits)
    return 0 if hits else 1


def _session(query: str) -> str:
    if not query:
        return ""
    return find_session(YamlFileMemoryStore(get_sessions_dir()).list_sessions(), query, str(Path.cwd().resolve())).id


def _print(hits: list[Hit]) -> None:
    for hit in hits:
        show(f"{hit.score:5.2f}  {_source(hit)}")
        text = " ".join(hit.text.split())
        show(f"       {text if len(text) <= _EXCERPT else text[: _EXCERPT - 1] + '…'}")
    if not hits:
        show("Nothing is found. Try other words, or fewer filters.")


def _source(hit: Hit) -> str:
    """Where a hit is from, on one line."""
    if hit.kind in ("note", "core"):
        return f"{hit.kind} {hit.id}  {hit.scope} {hit.category}  {hit.at[:10]}  {tilde(Path(hit.path))}"
    said = f"{hit.role} in message {hit.number} of {hit.session[:8]}"
    return f"{said}  {hit.at[:10]}  {hit.title}"
