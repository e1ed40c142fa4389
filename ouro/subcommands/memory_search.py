"""`ouro memory search`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from ouro.errors import UsageError
from ouro.memory.index.search import MemoryHit
from ouro.memory.long_term.search import (
    FILTERS,
    Badges,
    doubted_files,
    filter_of,
    filters_in,
    opening_of,
    source_of,
    trusted_projects,
)
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.subcommands.memory_index import opened_search
from ouro.subcommands.opened_memory import opened_memory
from ouro.subcommands.output import show, show_json
from ouro.utils.repository import find_root
from ouro.utils.runtime import get_sessions_dir
from ouro.utils.text import cut

_EXCERPT = 300


def search(args: argparse.Namespace) -> int:
    """Find, and print what was found; exit code 1 for nothing."""
    if args.max < 1:
        raise UsageError("--max must be at least 1.")
    words, given = filters_in(" ".join(args.words))
    given |= {name: value for name in FILTERS if (value := getattr(args, name))}
    sessions = YamlFileMemoryStore(get_sessions_dir()).list_sessions
    with opened_search() as searching:
        trusted = trusted_projects(searching.index, Path.cwd())
        hits = searching.find(words, args.max, filter_of(given, sessions, Path.cwd(), trusted))
        badges = Badges(searching.index, find_root(Path.cwd()), _doubted())
        found = [(hit, badges.of(hit)) for hit in hits]
    if args.json:
        show_json([_data(hit, about) for hit, about in found])
    else:
        _print(found)
    return 0 if hits else 1


def _doubted() -> frozenset[str]:
    try:
        with opened_memory() as memory:
            return doubted_files(memory.desk.scopes)
    except UsageError:  # memory is off: what was said before is found all the same
        return frozenset()


def _data(hit: MemoryHit, badges: Sequence[str]) -> dict[str, Any]:
    from_where = {"source": source_of(hit), "open": opening_of(hit, in_session=False)}
    return {**asdict(hit), "badges": badges, **from_where}


def _print(found: Sequence[tuple[MemoryHit, Sequence[str]]]) -> None:
    for hit, badges in found:
        text = " ".join(hit.text.split())
        show(f"{hit.score:5.2f}  {cut(text, _EXCERPT)}")
        show(f"       {source_of(hit, badges)}")
        show(f"       {opening_of(hit, in_session=False)}")
    if not found:
        show("Nothing is found. Try other words, or fewer filters.")
