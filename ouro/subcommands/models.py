"""`ouro models`: which models can be used, why the rest cannot, and how to set one up."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ouro.errors import NoModelError, UsageError
from ouro.subcommands.output import show, show_json, show_table

if TYPE_CHECKING:
    from ouro.display import Choice
    from ouro.llm import Candidate, Catalog

EXAMPLE = "examples:\n  ouro models --setup\n  ouro models --json | jq -r '.models[] | select(.usable).name'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `ouro models`."""
    parser.epilog = EXAMPLE
    parser.add_argument("--setup", action="store_true", help="choose a model and write it to models.yaml")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    """List the models, or set one up; gives the exit code: 3 where none is usable."""
    if args.setup:
        return _set_up()
    from ouro.llm import Catalog

    catalog = Catalog.from_files()
    choices = catalog.choices()
    default = _default(catalog)
    if args.json:
        show_json({"default": default or None, "models": [_row(catalog, each) for each in choices]})
    else:
        _show(catalog, choices, default)
    return 0 if any(each.usable for each in choices) else NoModelError.exit_code


def _default(catalog: Catalog) -> str:
    """The model of a new session: of the settings, else of the catalog."""
    from ouro.config import load_settings

    try:
        return catalog.resolve(load_settings().model or catalog.default())
    except NoModelError:
        return ""


def _show(catalog: Catalog, choices: Sequence[Candidate], default: str) -> None:
    for notice in catalog.notices:
        show(notice)
    usable = [each for each in choices if each.usable]
    if not usable:
        show("No model can be used yet. `ouro models --setup` sets one up; `ouro demo` shows ouro without one.")
    else:
        show("Can be used, with window, dollars a million tokens in and out, and what opens it (* is the default):")
        show_table(
            [
                [" *" if each.name == default else "  ", each.name, _figures(catalog, each), each.origin]
                for each in usable
            ]
        )
    if rest := [each for each in choices if not each.usable]:
        show()
        show("Cannot be used:")
        show_table([["  ", each.name, each.reason] for each in rest])
    _show_silent(catalog)


def _show_silent(catalog: Catalog) -> None:
    """Where on this machine a server was looked for in vain."""
    if silent := catalog.silent():
        show()
        show("Nothing answers on this machine at:")
        show_table([["  ", title, url] for title, url in silent])


def _figures(catalog: Catalog, choice: Candidate) -> str:
    spec = catalog.spec(choice.name)
    price = f"${spec.prices.input:g}/${spec.prices.output:g}" if spec.prices else "price unknown"
    return f"{spec.window // 1000:>5}k  {price:<13}"


def _row(catalog: Catalog, choice: Candidate) -> dict[str, Any]:
    spec = catalog.spec(choice.name)
    prices = spec.prices
    return {
        "name": choice.name,
        "usable": choice.usable,
        "reason": choice.reason,
        "origin": choice.origin,
        "window": spec.window,
        "max_output": spec.max_output,
        "images": spec.images,
        "thinking": spec.thinking,
        "prices": {"input": prices.input, "output": prices.output, "cached": prices.cached} if prices else None,
    }


def _set_up() -> int:
    import asyncio

    from ouro.commands.setup import set_up

    if not sys.stdin.isatty():
        raise UsageError("`ouro models --setup` asks questions and needs a terminal.", "See models.yaml.example.")
    name = asyncio.run(set_up(LineAsker()))
    show("Start with `ouro`." if name else "Nothing was changed.")
    return 0 if name else 1


class LineAsker:
    """Asks on the terminal, a line at a time."""

    def say(self, text: str) -> None:
        """Tell one line."""
        show(text)

    async def choose(self, title: str, choices: Sequence[Choice]) -> str | None:
        """Number the choices and take a number; an empty line is none."""
        show(title)
        show_table([[f"{number:>3}", each.label, each.detail] for number, each in enumerate(choices, 1)])
        while answer := await self.ask("Number (nothing to stop)"):
            if answer.isdecimal() and 0 < int(answer) <= len(choices):
                return choices[int(answer) - 1].value
            show(f"A number from 1 to {len(choices)}, please.")
        return None

    async def ask(self, title: str, *, secret: bool = False) -> str:
        """A line, without the blanks around it; empty at the end of input."""
        from getpass import getpass

        try:
            # Blocking on purpose: nothing else runs, and a thread in input() would outlive Ctrl+C.
            return (getpass(f"{title}: ") if secret else input(f"{title}: ")).strip()  # noqa: ASYNC250
        except EOFError:
            show()
            return ""
