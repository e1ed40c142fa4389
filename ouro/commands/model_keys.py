"""Keys of providers in the keyring of the system: store one, delete one, ask for one."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ouro import llm
from ouro.commands.action import Answer
from ouro.commands.render import line
from ouro.errors import ConfigError
from ouro.utils.ouro_paths import get_models_path, tilde

if TYPE_CHECKING:
    from ouro.commands.model_setup import Asker
    from ouro.commands.shell_context import ShellContext


async def login(context: ShellContext, name: str) -> Answer | None:
    """Store the key of a provider, or of a model with its own server, in the keyring of the system, and
    name the place in models.yaml. The key is asked for, or read from standard input. None if it is
    empty, because the user cancels. Raises ConfigError if models.yaml cannot be written.
    """
    entry_name, title = _find_key_entry(name)
    if sys.stdin.isatty():
        key = await ask_key(context, f"Your {title} key (it is not shown)")
    else:
        key = _without_spaces(sys.stdin.readline())
    if not key:
        return None
    account = entry_name.removesuffix("/*")
    keyring = await asyncio.to_thread(llm.store_key, account, key)
    try:
        path = _write_account(entry_name, account)
    except ConfigError as error:
        hint = f"The key is stored: add `api_key_keyring: {account}` to `{entry_name}` there."
        raise ConfigError(error.message, hint) from error
    text = f"The {title} key is in the keyring ({keyring}); {tilde(path)} names it."
    return Answer({"account": account, "keyring": keyring}, [line(text)])


async def logout(_context: ShellContext, name: str) -> Answer:
    """Delete a key from the keyring of the system; models.yaml then does not name the keyring any
    more. The exit code is 1 if the keyring had no such key.
    """
    entry_name, title = _find_key_entry(name)
    account = entry_name.removesuffix("/*")
    was_deleted = await asyncio.to_thread(llm.delete_key, account)
    entry = llm.read_models_file(get_models_path()).models.get(entry_name)
    if entry is not None and entry.api_key_keyring:
        _write_account(entry_name, account="")
    text = f"The {title} key is deleted." if was_deleted else f"The keyring has no {title} key."
    return Answer({"account": account, "deleted": was_deleted}, [line(text)], int(not was_deleted))


def _find_key_entry(name: str) -> tuple[str, str]:
    """The name of the entry in models.yaml that has the key, and a title for it. For a provider, or a
    model of one, the entry is for all its models: `openai` -> `openai/*`, OpenAI. For a model with a
    server of its own it is that of the model.
    """
    provider = llm.PROVIDERS.get(name.removesuffix("/*").lower())
    if provider is None:
        model_name = llm.Catalog.from_files().resolve(name)
        provider = llm.PROVIDERS.get(model_name.partition("/")[0])
        entry = llm.read_models_file(get_models_path()).models.get(model_name)
        has_own_server = entry is not None and bool(entry.api_base)
        if provider is None or has_own_server:
            return model_name, model_name
    return f"{provider.name}/*", provider.title


def _write_account(entry_name: str, account: str) -> Path:
    """Write into models.yaml which account of the keyring has the key of an entry (empty: none), and
    remove every other field for a key. Returns the path of the file.
    """
    entry = llm.read_models_file(get_models_path()).models.get(entry_name, llm.ModelEntry())
    key_fields = {**dict.fromkeys(llm.KEY_FIELDS, ""), "api_key_keyring": account}
    return llm.write_models_file(entry_name, replace(entry, **key_fields))


async def ask_key(asker: Asker, title: str) -> str:
    """Ask for a key, which is not shown; returns an empty text if the user cancels."""
    return _without_spaces(await asker.ask(title, secret=True))


def _without_spaces(key: str) -> str:
    """The key without the spaces and line breaks that come in when it is pasted."""
    return "".join(key.split())
