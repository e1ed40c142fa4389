"""Trust of folders: which files of a project ouro obeys (acting files), and whether the user trusts
them with their present contents.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from ouro.errors import ConfigError
from ouro.safety.project_programs import named_programs
from ouro.safety.protected import reserved_area
from ouro.utils.files import lock_file, open_regular, read_start, write_private
from ouro.utils.git import Git, GitError
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import parse_json
from ouro.utils.ouro_paths import ensure_private_dir, get_home, tilde
from ouro.utils.yaml import convert, read_yaml

FILE_HEADER = """\
# Folders whose instructions and settings ouro may obey, with the hashes of those files as they were then.
# Remove an entry to be asked again.
"""


class TrustEntry(msgspec.Struct, frozen=True):
    """What the user trusts in one folder."""

    files: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The hash of each acting file when it was trusted, by its name below the folder."""


class TrustStore:
    """The folders that the user trusts, in one file. If it cannot be read, none is trusted, and
    `notice` says why.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._broken = False
        """Whether the file could not be read. Then it is renamed before another is written."""
        self.notice = ""
        """The problem with the file; empty if there is none."""
        self._entries = self._read()
        """What the user trusts in each folder, by the folder."""
        self._unsaved: dict[str, TrustEntry] = {}
        """Those of them that could not be written, and hold only for this process."""

    def is_trusted(self, root: Path, files: Sequence[Path]) -> bool:
        """Whether the user has trusted this folder with the present contents of `files`; True
        without files. Trust of a folder above it does not count.
        """
        return not self.find_untrusted(root, files)

    def find_untrusted(self, root: Path, files: Sequence[Path]) -> tuple[Path, ...]:
        """Returns the files among `files` that the user has not trusted, or that have changed
        since.

        Raises:
            ConfigError: one of them cannot be read.
        """
        hashes, root = self._entry(root).files, root.resolve()
        return tuple(
            path for path in files if hashes.get(_name_below(root, path)) != _content_hash(path)
        )

    def was_trusted(self, root: Path) -> bool:
        """Whether the user has ever trusted files of this folder. If so, the files that are not
        trusted now are new, or have changed.
        """
        return bool(self._entry(root).files)

    def trust(self, root: Path, files: Sequence[Path]) -> None:
        """Save that the user trusts these files of a folder with their present contents. What was
        trusted before stays trusted, unless the user has removed it from the file meanwhile.

        Raises:
            ConfigError: a file cannot be read; or the store cannot be written, and the trust holds
                only for this process.
        """
        root = root.resolve()
        new_hashes = {_name_below(root, path): _content_hash(path) for path in files}

        def with_new(entries: Mapping[str, TrustEntry]) -> dict[str, TrustEntry]:
            """Returns the entries with that of the folder, to which the new files are added."""
            key = _escaped_text(root)
            before = entries.get(key, TrustEntry()).files
            return {**entries, key: TrustEntry({**before, **new_hashes})}

        try:
            ensure_private_dir(self._path.parent)
            with lock_file(self._path.with_suffix(".lock")):
                saved = self._read()
                # If the file is broken now, what it had before is saved again.
                known = self._entries if self._broken else {**saved, **self._unsaved}
                self._entries = with_new(known)
                self._save()
        except OSError as error:
            self._entries, self._unsaved = with_new(self._entries), with_new(self._unsaved)
            raise ConfigError(
                f"{tilde(self._path)} cannot be written: {error.strerror}."
            ) from error
        self._unsaved = {}

    def _save(self) -> None:
        """Write the entries to the file. A broken file is renamed before. Raises OSError."""
        import yaml

        if self._broken:  # the user may still want what is in it
            self._path.replace(self._path.with_name(f"{self._path.name}.broken"))
        entries = {key: {"files": dict(entry.files)} for key, entry in self._entries.items()}
        write_private(self._path, FILE_HEADER + yaml.safe_dump(entries))
        self._broken = False

    def _entry(self, root: Path) -> TrustEntry:
        """Returns what the user trusts in a folder; an empty entry if nothing."""
        return self._entries.get(_escaped_text(root.resolve()), TrustEntry())

    def _read(self) -> dict[str, TrustEntry]:
        """Returns the entries of the file by their folders; empty if there is no file. If the file
        is broken, the result is empty too, and `notice` says why.
        """
        name = tilde(self._path)
        try:
            table = read_yaml(self._path, name)
            entries = {
                key: convert(node, to=TrustEntry, name=name, path=key)
                for key, node in table.entries.items()
            }
        except ConfigError as error:
            self._broken = True
            self.notice = f"No folder is trusted: {error.message}"
            return {}
        self._broken = False  # the user may have repaired it
        return entries


def _escaped_text(path: Path) -> str:
    """Returns a path as text for the file: a byte that is not UTF-8 is written like `\\xff`, and a
    backslash is doubled.
    """
    return os.fsencode(path).replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def _name_below(root: Path, path: Path) -> str:
    """The path relative to `root`, as the file has it."""
    return _escaped_text(path.relative_to(root))


def _content_hash(path: Path) -> str:
    """The hash of a file's content. Raises ConfigError if it cannot be read."""
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"{tilde(path)} cannot be read: {error.strerror}.") from error


LOCAL_INSTRUCTIONS = "CLAUDE.local.md"
"""Instructions that a user adds to those of a project, usually without git."""
INSTRUCTION_FILES = (
    "AGENTS.override.md",
    "AGENTS.md",
    "CLAUDE.md",
    "GEMINI.md",
    ".claude/CLAUDE.md",
    LOCAL_INSTRUCTIONS,
)
CONFIG_FILE = Path(".ouro") / "config.yaml"
CLAUDE_SETTINGS = (Path(".claude") / "settings.json", Path(".claude") / "settings.local.json")
MCP_FILE = Path(".mcp.json")

ExtensionKind: TypeAlias = Literal[
    "commands", "skills", "agents", "output-styles", "rules", "tools"
]
EXTENSION_FOLDERS: Mapping[ExtensionKind, tuple[str, ...]] = {
    "commands": (".ouro/commands", ".claude/commands", ".codex/prompts"),
    "skills": (".ouro/skills", ".agents/skills", ".claude/skills", ".codex/skills"),
    "agents": (".ouro/agents", ".claude/agents"),
    "output-styles": (".ouro/output-styles", ".claude/output-styles"),
    "rules": (".ouro/rules", ".claude/rules", ".cursor/rules"),
    "tools": (".ouro/tools",),
}
"""The folders of a project for extension files of a kind, in order of priority."""
_FILE_ENDINGS: Mapping[ExtensionKind, tuple[str, ...]] = {
    "skills": ("",),
    "rules": (".md", ".mdc"),
    "tools": (".py",),
}
"""The endings of the files of a kind; other kinds have `.md`."""
FILE_KINDS: tuple[ExtensionKind, ...] = ("commands", "skills", "agents", "output-styles")
"""The kinds whose files are called by a name."""
MAX_FILES = 2_000
"""Maximum files in one folder of extensions; the rest is neither asked about nor used."""
MAX_DEPTH = 6
"""Levels below a folder of extensions that are searched."""
MAX_IMPORT_DEPTH = 5
MAX_IMPORTS = 100
"""Files of instructions that are read with the imports of one start."""
_MAX_READ = 200_000
"""Bytes of a file that are searched for imports and hooks."""
_IGNORED_IN_SKILLS = {".git", ".DS_Store", ".venv"}
_GIT_SECONDS = 2.0
_CODE_IN_MARKDOWN = late_pattern(
    r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)|`[^`\n]*`", re.DOTALL | re.MULTILINE
)
_IMPORT_MARK = late_pattern(r"(?<![\w@./\\])@((?:~/)?[\w./+-]*[\w/])")
"""An import in a file of instructions: `@docs/style.md`."""
_SECRET_FILE = late_pattern(
    r"\.env(?!\.(?:example|sample|template|dist)$)(?:\..*|rc)?|.*\.env|id_(?:rsa|dsa|ecdsa|ed25519)"
    r"|.*\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk|asc|gpg|tfstate|tfvars)|\.(?:netrc|npmrc|pypirc|htpasswd)"
    r"|(?:credentials|secrets?|service[-_]account)(?:\.\w+)?|.*history",
    re.IGNORECASE,
)
"""The name of a file that usually holds keys; not `.env.example` and the like."""
_BINARY_BEGINNINGS = (
    b"%PDF",
    b"PK\x03\x04",
    b"\x89PNG",
    b"GIF8",
    b"\xff\xd8\xff",
    b"\x7fELF",
    b"\x1f\x8b",
    b"RIFF",
)
_CHARACTERS_PER_DAMAGED = 1_000
"""A text in UTF-8 has at most one damaged character in so many."""


class FoundInstructions(msgspec.Struct, frozen=True):
    """A file of instructions, or one that another imports."""

    path: Path
    imported_by: Path | None = None
    """The file that imports it; None: none does."""


def acting_files(root: Path, cwd: Path | None = None) -> tuple[Path, ...]:
    """Returns the files of a project that ouro obeys, each once:

    - instructions in the folders from `root` down to `cwd`, those below that git tracks, and the
      files that they import;
    - extension files, such as commands and skills;
    - the project's settings;
    - the programs of the project that hooks and MCP servers name.

    Links that lead out of the project and files that are not regular are left out: nothing may read
    those either. Blocks.

    Args:
        root: the folder of the project.
        cwd: the folder in which ouro works; None: `root`.
    """
    root = root.resolve()
    inner = (cwd or root).resolve()
    instruction_paths = [*instruction_files(root, inner), *_tracked_below(root, inner)]
    imported, _ = with_imports(instruction_paths, root)
    instructions = (item.path for item in imported)
    extensions = [path for kind in EXTENSION_FOLDERS for path in extension_files(root, kind)]
    settings = _settings_files(root)
    programs = named_programs(root, inner, (*settings, *filter(_is_markdown, extensions)))
    acting = (path for path in programs if _is_acting(path, root))
    return tuple(dict.fromkeys((*instructions, *extensions, *settings, *acting)))


def programs_of(root: Path) -> frozenset[Path]:
    """Returns the programs below a folder that hooks and MCP servers in its settings name.
    Blocks.
    """
    root = root.resolve()
    return frozenset(named_programs(root, root, _settings_files(root)))


def _settings_files(root: Path) -> tuple[Path, ...]:
    """Returns the settings files of a project that ouro obeys. A settings file of Claude Code is
    among them only if it has hooks.
    """
    with_hooks = (root / name for name in CLAUDE_SETTINGS if _has_hooks(root / name))
    files = (root / CONFIG_FILE, root / MCP_FILE, *with_hooks)
    return tuple(path for path in files if _is_acting(path, root))


def _is_markdown(path: Path) -> bool:
    return path.suffix == ".md"


def instruction_files(root: Path, folder: Path) -> tuple[Path, ...]:
    """Returns the files of instructions in the folders from `root` down to `folder`, in this order.
    If `folder` is not below `root`, only the files in `root`.
    """
    root, inner = root.resolve(), folder.resolve()
    upwards = [inner, *inner.parents]
    up_to_root = upwards[: upwards.index(root) + 1] if root in upwards else [root]
    return tuple(path for parent in reversed(up_to_root) for path in instructions_in(parent, root))


def instructions_in(folder: Path, root: Path) -> list[Path]:
    """Returns the files of instructions directly in a folder, in the order of `INSTRUCTION_FILES`.
    Both paths must be resolved.
    """
    return [
        path
        for name in INSTRUCTION_FILES
        if os.path.lexists(path := folder / name) and _is_acting(path, root)
    ]


def with_imports(
    files: Iterable[Path], inside: Path, *, is_users: bool = False
) -> tuple[list[FoundInstructions], list[str]]:
    """Follow the imports (`@path`) of files of instructions.

    Args:
        files: files of instructions.
        inside: the folder that an imported file must be in.
        is_users: whether these are the user's own files, which may import any file in `inside`
            except keys.

    Returns:
        The instructions: each file once, and after it those that it imports. And a line for each
        import that is not read, with the reason. A name that is no file gets a line only if it ends
        with `.md`: any other `@name` may not be meant as an import.
    """
    instructions: dict[Path, FoundInstructions] = {}
    refused: list[str] = []
    is_allowed = _is_users_file if is_users else _is_acting

    def add(path: Path, by: Path | None, depth: int) -> None:
        """Add a file and the files that it imports, unless it was added before. `by` is the file
        that imports it (None for one of `files`), `depth` the number of imports above it.
        """
        if path in instructions:
            return
        instructions[path] = FoundInstructions(path, by)
        text = _CODE_IN_MARKDOWN.sub("", read_start(path, _MAX_READ))
        for name in dict.fromkeys(_IMPORT_MARK.findall(text)):
            target = Path(name).expanduser() if name.startswith("~/") else path.parent / name
            if not target.is_file():
                if name.endswith(".md"):
                    refused.append(f"{path}: @{name} is not there")
            elif not is_allowed(target, inside):
                refused.append(f"{path}: @{name} is outside of {inside}")
            elif reason := _import_problem(target, depth, len(instructions)):
                refused.append(f"{path}: @{name} is {reason}")
            else:
                add(target.resolve(), path, depth + 1)

    for path in files:
        add(path, by=None, depth=0)
    return list(instructions.values()), refused


def _import_problem(target: Path, depth: int, count: int) -> str:
    """Returns why a file is not imported; empty if it is. `depth` is the number of imports above
    the file that imports it. `count` is the number of files that were added before.
    """
    if reason := _find_import_obstacle(target):
        return f"not imported: {reason}"
    if depth >= MAX_IMPORT_DEPTH:
        return f"imported more than {MAX_IMPORT_DEPTH} deep"
    if count >= MAX_IMPORTS:
        return f"one of more than {MAX_IMPORTS} imports"
    return ""


def _find_import_obstacle(path: Path) -> str:
    """Returns why a file is never imported as instructions: it may hold keys, cannot be read, or is
    not text. Empty if it may be imported.
    """
    names = {path.name, path.resolve().name}
    if any(_SECRET_FILE.fullmatch(name) for name in names) or reserved_area(path.resolve()):
        return "it may hold keys"
    try:
        with open_regular(path) as file:
            data = file.read(_MAX_READ)
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    text = data.decode("utf-8", "replace")
    # Without the last character, which may be cut at `_MAX_READ`.
    damaged = text[:-1].count("\ufffd")
    is_text = "\0" not in text and damaged <= len(text) // _CHARACTERS_PER_DAMAGED
    return "" if is_text and not data.startswith(_BINARY_BEGINNINGS) else "it is not text"


def extension_files(root: Path, kind: ExtensionKind) -> list[Path]:
    """Returns the extension files of a kind in a project, as `files_below` does, in the order of
    `EXTENSION_FOLDERS`. Empty for the home folder.
    """
    root = root.resolve()
    if root == Path.home().resolve():  # these belong to the user, not to a project
        return []
    files_of_kind: list[Path] = []
    for name in EXTENSION_FOLDERS[kind]:
        files = files_below(root / name, kind, inside=root)
        files_of_kind += [path for path in files if _is_acting(path, root)]
    return files_of_kind


def files_below(folder: Path, kind: ExtensionKind, *, inside: Path = Path("/")) -> list[Path]:
    """Returns the extension files of a kind in a folder and below it. For skills these are all
    files, for tools the Python files, for rules the Markdown and `.mdc` files, for other kinds the
    Markdown files.

    At most `MAX_FILES`, from at most `MAX_DEPTH` levels below the folder. Hidden files are left
    out, except in skills, whose files refer to each other. Links are followed, but not out of the
    resolved folder `inside`: ouro would search the whole disk if a repository has a link to `/`.
    """
    paths: list[Path] = []
    visited: set[Path] = set()
    for parent, folders, files in os.walk(folder, followlinks=True):
        real = Path(parent).resolve()
        if real in visited or not real.is_relative_to(inside):
            folders.clear()  # is not walked into
            continue
        visited.add(real)
        # `os.walk` visits the folders that are left in this list.
        is_deepest = len(Path(parent).relative_to(folder).parts) >= MAX_DEPTH
        folders[:] = [] if is_deepest else sorted(name for name in folders if _is_used(name, kind))
        paths += _used_files(Path(parent), names=files, kind=kind, inside=inside)
        if len(paths) >= MAX_FILES:
            break
    return paths[:MAX_FILES]


def _used_files(
    folder: Path, names: Sequence[str], kind: ExtensionKind, inside: Path
) -> list[Path]:
    """Returns the paths of the extension files of a kind among the `names` in a folder, sorted by
    name. Only the first MAX_FILES names are looked at. Links out of the folder `inside` are left
    out.
    """
    endings = _FILE_ENDINGS.get(kind, (".md",))
    used = [name for name in names if name.endswith(endings) and _is_used(name, kind)]
    paths = [folder / name for name in sorted(used)[:MAX_FILES]]
    return [path for path in paths if path.is_file() and path.resolve().is_relative_to(inside)]


def _is_used(name: str, kind: ExtensionKind) -> bool:
    """Whether a file or folder of this name may be part of an extension. A hidden one may be part
    of a skill only, and not if it comes from git, macOS or Python.
    """
    if not name.startswith("."):
        return True
    return kind == "skills" and name not in _IGNORED_IN_SKILLS


def _tracked_below(root: Path, folder: Path) -> list[Path]:
    """Returns the instruction files below `folder` that git tracks. Files that git does not track
    come with packages and tools, and are left out. Empty if `root` is not a repository, or git
    fails.
    """
    if not os.path.lexists(root / ".git"):
        return []
    try:
        names = Git(folder, _GIT_SECONDS).paths(
            "--cached", "--", *(f":(glob)**/{name}" for name in INSTRUCTION_FILES)
        )
    except GitError:
        return []
    return [path for name in sorted(names) if _is_acting(path := folder / name, root)]


def _is_acting(path: Path, root: Path) -> bool:
    """Whether ouro obeys a path in the project: it is a regular file that can be read, with links
    followed. A link out of the project is not obeyed, and neither is a file in ouro's own folder.
    """
    resolved, ouro_home = path.resolve(), _resolve_cached(get_home())
    # If the project is the home folder, its `.ouro/` belongs to the user, not to the project.
    return (
        os.access(path, os.R_OK)
        and resolved.is_file()
        and resolved.is_relative_to(root)
        and not resolved.is_relative_to(ouro_home)
    )


@lru_cache(maxsize=8)
def _resolve_cached(path: Path) -> Path:
    """A path that does not change while ouro runs, with links followed."""
    return path.resolve()


def _is_users_file(path: Path, home: Path) -> bool:
    """Whether a path, with links followed, is in the folder `home`."""
    return path.resolve().is_relative_to(home.resolve())


def _has_hooks(path: Path) -> bool:
    """Whether a settings file of Claude Code has hooks. True if the file cannot be read as an
    object.

    A file without hooks needs no trust: ouro ignores the permissions in it, and Claude Code changes
    it often.
    """
    try:
        settings = parse_json(read_start(path, _MAX_READ) or "{}")
    except (ValueError, RecursionError):
        return True
    return not isinstance(settings, dict) or bool(settings.get("hooks"))
