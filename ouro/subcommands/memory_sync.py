"""`ouro memory sync`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from msgspec.structs import asdict

from ouro.memory.long_term.sync import remote_of, summary, synchronise
from ouro.subcommands.memory_action import add_action
from ouro.subcommands.opened_memory import opened_memory
from ouro.subcommands.output import show, show_json


def add_arguments(actions: Any) -> None:
    """`ouro memory sync`, with its flags."""
    parser = add_action(
        actions, "sync", "bring this memory and one on another machine to the same state, over a git remote", _sync,
        "sync", "sync --remote git@example.org:me/memory.git", "sync --scope repo --remote /mnt/share/app-memory.git",
    )  # fmt: skip
    parser.add_argument("--remote", default="", metavar="URL", help="in place of memory.remote; kept for the next time")
    parser.add_argument("--scope", choices=("user", "repo"), default="user", help="whose memory (user)")


def _sync(args: argparse.Namespace) -> int:
    with opened_memory() as memory:
        store = memory.desk.scope(args.scope).store
        report = synchronise(store, remote_of(store, args.remote), _progress)
    if args.json:
        show_json(asdict(report))
    else:
        for line in summary(report):
            show(line)
    return 0


def _progress(what: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"{what} …\n")
