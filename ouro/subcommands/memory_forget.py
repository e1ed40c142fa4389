"""`ouro memory forget --everywhere`: out of everything that ouro keeps, for good."""

from __future__ import annotations

import argparse
import sys
from getpass import getpass
from pathlib import Path

from msgspec.structs import asdict

from ouro.errors import UsageError
from ouro.memory.long_term.forget.everywhere import (
    MANY_PLACES,
    PROVIDERS,
    ForgetReport,
    OuroHome,
    TrueForget,
    back_up_home,
)
from ouro.subcommands.output import show, show_json
from ouro.utils.runtime import get_history_dir, get_home, get_index_path, get_sessions_dir, tilde
from ouro.utils.text import clean


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Those of `ouro memory forget` that have to do with `--everywhere`."""
    parser.add_argument("--everywhere", action="store_true", help="plain text, out of histories, sessions and logs too")
    parser.add_argument("--secret", action="store_true", help="ask for the text without showing it; or standard input")
    parser.add_argument("--backup", default="", metavar="FILE", help="first put all into this tar: it holds the text")
    parser.add_argument("--no-backup", action="store_true", help="without one")


def forget_everywhere(args: argparse.Namespace) -> int:
    """Look, ask, keep a backup, forget, and report; exit code 1 where it is found nowhere, or something is left."""
    return _everywhere(args, _text(args))


def _text(args: argparse.Namespace) -> str:
    words = " ".join(args.text)
    if not args.secret:
        if not words.strip():
            raise UsageError("Say what is to be forgotten.", "A secret is asked for with `--secret`, and not shown.")
        return words
    if words:
        raise UsageError("With --secret nothing is said on the command line: that stays in your shell's history.")
    text = getpass("To be forgotten (not shown): ") if sys.stdin.isatty() else sys.stdin.readline()
    return text.rstrip("\r\n")


def _everywhere(args: argparse.Namespace, text: str) -> int:
    home = OuroHome(get_home(), get_history_dir(), get_sessions_dir(), get_index_path())
    forgetting = TrueForget(text, home)
    found = forgetting.look(_progress)
    _progress("")
    if not args.json:
        _show_findings(found, is_secret=args.secret)
    if not found.count:
        if args.json:
            show_json({"found": asdict(found), "done": False})
        return 1
    if not _is_sure(args, f"Forget it in {found.count} places, for good? [y/N] "):
        show("Nothing was changed.")
        return 1
    kept = _backed_up(args, home)
    done = forgetting.forget(_progress)
    _index_anew()
    _progress("")
    if args.json:
        show_json(
            {
                "found": asdict(found),
                "left": list(done.left),
                "unsearched": list(done.unsearched),
                "backup": kept,
                "done": not done.left,
            }
        )
    else:
        _show_done(done, kept, forgetting.placeholder, in_argv=not args.secret)
    return 1 if done.left else 0


def _show_findings(found: ForgetReport, *, is_secret: bool) -> None:
    for each in found.places:
        show(f"{each.count:6,}  {each.place}")
    for name in found.sessions:
        show(f"        session {name}")
    if found.count >= MANY_PLACES and not is_secret:
        show(f"It stands in {found.count} places: make sure that it is no word of every day.")
    if not found.count:
        show("It is found nowhere.")
        _show_unsearched(found)


def _show_unsearched(found: ForgetReport) -> None:
    for line in found.unsearched:
        show(f"NOT SEARCHED  {line}")


def _is_sure(args: argparse.Namespace, question: str) -> bool:
    if args.yes:
        if not args.backup and not args.no_backup:
            raise UsageError("It cannot be taken back.", "Say --backup FILE, or --no-backup.")
        return True
    if not sys.stdin.isatty():
        raise UsageError("Nobody is there to ask.", "`--yes` with `--backup FILE` or `--no-backup` does it.")
    return _asked(question).lower() in ("y", "yes")


def _backed_up(args: argparse.Namespace, home: OuroHome) -> str:
    named = args.backup
    if not named and not args.no_backup and not args.yes:
        named = _asked("A backup of all first (it holds the text, remove it later)? Name a file, or nothing for none: ")
    return str(back_up_home(home, Path(named), _progress)) if named else ""


def _asked(question: str) -> str:
    sys.stdout.write(clean(question))
    sys.stdout.flush()
    return sys.stdin.readline().strip()


def _show_done(done: ForgetReport, kept: str, placeholder: str, *, in_argv: bool) -> None:
    show(f"Forgotten in {done.count} places. Where something has to stand, it says {placeholder}.")
    for line in done.left:
        show(f"NOT DONE  {line}")
    _show_unsearched(done)
    show(PROVIDERS)
    if in_argv:
        show("The command line itself may be kept by your shell, in its history file.")
    if kept:
        show(f"The backup {tilde(Path(kept))} holds it still: remove it when you are sure.")


def _index_anew() -> None:
    from ouro.errors import SearchUnavailable
    from ouro.subcommands.memory_index import opened_index, sources

    _progress("the index")
    try:
        with opened_index() as index:
            index.follow(sources(index))
    except SearchUnavailable as error:
        show(f"The index is made at the next start: {error.message}")


def _progress(what: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{what}")
        sys.stderr.flush()
