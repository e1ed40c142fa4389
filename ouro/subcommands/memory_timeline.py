"""`ouro memory log`, `diff`, `blame`, `evidence`, `why`, `undo`, `as-of`, `graph`: where what is remembered is from."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from ouro.errors import UsageError
from ouro.memory.long_term.evidence import TurnEvidence, turn_evidence
from ouro.memory.long_term.git.undo import UndoPlan, named
from ouro.memory.long_term.store import GitMemoryStore
from ouro.memory.long_term.timeline import Timeline
from ouro.memory.sessions.session_search import find_session
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.subcommands.memory_action import add_action
from ouro.subcommands.opened_memory import opened_memory
from ouro.subcommands.output import show, show_json
from ouro.utils.files import write_document
from ouro.utils.runtime import get_index_path, get_sessions_dir

if TYPE_CHECKING:
    from ouro.memory.long_term.graph_picture import Picture


def add_arguments(actions: Any) -> None:
    """The actions that tell of the history, and take it back."""
    parser = add_action(actions, "log", "when what was remembered, by whom, in which turn", _log, "log", "log facts")
    parser.add_argument("file", nargs="?", default="", metavar="FILE|NOTE")
    parser.add_argument("-n", "--max", type=int, default=30, metavar="N", help="commits to show (30)")
    parser = add_action(actions, "diff", "what a commit changed, what differs between two, or since a date", _diff,
                        "diff", "diff 3f2a91c", "diff --since yesterday")  # fmt: skip
    parser.add_argument("commits", nargs="*", metavar="COMMIT")
    parser.add_argument("--since", default="", metavar="DATE", help="2026-11-21, yesterday, `3 days ago`")
    parser = add_action(
        actions, "blame", "each line of a file: commit, session and turn", _blame, "blame repo/facts.md"
    )
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--open", type=int, default=0, metavar="LINE", help="the words that taught that line")
    parser = add_action(actions, "evidence", "the words of the turn that taught a note or commit", _evidence,
                        "evidence mem_3f6c1e0b")  # fmt: skip
    parser.add_argument("what", metavar="NOTE|COMMIT")
    parser = add_action(actions, "why", "what in the prompt of a turn came from memory", _why, "why 3 --session latest")
    parser.add_argument("turn", nargs="?", type=int, default=0, metavar="TURN", help="its number (the last)")
    parser.add_argument(
        "--session", default="latest", metavar="SESSION", help="an id, its start, or words of its title"
    )
    parser = add_action(actions, "undo", "take back a commit, or one hunk of it; what was written since stays", _undo,
                        "undo 3f2a91c", "undo 3f2a91c --hunk 2 --yes")  # fmt: skip
    parser.add_argument("commit", nargs="?", default="last", metavar="COMMIT")
    parser.add_argument("--hunk", type=int, default=0, metavar="N", help="only that change, as `diff` numbers them")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser = add_action(actions, "as-of", "memory as it was on a date", _as_of, "as-of 2026-11-21 facts")
    parser.add_argument("date", metavar="DATE")
    parser.add_argument("file", nargs="?", default="", metavar="FILE|NOTE")
    parser = add_action(actions, "graph", "notes and what they name, as one page for a browser", _graph,
                        "graph --html -o memory.html")  # fmt: skip
    parser.add_argument("--html", action="store_true", help="a page (the default)")
    parser.add_argument("-o", "--output", default="memory.html", metavar="FILE", help="memory.html")
    parser.add_argument("--force", action="store_true", help="go over a file that is there")


@contextmanager
def _opened() -> Iterator[tuple[Timeline, tuple[GitMemoryStore, ...]]]:
    with opened_memory() as memory:
        yield Timeline(memory.stores), memory.stores


def _log(args: argparse.Namespace) -> int:
    from ouro.commands.memory_timeline import whence

    with _opened() as (timeline, _stores):
        entries = timeline.log(max(1, args.max), args.file)
    if args.json:
        show_json(to_builtins(entries))
    else:
        for each in entries:
            show(f"{each.commit.id[:7]}  {each.scope:<4}  {whence(each.commit)}  {each.commit.subject}")
        if not entries:
            show(f"Nothing was ever remembered{f' in {args.file}' if args.file else ''}.")
    return 0 if entries else 1


def _diff(args: argparse.Namespace) -> int:
    from ouro.commands.memory_timeline import differences, hunk_lines

    asked = f"since {args.since}" if args.since else " ".join(args.commits) or "last"
    with _opened() as (timeline, _stores):
        found = differences(timeline, asked, {})
    if args.json:
        show_json(to_builtins(found))
        return 0
    for each in found:
        show(f"{each.scope}: {each.before[:7] or 'nothing'} → {each.after[:7]}")
        for line in hunk_lines(each.hunks):
            show(line)
    return 0


def _blame(args: argparse.Namespace) -> int:
    from ouro.commands.memory_timeline import turn_of, whence

    with _opened() as (timeline, _stores):
        found = timeline.blame(args.file)
        line = next((each for each in found.lines if each.number == args.open), None)
        taught = timeline.taught(args.file, line) if line else None
    if args.open:
        if taught is None:
            raise UsageError(f"There is no line {args.open}: {found.name} has {len(found.lines)}.")
        return _show_turn(args, *turn_of(taught))
    if args.json:
        show_json(to_builtins(found))
        return 0
    for each in found.lines:
        show(f"{each.number:>4}  {each.commit.id[:7]}  {whence(each.commit)}  {each.text}")
    return 0


def _evidence(args: argparse.Namespace) -> int:
    from ouro.commands.memory_timeline import taught_by

    with _opened() as (timeline, _stores):
        taught = taught_by(timeline, args.what)
    return _show_turn(args, *taught)


def _show_turn(args: argparse.Namespace, session_id: str, turn: int, message: int) -> int:
    from ouro.commands.memory_timeline import LEFT

    if not session_id or not turn:
        raise UsageError("No turn taught it: it was written by hand, or outside of a session.")
    said = _turn(session_id, turn, message)
    if args.json:
        show_json(to_builtins(said))
        return 0
    show(f"Turn {said.turn} (message {said.number}) of {said.title or said.session_id}, {said.at[:16]}")
    if said.is_left:
        show(LEFT)
    for who, text in said.words:
        show(f"\n{'you' if who == 'user' else 'ouro'}: {text}")
    _show_way_to(said)
    return 0


def _show_way_to(said: TurnEvidence) -> None:
    """On a line of its own, to be pasted."""
    show(f"\nTo open its session:\n  ouro --resume {said.session_id}")


def _turn(session_id: str, turn: int, message: int = 0) -> TurnEvidence:
    return turn_evidence(
        YamlFileMemoryStore(get_sessions_dir()).load_session(session_id, read_only=True), turn, message
    )


def _why(args: argparse.Namespace) -> int:
    sessions = YamlFileMemoryStore(get_sessions_dir()).list_sessions()
    said = _turn(find_session(sessions, args.session, str(Path.cwd().resolve())).id, args.turn)
    with _opened() as (timeline, stores):
        texts = timeline.texts_of([each.id for each in said.recalled])
        core = _core(stores, said.began_with)
    if args.json:
        show_json({"turn": to_builtins(said), "core": core, "notes": texts})
        return 0
    show(f"Turn {said.turn} of {said.title or said.session_id[:8]}: {' '.join(said.words[0][1].split())[:200]}")
    for name, tokens in core.items():
        show(f"  at the start   {name}, {tokens:,} tokens")
    for line in said.told:
        show(f"  told with it   {line}")
    for item in said.recalled:
        text = " ".join(texts.get(item.id, "gone since").split())[:120]
        show(f"  {item.state:<13}  {text} ({item.id[:12]}: {item.reason}; {item.tokens} tokens)")
    _show_way_to(said)
    return 0


def _core(stores: tuple[GitMemoryStore, ...], began_with: Mapping[str, str]) -> dict[str, int]:
    """Files of the core as a session began with them, with their tokens; what no commit tells is left out."""
    from ouro.memory.long_term.git.values import CORE
    from ouro.memory.tokens import estimate

    found: dict[str, int] = {}
    for store in stores:
        commit = began_with.get(store.scope, "")
        if len(commit) != 40 or not store.repository.exists:
            continue  # there was no commit yet
        for name in CORE:
            if text := store.text_at(commit, f"{name}.md"):
                found[f"{store.scope}/{name}.md"] = estimate(text)
    return found


def _undo(args: argparse.Namespace) -> int:
    from ouro.commands.memory_timeline import edit_lines

    with _opened() as (timeline, stores):
        planned = timeline.plan_undo(args.commit, args.hunk)
        if not planned.edits:
            raise UsageError("Nothing of that is left to take back: its lines have changed since.")
        if not args.json:
            for each in (planned, *planned.also):
                show(f"Taking back {each.commit.id[:7]} ({each.scope}), {named(each.commits)}:")
                for edit in each.edits:
                    for line in edit_lines(edit.name, edit.before or "", edit.after or ""):
                        show(f"  {line}")
                _tell_conflicts(each)
        if not args.yes and not _agrees():
            show("Nothing was taken back.")
            return 1
        of_scope = {each.scope: each for each in stores}
        done = [
            of_scope[each.scope].revert(each.commit.id, args.hunk if each is planned else 0)
            for each in (planned, *planned.also)
        ]
    if args.json:
        also = {"also": [to_builtins(each) for each in done[1:]]} if done[1:] else {}
        show_json({**to_builtins(done[0]), **also})
    else:
        for made in done:
            show(f"Taken back by {made.commit[:7]}." if made.commit else "Taken back; no commit could be made.")
    return 0


def _agrees() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("Nobody is here to agree.", "Add --yes.")
    sys.stdout.write("Do it? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _tell_conflicts(planned: UndoPlan) -> None:
    for each in planned.conflicts:
        show(f"  left as it is, its lines have changed since: hunk {each.number} ({each.name})")


def _as_of(args: argparse.Namespace) -> int:
    with _opened() as (timeline, _stores):
        found = timeline.as_of(args.date, args.file)
    if args.json:
        show_json(to_builtins(found))
        return 0 if found else 1
    for each in found:
        show(f"— {each.scope}/{each.name}, as of {each.commit.id[:7]} ({each.commit.at[:16].replace('T', ' ')})")
        show(each.text)
    if not found:
        show(f"There was no {args.file or 'memory'} yet on {args.date}.")
    return 0 if found else 1


def _graph(args: argparse.Namespace) -> int:
    picture, page = _picture()
    if args.json:
        show_json(to_builtins(picture))
        return 0
    write_document(Path(args.output).expanduser().absolute(), [page], force=args.force)
    show(f"{args.output}: {len(picture.nodes)} notes and names. Open it in a browser; nothing is fetched.")
    return 0


def _picture() -> tuple[Picture, str]:
    from ouro.memory.index.index import Index
    from ouro.memory.long_term.graph_picture import html_page, picture_of
    from ouro.memory.long_term.overview import Overview

    index = Index(get_index_path())
    try:
        with opened_memory() as memory:
            scopes = memory.desk.scopes
            doubted = {(scope.scope, name) for scope in scopes for name in scope.doubted}
            root, half_life = memory.desk.root or Path.cwd(), memory.settings.half_life_days
            overview = Overview(index, [each.store for each in scopes], root, lambda: doubted, half_life)
            picture = picture_of(overview.all(), overview.ties(), overview.names())
    finally:
        index.close()
    return picture, html_page(picture)
