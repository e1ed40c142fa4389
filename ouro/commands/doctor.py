"""Doctor: check the installation."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ouro.commands.action import Answer
from ouro.commands.render import line
from ouro.errors import ConfigError, ModelError, NoModelError, OuroError
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
    from ouro.commands.shell import ShellContext

State = Literal["good", "note", "bad"]
Check = Callable[["ShellContext"], Iterable["DoctorFinding"]]
MARKS: dict[State, str] = {"good": "ok  ", "note": "note", "bad": "BAD "}
_NO_VECTORS = "The README installs one; or name one by `memory.embedding_model` or `embed` of models.yaml."


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """The result of one check."""

    subject: str
    state: State
    what: str
    remedy: str = ""


async def doctor(context: ShellContext) -> Answer:
    """Check the installation; exit code 1 if something must be repaired."""
    findings = [finding for check in CHECKS for finding in await asyncio.to_thread(_run, check, context)]
    rows = []
    for finding in findings:
        rows.append(line(f"{MARKS[finding.state]}  {finding.subject}: {finding.what}"))
        if finding.remedy:
            rows.append(line(f"      {finding.remedy}"))
    return Answer([asdict(finding) for finding in findings], rows, int(any(f.state == "bad" for f in findings)))


def _run(check: Check, context: ShellContext) -> list[DoctorFinding]:
    """The findings of a check. A check that fails is a finding; the others still run."""
    found: list[DoctorFinding] = []
    try:
        found += check(context)
    except (OuroError, OSError, RuntimeError) as error:
        hint = error.hint if isinstance(error, OuroError) else ""
        message = error.message if isinstance(error, OuroError) else str(error)
        found.append(DoctorFinding(check.__name__.strip("_"), "bad", message, hint))
    return found


def _python(_context: ShellContext) -> Iterator[DoctorFinding]:
    from ouro import __version__

    yield DoctorFinding(
        "ouro", "good", f"{__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )


def _terminal(_context: ShellContext) -> Iterator[DoctorFinding]:
    term, encoding = os.environ.get("TERM", ""), (sys.stdout.encoding or "").lower().replace("-", "")
    size = shutil.get_terminal_size()
    if term in {"", "dumb"}:
        yield DoctorFinding(
            "terminal",
            "note",
            f"TERM is {term or 'not set'}: the full screen is not possible.",
            "ouro uses its plain prompt here.",
        )
    else:
        yield DoctorFinding("terminal", "good", f"{term}, {size.columns}x{size.lines}")
    if encoding != "utf8":
        what = f"text is written as {sys.stdout.encoding}: other characters are lost."
        yield DoctorFinding("terminal", "note", what, "Set LANG to a UTF-8 locale, such as C.UTF-8.")


def _programs(_context: ShellContext) -> Iterator[DoctorFinding]:
    if found := shutil.which("git"):
        version = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=10, check=False)
        yield DoctorFinding("git", "good", version.stdout.strip() or found)
    else:
        yield DoctorFinding("git", "note", "not found: no git state, no diffs of the repository.", "Install git.")
    if found := shutil.which("rg"):
        yield DoctorFinding("ripgrep", "good", found)
    else:
        yield DoctorFinding("ripgrep", "note", "not found: ouro searches by itself, more slowly.", "Install ripgrep.")


def _folders(_context: ShellContext) -> Iterator[DoctorFinding]:
    home = get_home()
    if not home.exists():
        yield DoctorFinding("folders", "good", f"{tilde(home)} is made when something is saved")
    for path in (home, get_sessions_dir(), get_memory_dir(), get_log_path().parent):
        if path.exists():
            yield from _folder(path)
    path = get_models_path()
    if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
        yield DoctorFinding("folders", "bad", f"{tilde(path)} can be read by others.", f"chmod 600 {tilde(path)}")


def _folder(path: Path) -> Iterator[DoctorFinding]:
    shown, info = tilde(path), path.stat()
    if info.st_uid != os.getuid():
        yield DoctorFinding(
            "folders", "bad", f"{shown} belongs to another user.", "Change its owner, or set OURO_HOME."
        )
    elif info.st_mode & 0o077:
        yield DoctorFinding("folders", "bad", f"{shown} is open to others.", f"chmod 700 {shown}")
    else:
        yield DoctorFinding("folders", "good", shown)


def _settings(context: ShellContext) -> Iterator[DoctorFinding]:
    _settings, notices = context.opener.settings()
    path = get_config_path()
    yield DoctorFinding("settings", "good", f"{tilde(path)} can be read" if path.exists() else "the defaults")
    for notice in notices:
        yield DoctorFinding("settings", "note", notice, "`ouro config` lists the settings.")


def _models(context: ShellContext) -> Iterator[DoctorFinding]:
    from ouro.llm import Catalog

    catalog = Catalog.from_files()
    for notice in catalog.notices:
        yield DoctorFinding("models", "note", notice)
    for server in catalog.servers():
        yield DoctorFinding(
            "models", "good", f"{server.provider.title} answers at {server.base_url}: {len(server.models)} to choose"
        )
    try:
        name = catalog.resolve(_setting(context, "model") or catalog.default())
    except NoModelError as error:
        yield DoctorFinding("models", "bad", error.message, error.hint)
        return
    if reason := catalog.unusable(name):
        yield DoctorFinding("models", "bad", f"{name}, the default, cannot be used: {reason}.", "`ouro models --setup`")
    else:
        yield DoctorFinding("models", "good", f"{name} is the default")


def _vectors(context: ShellContext) -> Iterator[DoctorFinding]:
    from ouro.llm import Catalog
    from ouro.memory.index import has_numpy, made_embedder

    named = _setting(context, "memory.embedding_model")
    try:
        embedder = made_embedder(named, Catalog.from_files()) if has_numpy() else None
        if embedder is None:
            yield DoctorFinding("vectors", "note", "none: memory is searched by words alone.", _NO_VECTORS)
            return
        try:
            embedder.embed(["hello"])
        finally:
            embedder.close()
        yield DoctorFinding("vectors", "good", f"{embedder.name} gives them")
    except (ModelError, NoModelError) as error:
        what = f"the embedding model gives none, so memory is searched by words alone: {error.message}"
        yield DoctorFinding("vectors", "note", what, error.hint or _NO_VECTORS)


def _setting(context: ShellContext, path: str) -> str:
    """A setting; empty if a settings file is broken, which the check of settings reports."""
    try:
        return str(context.setting(path) or "")
    except ConfigError:
        return ""


def _trust(_context: ShellContext) -> Iterator[DoctorFinding]:
    from ouro.safety import TrustStore, acting_files
    from ouro.utils.repository import find_root

    store = TrustStore(get_trust_path())
    if store.notice:
        yield DoctorFinding("trust", "bad", store.notice, f"Mend or remove {tilde(get_trust_path())}.")
    root = find_root(Path.cwd())
    if untrusted := store.untrusted(root, acting_files(root, Path.cwd())):
        names = ", ".join(str(path.relative_to(root)) for path in untrusted)
        yield DoctorFinding(
            "trust", "note", f"{tilde(root)} is not trusted: {names} is not obeyed.", "`ouro` asks for it."
        )
    else:
        yield DoctorFinding("trust", "good", f"nothing in {tilde(root)} waits for your trust")


def _sessions(_context: ShellContext) -> Iterator[DoctorFinding]:
    from ouro.memory.yaml_backend import YamlFileMemoryStore

    folder = get_sessions_dir()
    store = YamlFileMemoryStore(folder)
    if obstacle := store.obstacle():
        remedy = "Set OURO_HOME to a folder of yours, or start with --ephemeral."
        yield DoctorFinding("sessions", "bad", f"nothing can be saved: {obstacle}.", remedy)
        return
    sessions = asyncio.run(store.list_sessions())
    kept = sum(session.size for session in sessions)
    yield DoctorFinding("sessions", "good", f"{len(sessions)} in {tilde(folder)}, {kept / 1e6:.1f} MB")


CHECKS = (_python, _terminal, _programs, _folders, _settings, _models, _vectors, _trust, _sessions)
