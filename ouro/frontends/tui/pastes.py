"""PasteSplitter: tells pasted text from keys in what a terminal sends."""

from __future__ import annotations

_BEGIN, _END = "\x1b[200~", "\x1b[201~"


class PasteSplitter:
    """Takes what is read, piece by piece, and gives it on as keys and as whole pastes.

    Textual's own parser takes an escape sequence inside a paste for keys, a line end after it for Enter.
    """

    def __init__(self) -> None:
        self._held = ""
        self._pasted: list[str] | None = None

    @property
    def holds(self) -> bool:
        """Whether something is kept back that may be the begin of a paste, or only the Esc key."""
        return bool(self._held) and self._pasted is None

    def feed(self, text: str) -> list[tuple[bool, str]]:
        """What can be said by now: pairs of whether it was pasted, and the text."""
        given: list[tuple[bool, str]] = []
        rest, self._held = self._held + text, ""
        while rest:
            mark = _BEGIN if self._pasted is None else _END
            before, found, after = rest.partition(mark)
            if not found:
                self._held = _beginning_of(mark, rest)
                before = rest[: len(rest) - len(self._held)]
            if self._pasted is not None:
                self._pasted.append(before)
            elif before:
                given.append((False, before))
            if found and self._pasted is not None:
                given.append((True, "".join(self._pasted)))
            if found:
                self._pasted = [] if self._pasted is None else None
            rest = after
        return given

    def release(self) -> str:
        """What was kept back, as keys: nothing came after it."""
        held, self._held = self._held, ""
        return held


def _beginning_of(mark: str, text: str) -> str:
    """The end of `text` that `mark` may begin with."""
    return next((text[-size:] for size in range(len(mark) - 1, 0, -1) if text.endswith(mark[:size])), "")
