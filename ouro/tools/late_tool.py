"""Tools that are imported when they are first called; their schemas come from a cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from ouro import __version__
from ouro.display import Display
from ouro.llm import ToolSpec
from ouro.safety import Effect
from ouro.tools.tool import AnyTool, Tool, ToolContext, ToolResult
from ouro.utils.decoding import decode_json
from ouro.utils.files import write_private
from ouro.utils.ouro_paths import ensure_private_dir, get_home


class SchemaCache:
    """The specs of built-in tools in a file of the home folder, which may be deleted.

    They are valid for a version of ouro and its source files, by size and time of change. `path` is
    the file; None: the usual one.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or get_home() / "cache" / "tool_schemas.json"
        self._has_new = False
        """Whether a spec was added that is not saved yet."""

    @cached_property
    def _specs(self) -> dict[str, ToolSpec]:
        """The saved specs by the name of the tool. Empty if the file is missing or damaged, or if
        it was written by another version of ouro or from other source files.
        """
        with suppress(OSError, msgspec.MsgspecError, ValueError):
            saved = decode_json(self._path.read_bytes(), _SavedSpecs)
            if saved.version == self._state_of_sources:
                return {spec.name: spec for spec in saved.specs}
        return {}

    @cached_property
    def _state_of_sources(self) -> str:
        """The version of ouro, and the size and time of change of the source files that specs are
        made from. Specs of another state are not used.
        """
        folder = Path(__file__).parent
        stats = [(folder / f"{name}.py").stat() for name in _SOURCES]
        sizes = ",".join(f"{stat.st_size}:{stat.st_mtime_ns}" for stat in stats)
        return f"{__version__} {sizes}"

    def spec(self, name: str, tool: Callable[[], AnyTool]) -> ToolSpec:
        """The saved spec of a tool. If none is saved, `tool` is called; the spec of the tool that
        it returns is stored, and `save` will save it.
        """
        if name not in self._specs:
            self._specs[name] = tool().spec()
            self._has_new = True
        return self._specs[name]

    def save(self) -> None:
        """Save the specs if there is a new one. A folder that cannot be written is no error."""
        if not self._has_new:
            return
        self._has_new = False
        saved = _SavedSpecs(self._state_of_sources, list(self._specs.values()))
        with suppress(OSError):
            ensure_private_dir(self._path.parent)
            write_private(self._path, msgspec.json.encode(saved))


class _SavedSpecs(msgspec.Struct):
    """The content of the file."""

    version: str
    specs: list[ToolSpec]


_SOURCES = (
    "apply_patch", "ask_user", "code_checks", "edit", "file_tool", "files_seen", "glob", "grep",
    "grep_search", "memory_search", "notebook", "notebook_edit", "read", "tool", "web_fetch",
)  # fmt: skip
"""The source files that the specs are made from; a change of one makes the cache invalid."""


class LateTool(Tool[Any]):
    """Stands for a built-in tool until it is called, so that an answer without calls does not
    import it.
    """

    def __init__(
        self, name: str, effect: Effect, load: Callable[[], AnyTool], schemas: SchemaCache
    ) -> None:
        self.name = name
        self.effect = effect
        self._load = load
        self._schemas = schemas

    @cached_property
    def loaded(self) -> AnyTool:
        """The tool itself, imported when it is first needed."""
        return self._load()

    @property
    def Args(self) -> type[Any]:  # type: ignore[override]  # noqa: N802
        return self.loaded.Args

    def spec(self) -> ToolSpec:
        return self._schemas.spec(self.name, lambda: self.loaded)

    def resolve(self, args: Any) -> tuple[AnyTool, Any]:
        return self.loaded.resolve(args)

    def parse(self, arguments: Mapping[str, Any]) -> Any:
        return self.loaded.parse(arguments)

    def title(self, args: Any) -> str:
        return self.loaded.title(args)

    def targets(self, args: Any) -> tuple[str, ...]:
        return self.loaded.targets(args)

    def runs_outside(self, args: Any) -> bool:
        return self.loaded.runs_outside(args)

    def plain_arguments(self, args: Any) -> dict[str, Any]:
        return self.loaded.plain_arguments(args)

    async def prepare(self, args: Any) -> Any:
        return await self.loaded.prepare(args)

    async def preview(self, args: Any) -> Display:
        return await self.loaded.preview(args)

    async def run(self, args: Any, ctx: ToolContext) -> ToolResult:
        return await self.loaded.run(args, ctx)
