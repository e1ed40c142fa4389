"""Folder: the settings, memory and index of the current folder, for `ouro WORD`."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ouro.errors import ModelError, SearchUnavailable, UsageError
from ouro.memory import index as memory_index
from ouro.memory import long_term
from ouro.safety import SecretMask, child_environment, secret_values
from ouro.utils.git import find_root
from ouro.utils.ouro_paths import get_home, get_index_path, get_memory_dir, get_sessions_dir, tilde
from ouro.utils.path_encoding import text_path
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.mcp import McpServers
    from ouro.memory.index import Embedder, Index, Progress, Search, Sources
    from ouro.memory.long_term import GitMemoryStore, MemoryEditor
    from ouro.safety import Confinement
    from ouro.settings import McpServerSettings, Settings


_VECTOR_SECONDS = 2.0
"""How long a command makes vectors after a change of memory. 10,000 take minutes; a session makes
the others in the background.
"""


class FolderSettings(NamedTuple):
    """The settings of a folder, and whether the user trusts its repository."""

    root: Path
    """The root of its repository."""
    is_trusted: bool
    settings: Settings
    project_servers: Mapping[str, McpServerSettings] = {}
    """The MCP servers that a file of the project defines."""


class Folder:
    """Opens the objects of a folder (settings, memory, index, MCP servers) for a command on the
    command line. Everything in it blocks.

    Args:
        load: reads the settings of a folder; it is called when they are first needed. Raises
            ConfigError.
        folder: the folder; None is the current one.
    """

    def __init__(
        self, load: Callable[[Path | None], FolderSettings], folder: Path | None = None
    ) -> None:
        self._load = load
        self._folder = folder
        self._untrusted: set[Path] = set()
        """Untrusted projects that were already reported."""

    @cached_property
    def _folder_settings(self) -> FolderSettings:
        """The settings, read at first use. Raises ConfigError."""
        return self._load(self._folder)

    def at(self, folder: Path) -> Folder:
        """The objects of another folder, opened in the same way."""
        return Folder(self._load, folder)

    @property
    def settings(self) -> Settings:
        return self._folder_settings.settings

    @contextmanager
    def memory(self) -> Iterator[tuple[MemoryEditor, Sequence[GitMemoryStore]]]:
        """Open memory for a `with` block. Yields an editor of the scopes that could be opened, and
        the stores of all scopes that the settings allow; the repository's only if it is trusted. If
        a memory changed in the block, the index is updated afterwards.

        Raises:
            UsageError: memory is off.
            MemoryUnusable: a newer ouro has written it.
        """
        root, is_trusted, settings, _ = self._folder_settings
        if not settings.memory.enabled:
            raise UsageError("Memory is off.", "Reason: `memory.enabled` in the settings.")
        stores = long_term.memory_stores(
            settings.memory, root if is_trusted else None, self._secret_in
        )
        if settings.memory.repo.enabled and not is_trusted:
            self._warn_of_untrusted(root)
        # A memory that a newer ouro has written is an error here: the command was meant for it.
        scopes = long_term.open_scopes(stores, demands_known=True)
        for problem in scopes.problems:
            warn(problem)
        before = [store.folder_state() for store in stores]
        with self.index() as index:
            # The scopes were opened just now: with many notes a second listing takes as long.
            editor = long_term.MemoryEditor(
                scopes.opened, lambda: index, worktree=root, lists_files=False
            )
            yield editor, stores
            for notice in filter(None, (store.obstacle_notice for store in stores)):
                warn(notice)
            if [store.folder_state() for store in stores] != before:
                changed = index.update(memory_index.Sources.of_notes(stores))
                # Sessions make the vectors of older notes in the background: a command does not
                # wait for them.
                self.make_vectors(index, seconds=_VECTOR_SECONDS, most=changed)

    def servers(self) -> tuple[McpServers, Confinement]:
        """The MCP servers of this folder, which are not started yet, and the confinement in which
        they run. Servers of the project are among them only if it is trusted.

        They ask the user no questions. The caller must close both.

        Raises:
            ConfigError: a file of servers cannot be read.
        """
        from ouro.extensions import plugin_tables
        from ouro.llm import Catalog
        from ouro.mcp import Host, McpServers, find_servers
        from ouro.safety import Confinement

        root, is_trusted, settings, from_project = self._folder_settings
        plugins, problems = plugin_tables("mcpServers")
        trusted_root = root if is_trusted else None
        registry = find_servers(settings.mcp.servers, trusted_root, plugins, from_project)
        for notice in (*problems, *registry.notices):
            warn(notice)
        keys = Catalog.from_files().key_values()
        environment = child_environment(os.environ, secrets=keys)
        memory = (get_memory_dir(), long_term.repo_folder(root))
        confinement = Confinement(
            Path.cwd(), get_home() / "sandbox", settings.sandbox, memory=memory
        )

        def confine(argv: Sequence[str]) -> Sequence[str]:
            return confinement.wrap(argv, "workspace")

        host = Host(
            cwd=Path.cwd(),
            environment=environment,
            secrets=keys,
            notify=lambda _text, _level: None,
            on_question=_decline_question,
            has_user=False,
            confine=confine,
        )
        return McpServers(registry, host), confinement

    def index(self) -> closing[Index]:
        """Open the index on disk, without updating it."""
        return closing(memory_index.Index(get_index_path()))

    def sources(self, index: Index) -> Sources:
        """What the index is made from: the sessions, the user's memory, and the memories of
        repositories. These are the repositories of this folder, of the folders of sessions, and
        those that are in the index already; without those that are not trusted.
        """
        projects = [text_path(project) for project in index.session_projects()]
        roots = [find_root(folder) for folder in (Path.cwd(), *projects) if folder.is_dir()]
        indexed_roots = map(text_path, memory_index.Graph(index).projects())
        core = (*memory_index.CORE_FILES, *self.settings.memory.core)
        folders = []
        for memory_folder in {long_term.repo_folder(root) for root in (*roots, *indexed_roots)}:
            project = memory_index.project_of(memory_folder)
            # A folder that is gone is a source, too: the update then removes it from the index.
            if not memory_folder.is_dir() or long_term.is_memory_trusted(
                text_path(project), Path.cwd()
            ):
                folders.append(memory_index.MemoryFolder("repo", project, memory_folder, core))
            else:
                self._warn_of_untrusted(text_path(project))
        user_memory = memory_index.MemoryFolder("user", "", get_memory_dir(), core)
        return memory_index.Sources(
            get_sessions_dir(), (user_memory, *sorted(folders, key=lambda folder: folder.project))
        )

    @contextmanager
    def search(
        self, progress: Progress | None = None, *, words_only: bool = False
    ) -> Iterator[Search]:
        """Update the index and open a search over it for a `with` block; with vectors if an embedding
        model is configured, unless `words_only`. `progress` is called with the files that are done.
        """
        with self.index() as index:
            index.update(self.sources(index), progress)
            embedder = None if words_only else self._embedder()
            if embedder is None:
                yield memory_index.Search(index, None)
                return
            with closing(embedder):
                yield memory_index.Search(index, memory_index.Vectors(index, embedder))

    def make_vectors(
        self,
        index: Index,
        tables: Sequence[str] = ("notes",),
        *,
        seconds: float = math.inf,
        most: float = math.inf,
    ) -> None:
        """Make missing vectors if an embedding model is configured, until `seconds` are over or
        `most` of them are made. If the model fails, warn and leave the others out.
        """
        embedder = self._embedder()
        if embedder is None:
            return
        with closing(embedder):
            try:
                memory_index.Vectors(index, embedder).fill_all(tables, seconds, most)
            except (ModelError, SearchUnavailable) as error:
                warn(f"Some vectors are missing: {error.message}")

    def _warn_of_untrusted(self, project: Path) -> None:
        """Warn once that the memory of an untrusted project is not read."""
        if project not in self._untrusted:
            self._untrusted.add(project)
            warn(
                f"{tilde(project)} is not trusted: its memory is not read. Start `ouro` there once"
                " to trust it."
            )

    @cached_property
    def mask(self) -> SecretMask:
        """Masks secrets in texts. It is made late, because it reads the keys of models.yaml."""
        from ouro.llm import Catalog

        return SecretMask([*Catalog.from_files().key_values(), *secret_values(os.environ)])

    def _secret_in(self, text: str) -> str:
        """The kind of secret in a text for memory; empty if there is none."""
        return self.mask.kind_in_memory(text)

    def _embedder(self) -> Embedder | None:
        """The embedding model that the settings name, or None if a search uses only words."""
        from ouro.llm import Catalog
        from ouro.memory.sessions.session_catalog import SessionCatalog
        from ouro.memory.yaml_backend import YamlFileMemoryStore
        from ouro.session.budget import VectorBudget

        catalog = SessionCatalog(YamlFileMemoryStore(get_sessions_dir()), str(Path.cwd()))
        budget = VectorBudget(catalog, self.settings.limits)
        return memory_index.choose_embedder(
            self.settings.memory.embedding_model, Catalog.from_files(), budget
        )


async def _decline_question(
    _server: str, _kind: str, _parameters: dict[str, Any]
) -> dict[str, Any]:
    """Decline the question of an MCP server, because no user can be asked on the command line."""
    return {"action": "decline", "refused": "Questions cannot be asked on the command line."}


def warn(text: str) -> None:
    """Print a warning to standard error."""
    sys.stderr.write(f"ouro: {clean(text)}\n")
