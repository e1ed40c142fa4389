"""Plugins: folders of commands, skills, agents, hooks and MCP servers, copied from a folder or a
git repository.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ouro.errors import ConfigError, UsageError
from ouro.safety import FILE_KINDS, files_below
from ouro.utils.decoding import decode_json
from ouro.utils.files import open_regular, read_start, write_private
from ouro.utils.git import GitError, fetch_tree
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import dictionaries, dictionary, parse_json, string
from ouro.utils.ouro_paths import ensure_private_dir, expand_home, get_home, tilde
from ouro.utils.text import clean, escape_invisible, one_line

MANIFEST = Path(".claude-plugin") / "plugin.json"
MARKETPLACE = Path(".claude-plugin") / "marketplace.json"
TABLES = {"hooks": Path("hooks") / "hooks.json", "mcpServers": Path(".mcp.json")}
"""The default file for each table; the manifest may name others."""
_UNUSED_PARTS = (
    "lspServers",
    ".lsp.json",
    "outputStyles",
    "output-styles",
    "monitors",
    "bin",
    "settings.json",
    "userConfig",
    "dependencies",
)
"""Files and manifest keys of a plugin that ouro ignores."""
_UNUSED_PREFIX = "not used by ouro: "
"""The start of the line about them."""
MAX_FILES = 5_000
"""Maximum files of a plugin."""
MAX_BYTES = 50_000_000
"""Maximum bytes of a plugin."""
_FETCH_TIMEOUT = 120.0
"""Seconds for a fetch from a git repository."""
_MAX_JSON = 1_000_000
"""Bytes that are read of a file in JSON."""
_PLUGIN_NAME_FORM = late_pattern(r"\w[\w-]{0,63}")
_OWNER_AND_NAME = late_pattern(r"[\w-][\w.-]*/[\w.-]+")
"""Matches a repository on GitHub: `owner/name`."""
_GIT_ADDRESS = late_pattern(r"https://\S+|ssh://\S+|file:///\S+|[\w.-]+@[\w.-]+:\S+")
"""Matches `https://…`, `ssh://…`, `file:///…` and `git@host:path`."""
_ROOT_IN_LINE = late_pattern(r"\$(?:\{CLAUDE_PLUGIN_ROOT\}|CLAUDE_PLUGIN_ROOT\b)")
"""Matches the variable with the folder of the plugin in a shell line."""
_COMMIT_ID = late_pattern(r"[0-9a-f]{40}")


class Plugin(msgspec.Struct, frozen=True):
    """An installed plugin: where it is from."""

    source: str
    """A folder, or the address of a git repository."""
    path: str = ""
    """The folder of the plugin in the source."""
    ref: str = ""
    """The requested branch, tag or commit."""
    commit: str = ""
    """The commit that is installed; empty for a folder."""
    version: str = ""


def plugins_dir() -> Path:
    """The folder with the installed plugins and the list of them."""
    return get_home() / "plugins"


def _index_path() -> Path:
    return plugins_dir() / "plugins.json"


def installed_plugins() -> dict[str, Plugin]:
    """The installed plugins by name. Raises ConfigError: their list cannot be read."""
    try:
        with open_regular(_index_path()) as file:
            return decode_json(file.read(_MAX_JSON), dict[str, Plugin])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"{tilde(_index_path())} cannot be read: {error}. No plugin is used."
        ) from error


def plugin_folder(name: str) -> Path:
    return plugins_dir() / name


def plugin_folders() -> tuple[dict[str, Path], list[str]]:
    """The folder of each installed plugin, and a line for each problem.

    There are no folders if the list of plugins cannot be read.
    """
    try:
        return {name: plugin_folder(name) for name in installed_plugins()}, []
    except ConfigError as error:
        return {}, [error.message]


def plugin_tables(key: str) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The table `hooks` or `mcpServers` (the key) of each installed plugin, by the name of the
    plugin; and a line for each that cannot be read. Blocks.
    """
    tables: dict[str, dict[str, Any]] = {}
    folders, problems = plugin_folders()
    for name, folder in folders.items():
        try:
            tables[name] = _read_table(folder, key)
        except ConfigError as error:
            problems.append(f"plugin {name}: {error.message}")
    return tables, problems


def _read_table(folder: Path, key: str) -> dict[str, Any]:
    """The table `hooks` or `mcpServers` (the key) of a plugin. It is merged from the usual file,
    the files that the manifest names, and what the manifest itself has; `${CLAUDE_PLUGIN_ROOT}` is
    filled in.

    Raises:
        ConfigError: one of the files is not valid, or does not exist.
    """
    # The manifest has the name of a file, a table, or a list of both.
    in_manifest = _read_json(folder / MANIFEST, folder).get(key, [])
    sources = in_manifest if isinstance(in_manifest, list) else [in_manifest]
    names = [name for name in sources if isinstance(name, str) and Path(name) != TABLES[key]]
    paths = [folder / TABLES[key], *(_resolve_named(folder, name) for name in names)]
    tables = [_read_json(path, folder) for path in paths]
    merged: dict[str, Any] = {}
    for table in (*tables, *dictionaries(sources)):
        entries = dictionary(table.get(key, table))  # `{"hooks": {…}}`, or the entries themselves
        for name, value in entries.items():
            if isinstance(value, list):  # the hooks of an event add up
                merged[name] = [*dictionaries(merged.get(name)), *value]
            else:
                merged[name] = value
    return merged


def _resolve_named(folder: Path, name: str) -> Path:
    """The path of a file or folder that the manifest names. Raises ConfigError if it does not
    exist, or is not in the plugin.
    """
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.exists():
        raise ConfigError(f"plugin.json names `{one_line(name, 80)}`, which is not in the plugin.")
    return path


@contextmanager
def fetch_plugin(source: str, ref: str = "", path: str = "") -> Iterator[tuple[str, Path, Plugin]]:
    """Fetch a plugin, without installing it. Yields its name, a temporary folder with a copy of its
    files, and its entry for the list of plugins. Blocks.

    Args:
        source: a folder, `owner/name`, or the address of a git repository.
        ref: a branch, tag or commit of the repository.
        path: the folder of the plugin in the source, or its name if the source is a marketplace.

    Raises:
        UsageError: it cannot be fetched, is too large, or is not a plugin.
        ConfigError: its manifest is not valid.
    """
    ensure_private_dir(plugins_dir())
    import tempfile  # imported late: it imports random

    from ouro.extensions.marketplace import apply_entry, find_entry, list_plugins

    with tempfile.TemporaryDirectory(prefix=".new-", dir=plugins_dir()) as temporary:
        # Get the files of the source.
        source_folder, commit = Path(temporary) / "source", ""
        local_folder = expand_home(source)
        if local_folder.is_dir() and not ref:
            source = _copy(local_folder, source_folder)
        else:
            source, commit = _fetch(source, ref, source_folder)

        # Find the plugin in the source.
        market = _read_json(source_folder / MARKETPLACE, source_folder)
        entry = find_entry(market, path)
        folder = _folder_in_source(source_folder, string(entry.get("source")) or path, source)
        manifest = _read_json(folder / MANIFEST, folder)
        if not manifest and not entry and _read_json(folder / MARKETPLACE, folder):
            raise UsageError(
                f"{source} is a marketplace. Add one of its plugins with --path NAME:"
                f" {list_plugins(market)}."
            )
        # Before writing and copying: no link may lead out of the plugin.
        _check_size_and_links(folder)
        if entry:
            manifest = apply_entry(folder, manifest, entry)
        name = _plugin_name(manifest, folder.name if path else "", source)

        # Refuse what is too large, leads elsewhere or is not a plugin.
        _copy_to_usual_folders(folder, manifest)
        _check_size_and_links(folder)  # the copies, too
        if all(line.startswith(_UNUSED_PREFIX) for line in describe_plugin(folder)):
            raise UsageError(
                f"{source} is not a plugin: it has no commands, skills, agents, hooks or MCP"
                " servers."
            )
        version = one_line(str(manifest.get("version", "")), 40)
        yield name, folder, Plugin(source, path=path, ref=ref, commit=commit, version=version)


def install(name: str, folder: Path, plugin: Plugin) -> None:
    """Move a fetched plugin to its place, where it replaces an installed one of this name, and save
    it in the list. Raises ConfigError if it cannot be written; then the installed one stays.

    Args:
        folder, plugin: what `fetch_plugin` yields.
    """
    import shutil  # imported late: few sessions need it

    target, replaced = plugin_folder(name), plugins_dir() / f".old-{name}"
    try:
        shutil.rmtree(replaced, ignore_errors=True)
        if target.exists():
            target.rename(replaced)
        try:
            shutil.move(folder, target)
            _save({**installed_plugins(), name: plugin})
        except BaseException:
            if replaced.exists():
                shutil.rmtree(target, ignore_errors=True)
                replaced.rename(target)
            raise
        shutil.rmtree(replaced, ignore_errors=True)
    except OSError as error:
        raise ConfigError(f"{tilde(target)} cannot be written: {error.strerror}.") from error


def remove(name: str) -> None:
    """Remove a plugin from the list of installed plugins, and delete its files. An unknown name
    changes nothing. Raises ConfigError if the list cannot be written.
    """
    import shutil  # imported late: few sessions need it

    remaining = {other: plugin for other, plugin in installed_plugins().items() if other != name}
    try:
        _save(remaining)
        shutil.rmtree(plugin_folder(name), ignore_errors=True)
    except OSError as error:
        raise ConfigError(f"{tilde(_index_path())} cannot be written: {error.strerror}.") from error


def describe_plugin(folder: Path) -> Iterator[str]:
    """Yields what a plugin contains, as lines for the user: each program that it would run and each
    address that it would reach, its files by kind, and the parts that ouro does not use.

    Raises:
        ConfigError: its hooks or servers are not valid JSON.
    """
    from ouro.extensions.trust_summary import programs_in

    for kind in FILE_KINDS:
        paths = files_below(folder / kind, kind)
        for path in paths:
            if path.suffix == ".md":
                yield from programs_in(read_start(path, _MAX_JSON), path.name)
        names = _names_of_files(paths, folder / kind, kind)
        if names:
            yield f"{kind}: {', '.join(names)}"

    for key in TABLES:
        table = json.dumps({key: _read_table(folder, key)})
        folder_in_json = json.dumps(str(folder))[1:-1]
        # The table has the folder itself, which is a temporary one: show the variable instead.
        text = table.replace(folder_in_json, "${CLAUDE_PLUGIN_ROOT}")
        yield from programs_in(text, f"{key}.json")

    manifest = _read_json(folder / MANIFEST, folder)
    if others := [name for name in _UNUSED_PARTS if name in manifest or (folder / name).exists()]:
        yield f"{_UNUSED_PREFIX}{', '.join(others)}"


def _names_of_files(paths: Sequence[Path], folder: Path, kind: str) -> list[str]:
    """The names by which the files of a kind are shown: relative to `folder` and without `.md`. A
    skill has the name of its folder, and its other files are left out.
    """
    relative = [path.relative_to(folder) for path in paths]
    if kind == "skills":
        relative = [path.parent for path in relative if path.name == "SKILL.md"]
    return [escape_invisible(str(path).removesuffix(".md")) for path in relative]


def changed_files(before: Path, after: Path) -> list[str]:
    """A line for each file that differs between two versions of a plugin: `added x`, `removed x` or
    `changed x`.

    Args:
        before, after: the folders of the versions.
    """
    old = {str(path.relative_to(before)): path for path in _all_files(before)}
    new = {str(path.relative_to(after)): path for path in _all_files(after)}
    lines = [f"added {name}" for name in sorted(new.keys() - old.keys())]
    lines += [f"removed {name}" for name in sorted(old.keys() - new.keys())]
    both = sorted(old.keys() & new.keys())
    return lines + [
        f"changed {name}" for name in both if old[name].read_bytes() != new[name].read_bytes()
    ]


def _copy(local: Path, folder: Path) -> str:
    """Copy the local folder of a plugin to the new folder `folder`, without `.git`. Returns the
    real path of the local one. Raises UsageError.
    """
    import shutil  # imported late: few sessions need it

    try:
        shutil.copytree(local, folder, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    except OSError as error:
        raise UsageError(f"{local} cannot be copied: {error}") from error
    return str(local.resolve())


def _fetch(source: str, ref: str, folder: Path) -> tuple[str, str]:
    """Fetch the files of a git repository into the new folder `folder`. Returns the address of the
    repository and the commit. Raises UsageError.

    Args:
        source: `owner/name` of a repository on GitHub, or a git address.
        ref: a branch, tag or commit; empty: the newest commit.
    """
    if _OWNER_AND_NAME.fullmatch(source):
        source = f"https://github.com/{source}"
    elif not _GIT_ADDRESS.fullmatch(source):
        hint = "Write https://…, git@…, or owner/name."
        raise UsageError(f"`{source}` is neither a folder nor a git address.", hint)
    folder.mkdir()
    try:
        return source, fetch_tree(source, ref=ref or "HEAD", folder=folder, seconds=_FETCH_TIMEOUT)
    except GitError as error:
        reason = one_line(clean(str(error)), 300)
        hint = "Look at the address."
        if ref:
            hint = "Add the plugin again without --ref for its newest commit."
        raise UsageError(
            f"{source}: {_describe_ref(ref)} cannot be fetched: {reason}", hint
        ) from error


def _describe_ref(ref: str) -> str:
    """What is fetched, for a message."""
    if not ref:
        return "its newest commit"
    return f"commit {ref[:12]}" if _COMMIT_ID.fullmatch(ref) else f"`{ref}`"


def _copy_to_usual_folders(folder: Path, manifest: Mapping[str, Any]) -> None:
    """The manifest of a plugin may name other folders and files for its commands, skills and
    agents. Copy these to the usual folders, where ouro looks for them. Links are not copied. Raises
    ConfigError.
    """
    for kind in FILE_KINDS:
        named, usual_folder = manifest.get(kind, []), folder / kind
        for name in map(str, named if isinstance(named, list) else [named]):
            path = _resolve_named(folder, name)
            real_folder = usual_folder.resolve()
            if path.is_relative_to(real_folder) or real_folder.is_relative_to(path):
                continue  # it is in the usual folder already
            try:
                is_one_skill = kind == "skills" and (path / "SKILL.md").exists()
                _copy_into(usual_folder, path, in_own_folder=is_one_skill)
            except OSError as error:
                raise ConfigError(
                    f"`{one_line(name, 80)}` of the plugin cannot be copied: {error}"
                ) from error


def _copy_into(target: Path, path: Path, *, in_own_folder: bool) -> None:
    """Copy a file, or the content of a folder without its links, into the folder `target`.

    Args:
        in_own_folder: whether a folder is copied as a folder in `target`, not only its content.
    """
    import shutil  # imported late: few sessions need it

    def links(parent: str, names: list[str]) -> list[str]:
        return [name for name in names if (Path(parent) / name).is_symlink()]

    if not path.is_dir():
        target.mkdir(exist_ok=True)
        shutil.copy2(path, target / path.name)
        return
    into = target / path.name if in_own_folder else target
    shutil.copytree(path, into, ignore=links, dirs_exist_ok=True)


def _check_size_and_links(folder: Path) -> None:
    """Remove the links that lead out of the folder of a plugin. Raises UsageError if it has more
    than MAX_FILES or MAX_BYTES.
    """
    count = size = 0
    for path in _all_files(folder):
        if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
            path.unlink()
            continue
        count += 1
        size += path.stat().st_size if path.exists() else 0
        if count > MAX_FILES or size > MAX_BYTES:
            raise UsageError(
                f"The plugin has more than {MAX_FILES:,} files or {MAX_BYTES // 1_000_000} MB."
            )


def _all_files(folder: Path) -> Iterator[Path]:
    """Yields all files in and below a folder, and the links to folders, which are not followed."""
    for parent, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        yield from (Path(parent) / name for name in (*links, *files))


def _folder_in_source(source_folder: Path, path: str, source: str) -> Path:
    """The folder of a plugin in a fetched source. Raises UsageError if there is none."""
    folder = (source_folder / path).resolve()
    if not folder.is_relative_to(source_folder.resolve()) or not folder.is_dir():
        raise UsageError(f"There is no folder or plugin `{one_line(path, 80)}` in {source}.")
    return folder


def _plugin_name(manifest: Mapping[str, Any], folder: str, source: str) -> str:
    """The name of a plugin: that in its manifest, otherwise that of its folder in the source,
    otherwise the last part of the source.

    Args:
        folder: the name of its folder in the source; empty if the plugin is the whole source.

    Raises:
        UsageError: the name is not valid.
    """
    last_part = re.split(r"[/:]", source.rstrip("/"))[-1]
    name = str(manifest.get("name") or folder or last_part).removesuffix(".git")
    if not _PLUGIN_NAME_FORM.fullmatch(name):
        raise UsageError(f"`{one_line(name, 60)}` is not a name for a plugin: {source}")
    return name


def _read_json(path: Path, folder: Path) -> dict[str, Any]:
    """The object in a JSON file of a plugin, with `${CLAUDE_PLUGIN_ROOT}` filled in; empty if there
    is no file. Raises ConfigError if it is not valid, or is outside of the plugin.

    Args:
        folder: the folder of the plugin.
    """
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(f"{path} is outside of the plugin.")
    try:
        with open_regular(path) as file:
            text = file.read(_MAX_JSON).decode("utf-8", "replace")
        table = _with_folder(parse_json(text), folder)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path.name} of the plugin is not valid JSON: {error}") from error
    return dictionary(table)


def _with_folder(value: Any, folder: Path, *, in_hooks: bool = False, is_line: bool = False) -> Any:
    """A value of a JSON file with the folder of the plugin for `${CLAUDE_PLUGIN_ROOT}`. In a shell
    line the folder is one word, also if its path has blanks.

    Args:
        in_hooks: whether the value is below `hooks`, where a `command` without `args` is a line; that
            of a server is a program.
        is_line: whether a text is a shell line.
    """
    if isinstance(value, list):
        return [_with_folder(item, folder, in_hooks=in_hooks) for item in value]
    if isinstance(value, dict):
        lines = {"headersHelper"}
        if in_hooks and "args" not in value:
            lines.add("command")
        return {
            key: _with_folder(
                item, folder, in_hooks=in_hooks or key == "hooks", is_line=key in lines
            )
            for key, item in value.items()
        }
    if not isinstance(value, str):
        return value
    if is_line:
        from ouro.utils.shell_quoting import insert_values

        return insert_values(value, _ROOT_IN_LINE, lambda _match: [str(folder)])
    return value.replace("${CLAUDE_PLUGIN_ROOT}", str(folder))


def _save(plugins: Mapping[str, Plugin]) -> None:
    """Save the list of installed plugins."""
    write_private(
        _index_path(),
        msgspec.json.format(msgspec.json.encode(dict(sorted(plugins.items()))), indent=2),
    )
