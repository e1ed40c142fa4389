"""SessionFoot: the keys of the picker; for as long as no key is pressed, what has just happened instead."""

from __future__ import annotations

from collections.abc import Sequence

from textual.widgets import Static

from ouro.frontends.tui.keymap import Keymap


class SessionFoot(Static):
    """One line or two at the foot of the picker."""

    def __init__(self, keymap: Keymap, esc: str) -> None:
        """`esc` says what Esc does."""
        super().__init__(id="sessions-foot", markup=False)
        self._keymap = keymap
        self._esc = esc
        self._is_told = False

    def tell(self, text: str, kind: str = "-asks") -> None:
        """Say this until `hear`: what is asked (`-asks`), or what went wrong (`-failed`)."""
        self._is_told = True
        self.set_class(False, "-asks", "-failed")
        self.add_class(kind)
        self.update(text)

    def hear(self) -> None:
        """A key was pressed: what was told is read."""
        self._is_told = False

    def tell_keys(self, *, in_list: bool, shows_all: bool, looks: bool, only_one: bool) -> None:
        """Name the keys.

        Args:
            in_list: the list has them, where letters are keys too.
            shows_all: the sessions of all projects are listed.
            looks: there is no room for what is in a session beside the list: a key shows it.
            only_one: there is room for one line.
        """
        if self._is_told:
            return
        name = self._letter if in_list else self._keymap.shown
        parts = [
            "Enter",
            f"{self._keymap.shown('change_scope')} {'this project' if shows_all else 'all'}",
            f"{name('fork_session')} copy",
            f"{name('rename_session')} rename",
            f"{name('delete_session')} delete",
            f"{name('look_inside')} looks inside" if looks else "",
            "Tab search" if in_list else "Tab list",
            f"Esc {self._esc}",
        ]
        self.set_class(False, "-asks", "-failed")
        self.update(_in_lines(parts, self.size.width or self.app.size.width, only_one))

    def _letter(self, name: str) -> str:
        keys = self._keymap.keys(name)
        return next((each for each in keys if len(each) == 1 or each == "space"), self._keymap.shown(name))


def _in_lines(parts: Sequence[str], width: int, only_one: bool) -> str:
    """What is told of the keys, in one line or two; on one, what does not fit is left out before the last."""
    lines = [""]
    shown = [part for part in parts if part]
    while only_one and len(" · ".join(shown)) > width and len(shown) > 2:
        shown.pop(-2)
    for part in shown:
        longer = f"{lines[-1]} · {part}" if lines[-1] else part
        lines = [*lines[:-1], longer] if len(longer) <= width else [*lines, part]
    return "\n".join(lines)
