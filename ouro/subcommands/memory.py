"""`ouro memory`: what is remembered, and what was said; each room of its actions has a file of its own."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ouro.subcommands import (
    memory_digest,
    memory_entries,
    memory_sync,
    memory_timeline,
    memory_transfer,
    memory_writing,
)
from ouro.subcommands.output import show, show_json, show_table

EXAMPLE = """\
examples:
  ouro memory list
  ouro memory show mem_3f6c1e0b
  ouro memory remember "Run the tests with pytest -q"
  ouro memory forget staging password
  ouro memory import CLAUDE.md --dry-run
  ouro memory export memory.md
  ouro memory doctor
  ouro memory consolidate --notes
  ouro memory crystallize --days 30
  ouro memory lessons
  ouro memory log
  ouro memory diff --since yesterday
  ouro memory undo 3f2a91c --hunk 2
  ouro memory blame repo/facts.md
  ouro memory graph -o memory.html
  ouro memory search "why optimistic locking" --since 2026-01-01
  ouro memory reindex
  ouro memory index
  ouro memory test --at-least 0.8
  ouro memory test --docs docs.jsonl --queries queries.jsonl --k 25 --work folder

`ouro memory ACTION --help` tells more of each, with an example."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions of `ouro memory` and their flags."""
    parser.epilog = EXAMPLE
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    memory_entries.add_arguments(actions)
    memory_writing.add_arguments(actions)
    memory_transfer.add_arguments(actions)
    memory_timeline.add_arguments(actions)
    memory_sync.add_arguments(actions)
    memory_digest.add_arguments(actions)
    _add_search(_action(actions, "search", "find notes, core lines and what was said in any session", _search))
    _action(actions, "reindex", "make the index anew from the files", _reindex)
    _action(actions, "index", "what is in the index, and how large it is", _index)
    _add_test(_action(actions, "test", "measure how well the search finds what is known to be there", _test))


def run(args: argparse.Namespace) -> int:
    """Do what was asked; gives the exit code."""
    return int(args.do(args))


def _action(actions: Any, name: str, help_text: str, do: Any) -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    example = "\n".join(["example:", *(line for line in EXAMPLE.splitlines() if f"memory {name}" in line)])
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=help_text, description=help_text, epilog=example, formatter_class=formatter
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(do=do)
    return parser


def _add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="+", metavar="WORDS")
    parser.add_argument("--since", default="", metavar="DAY", help="2026-11-21")
    parser.add_argument("--scope", choices=("user", "repo"), default="", help="notes and core lines of one scope")
    parser.add_argument("--category", default="", help="notes and core lines of one category")
    parser.add_argument("--project", default="", metavar="FOLDER", help="what was said there, and its notes")
    parser.add_argument("--session", default="", metavar="SESSION", help="an id, its start, or words of its title")
    parser.add_argument("-n", "--max", type=int, default=10, metavar="N", help="hits to show (10)")


def _add_test(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--docs", default="", metavar="FILE", help="JSON lines: id, text, speaker, date, session, turn")
    parser.add_argument("--queries", default="", metavar="FILE", help="JSON lines: qid, query")
    parser.add_argument("--k", type=int, default=25, metavar="N", help="ids to give for each question (25)")
    parser.add_argument("--work", default="", metavar="DIR", help="an empty folder for the index of this test")
    parser.add_argument("--words", action="store_true", help="without vectors")
    parser.add_argument("--at-least", type=float, default=0.0, metavar="SHARE", help="exit 1 where Recall@10 is less")


def _search(args: argparse.Namespace) -> int:
    from ouro.subcommands.memory_search import search

    return search(args)


def _reindex(args: argparse.Namespace) -> int:
    from ouro.subcommands.memory_index import make_vectors, opened_index, sources

    with opened_index() as index:
        count = index.rebuild(sources(index), None if args.json else _progress)
        make_vectors(index, ("notes", "messages"))
        state = index.state()
    if args.json:
        show_json({"files": count, "path": state.path, "size": state.size, "rows": state.rows})
    else:
        show(f"{count} files were read: {_counted(state.rows)}.")
    return 0


def _progress(done: int, whole: int) -> None:
    """One line that counts, for a person who waits."""
    if sys.stderr.isatty() and (done % 20 == 0 or done == whole):
        end = "\n" if done == whole else ""
        sys.stderr.write(f"\r{done} of {whole} files{end}")
        sys.stderr.flush()


def _index(args: argparse.Namespace) -> int:
    from ouro.subcommands.memory_index import opened_index

    with opened_index() as index:
        state = index.state()
    if args.json:
        show_json({"path": state.path, "size": state.size, "rows": state.rows})
        return 0
    show(f"{state.path}, {state.size:,} bytes. It is derived from sessions and memory; it may be deleted at any time.")
    show_table([[name, f"{count:,}"] for name, count in state.rows.items()])
    return 0


def _counted(rows: dict[str, int]) -> str:
    return ", ".join(f"{rows[name]:,} {name}" for name in ("sessions", "messages", "notes"))


def _test(args: argparse.Namespace) -> int:
    from ouro.subcommands.memory_test import test_files, test_own_notes

    return test_files(args, Path(args.work)) if args.docs or args.queries else test_own_notes(args)
