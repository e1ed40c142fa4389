"""`ouro doctor`: check the installation, and say what to mend."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ouro.errors import ModelError, NoModelError, OuroError
from ouro.subcommands.output import show, show_json
from ouro.utils.runtime import (
    get_config_path,
    get_home,
    get_log_path,
    get_memory_dir,
    get_models_path,
    get_sessions_dir,
    get_trust_path,
    tilde,
)

if TYPE_CHECKING:
    from ouro.settings import Settings

State = Literal["good", "note", "bad"]
MARKS: dict[State, str] = {"good": "ok  ", "note": "note", "bad": "BAD "}
_NO_VECTORS = "The README installs one; or name one by `memory.embedding_model` or `embed` of models.yaml."
EXAMPLE = "example:\n  ouro doctor --json | jq '.[] | select(.state != \"good\")'"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    state: State
    what: str
    remedy: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `ouro doctor`."""
    parser.epilog = EXAMPLE
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    """Look at everything; gives the exit code: 1 where something has to be mended."""
    findings = [finding for check in CHECKS for finding in _looked(check)]
    if args.json:
        show_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            show(f"{MARKS[finding.state]}  {finding.subject}: {finding.what}")
            if finding.remedy:
                show(f"      {finding.remedy}")
    return 1 if any(finding.state == "bad" for finding in findings) else 0


def _looked(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """One check may fail without taking the others along: that is when a doctor is needed."""
    try:
        yield from check()
    except (OuroError, OSError, RuntimeError) as error:
        hint = error.hint if isinstance(error, OuroError) else ""
        message = error.message if isinstance(error, OuroError) else str(error)
        yield Finding(check.__name__.strip("_"), "bad", message, hint)


def _python() -> Iterator[Finding]:
    from ouro import __version__

    yield Finding(
        "ouro", "good", f"{__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )


def _terminal() -> Iterator[Finding]:
    term, encoding = os.environ.get("TERM", ""), (sys.stdout.encoding or "").lower().replace("-", "")
    size = shutil.get_terminal_size()
    if term in {"", "dumb"}:
        yield Finding(
            "terminal", "note", f"TERM is {term or 'not set'}: no full screen.", "ouro uses its plain prompt here."
        )
    else:
        yield Finding("terminal", "good", f"{term}, {size.columns}x{size.lines}")
    if encoding != "utf8":
        what = f"text is written as {sys.stdout.encoding}: signs beyond it are lost."
        yield Finding("terminal", "note", what, "Set LANG to a UTF-8 locale, such as C.UTF-8.")


def _programs() -> Iterator[Finding]:
    if found := shutil.which("git"):
        version = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=10, check=False)
        yield Finding("git", "good", version.stdout.strip() or found)
    else:
        yield Finding("git", "note", "not found: no git state, no diffs of the repository.", "Install git.")
    if found := shutil.which("rg"):
        yield Finding("ripgrep", "good", found)
    else:
        yield Finding("ripgrep", "note", "not found: ouro searches by itself, more slowly.", "Install ripgrep.")


def _folders() -> Iterator[Finding]:
    home = get_home()
    if not home.exists():
        yield Finding("folders", "good", f"{tilde(home)} is made when something is saved")
    for path in (home, get_sessions_dir(), get_memory_dir(), get_log_path().parent):
        if path.exists():
            yield from _folder(path)
    path = get_models_path()
    if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
        yield Finding("folders", "bad", f"{tilde(path)} can be read by others.", f"chmod 600 {tilde(path)}")


def _folder(path: Path) -> Iterator[Finding]:
    shown, info = tilde(path), path.stat()
    if info.st_uid != os.getuid():
        yield Finding(
            "folders", "bad", f"{shown} belongs to another user.", "Give it back to yourself, or set OURO_HOME."
        )
    elif info.st_mode & 0o077:
        yield Finding("folders", "bad", f"{shown} is open to others.", f"chmod 700 {shown}")
    else:
        yield Finding("folders", "good", shown)


def _settings() -> Iterator[Finding]:
    from ouro.config import load_settings, unknown_variables

    load_settings()
    path = get_config_path()
    yield Finding("settings", "good", f"{tilde(path)} can be read" if path.exists() else "the defaults")
    for name in unknown_variables():
        yield Finding("settings", "note", f"{name} is set, but no setting is called so.", "`ouro config` lists them.")


def _models() -> Iterator[Finding]:
    from ouro.llm import Catalog

    catalog = Catalog.from_files()
    for notice in catalog.notices:
        yield Finding("models", "note", notice)
    for server in catalog.servers():
        yield Finding(
            "models", "good", f"{server.provider.title} answers at {server.base_url}: {len(server.models)} to choose"
        )
    try:
        settings = _told_settings()
        name = catalog.resolve((settings.model if settings else "") or catalog.default())
    except NoModelError as error:
        yield Finding("models", "bad", error.message, error.hint)
        return
    if reason := catalog.unusable(name):
        yield Finding("models", "bad", f"{name}, the default, cannot be used: {reason}.", "`ouro models --setup`")
    else:
        yield Finding("models", "good", f"{name} is the default")


def _vectors() -> Iterator[Finding]:
    from ouro.llm import Catalog
    from ouro.memory.index.embeddings import has_numpy, made_embedder

    named = settings.memory.embedding_model if (settings := _told_settings()) else ""
    try:
        embedder = made_embedder(named, Catalog.from_files()) if has_numpy() else None
        if embedder is None:
            yield Finding("vectors", "note", "none: memory is searched by words alone.", _NO_VECTORS)
            return
        try:
            embedder.embed(["hello"])
        finally:
            embedder.close()
        yield Finding("vectors", "good", f"{embedder.name} gives them")
    except (ModelError, NoModelError) as error:
        what = f"the embedding model gives none, so memory is searched by words alone: {error.message}"
        yield Finding("vectors", "note", what, error.hint or _NO_VECTORS)


def _told_settings() -> Settings | None:
    """The user's settings; a broken file is told by the check of settings."""
    from ouro.config import load_settings
    from ouro.errors import ConfigError

    try:
        return load_settings()
    except ConfigError:
        return None


def _trust() -> Iterator[Finding]:
    from ouro.safety import TrustStore, acting_files
    from ouro.utils.repository import find_root

    store = TrustStore(get_trust_path())
    if store.notice:
        yield Finding("trust", "bad", store.notice, f"Mend or remove {tilde(get_trust_path())}.")
    root = find_root(Path.cwd())
    if untrusted := store.untrusted(root, acting_files(root, Path.cwd())):
        names = ", ".join(str(path.relative_to(root)) for path in untrusted)
        yield Finding("trust", "note", f"{tilde(root)} is not trusted: {names} is not obeyed.", "`ouro` asks for it.")
    else:
        yield Finding("trust", "good", f"nothing in {tilde(root)} waits for your trust")


def _sessions() -> Iterator[Finding]:
    from ouro.memory.yaml_backend import YamlFileMemoryStore

    folder = get_sessions_dir()
    store = YamlFileMemoryStore(folder)
    if obstacle := store.obstacle():
        remedy = "Set OURO_HOME to a folder of yours, or start with --ephemeral."
        yield Finding("sessions", "bad", f"nothing can be saved: {obstacle}.", remedy)
        return
    sessions = asyncio.run(store.list_sessions())
    kept = sum(session.size for session in sessions)
    yield Finding("sessions", "good", f"{len(sessions)} in {tilde(folder)}, {kept / 1e6:.1f} MB")


CHECKS = (_python, _terminal, _programs, _folders, _settings, _models, _vectors, _trust, _sessions)
