"""Questions to the user that set up a model, and write it to models.yaml."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ouro import llm
from ouro.commands.action import Answer
from ouro.commands.model_check import check, check_title, run_check
from ouro.commands.model_keys import ask_key
from ouro.commands.render import as_text, line
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.utils.ouro_paths import tilde
from ouro.utils.text import plural

if TYPE_CHECKING:
    from ouro.commands.shell_context import ShellContext

OTHER_SERVER = "other"
"""The choice of a server by its address."""
SILENT_PREFIX = "silent:"
"""Begins the choice of a local server that does not answer; its title follows."""
_START_COMMANDS = {
    "Ollama": "ollama serve",
    "LM Studio": "lms server start",
    "llama.cpp": "llama-server -m MODEL.gguf --jinja",
    "vLLM": "vllm serve MODEL",
}
_NO_ANSWER_CHOICES = (
    Choice("again", "correct the address"),
    Choice("keep", "use it anyway", "you name the model"),
)
_OTHER_CHOICE = Choice(
    OTHER_SERVER,
    "Another server",
    "anything that speaks OpenAI's chat completions",
    fits_all=True,  # users type its address into the search
)
_AFTER_TEST_CHOICES = (Choice("continue", "continue"),)
_TEST_CHOICES = (
    Choice("start", "start now", "`ouro models test` does it later"),
    Choice("test", "test it", "what works, and what does not"),
)
_WINDOW_HINT = "If that is wrong, write `window:` into models.yaml."


class Asker(Protocol):
    """The questions that the set-up needs from a front end."""

    def say(self, text: str) -> None: ...

    async def choose(self, title: str, choices: Sequence[Choice]) -> str | None:
        """Let the user pick one; returns its value, or None if they cancel."""

    async def ask(self, title: str, *, secret: bool = False, draft: str = "") -> str:
        """Ask for a line of text, which may be empty. A secret is not shown while it is typed; a
        screen begins with `draft`.
        """


async def set_up_model(context: ShellContext) -> Answer:
    """`ouro models --setup`: set up a model, then offer to test it. Returns the result of the test; if
    the user declines it, the name of the model. If they set up none, the exit code is 1.
    """
    if not sys.stdin.isatty():
        problem = "stdin is not a terminal: `ouro models --setup` asks questions."
        raise UsageError(problem, "See models.yaml.example.")
    name = await set_up(context)
    if not name:
        return Answer({"default": None}, [line("Nothing was changed.")], 1)
    test_answer = await check(context, name, yes=False)
    return test_answer or Answer({"default": name}, [line("Start with `ouro`.")])


async def set_up_and_test(asker: Asker) -> str:
    """Set up a model, and offer to test it. Returns its name; empty if the user cancels."""
    name = await set_up(asker)
    if not name:
        return ""
    catalog = llm.Catalog.from_files()
    title = check_title(name, llm.estimate_cost(catalog.spec(name)))
    if await asker.choose(f"Test {title}", _TEST_CHOICES) == "test":
        asker.say("Testing … A model on a CPU takes minutes for its first answer.")
        test_answer = await run_check(catalog, name, effort="medium", say=asker.say)
        # Shown as the title of a question: on a screen a text would disappear with the set-up.
        await asker.choose(as_text(test_answer.view), _AFTER_TEST_CHOICES)
    return name


async def set_up(asker: Asker) -> str:
    """Let the user choose a model, and write it to models.yaml. Returns its name; empty if the user
    cancels.

    Cancelling a question leads back to the list of places; cancelling that ends the set-up.

    Raises:
        ConfigError: models.yaml is broken or cannot be written.
    """
    name = ""
    while not name:
        # Read again for each list: the user may have started a server meanwhile.
        catalog = llm.Catalog.from_files()
        servers = await asyncio.to_thread(catalog.servers)  # that run on this machine
        local_providers = {
            provider.name: provider for provider, server in servers.items() if server.models
        }
        silent_servers = dict(catalog.silent_servers())
        places = [
            *(_local_choice(provider, servers[provider]) for provider in local_providers.values()),
            *map(_hosted_choice, llm.HOSTED),
            *(_silent_choice(title, url) for title, url in silent_servers.items()),
            _OTHER_CHOICE,
        ]
        chosen = await asker.choose("Where is your model?", places)
        if chosen is None:
            return ""
        if chosen == OTHER_SERVER:
            name = await _choose_other_server(asker)
        elif chosen.startswith(SILENT_PREFIX):
            title = chosen.removeprefix(SILENT_PREFIX)
            name = await _choose_silent_server(asker, title, silent_servers[title])
        elif chosen in local_providers:
            provider = local_providers[chosen]
            name = await _choose_model_at(asker, servers[provider], local=provider)
        else:
            name = await _choose_hosted_model(asker, llm.PROVIDERS[chosen])
    return name


async def _choose_silent_server(asker: Asker, title: str, url: str) -> str:
    """Let the user pick a model of a local server that did not answer when it was listed; if it
    still does not, say how to start it, and ask for its address. Returns the model's name; empty if
    the user cancels.
    """
    servers = await asyncio.to_thread(llm.Catalog.from_files().servers)
    for provider, server in servers.items():
        if provider.title == title and server.models:
            return await _choose_model_at(asker, server, local=provider)
    # In the question, so that it is gone with it.
    hint = f"Start {title} first, for example with `{_START_COMMANDS[title]}`."
    return await _choose_other_server(asker, url, hint)


def _local_choice(provider: llm.Provider, server: llm.ServerModels) -> Choice:
    """The choice of a server on this machine that answers; it names how many models it has."""
    detail = f"on this machine, {plural(len(server.models), 'model')}"
    return Choice(provider.name, provider.title, detail)


def _silent_choice(title: str, url: str) -> Choice:
    """The choice of a server on this machine that does not answer."""
    return Choice(f"{SILENT_PREFIX}{title}", title, f"on this machine; nothing answers at {url}")


def _hosted_choice(provider: llm.Provider) -> Choice:
    """The choice of a provider; it names the environment variable with its key if one is set."""
    variable = _variable_with_key(provider)
    detail = f"with the key in {variable}" if variable else "with your own key"
    return Choice(provider.name, provider.title, detail)


async def _choose_hosted_model(asker: Asker, provider: llm.Provider) -> str:
    """Ask for a model of a provider, and for the key if no variable has it. Returns the model's name;
    empty if the user cancels.
    """
    entry = llm.ModelEntry()
    if not _variable_with_key(provider):
        key = await ask_key(asker, f"Your {provider.title} key (it is not shown)")
        if not key:
            return ""
        entry = llm.ModelEntry(api_key=key)
    known_names = [name for name in llm.KNOWN_NAMES if name.startswith(f"{provider.name}/")]
    names = dict.fromkeys([f"{provider.name}/{provider.flagship}", *known_names])
    name = await asker.choose(
        f"Which {provider.title} model?", [Choice(name, name, _price_text(name)) for name in names]
    )
    if not name:
        return ""
    entry_name = f"{provider.name}/*" if entry.api_key else ""  # the key is for all its models
    return _save_model(asker, entry_name, entry, default=name)


async def _choose_other_server(asker: Asker, address: str = "", hint: str = "") -> str:
    """Ask for an address until a server answers there, or the user keeps one that does not; then ask
    for a model. A server that needs a key is asked again with each key until it accepts one.
    Returns the model's name; empty if the user cancels.

    Args:
        address: what the question begins with on a screen.
        hint: what the user should know before, above the question.
    """
    key = ""
    title = "Its address, such as https://models.example.com/v1"
    question = f"{hint}\n{title}" if hint else title
    while True:
        earlier_address = address
        address = (await asker.ask(question, draft=address)).strip()
        if not address:
            return ""
        if address != earlier_address:
            key = ""  # it was typed for another server
        answer = await asyncio.to_thread(llm.list_models_at, address, key)
        while answer.needs_key:
            refused_note = "The server refused this key. " if key else ""
            key = await ask_key(asker, f"{refused_note}The key for {answer.url} (it is not shown)")
            if not key:
                return ""
            answer = await asyncio.to_thread(llm.list_models_at, address, key)
        if not answer.problem:
            return await _choose_model_at(asker, answer, key=key)
        problem = f"{answer.url}: {answer.problem}."
        if await asker.choose(problem, _NO_ANSWER_CHOICES) == "keep":
            return await _choose_model_at(asker, answer, key=key)
        question = f"{problem}\n{title}"


async def _choose_model_at(
    asker: Asker, server: llm.ServerModels, *, key: str = "", local: llm.Provider | None = None
) -> str:
    """Let the user pick a model of a server, or name one if the server lists none. Returns its name;
    empty if they cancel.

    Args:
        key: the key of the server; empty if it needs none.
        local: the provider, if it is one that runs on this machine.
    """
    if server.models:
        choices = []
        for model, window in server.models.items():
            label = model if local else model.partition("/")[2]  # without `openai/`
            choices.append(Choice(model, label, f"{window:,} tokens" if window else ""))
        place = local.title if local else server.url
        name = await asker.choose(f"Which model of {place}?", choices)
    else:
        typed_name = (await asker.ask("The name of the model there")).strip()
        name = f"openai/{typed_name}" if typed_name else None
    if not name:
        return ""
    window = server.models.get(name)
    if local and window is None:
        asker.say(
            f"{local.title} does not report its context window: 32k is assumed. {_WINDOW_HINT}"
        )
    api_base = "" if local else server.url
    entry = llm.ModelEntry(api_base=api_base, api_key=key, window=window)
    return _save_model(asker, name, entry, default=name)


def _save_model(asker: Asker, entry_name: str, entry: llm.ModelEntry, default: str) -> str:
    """Write an entry to models.yaml, and make the model `default` the default; returns its name.

    Args:
        entry_name: a model, or `PROVIDER/*` for all its models; empty to write no entry.
    """
    path = llm.write_models_file(entry_name, entry, default)
    asker.say(f"{default} is your model now; saved in {tilde(path)}, which only you can read.")
    return default


def _variable_with_key(provider: llm.Provider) -> str:
    """The name of the environment variable that has the key of a provider; empty if none is set."""
    return next((name for name in provider.key_variables if os.environ.get(name, "").strip()), "")


def _price_text(name: str) -> str:
    """The price of a model for a list; empty if it is not known."""
    spec = llm.find_known_spec(name)
    if spec is None or spec.prices is None:
        return ""
    return f"${spec.prices.input:g} in, ${spec.prices.output:g} out a million tokens"
