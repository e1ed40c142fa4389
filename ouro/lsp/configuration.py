"""The language servers that ouro knows, those of the settings, and which of them are installed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ouro.errors import ConfigError
from ouro.settings import LanguageServerSettings
from ouro.utils.files import near_endings
from ouro.utils.ouro_paths import expand_home


class LanguageServerSpec(msgspec.Struct, frozen=True):
    """A language server: how it is started, and for which files."""

    name: str
    command: Sequence[str]
    languages: Mapping[str, str]
    """The ending of a file -> the language id of the protocol."""
    job: str = ""
    """What it checks. If several installed servers have the same job, only the first one is used.
    Empty: no other server has its job.
    """
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The `initializationOptions` of the protocol."""
    settings: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """What it gets when it asks for its configuration."""

    def language(self, path: Path) -> str:
        """The language id of a file; empty if the server is not for it."""
        return self.languages.get(path.suffix.lower(), "")


_PYTHON_ENDINGS = {".py": "python", ".pyi": "python"}
_SCRIPT_ENDINGS = {
    ".ts": "typescript",
    ".mts": "typescript",
    ".cts": "typescript",
    ".tsx": "typescriptreact",
    ".js": "javascript",
    ".mjs": "javascript",
    ".cjs": "javascript",
    ".jsx": "javascriptreact",
}
_C_ENDINGS = {
    ".c": "c",
    ".h": "cpp",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".cxx": "cpp",
    ".hh": "cpp",
    ".hpp": "cpp",
    ".m": "objective-c",
}
_ONLY_OPEN_FILES = {
    "python": {"analysis": {"diagnosticMode": "openFilesOnly", "autoSearchPaths": True}}
}
"""Settings of pyright: it checks only the files that ouro has opened."""
KNOWN = (
    LanguageServerSpec(
        "basedpyright",
        ("basedpyright-langserver", "--stdio"),
        _PYTHON_ENDINGS,
        "python types",
        settings={
            **_ONLY_OPEN_FILES,
            "basedpyright": {"analysis": {"diagnosticMode": "openFilesOnly"}},
        },
    ),
    LanguageServerSpec(
        "pyright",
        ("pyright-langserver", "--stdio"),
        _PYTHON_ENDINGS,
        "python types",
        settings=_ONLY_OPEN_FILES,
    ),
    LanguageServerSpec("pylsp", ("pylsp",), _PYTHON_ENDINGS, "python types"),
    LanguageServerSpec("ruff", ("ruff", "server"), _PYTHON_ENDINGS, "python rules"),
    LanguageServerSpec("vtsls", ("vtsls", "--stdio"), _SCRIPT_ENDINGS, "typescript"),
    LanguageServerSpec(
        "typescript-language-server",
        ("typescript-language-server", "--stdio"),
        _SCRIPT_ENDINGS,
        "typescript",
        # Otherwise it downloads types of packages.
        options={"disableAutomaticTypingAcquisition": True},
    ),
    LanguageServerSpec("gopls", ("gopls",), {".go": "go"}),
    LanguageServerSpec("rust-analyzer", ("rust-analyzer",), {".rs": "rust"}),
    LanguageServerSpec("clangd", ("clangd",), _C_ENDINGS),
    LanguageServerSpec("jdtls", ("jdtls",), {".java": "java"}),
    LanguageServerSpec("lua-language-server", ("lua-language-server",), {".lua": "lua"}),
    LanguageServerSpec(
        "bash-language-server",
        ("bash-language-server", "start"),
        {".sh": "shellscript", ".bash": "shellscript"},
    ),
)
"""The servers that ouro knows. If several have the same job, the first one that is installed is
used.
"""


def find_language_servers(
    settings: Mapping[str, LanguageServerSettings], root: Path, search_path: str
) -> list[LanguageServerSpec]:
    """The installed servers that are used: of several with the same job only the first one. The
    servers of the settings come before those that ouro knows. Blocks.

    Args:
        search_path: where programs are looked for, as PATH. Relative folders in it are not used: they would be
            folders of the project.

    Raises:
        ConfigError: an entry of the settings has neither a command nor a known name, or no languages.
    """
    folders = os.pathsep.join(filter(os.path.isabs, search_path.split(os.pathsep)))
    by_job: dict[str, LanguageServerSpec] = {}
    for spec in _enabled_servers(settings):
        job = spec.job or spec.name
        if job not in by_job and _is_installed(spec, folders, root):
            by_job[job] = spec
    return list(by_job.values())


def are_for_project(specs: Sequence[LanguageServerSpec], root: Path) -> bool:
    """Whether the project has a file for one of the servers. Only some folders are searched, so that
    it is quick. Blocks.
    """
    endings = set().union(*(spec.languages for spec in specs))
    return any(ending in endings for ending in near_endings(root))


def _enabled_servers(
    settings: Mapping[str, LanguageServerSettings],
) -> Iterator[LanguageServerSpec]:
    """Yield the servers of the settings that are on, then the known ones that the settings do not
    name.
    """
    known_by_name = {spec.name: spec for spec in KNOWN}
    for name, entry in settings.items():
        if entry.enabled:
            yield _server_of_settings(name, entry, known_by_name.get(name))
    yield from (spec for name, spec in known_by_name.items() if name not in settings)


def _server_of_settings(
    name: str, entry: LanguageServerSettings, known: LanguageServerSpec | None
) -> LanguageServerSpec:
    """The server that an entry of the settings describes. `known` is the server with this name that
    ouro knows, or None: what the entry leaves out comes from it. Raises ConfigError if the server
    has no command or no languages.
    """
    command = known.command if known else ()
    if entry.command:
        command = (entry.command, *entry.args)
    languages = entry.languages or (known.languages if known else {})
    if not command or not languages:
        raise ConfigError(
            f"lsp.servers.{name} needs `command` and `languages`.",
            'For example: {command: zls, languages: {".zig": zig}}.',
        )
    return LanguageServerSpec(
        name,
        command,
        languages={ending.lower(): language for ending, language in languages.items()},
        job=known.job if known else "",
        options={**(known.options if known else {}), **entry.options},
        settings={**(known.settings if known else {}), **entry.settings},
    )


def _is_installed(spec: LanguageServerSpec, folders: str, root: Path) -> bool:
    """Whether the program of a server exists. If the command has a `/`, it is a path, relative to
    `root`. Otherwise it is searched in `folders`, which are joined as in PATH.
    """
    program = expand_home(spec.command[0])
    if os.sep in spec.command[0]:
        return _is_program(root / program)
    return any(_is_program(Path(folder, program)) for folder in folders.split(os.pathsep) if folder)


def _is_program(path: Path) -> bool:
    """Whether a file can be run. `shutil.which` would load the modules of all compressions."""
    return os.access(path, os.X_OK) and path.is_file()
