"""`ouro memory export` and `import`: all of memory as one document, and what other agents remember."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from ouro.memory.long_term.export import as_json, as_markdown
from ouro.memory.long_term.import_files import is_trusted_text, read_sources
from ouro.memory.long_term.importing import Import, carry_out, plan_import
from ouro.subcommands.memory_action import add_action
from ouro.subcommands.opened_memory import opened_memory
from ouro.subcommands.output import show, show_json
from ouro.utils.files import write_document

_MOST_REFUSED = 10


def add_arguments(actions: Any) -> None:
    """The two actions."""
    parser = add_action(actions, "export", "all that is remembered as one Markdown document, or as JSON", _export,
                        "export", "export memory.md", "export --json memory.json")  # fmt: skip
    parser.add_argument("file", nargs="?", default="", metavar="FILE", help="nothing: standard output")
    parser.add_argument("--force", action="store_true", help="go over a file that is there")
    parser = add_action(actions, "import", "what other agents remember: CLAUDE.md, AGENTS.md, GEMINI.md, .cursorrules, "
                        "memory folders, an export", _import,
                        "import CLAUDE.md --dry-run", "import ~/.codex/memories --scope user --yes")  # fmt: skip
    parser.add_argument("paths", nargs="+", metavar="PATH", help="files or folders; of a project its instructions")
    parser.add_argument("--scope", choices=("user", "repo"), default=None, help="all of it goes there")
    parser.add_argument("--dry-run", action="store_true", help="only say what would come")
    parser.add_argument("--yes", action="store_true", help="without a question")


def _export(args: argparse.Namespace) -> int:
    path = Path(args.file).expanduser() if args.file else None
    with opened_memory() as memory:
        is_json = args.json or (path is not None and path.suffix == ".json")
        data = json.dumps(as_json(memory.desk), indent=2, ensure_ascii=False) + "\n" if is_json else ""
        text = data or as_markdown(memory.desk)
    if path is None:
        sys.stdout.write(text)
        return 0
    write_document(path.absolute(), [text], force=args.force)
    show(f"{path}: {len(text.encode()):,} bytes.")
    return 0


def _import(args: argparse.Namespace) -> int:
    reading = read_sources([Path(each) for each in args.paths])
    with opened_memory() as memory:
        found = plan_import(memory.desk, reading, args.scope, is_trusted_text)
        if not args.json:
            _show_plan(found)
        done = carry_out(memory.desk, found) if found.counts and _agrees(args) else None
    if args.json:
        plan = {"counts": found.counts, "doubles": found.doubles, "refused": msgspec.to_builtins(found.refused)}
        show_json({**plan, "done": msgspec.to_builtins(done) if done else None})
    elif done is None:
        show("Nothing was imported.")
    elif done.proposals:
        show(f"It waits for your yes: {', '.join(f'ouro memory accept {each}' for each in done.proposals)}")
    else:
        show(f"{done.entries} entries are remembered now.")
        for commit in done.undo.values():
            show(f"Undo: ouro memory undo {commit[:7]}")
    return 0


def _show_plan(found: Import) -> None:
    for place, count in found.counts.items():
        show(f"{count:>6,}  {place}")
    show(f"{found.doubles:>6,}  known already")
    for each in found.refused[:_MOST_REFUSED]:
        show(f"not taken: {each.name}: {each.reason}")
    if len(found.refused) > _MOST_REFUSED:
        show(f"not taken: {len(found.refused) - _MOST_REFUSED} more")
    for path in found.untrusted[:1]:
        show(f"{path} is of a repository that you have not said that you trust: all of it would wait for your yes.")


def _agrees(args: argparse.Namespace) -> bool:
    if args.yes or args.dry_run:
        return bool(args.yes) and not args.dry_run
    if not sys.stdin.isatty() or args.json:
        return False
    return input("Import this? [y/N] ").strip().lower() in ("y", "yes")
