"""`ouro sessions import`: take sessions of other programs over, to be listed, searched and gone on with."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ouro.errors import UsageError
from ouro.importers.importer import Importer, ImportLedger, ImportResult
from ouro.importers.json_values import PROGRAM_NAMES
from ouro.importers.sources import ImportSource, find_sources, usual_places
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.subcommands.output import show, show_json, show_table
from ouro.utils.runtime import get_home, get_sessions_dir
from ouro.utils.text import clean

_MOST_LISTED = 40
_MOST_TOLD = 20
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `ouro sessions import`."""
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH", help="files or folders; none: where other programs keep theirs"
    )
    parser.add_argument(
        "--from", dest="program", choices=sorted(PROGRAM_NAMES), help="whose they are, if that is not seen"
    )
    parser.add_argument("--all", action="store_true", help="take all that is found, without asking")


def import_sessions(args: argparse.Namespace) -> int:
    """Do what was asked; gives the exit code: 1 where something could not be taken over, 130 when interrupted."""
    places = args.paths or usual_places(os.environ)
    sources = find_sources([path.expanduser().absolute() for path in places], args.program)
    if not sources:
        return _nothing(args)
    if args.json and not (args.paths or args.all):
        show_json({"found": [_source_data(each) for each in sources]})
        return 0
    chosen = sources if args.paths or args.all else _chosen(sources)
    if not chosen:
        return 0
    done: list[ImportResult] = []
    try:
        asyncio.run(_take_all(chosen, done, quiet=args.json))
    except KeyboardInterrupt:
        _tell(done, args, len(chosen))
        return 130
    _tell(done, args, len(chosen))
    return 1 if any(each.outcome == "failed" for each in done) else 0


def _nothing(args: argparse.Namespace) -> int:
    if args.json:
        show_json({"imported": []})
    elif args.paths:
        show("There is no session in there that ouro knows.")
    else:
        show("No sessions of Claude Code, Codex or an older ouro were found. Name a file or a folder: "
             "`ouro sessions import PATH`.")  # fmt: skip
    return 0


def _chosen(sources: Sequence[ImportSource]) -> Sequence[ImportSource]:
    """What the person picks of a list; without a person to ask, nothing: the list says what there is."""
    shown = sources[:_MOST_LISTED]
    show_table([[f"{number:>4}", *_row(each)] for number, each in enumerate(shown, 1)])
    if len(sources) > len(shown):
        show(f"      … and {len(sources) - len(shown):,} older ones")
    if not sys.stdin.isatty():
        show("`ouro sessions import --all` takes them all; `ouro sessions import PATH…` takes some.")
        return ()
    sys.stdout.write(f"Which? (1-{len(sources)}, `2 5-9`, `all`, nothing: none) ")
    sys.stdout.flush()
    answer = sys.stdin.readline().strip().lower()
    return sources if answer == "all" else [sources[place] for place in _places(answer, len(sources))]


def _places(answer: str, count: int) -> list[int]:
    """The places in a list that `2 5-9` names."""
    places: dict[int, None] = {}
    for part in answer.replace(",", " ").split():
        found = _RANGE.fullmatch(part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not 1 <= first <= last <= count:
            raise UsageError(f"`{part[:40]}` is none of 1-{count}.")
        places.update(dict.fromkeys(range(first - 1, last)))
    return list(places)


def _row(source: ImportSource) -> list[str]:
    size = f"{max(1, source.size >> 10):,} KB".rjust(11)
    return [
        source.changed_at[:10],
        PROGRAM_NAMES[source.program].ljust(11),
        size,
        source.project or "-",
        source.first_words,
    ]


async def _take_all(sources: Sequence[ImportSource], done: list[ImportResult], *, quiet: bool) -> None:
    ledger = ImportLedger(get_home() / "cache" / "imports.json")
    store = YamlFileMemoryStore(get_sessions_dir(), _mask() if sources else str)
    importer = Importer(store, ledger, [info.id for info in await store.list_sessions()])
    progress = _progress(len(sources)) if not quiet and sys.stderr.isatty() else None
    try:
        for number, source in enumerate(sources, 1):
            if progress:
                progress(number, source)
            done.append(await importer.take(source))
    finally:
        ledger.save()
        if progress:
            sys.stderr.write("\r\x1b[K")


def _mask() -> Callable[[str], str]:
    from ouro.llm import Catalog
    from ouro.safety import SecretMask, secret_values

    return SecretMask([*Catalog.from_files().key_values(), *secret_values(os.environ)]).mask


def _progress(count: int) -> Callable[[int, ImportSource], None]:
    def tell(number: int, source: ImportSource) -> None:
        line = clean(f"{number:,} of {count:,}  {source.path.name}")[:78]
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()

    return tell


def _tell(done: Sequence[ImportResult], args: argparse.Namespace, wanted: int) -> None:
    if args.json:
        show_json({"imported": [_data(each) for each in done], "interrupted": len(done) < wanted})
        return
    changed = [each for each in done if each.outcome in ("new", "more")]
    for each in changed[:_MOST_TOLD]:
        what = f"{each.messages:,} messages" + ("" if each.outcome == "new" else " more")
        show(f"{each.session_id[:8]}  {what}  {each.title}" + (f"\n          {each.reason}" if each.reason else ""))
    if len(changed) > _MOST_TOLD:
        show(f"… and {len(changed) - _MOST_TOLD:,} more")
    for each in done:
        if each.outcome == "failed":
            show(f"! {each.reason}")
    show(_summary(done))
    if len(done) < wanted:
        show(f"Interrupted: {wanted - len(done):,} were not looked at. The same command goes on.")


def _summary(done: Iterable[ImportResult]) -> str:
    outcomes = Counter(each.outcome for each in done)
    left_out = sum((Counter(each.left_out) for each in done), Counter[str]())
    lines = [
        f"{outcomes['new']:,} new",
        f"{outcomes['more']:,} that had grown" if outcomes["more"] else "",
        f"{outcomes['known']:,} that were here already" if outcomes["known"] else "",
        f"{outcomes['empty']:,} without a message" if outcomes["empty"] else "",
        f"{outcomes['failed']:,} that could not be taken over" if outcomes["failed"] else "",
    ]
    told = "Sessions: " + ", ".join(line for line in lines if line) + "."
    if left_out:
        told += " Left out: " + ", ".join(f"{what} ({count:,})" for what, count in left_out.most_common(8)) + "."
    if outcomes["new"] or outcomes["more"]:
        told += " `ouro sessions list --all` shows them."
    return told


def _source_data(source: ImportSource) -> dict[str, Any]:
    return {
        "path": str(source.path),
        "from": source.program,
        "size": source.size,
        "changed_at": source.changed_at,
        "project": source.project,
        "first_words": source.first_words,
    }


def _data(done: ImportResult) -> dict[str, Any]:
    return {
        **_source_data(done.source),
        "outcome": done.outcome,
        "session": done.session_id,
        "title": done.title,
        "messages": done.messages,
        "left_out": dict(done.left_out),
        "reason": done.reason,
    }
