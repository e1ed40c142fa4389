"""How an action of `ouro memory` is declared: its help, an example, `--json`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

Do = Callable[[argparse.Namespace], int]


def add_action(actions: Any, name: str, help_text: str, do: Do, *examples: str) -> argparse.ArgumentParser:
    """A parser for `ouro memory NAME`; an example is what stands behind `ouro memory`."""
    lines = [f"  ouro memory {each}" for each in examples]
    parser: argparse.ArgumentParser = actions.add_parser(
        name,
        help=help_text,
        description=help_text,
        epilog="\n".join(["example:", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(do=do)
    return parser
