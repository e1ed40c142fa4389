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
from ouro.display import Choice
from ouro.errors import ConfigError, UsageError
from ouro.utils.late_pattern import late_pattern
from ouro.utils.ouro_paths import get_models_path, tilde

if TYPE_CHECKING:
    from ouro.commands.model_setup import Asker
    from ouro.commands.shell_context import ShellContext

_MIN_KEY = 8
"""Characters of the shortest key of any provider; a shorter text is a typing error."""
_ASSIGNMENT = late_pattern(
    r"(?:export\s+|\$env:)?[A-Z]+_[A-Z0-9_]*\s*=\s*([\"']?)(?P<key>[^\"'=].*)\1;?"
)
"""A line that sets a variable: `export ANTHROPIC_API_KEY="…"`. Its value is the key."""
_ADDRESS = late_pattern(r"\w+://.*|localhost\b.*|[\w-]+(\.[\w-]+)*:\d{1,5}(/.*)?")
"""`http://127.0.0.1:8080/v1`, `localhost`, `server:8080`; not a key with a colon before letters."""
_MAIL = late_pattern(r"[^@\s]+@[^@\s]+\.[a-z]+")
_DOUBT_CHOICES = (
    Choice("again", "type it again"),
    Choice("keep", "use it anyway"),
)


async def login(context: ShellContext, name: str) -> Answer | None:
    """Store the key of a provider, or of a model with its own server, in the keyring of the system, and
    name the place in models.yaml. The key is asked for, or read from standard input. None if it is
    empty, because the user cancels. Raises ConfigError if models.yaml cannot be written.
    """
    entry_name, title = _find_key_entry(name)
    if sys.stdin.isatty():
        key = await ask_key(context, f"Your {title} key (it is not shown)")
    else:
        key = read_key(sys.stdin.readline())
        if doubt := doubt_about_key(key):
            raise UsageError(doubt.replace("\n", " "), "Nothing was stored.")
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
    """Ask for a key, which is not shown; returns an empty text if the user cancels. A text that is
    hardly a key is asked about, because no list shows it later.
    """
    while True:
        key = read_key(await asker.ask(title, secret=True))
        doubt = doubt_about_key(key) if key else ""
        if not doubt:
            return key
        answer = await asker.choose(doubt, _DOUBT_CHOICES)
        if answer is None:
            return ""
        if answer == "keep":
            return key


def read_key(text: str) -> str:
    """The key in a text that was typed or pasted: without the spaces and line breaks that come in
    when it is pasted, without `Bearer`, and without the variable of a shell line.
    """
    text = text.strip().removeprefix("Bearer ")
    assignment = _ASSIGNMENT.fullmatch(text)
    return "".join((assignment["key"] if assignment else text).split())


def doubt_about_key(key: str) -> str:
    """Why a text is hardly a key, and what to do instead; empty if it may be one. The text itself
    is not in it: it may be a key nevertheless.
    """
    if _ADDRESS.fullmatch(key):
        return (
            "This is an address, not a key.\nFor a server of your own, close this and choose"
            " “Another server”: it asks for the address first."
        )
    if key in _names_of_models():
        return "This is the name of a model, not a key.\nThe model is asked for after the key."
    if _MAIL.fullmatch(key):
        return "This is a mail address, not a key.\nThe provider's website creates keys."
    if _is_file(key):
        return "This is a file, not a key.\nPaste the text in it."
    if not (key.isascii() and key.isprintable()):
        return "This has characters that no key has, such as letters with accents."
    if len(key) < _MIN_KEY:
        return f"This is too short for a key: {len(key)} characters."
    return ""


def _names_of_models() -> frozenset[str]:
    """The names of all known models, with and without their providers."""
    return frozenset(llm.KNOWN_NAMES) | {name.partition("/")[2] for name in llm.KNOWN_NAMES}


def _is_file(text: str) -> bool:
    if "/" not in text and "\\" not in text:
        return False
    try:
        return Path(text).expanduser().is_file()
    except (OSError, RuntimeError, ValueError):  # too long for a path, or no home of that name
        return False
