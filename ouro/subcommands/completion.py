"""`ouro completion`: a script that lets a shell complete ouro's command line."""

from __future__ import annotations

import argparse
import sys

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which shell."""
    parser.add_argument("shell", choices=SHELLS)
    parser.epilog = "example:\n  ouro completion bash > ~/.local/share/bash-completion/completions/ouro"


def run(args: argparse.Namespace) -> int:
    """Print the script; `args.whole_parser` makes the parser of the whole program."""
    import shtab

    sys.stdout.write(shtab.complete(args.whole_parser(), shell=args.shell))
    return 0
