"""Models: list them, with the reason if one is not usable; use another one, set its effort, or set
one up.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, get_args

import msgspec
from msgspec.structs import replace

from ouro import llm
from ouro.commands.action import Answer
from ouro.commands.render import View, as_text, line, table
from ouro.display import Choice
from ouro.errors import ConfigError, NoModelError, UsageError
from ouro.utils.runtime import get_models_path, tilde
from ouro.utils.text import plural

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext
    from ouro.commands.subcommands import ShellContext
    from ouro.session import Session

EFFORTS: tuple[llm.Effort, ...] = get_args(llm.Effort)
_CHECK_SIGNS = {"works": "ok", "fails": "FAILS", "off": "off"}
OTHER = "other"
_STEPS = {"next": 1, "previous": -1}
"""`/model next`: how far to go in the list of favorites."""
WITHOUT_KEY = "without-key"
SILENT = "silent:"
"""Before the title of a local server that does not answer."""
_START_WITH = {
    "Ollama": "ollama serve",
    "LM Studio": "lms server start",
    "llama.cpp": "llama-server -m MODEL.gguf --jinja",
    "vLLM": "vllm serve MODEL",
}
_UNANSWERED = (
    Choice("again", "correct the address"),
    Choice("keep", "use it anyway", "you name the model"),
)
_AFTER_TEST = (Choice("continue", "continue"),)
_TEST_CHOICES = (
    Choice("start", "start now", "`ouro models test` does it later"),
    Choice("test", "test it", "what works, and what does not"),
)
_WINDOW_HINT = "If that is wrong, write `window:` into models.yaml."


async def model(context: SessionContext, name: str) -> Answer | None:
    session = context.session
    if name in _STEPS:
        name = await use_favorite(session, _STEPS[name])
        context.front_end.redraw()
        return Answer(name, [line(f"Model: {name}")])
    word, _, other = name.partition(" ")
    if word == "favorite":
        return await change_favorite(context, other.strip())
    if not name:
        name = await _choose_model(context, await session.models())
    if not name:
        return None
    await session.set_model(name)
    context.front_end.redraw()
    model = session.status().model
    return Answer(model, [line(f"Model: {model}")])


async def change_favorite(context: SessionContext, name: str = "") -> Answer:
    """Make a model a favorite, or no longer one; without a name the one in use. Raises NoModelError."""
    session = context.session
    favorites = session.model_source.favorites
    used = session.status().model
    chosen = session.model_source.named(name)[0].spec.name if name else used
    await asyncio.to_thread(favorites.toggle, chosen)
    listed = ", ".join(favorites.names) or "none"
    return Answer(list(favorites.names), [line(f"Favorite models: {listed}.")])


async def use_favorite(session: Session, step: int) -> str:
    """Use the favorite model after or before the one in use; returns its name. One that cannot be
    used is passed over.

    Raises:
        UsageError: there are none, or none can be used.
    """
    favorites, problem = session.model_source.favorites, ""
    if not favorites.names:
        raise UsageError("There are no favorite models.", "`/model favorite` adds the one in use.")
    for name in favorites.after(session.status().model, step):
        try:
            await session.set_model(name)
        except NoModelError as error:
            problem = problem or error.message
            continue
        return session.status().model
    raise UsageError(f"No favorite model can be used: {problem}")


async def _choose_model(context: SessionContext, found: Sequence[llm.ModelChoice]) -> str:
    """The name that the user picks: usable models first, those without a key behind one line."""
    shown = sorted(found, key=lambda choice: not choice.usable)
    without_key = [choice for choice in shown if choice.lacks_key]
    choices = [_model_choice(choice) for choice in shown if not choice.lacks_key]
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
    status = context.session.status()
    choices = [Choice(level, level) for level in EFFORTS]
    if effort == "next":
        effort = next_effort(status.effort)
    chosen = effort or "high"  # raises an error with advice if the model does not think
    if not effort and status.can_think:
        chosen = (
            await context.choose("How long should the model think?", choices, status.effort) or ""
        )
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
    """The facts about a model, and what was learned of its server, with the day and the refusal."""
    catalog = llm.Catalog.from_files()
    name = catalog.resolve(name)
    spec, learned = catalog.spec(name), catalog.learned(name)
    facts = {
        key: getattr(spec, key) for key in ("window", "max_output", "images", "tools", "thinking")
    }
    view: View = [line(f"{name}: window {spec.window:,}, max_output {spec.max_output:,}")]
    view += _learned_view(learned)
    return Answer({"name": name, **facts, "learned": _learned_data(learned)}, view)


def _learned_view(learned: Mapping[str, llm.Fact]) -> View:
    if not learned:
        return [line("Nothing was learned from refusals.")]
    view: View = [line("Learned from refusals (`ouro models reset` forgets it):")]
    for key, fact in learned.items():
        view.append(line(f"  {fact.date}  {llm.describe_fact(key, fact)}"))
        view.append(line(f"              because: {fact.refusal}"))
    return view


def _learned_data(learned: Mapping[str, llm.Fact]) -> list[dict[str, str]]:
    return [
        {"fact": key, "value": fact.value, "date": fact.date, "refusal": fact.refusal}
        for key, fact in learned.items()
    ]


async def reset(_context: ShellContext, name: str) -> Answer:
    catalog = llm.Catalog.from_files()
    name = catalog.resolve(name)
    forgotten = len(catalog.learned(name))
    catalog.forget(name)
    text = f"{name}: {plural(forgotten, 'fact')} forgotten."
    return Answer({"name": name, "forgotten": forgotten}, [line(text)])


_USABLE = (
    "Usable, with window, price of a million tokens in and out, and source (* is the default):"
)
_NONE_USABLE = (
    "No model can be used. Set one up: `ouro models --setup`. Try ouro without one: `ouro demo`."
)


async def models(context: ShellContext, setup: bool) -> Answer:
    if setup:
        return await _set_up_model(context)
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
        line(_USABLE if usable else _NONE_USABLE),
        *table(usable),
        *_section("Not usable:", unusable),
        *_section("No answer on this machine at:", _silent_rows(catalog)),
    ]
    exit_code = 0 if usable else NoModelError.exit_code
    return Answer({"default": default or None, "models": data}, view, exit_code)


def _silent_rows(catalog: llm.Catalog) -> list[tuple[str, ...]]:
    return [("  ", title, url) for title, url in catalog.silent_servers()]


def _section(title: str, rows: Sequence[tuple[str, ...]]) -> View:
    """Rows below a title; nothing without rows."""
    return [line(), line(title), *table(rows)] if rows else []


async def _set_up_model(context: ShellContext) -> Answer:
    if not sys.stdin.isatty():
        problem = "stdin is not a terminal: `ouro models --setup` asks questions."
        raise UsageError(problem, "See models.yaml.example.")
    name = await set_up(context)
    if name and (tested := await check(context, name, yes=False)):
        return tested
    result = line("Start with `ouro`." if name else "Nothing was changed.")
    return Answer({"default": name or None}, [result], int(not name))


def _model_data(choice: llm.ModelChoice, spec: llm.ModelSpec) -> dict[str, Any]:
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
    prices = spec.prices
    price = f"${prices.input:g}/${prices.output:g}" if prices else "price unknown"
    return f"{spec.window // 1000:>5}k  {price:<13}"


async def login(context: ShellContext, name: str) -> Answer | None:
    """Store the key of a provider, or of a model with its own server, in the system's keyring."""
    entry_name, title = _key_place(name)
    if sys.stdin.isatty():
        key = await _ask_key(context, f"Your {title} key (it is not shown)")
    else:
        key = "".join(sys.stdin.readline().split())
    if not key:
        return None
    account = entry_name.removesuffix("/*")
    ring = await asyncio.to_thread(llm.store_key, account, key)
    try:
        path = _write_account(entry_name, account)
    except ConfigError as error:
        hint = f"The key is stored: add `api_key_keyring: {account}` to `{entry_name}` there."
        raise ConfigError(error.message, hint) from error
    text = f"The {title} key is in the keyring ({ring}); {tilde(path)} names it."
    return Answer({"account": account, "keyring": ring}, [line(text)])


async def logout(_context: ShellContext, name: str) -> Answer:
    """Delete a key from the system's keyring."""
    entry_name, title = _key_place(name)
    account = entry_name.removesuffix("/*")
    had = await asyncio.to_thread(llm.delete_key, account)
    if (
        llm.read_models_file(get_models_path())
        .models.get(entry_name, llm.ModelEntry())
        .api_key_keyring
    ):
        _write_account(entry_name, "")
    text = f"The {title} key is deleted." if had else f"The keyring has no {title} key."
    return Answer({"account": account, "deleted": had}, [line(text)], int(not had))


def _key_place(name: str) -> tuple[str, str]:
    """The entry of models.yaml that has the key, and its title: `openai` -> `openai/*`, OpenAI."""
    if provider := llm.PROVIDERS.get(name.removesuffix("/*").lower()):
        return f"{provider.name}/*", provider.title
    catalog = llm.Catalog.from_files()
    full = catalog.resolve(name)
    provider = llm.PROVIDERS.get(full.partition("/")[0])
    entry = llm.read_models_file(get_models_path()).models.get(full)
    if provider is None or (entry and entry.api_base):
        return full, full
    return f"{provider.name}/*", provider.title


def _write_account(entry_name: str, account: str) -> Path:
    """Write which account of the keyring has the key of an entry; it replaces every other way."""
    found = llm.read_models_file(get_models_path()).models.get(entry_name, llm.ModelEntry())
    ways = {**dict.fromkeys(llm.KEY_WAYS, ""), "api_key_keyring": account}
    return llm.write_models_file(entry_name, replace(found, **ways))


async def update(_context: ShellContext, address: str) -> Answer:
    """Fetch the table of models; only this command does."""
    from_file = llm.read_models_file(get_models_path()).prices_url
    path, count = await asyncio.to_thread(llm.fetch_table, address or from_file)
    value = {"path": str(path), "models": count}
    return Answer(value, [line(f"{count:,} models; saved in {tilde(path)}.")])


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
    asked = _check_title(name, cost)
    if not yes and context.can_ask and cost != 0:
        answer = await context.choose(f"{asked} Go on?", [Choice("yes", "yes"), Choice("no", "no")])
        if answer != "yes":
            return None
    else:
        say(asked)
    patience = seconds or settings.llm.retry_seconds
    return await _run_check(catalog, name, settings.effort, say, seconds, patience)


def _check_title(name: str, cost: float | None) -> str:
    price = "its price is not known" if cost is None else f"about ${cost:.2f} at most"
    return f"{name}: up to {llm.MAX_CHECK_REQUESTS} small requests, {price}."


async def _run_check(
    catalog: llm.Catalog,
    name: str,
    effort: llm.Effort,
    say: Callable[[str], None],
    seconds: int | None = None,
    patience: int = 0,
) -> Answer:
    seconds = seconds or llm.CHECK_SECONDS
    model = catalog.make(name, effort, patience=seconds)
    try:
        checked = await llm.check_model(model, say, seconds=seconds, patience=patience)
        spec = model.spec  # with what the server says about itself
    finally:
        await model.close()
    learned = catalog.learned(name)
    data = {
        **msgspec.to_builtins(checked),
        "window": spec.window,
        "max_output": spec.max_output,
        "learned": _learned_data(learned),
    }
    view = _checked_view(checked, spec, learned)
    return Answer(data, view, int(not checked.is_usable))


def _checked_view(
    checked: llm.CheckedModel, spec: llm.ModelSpec, learned: Mapping[str, llm.Fact]
) -> View:
    view: View = table(
        ("  ", check.name, _CHECK_SIGNS[check.state], check.detail) for check in checked.checks
    )
    view += [line(f"Note: {notice}") for notice in checked.notices]
    view += _learned_view(learned)
    used = checked.usage
    cost = "" if used.cost is None else f", ${used.cost:.4f}"
    view.append(
        line(
            f"{checked.requests} requests: {used.input:,} tokens in, {used.output:,} out{cost}."
            f" Window: {spec.window:,} tokens; an answer: {spec.max_output:,}."
        )
    )
    return view


class Asker(Protocol):
    """The questions that the set-up needs from a front end."""

    def say(self, text: str) -> None: ...

    async def choose(self, title: str, choices: Sequence[Choice]) -> str | None:
        """Let the user pick one; None if they cancel."""

    async def ask(self, title: str, *, secret: bool = False, draft: str = "") -> str:
        """Ask for a line of text; may be empty. A secret is not shown while typed; a screen starts
        with `draft`.
        """


async def set_up_and_test(asker: Asker) -> str:
    """Set up a model as `set_up`, and offer to test it."""
    name = await set_up(asker)
    if not name:
        return ""
    catalog = llm.Catalog.from_files()
    title = _check_title(name, llm.estimate_cost(catalog.spec(name)))
    if await asker.choose(f"Test {title}", _TEST_CHOICES) == "test":
        asker.say("Testing …")
        tested = await _run_check(catalog, name, "medium", asker.say)
        # A question: on a screen that is set up, a text would be gone with the set-up.
        await asker.choose(as_text(tested.view), _AFTER_TEST)
    return name


def _hosted_choice(provider: llm.Provider) -> Choice:
    variable = _variable_with_key(provider)
    detail = f"with the key in {variable}" if variable else "with your own key"
    return Choice(provider.name, provider.title, detail)


async def set_up(asker: Asker) -> str:
    """Let the user choose a model and write it to models.yaml; returns its name, empty if they
    cancel.

    Declining a question leads back to the list of places; declining that cancels.

    Raises:
        ConfigError: models.yaml is broken or cannot be written.
    """
    catalog = llm.Catalog.from_files()
    servers = await asyncio.to_thread(catalog.servers)
    local = {provider.name: provider for provider, server in servers.items() if server.models}
    places = []
    for name, provider in local.items():
        detail = f"on this machine, {plural(len(servers[provider].models), 'model')}"
        places.append(Choice(name, provider.title, detail))
    places += map(_hosted_choice, llm.HOSTED)
    silent = dict(catalog.silent_servers())
    for title, url in silent.items():
        nothing = f"on this machine; nothing answers at {url}"
        places.append(Choice(f"{SILENT}{title}", title, nothing))
    places.append(Choice(OTHER, "Another server", "anything that speaks OpenAI's chat completions"))
    while (chosen := await asker.choose("Where is your model?", places)) is not None:
        if chosen == OTHER:
            name = await _other_server(asker)
        elif chosen.startswith(SILENT):
            title = chosen.removeprefix(SILENT)
            asker.say(f"Start {title} first, for example with `{_START_WITH[title]}`.")
            name = await _other_server(asker, silent[title])
        elif chosen in local:
            name = await _model_at(asker, servers[local[chosen]], local=local[chosen])
        else:
            name = await _hosted_model(asker, llm.PROVIDERS[chosen])
        if name:
            return name
    return ""


async def _hosted_model(asker: Asker, provider: llm.Provider) -> str:
    entry = llm.ModelEntry()
    if not _variable_with_key(provider):
        key = await _ask_key(asker, f"Your {provider.title} key (it is not shown)")
        if not key:
            return ""
        entry = llm.ModelEntry(api_key=key)
    known = [name for name in llm.KNOWN_NAMES if name.startswith(f"{provider.name}/")]
    names = dict.fromkeys([f"{provider.name}/{provider.flagship}", *known])
    name = await asker.choose(
        f"Which {provider.title} model?", [Choice(name, name, _price_text(name)) for name in names]
    )
    return (
        _save_model(asker, f"{provider.name}/*" if entry.api_key else "", entry, name)
        if name
        else ""
    )


async def _other_server(asker: Asker, address: str = "") -> str:
    """Ask for an address until a server answers there, or the user keeps one that does not."""
    problem = key = ""
    title = "Its address, such as https://models.example.com/v1"
    while address := (await asker.ask(f"{problem}{title}", draft=address)).strip():
        answer = await asyncio.to_thread(llm.list_models_at, address, key)
        while answer.needs_key:
            refused = "The server refused this key. " if key else ""
            key = await _ask_key(asker, f"{refused}The key for {answer.url} (it is not shown)")
            if not key:
                return ""
            answer = await asyncio.to_thread(llm.list_models_at, address, key)
        if (
            not answer.problem
            or await asker.choose(f"{answer.url}: {answer.problem}.", _UNANSWERED) == "keep"
        ):
            return await _model_at(asker, answer, key=key)
        problem = f"{answer.url}: {answer.problem}.\n"
    return ""


async def _model_at(
    asker: Asker, server: llm.ServerModels, *, key: str = "", local: llm.Provider | None = None
) -> str:
    if server.models:
        choices = [
            Choice(
                name,
                name if local else name.partition("/")[2],
                f"{window:,} tokens" if window else "",
            )
            for name, window in server.models.items()
        ]
        name = await asker.choose(
            f"Which model of {local.title if local else server.url}?", choices
        )
    else:
        named = (await asker.ask("The name of the model there")).strip()
        name = f"openai/{named}" if named else None
    if not name:
        return ""
    window = server.models.get(name)
    if local and window is None:
        asker.say(
            f"{local.title} does not report its context window: 32k is assumed. {_WINDOW_HINT}"
        )
    return _save_model(
        asker,
        name,
        llm.ModelEntry(api_base="" if local else server.url, api_key=key, window=window),
        name,
    )


async def _ask_key(asker: Asker, title: str) -> str:
    # A pasted key may contain newlines.
    return "".join((await asker.ask(title, secret=True)).split())


def _save_model(asker: Asker, entry_name: str, entry: llm.ModelEntry, default: str) -> str:
    path = llm.write_models_file(entry_name, entry, default)
    asker.say(f"{default} is your model now; saved in {tilde(path)}, which only you can read.")
    return default


def _variable_with_key(provider: llm.Provider) -> str:
    return next((name for name in provider.key_variables if os.environ.get(name, "").strip()), "")


def _price_text(name: str) -> str:
    spec = llm.find_known_spec(name)
    return (
        f"${spec.prices.input:g} in, ${spec.prices.output:g} out a million tokens"
        if spec and spec.prices
        else ""
    )
