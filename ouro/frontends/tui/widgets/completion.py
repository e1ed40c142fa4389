"""Completion: suggestions for `/` commands and `@` files while they are typed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.text import Text
from textual import events
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from ouro.frontends.project_files import FileIndex
from ouro.utils.text import clean

ROWS = 8
_FILE = re.compile(r"(?:^|[\s(\[{<,;:=\"'`])(@\S*)$")
_COMMAND = re.compile(r"/[\w-]*\Z")


@dataclass(frozen=True, slots=True)
class Suggestion:
    text: str
    """The text that replaces the typed word."""
    label: str
    detail: str = ""
    final: bool = False
    """The command takes no argument: Enter sends it at once."""


class Completion(Widget):
    """The popup above the prompt. The prompt keeps the focus and handles the keys."""

    items: reactive[tuple[Suggestion, ...]] = reactive((), layout=True)
    place: reactive[int] = reactive(0)

    class Picked(Message):
        """The mouse took the chosen suggestion."""

    def __init__(self, commands: Callable[[], Sequence[Suggestion]], files: Callable[[], FileIndex | None]) -> None:
        super().__init__(id="completion")
        self._commands = commands
        self._files = files
        self._dismissed = ""
        self.typed = ""
        """The word that a suggestion replaces."""

    @property
    def is_open(self) -> bool:
        return bool(self.items)

    @property
    def chosen(self) -> Suggestion | None:
        return self.items[self.place] if self.items else None

    def look_at(self, before: str) -> None:
        typed = _word(before)
        if typed and typed == self._dismissed:
            return
        self._dismissed = ""
        items = self._suggest(typed) if typed else ()
        if typed != self.typed or items != self.items:
            self.typed = typed
            self.place = 0
            self.items = items
        self.display = bool(items)

    def move(self, by: int) -> None:
        self.place = (self.place + by) % len(self.items)

    def dismiss(self) -> None:
        """Close; it stays closed until something else is typed."""
        self._dismissed, self.items, self.display = self.typed, (), False

    def stay_above(self, height: int) -> None:
        self.styles.margin = (0, 0, height + 1, 0)

    def _suggest(self, typed: str) -> tuple[Suggestion, ...]:
        if typed.startswith("/"):
            return tuple(_fitting(self._commands(), typed))[:ROWS]
        files = self._files()
        if files is None:
            return (Suggestion(typed, "reading the list of files …"),)
        return tuple(Suggestion(_mention(name), name) for name in files.search(typed[1:], ROWS))

    def render(self) -> Text:
        """The suggestions, a line each; the marked one has a sign of its own, not only a colour."""
        wide = max((len(item.label) for item in self.items), default=0)
        styles = {name: self.get_component_rich_style(f"completion--{name}", partial=True) for name in _STYLES}
        lines = []
        for number, item in enumerate(self.items):
            marked = number == self.place
            line = Text("❯ " if marked else "  ", no_wrap=True, overflow="ellipsis", end="")
            line.append(clean(item.label).ljust(wide), styles["marked" if marked else "label"])
            line.append(f"  {item.detail}" if item.detail else "", styles["detail"])
            line.truncate(max(1, self.size.width), overflow="ellipsis")
            lines.append(line)
        return Text("\n").join(lines)

    def get_content_height(self, *_: object) -> int:
        return len(self.items)

    def on_click(self, event: events.Click) -> None:
        line = event.get_content_offset(self)
        if line is not None and line.y < len(self.items):
            self.place = line.y
            self.post_message(self.Picked())

    COMPONENT_CLASSES = {"completion--marked", "completion--label", "completion--detail"}  # noqa: RUF012 (Textual's own form)


_STYLES = ("marked", "label", "detail")


def _word(before: str) -> str:
    """The command or file being typed; empty if it is neither."""
    if "\n" not in before and _COMMAND.fullmatch(before):
        return before
    found = _FILE.search(before.rpartition("\n")[2])
    return found[1] if found else ""


def _mention(name: str) -> str:
    return f'@"{name}" ' if re.search(r"\s", name) else f"@{name} "


def _fitting(commands: Sequence[Suggestion], typed: str) -> list[Suggestion]:
    """Commands that start so, then those that contain the letters in order."""
    wanted = typed[1:].lower()
    scattered = re.compile(".*".join(map(re.escape, wanted)))
    fits = [command for command in commands if scattered.search(command.label[1:].lower())]
    return sorted(fits, key=lambda command: not command.label[1:].lower().startswith(wanted))
