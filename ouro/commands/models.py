"""Models: list them with the reason if one is not usable, use another one, set its effort."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from ouro import llm
from ouro.commands.action import Answer
from ouro.commands.model_check import learned_data, learned_view
from ouro.commands.model_setup import set_up_model
from ouro.commands.render import View, line, table
from ouro.display import Choice
from ouro.errors import NoModelError, UsageError
from ouro.utils.ouro_paths import get_models_path, tilde
from ouro.utils.text import plural

if TYPE_CHECKING:
    from ouro.commands.shell_context import ShellContext
    from ouro.commands.slash import SessionContext
    from ouro.session import Session

EFFORTS: tuple[llm.Effort, ...] = get_args(llm.Effort)
_FAVORITE_STEPS = {"next": 1, "previous": -1}
"""How far `/model next` and `/model previous` go in the list of favorites."""
WITHOUT_KEY = "without-key"
"""The choice that lists the models without a key."""


async def model(context: SessionContext, name: str) -> Answer | None:
    """Use a model in this session, or change the favorites. None if the user cancels.

    Args:
        name: a model; `next` or `previous` for a favorite; empty for one that the user picks; or
            `favorite`, with a model after it, as `change_favorite` takes it.
    """
    session = context.session
    if name in _FAVORITE_STEPS:
        name = await use_favorite(session, _FAVORITE_STEPS[name])
        context.front_end.redraw()
        return Answer(name, [line(f"Model: {name}")])
    word, _, favorite_name = name.partition(" ")
    if word == "favorite":
        return await change_favorite(context, favorite_name.strip())
    if not name:
        name = await _choose_model(context, await session.models())
    if not name:
        return None
    await session.set_model(name)
    context.front_end.redraw()
    model = session.status().model
    return Answer(model, [line(f"Model: {model}")])


async def change_favorite(context: SessionContext, name: str = "") -> Answer:
    """Make a model a favorite, or if it is one, no longer. An empty name is the model in use. Returns
    the favorites. Raises NoModelError if no model has the name.
    """
    session = context.session
    favorites = session.model_source.favorites
    current = session.status().model
    chosen = session.model_source.models_by_name(name)[0].spec.name if name else current
    await asyncio.to_thread(favorites.toggle, chosen)
    names = ", ".join(favorites.names) or "none"
    return Answer(list(favorites.names), [line(f"Favorite models: {names}.")])


async def use_favorite(session: Session, step: int) -> str:
    """Use the favorite model after (`step` is 1) or before (-1) the one in use; returns its name. One
    that cannot be used is passed over.

    Raises:
        UsageError: there are no favorites, or none can be used.
    """
    favorites = session.model_source.favorites
    if not favorites.names:
        raise UsageError("There are no favorite models.", "`/model favorite` adds the one in use.")
    first_problem = ""
    for name in favorites.after(session.status().model, step):
        try:
            await session.set_model(name)
        except NoModelError as error:
            first_problem = first_problem or error.message
            continue
        return session.status().model
    raise UsageError(f"No favorite model can be used: {first_problem}")


async def _choose_model(context: SessionContext, model_choices: Sequence[llm.ModelChoice]) -> str:
    """Let the user pick a model: the usable ones first, those without a key in a list of their own.
    Returns its name; empty if they cancel.
    """
    usable_first = sorted(model_choices, key=lambda choice: not choice.usable)
    without_key = [choice for choice in usable_first if choice.lacks_key]
    choices = [_model_choice(choice) for choice in usable_first if not choice.lacks_key]
    if without_key:
        names = ", ".join(dict.fromkeys(choice.name.partition("/")[0] for choice in without_key))
        title = f"{plural(len(without_key), 'model')} without a key …"
        choices.append(Choice(WITHOUT_KEY, title, names))
    name = await context.choose("Which model?", choices, context.session.status().model) or ""
    if name != WITHOUT_KEY:
        return name
    return await context.choose("Which model?", [*map(_model_choice, without_key)]) or ""


def _model_choice(choice: llm.ModelChoice) -> Choice:
    detail = "" if choice.usable else choice.reason or "cannot be used"
    return Choice(choice.name, choice.name, detail)


async def think(context: SessionContext, effort: str) -> Answer | None:
    """Set how long the model thinks. None if the user cancels.

    Args:
        effort: one of EFFORTS; `next` for the effort after the present one; empty: the user picks.
    """
    status = context.session.status()
    choices = [Choice(level, level) for level in EFFORTS]
    chosen: str | None = effort
    if effort == "next":
        chosen = next_effort(status.effort)
    elif not effort and status.can_think:
        chosen = await context.choose("How long should the model think?", choices, status.effort)
    elif not effort:
        # The model does not think: `set_model` raises an error with advice for any effort.
        chosen = "high"
    if not chosen:
        return None
    level = next((level for level in EFFORTS if level == chosen), None)
    if level is None:
        raise UsageError(f"There is no effort `{chosen}`. There are: {', '.join(EFFORTS)}.")
    await context.session.set_model(effort=level)
    context.front_end.redraw()
    return Answer(level, [line(f"Thinking: {level}")])


def next_effort(effort: llm.Effort) -> llm.Effort:
    """The level after this one; after the last one, `off`."""
    return EFFORTS[(EFFORTS.index(effort) + 1) % len(EFFORTS)]


async def show(_context: ShellContext, name: str) -> Answer:
    """Show the facts about a model, and what was learned of its server from refusals. The name may be
    a part of that of the model.
    """
    catalog = llm.Catalog.from_files()
    name = catalog.resolve(name)
    spec, learned = catalog.spec(name), catalog.find_learned_facts(name)
    facts = {
        key: getattr(spec, key) for key in ("window", "max_output", "images", "tools", "thinking")
    }
    view: View = [line(f"{name}: window {spec.window:,}, max_output {spec.max_output:,}")]
    view += learned_view(learned)
    return Answer({"name": name, **facts, "learned": learned_data(learned)}, view)


async def reset(_context: ShellContext, name: str) -> Answer:
    """Forget what was learned about a model's server. The answer is the number of forgotten facts."""
    catalog = llm.Catalog.from_files()
    name = catalog.resolve(name)
    forgotten = len(catalog.find_learned_facts(name))
    catalog.forget(name)
    text = f"{name}: {plural(forgotten, 'fact')} forgotten."
    return Answer({"name": name, "forgotten": forgotten}, [line(text)])


_USABLE_HEAD = (
    "Usable, with window, price of a million tokens in and out, and source (* is the default):"
)
_NO_USABLE_MODEL = (
    "No model can be used. Set one up: `ouro models --setup`. Try ouro without one: `ouro demo`."
)


async def models(context: ShellContext, setup: bool) -> Answer:
    """List the usable models and mark the default, then the others with the reason why they are not
    usable. The exit code is that of NoModelError if none is usable. With `setup`, set one up
    instead.
    """
    if setup:
        return await set_up_model(context)
    catalog = llm.Catalog.from_files()
    try:
        default = catalog.resolve(context.folder.settings.model or catalog.default())
    except NoModelError:
        default = ""
    data: list[dict[str, Any]] = []
    usable, unusable = list[tuple[str, ...]](), list[tuple[str, ...]]()
    for choice in catalog.choices():
        spec = catalog.spec(choice.name)
        data.append(_model_data(choice, spec))
        if choice.usable:
            mark = " *" if choice.name == default else "  "
            usable.append((mark, choice.name, _figures(spec), choice.origin))
        else:
            unusable.append(("  ", choice.name, choice.reason))
    view: View = [
        *(line(notice) for notice in catalog.notices),
        line(_USABLE_HEAD if usable else _NO_USABLE_MODEL),
        *table(usable),
        *_section("Not usable:", unusable),
        *_section("No answer on this machine at:", _silent_rows(catalog)),
    ]
    exit_code = 0 if usable else NoModelError.exit_code
    return Answer({"default": default or None, "models": data}, view, exit_code)


def _silent_rows(catalog: llm.Catalog) -> list[tuple[str, ...]]:
    """A row for each server on this machine that does not answer."""
    return [("  ", title, url) for title, url in catalog.silent_servers()]


def _section(title: str, rows: Sequence[tuple[str, ...]]) -> View:
    """A view of rows below a title; empty without rows."""
    return [line(), line(title), *table(rows)] if rows else []


def _model_data(choice: llm.ModelChoice, spec: llm.ModelSpec) -> dict[str, Any]:
    """A model as `--json` prints it."""
    data = {name: getattr(choice, name) for name in ("name", "usable", "reason", "origin")}
    for name in ("window", "max_output", "images", "thinking"):
        data[name] = getattr(spec, name)
    prices = spec.prices
    data["prices"] = None
    if prices:
        data["prices"] = {
            "input": prices.input,
            "output": prices.output,
            "cached": prices.cached,
        }
    return data


def _figures(spec: llm.ModelSpec) -> str:
    """The window of a model and its prices, in columns."""
    prices = spec.prices
    price = f"${prices.input:g}/${prices.output:g}" if prices else "price unknown"
    return f"{spec.window // 1000:>5}k  {price:<13}"


async def update(_context: ShellContext, address: str) -> Answer:
    """Fetch the table of models with their prices, and save it. Nothing else fetches it.

    Args:
        address: where it is; empty for the configured address.
    """
    configured_address = llm.read_models_file(get_models_path()).prices_url
    path, count = await asyncio.to_thread(llm.fetch_table, address or configured_address)
    value = {"path": str(path), "models": count}
    return Answer(value, [line(f"{count:,} models; saved in {tilde(path)}.")])
