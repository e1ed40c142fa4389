"""`ouro models test`: what works with a model, and what was learned of its server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from ouro import llm
from ouro.commands.action import Answer
from ouro.commands.render import View, line, table
from ouro.display import Choice
from ouro.errors import UsageError

if TYPE_CHECKING:
    from ouro.commands.subcommands import ShellContext

_CHECK_SIGNS = {"works": "ok", "fails": "FAILS", "off": "off"}


async def check(
    context: ShellContext, name: str, yes: bool, seconds: int | None = None
) -> Answer | None:
    """Test the model of a name, or the one that a new session would use.

    With `seconds`, also a server that cannot be reached yet is waited for.
    """
    if seconds is not None and seconds < 1:
        raise UsageError("--seconds must be at least 1.")

    def say(text: str) -> None:
        context.say(text, "warning" if context.as_json else "info")

    catalog = llm.Catalog.from_files(str(context.cwd))
    settings = context.folder.settings
    name = catalog.resolve(name or settings.model or catalog.default())
    cost = llm.estimate_cost(catalog.spec(name))
    asked = check_title(name, cost)
    if not yes and context.can_ask and cost != 0:
        answer = await context.choose(f"{asked} Go on?", [Choice("yes", "yes"), Choice("no", "no")])
        if answer != "yes":
            return None
    else:
        say(asked)
    patience = seconds or settings.llm.retry_seconds
    return await run_check(catalog, name, settings.effort, say, seconds, patience)


def check_title(name: str, cost: float | None) -> str:
    """The question before a test: how many requests, and their price."""
    price = "its price is not known" if cost is None else f"about ${cost:.2f} at most"
    return f"{name}: up to {llm.MAX_CHECK_REQUESTS} small requests, {price}."


async def run_check(
    catalog: llm.Catalog,
    name: str,
    effort: llm.Effort,
    say: Callable[[str], None],
    seconds: int | None = None,
    patience: int = 0,
) -> Answer:
    """Test a model and close it. The exit code is 1 if it cannot be used."""
    seconds = seconds or llm.CHECK_SECONDS
    model = catalog.make(name, effort, patience=seconds)
    try:
        checked = await llm.check_model(model, say, seconds=seconds, patience=patience)
        spec = model.spec  # with what the server says about itself
    finally:
        await model.close()
    learned = catalog.find_learned_facts(name)
    data = {
        **msgspec.to_builtins(checked),
        "window": spec.window,
        "max_output": spec.max_output,
        "learned": learned_data(learned),
    }
    view = _check_view(checked, spec, learned)
    return Answer(data, view, int(not checked.is_usable))


def _check_view(
    checked: llm.CheckedModel, spec: llm.ModelSpec, learned: Mapping[str, llm.Fact]
) -> View:
    """Each check with its result, what was learned, and what the test cost."""
    view: View = table(
        ("  ", check.name, _CHECK_SIGNS[check.state], check.detail) for check in checked.checks
    )
    view += [line(f"Note: {notice}") for notice in checked.notices]
    view += learned_view(learned)
    used = checked.usage
    cost = "" if used.cost is None else f", ${used.cost:.4f}"
    view.append(
        line(
            f"{checked.requests} requests: {used.input:,} tokens in, {used.output:,} out{cost}."
            f" Window: {spec.window:,} tokens; an answer: {spec.max_output:,}."
        )
    )
    return view


def learned_view(learned: Mapping[str, llm.Fact]) -> View:
    """What was learned of a model's server, each with the refusal that taught it."""
    if not learned:
        return [line("Nothing was learned from refusals.")]
    view: View = [line("Learned from refusals (`ouro models reset` forgets it):")]
    for key, fact in learned.items():
        view.append(line(f"  {fact.date}  {llm.describe_fact(key, fact)}"))
        view.append(line(f"              because: {fact.refusal}"))
    return view


def learned_data(learned: Mapping[str, llm.Fact]) -> list[dict[str, str]]:
    """What was learned of a model's server, for `--json`."""
    return [
        {"fact": key, "value": fact.value, "date": fact.date, "refusal": fact.refusal}
        for key, fact in learned.items()
    ]
