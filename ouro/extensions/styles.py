"""Output styles: files that say how the agent answers, and the one in use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from ouro.errors import UsageError
from ouro.extensions.discovery import ExtensionFile, Source
from ouro.utils.yaml import split_front_matter

BUILT_IN = Path(__file__).with_name("builtin_styles")
"""The folder with a file for each style of ouro."""
NO_STYLE = "default"
"""The name that means: no style."""


class OutputStyle(msgspec.Struct, frozen=True):
    """A way to answer, and the instructions for it."""

    name: str
    description: str
    text: str
    """What the model reads."""
    source: Source


class OutputStyles:
    """The styles of ouro, of the user and, if it is trusted, of the project.

    Args:
        files: files of the kind `output-styles`; one with the name of a built-in style replaces it.
        wanted: the name of the style in use; empty or `default`: none.
        save: writes the name into the user's settings. Blocks.
    """

    def __init__(
        self,
        files: Iterable[ExtensionFile],
        wanted: str = "",
        save: Callable[[str], object] = lambda _name: None,
    ) -> None:
        self._save = save
        self.all: Mapping[str, OutputStyle] = {
            style.name.casefold(): style for style in (*_built_in(), *map(_style_of, files))
        }
        self.problem = ""
        """Why the wanted style is not in use; empty if it is."""
        self.current: OutputStyle | None = None
        try:
            self.use(wanted)
        except UsageError as error:
            self.problem = f"style: {error}"

    def use(self, name: str) -> None:
        """Answer in the style with this name from the next message on. The names `default`, `off`
        and `none`, and an empty one, mean no style. Raises UsageError if there is no such style.
        """
        if name.casefold() in ("", NO_STYLE, "off", "none"):
            self.current = None
            return
        style = self.all.get(name.casefold())
        if style is None:
            names = ", ".join([NO_STYLE, *(style.name for style in self.all.values())])
            raise UsageError(f"There is no output style `{name}`.", f"There are: {names}.")
        self.current = style

    @property
    def name(self) -> str:
        """The name of the style in use."""
        return self.current.name if self.current else NO_STYLE

    def save(self) -> None:
        """Use the present style in new sessions, too. Blocks. Raises ConfigError."""
        self._save(self.current.name if self.current else "")

    def for_model(self) -> str:
        """The text for the model about the style in use; empty if none is."""
        if self.current is None:
            return ""
        return f"{self.current.name}. The user wants you to answer like this:\n{self.current.text}"


def _built_in() -> Iterable[OutputStyle]:
    """Yields the styles of ouro."""
    for path in sorted(BUILT_IN.glob("*.md")):
        meta, body = split_front_matter(path.read_text(encoding="utf-8"))
        yield OutputStyle(
            path.stem,
            description=str(meta.get("description", "")),
            text=body.strip(),
            source="built in",
        )


def _style_of(file: ExtensionFile) -> OutputStyle:
    return OutputStyle(file.name, file.description, text=file.body, source=file.source)
