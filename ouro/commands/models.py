"""Models: list them, with the reason if one is not usable, or set one up."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ouro.commands.action import Answer
from ouro.commands.render import View, ViewItem, line, table
from ouro.errors import NoModelError, UsageError

if TYPE_CHECKING:
    from ouro.commands.shell import ShellContext
    from ouro.llm import Catalog, ModelChoice


async def models(context: ShellContext, setup: bool) -> Answer:
    """List the models; exit code 3 if none is usable."""
    if setup:
        return await _set_up(context)
    from ouro.llm import Catalog

    catalog = Catalog.from_files()
    choices = catalog.choices()
    default = _default(catalog, context.folder.settings.model)
    value = {"default": default or None, "models": [_data(catalog, choice) for choice in choices]}
    exit_code = 0 if any(choice.usable for choice in choices) else NoModelError.exit_code
    return Answer(value, _view(catalog, choices, default), exit_code)


async def _set_up(context: ShellContext) -> Answer:
    from ouro.commands.setup import set_up

    if not sys.stdin.isatty():
        raise UsageError("stdin is not a terminal: `ouro models --setup` asks questions.", "See models.yaml.example.")
    name = await set_up(context)
    return Answer(
        {"default": name or None}, [line("Start with `ouro`." if name else "Nothing was changed.")], int(not name)
    )


def _default(catalog: Catalog, configured: str) -> str:
    """The model of a new session; empty where there is none."""
    try:
        return catalog.resolve(configured or catalog.default())
    except NoModelError:
        return ""


def _view(catalog: Catalog, choices: Sequence[ModelChoice], default: str) -> View:
    view: list[ViewItem] = [line(notice) for notice in catalog.notices]
    usable = [choice for choice in choices if choice.usable]
    if usable:
        view.append(line("Usable, with window, price of a million tokens in and out, and source (* is the default):"))
    else:
        view.append(line("No model can be used. Set one up: `ouro models --setup`. Try ouro without one: `ouro demo`."))
    view += table(
        (" *" if choice.name == default else "  ", choice.name, _figures(catalog, choice), choice.origin)
        for choice in usable
    )
    if rest := [choice for choice in choices if not choice.usable]:
        view += [line(), line("Not usable:"), *table(("  ", choice.name, choice.reason) for choice in rest)]
    if silent := catalog.silent():
        view += [line(), line("No answer on this machine at:"), *table(("  ", title, url) for title, url in silent)]
    return view


def _figures(catalog: Catalog, choice: ModelChoice) -> str:
    spec = catalog.spec(choice.name)
    price = f"${spec.prices.input:g}/${spec.prices.output:g}" if spec.prices else "price unknown"
    return f"{spec.window // 1000:>5}k  {price:<13}"


def _data(catalog: Catalog, choice: ModelChoice) -> dict[str, Any]:
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
