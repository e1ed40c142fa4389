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
from ouro.utils.text import plural

if TYPE_CHECKING:
    from ouro.commands.shell_context import ShellContext

_CHECK_SIGNS = {"works": "ok", "fails": "FAILS", "off": "off"}


async def check(
    context: ShellContext, name: str, yes: bool, seconds: int | None = None
) -> Answer | None:
    """Test the named model; without a name, the one that a new session would use. The user is asked
    first if it may cost something. None if they decline.

    Args:
        seconds: how long a check may take, and how long a server that cannot be reached yet is
            waited for; None for the defaults.
    """
    if seconds is not None and seconds < 1:
        raise UsageError("--seconds must be at least 1.")

    def say(text: str) -> None:
        # With --json only the result may be on standard output.
        context.say(text, "warning" if context.as_json else "info")

    catalog = llm.Catalog.from_files(str(context.cwd))
    settings = context.folder.settings
    name = catalog.resolve(name or settings.model or catalog.default())
    cost = llm.estimate_cost(catalog.spec(name))
    title = check_title(name, cost)
    if not yes and context.can_ask and cost != 0:
        answer = await context.choose(f"{title} Go on?", [Choice("yes", "yes"), Choice("no", "no")])
        if answer != "yes":
            return None
    else:
        say(title)
    patience = seconds or settings.llm.retry_seconds
    return await run_check(catalog, name, settings.effort, say, seconds, patience)


def check_title(name: str, cost: float | None) -> str:
    """A sentence about a test: how many requests it makes, and their price; None is not known."""
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
    """Test a model and close it. The exit code is 1 if it cannot be used.

    Args:
        seconds: the time limit of a check; None for the default.
        patience: seconds to wait for a server that cannot be reached yet; 0 to fail at once.
    """
    seconds = seconds or llm.CHECK_SECONDS
    # The HTTP client waits for the begin of an answer as long as the check does.
    model = catalog.make(name, effort, patience=seconds)
    try:
        result = await llm.check_model(model, say, seconds=seconds, patience=patience)
        spec = model.spec  # with what the server says about itself
    finally:
        await model.close()
    learned = catalog.find_learned_facts(name)
    data = {
        **msgspec.to_builtins(result),
        "window": spec.window,
        "max_output": spec.max_output,
        "learned": learned_data(learned),
    }
    view = _check_view(result, spec, learned)
    return Answer(data, view, int(not result.is_usable))


def _check_view(
    result: llm.CheckedModel, spec: llm.ModelSpec, learned: Mapping[str, llm.Fact]
) -> View:
    """A view of the checks with their results, what was learned, and what the test cost."""
    view: View = table(
        ("  ", check.name, _CHECK_SIGNS[check.state], check.detail) for check in result.checks
    )
    view += [line(f"Note: {notice}") for notice in result.notices]
    if learned:
        view += learned_view(learned)
    usage = result.usage
    cost = "" if usage.cost is None else f", ${usage.cost:.4f}"
    view.append(
        line(
            f"{plural(result.requests, 'request')}: {usage.input:,} tokens in, {usage.output:,} out{cost}."
            f" Window: {spec.window:,} tokens; an answer: {spec.max_output:,}."
        )
    )
    return view


def learned_view(learned: Mapping[str, llm.Fact]) -> View:
    """A view of the learned facts about a model's server, each with the refusal that it is from."""
    if not learned:
        return [line("Nothing was learned from refusals.")]
    view: View = [line("Learned from refusals (`ouro models reset` forgets it):")]
    for key, fact in learned.items():
        view.append(line(f"  {fact.date}  {llm.describe_fact(key, fact)}"))
        view.append(line(f"              because: {fact.refusal}"))
    return view


def learned_data(learned: Mapping[str, llm.Fact]) -> list[dict[str, str]]:
    """The learned facts about a model's server as `--json` prints them."""
    return [
        {"fact": key, "value": fact.value, "date": fact.date, "refusal": fact.refusal}
        for key, fact in learned.items()
    ]
