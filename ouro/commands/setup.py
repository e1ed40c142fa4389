"""Set up a model, step by step, for any front end that can ask."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Protocol

from ouro.display import Choice
from ouro.llm import HOSTED, KNOWN, PROVIDERS, Catalog, LocalServer, ModelEntry, Provider, models_at, write_models_file
from ouro.utils.runtime import tilde
from ouro.utils.text import plural

OTHER = "other"


class Asker(Protocol):
    """The questions that the set-up needs from a front end."""

    def say(self, text: str) -> None:
        """Show one line."""
        ...

    async def choose(self, title: str, choices: Sequence[Choice]) -> str | None:
        """Let the user pick one; None if they cancel."""
        ...

    async def ask(self, title: str, *, secret: bool = False) -> str:
        """A line of text; may be empty. A secret is not shown while it is typed."""
        ...


async def set_up(asker: Asker) -> str:
    """Let the user choose a model and write it to models.yaml; returns its name, empty if they cancel.

    Raises:
        ConfigError: models.yaml is broken or cannot be written.
    """
    catalog = Catalog.from_files()
    servers = await asyncio.to_thread(catalog.servers)
    chosen = await asker.choose("Where is your model?", places(servers))
    if chosen is None:
        return ""
    if chosen == OTHER:
        return await _other_server(asker)
    local = next((server for server in servers if server.provider.name == chosen), None)
    return await (_local_model(asker, local) if local else _hosted_model(asker, PROVIDERS[chosen]))


def places(servers: Sequence[LocalServer]) -> tuple[Choice, ...]:
    """The sources of models: local servers that answer, providers, any other server."""
    found = [
        Choice(server.provider.name, server.provider.title, f"on this machine, {plural(len(server.models), 'model')}")
        for server in servers
        if server.models
    ]
    hosted = [Choice(provider.name, provider.title, _key_detail(provider)) for provider in HOSTED]
    return (*found, *hosted, Choice(OTHER, "Another server", "anything that speaks OpenAI's chat completions"))


async def _hosted_model(asker: Asker, provider: Provider) -> str:
    entry = ModelEntry()
    if not _held_variable(provider):
        key = await _ask_key(asker, f"Your {provider.title} key (it is not shown)")
        if not key:
            return ""
        entry = ModelEntry(api_key=key)
    names = list(dict.fromkeys([f"{provider.name}/{provider.flagship}", *_known_of(provider)]))
    name = await asker.choose(
        f"Which {provider.title} model?", [Choice(model, model, _price(model)) for model in names]
    )
    return _written(asker, f"{provider.name}/*" if entry.api_key else "", entry, name) if name else ""


async def _local_model(asker: Asker, server: LocalServer) -> str:
    choices = [Choice(model.name, model.name, _window(model.window)) for model in server.models]
    name = await asker.choose(f"Which model of {server.provider.title}?", choices)
    if not name:
        return ""
    window = next((model.window for model in server.models if model.name == name), None)
    if window is None:
        asker.say(
            f"{server.provider.title} does not tell how much fits: say `window:` in models.yaml where it is not 32k."
        )
    return _written(asker, name, ModelEntry(window=window), name)


async def _other_server(asker: Asker) -> str:
    url = (await asker.ask("Its address, such as https://models.example.com/v1")).strip()
    if not url.startswith(("http://", "https://")):
        if url:
            asker.say("That is no address: it begins with http:// or https://.")
        return ""
    url = url.rstrip("/")
    key = await _ask_key(asker, "Its key, or nothing where it needs none (it is not shown)")
    offered = await asyncio.to_thread(models_at, url, key)
    if offered:
        choices = [Choice(model.name, model.name.partition("/")[2], _window(model.window)) for model in offered]
        name = await asker.choose("Which model?", choices)
    else:
        asker.say(f"{url} does not tell which models it has.")
        named = (await asker.ask("The name of the model there")).strip()
        name = f"openai/{named}" if named else None
    if not name:
        return ""
    window = next((model.window for model in offered if model.name == name), None)
    return _written(asker, name, ModelEntry(api_base=url, api_key=key, window=window), name)


async def _ask_key(asker: Asker, title: str) -> str:
    return "".join((await asker.ask(title, secret=True)).split())  # a pasted key may contain newlines


def _written(asker: Asker, entry_name: str, entry: ModelEntry, default: str) -> str:
    path = write_models_file(entry_name, entry, default)
    asker.say(f"{default} is your model now; written to {tilde(path)}, which only you can read.")
    return default


def _held_variable(provider: Provider) -> str:
    return next((name for name in provider.key_variables if os.environ.get(name, "").strip()), "")


def _key_detail(provider: Provider) -> str:
    held = _held_variable(provider)
    return f"with the key in {held}" if held else "with a key of yours"


def _known_of(provider: Provider) -> list[str]:
    return [spec.name for spec in KNOWN.values() if spec.name.startswith(f"{provider.name}/")]


def _price(name: str) -> str:
    spec = KNOWN.get(name.lower())
    return f"${spec.prices.input:g} in, ${spec.prices.output:g} out a million tokens" if spec and spec.prices else ""


def _window(size: int | None) -> str:
    return f"{size:,} tokens" if size else ""
