"""DiffedFile: one file of a diff of git, with its hunks as git wrote them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from ouro.utils.text import byte_size

_FILE = "diff --git "
"""Begins a file: a line of a hunk begins with its sign."""
_HUNK = "@@ -"
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_HUNK_HEAD = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_FACT = re.compile(r"((?:old|new|new file|deleted file) mode|index) ([0-9a-f]+(?:\.\.[0-9a-f]+)?)")
_ESCAPED = re.compile(rb'\\([0-7]{3}|[abfnrtv"\\])')
_ESCAPES = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
}


class DiffedFile(msgspec.Struct, frozen=True):
    path: str
    """Its present name; for a deleted file the one that it had."""
    kind: Literal["changed", "added", "deleted", "renamed"] = "changed"
    old_path: str = ""
    """The name before it was renamed."""
    old_mode: str = "100644"
    """The mode of a deleted file."""
    blobs: tuple[str, str] = ("", "")
    """The ids of its content before and after, as short as git writes them."""
    is_binary: bool = False
    sizes: tuple[int | None, int | None] = (None, None)
    """The bytes before and after, of a binary file where they are known."""
    hunks: tuple[str, ...] = ()
    """The text of each hunk, from `@@` on."""
    notes: tuple[str, ...] = ()
    """What git says about it besides the hunks: another mode, renamed."""

    @property
    def added(self) -> int:
        return self._count("+")

    @property
    def removed(self) -> int:
        return self._count("-")

    @property
    def shown_notes(self) -> tuple[str, ...]:
        """The notes, with the size of a binary file."""
        if not self.is_binary:
            return self.notes
        sizes = " → ".join(byte_size(size) for size in self.sizes if size is not None)
        return (*self.notes, f"binary, {sizes}" if sizes else "binary")

    @property
    def counts(self) -> str:
        """`+3 −1`, or `binary`; empty if no line changed: it was renamed, or has another mode."""
        if self.is_binary:
            return "binary"
        return f"+{self.added} −{self.removed}" if self.hunks else ""

    def _count(self, sign: str) -> int:
        return sum(hunk.count(f"\n{sign}") for hunk in self.hunks)


class HunkSides(msgspec.Struct, frozen=True):
    """The lines of a hunk, with their line ends."""

    start: int
    """The place of its first new line, from 0."""
    old: list[str]
    new: list[str]


def parse_git_diff(text: str) -> list[DiffedFile]:
    """The files of a diff of git, which must have been made with PREFIXES."""
    return [_file(part) for part in _split_before(_FILE, text) if part.startswith(_FILE)]


def hunk_sides(hunk: str) -> HunkSides:
    head, *body = _LINES.findall(hunk)
    found = _HUNK_HEAD.match(head)
    if found is None:
        raise ValueError(f"not a hunk: {head}")
    old, new = [], []
    for line, following in zip(body, [*body[1:], ""], strict=True):
        # `\` follows a line that has no newline.
        text = line[1:].removesuffix("\n") if following.startswith("\\") else line[1:]
        if line[0] in " -":
            old.append(text)
        if line[0] in " +":
            new.append(text)
    has_lines = int(found[4] or 1) > 0
    return HunkSides(int(found[3]) - has_lines, old, new)


def _file(text: str) -> DiffedFile:
    """One file of a diff, from its header and its hunks."""
    head_text, *hunks = _split_before(_HUNK, text.rstrip("\n") + "\n")
    head = head_text.rstrip("\n").split("\n")
    facts = dict(_facts(head))
    old, new = facts.get("rename from", ""), facts.get("rename to", "")
    path = new or facts.get("+++", "") or facts.get("---", "") or _same_name(head[0])
    kind: Literal["changed", "added", "deleted", "renamed"] = "renamed" if old else "changed"
    if "new file mode" in facts:
        kind = "added"
    elif "deleted file mode" in facts:
        kind = "deleted"
    is_binary = "binary" in facts
    notes = tuple(_notes(facts))
    mode = facts.get("deleted file mode", "100644")
    before, _, after = facts.get("index", "").partition("..")
    return DiffedFile(
        path, kind, old, mode, (before, after), is_binary, hunks=tuple(hunks), notes=notes
    )


def _split_before(words: str, text: str) -> Iterator[str]:
    """The text in pieces: a line that begins with `words` begins a piece."""
    start = 0
    while (end := text.find(f"\n{words}", start) + 1) > 0:
        yield text[start:end]
        start = end
    yield text[start:]


def _facts(head: list[str]) -> Iterator[tuple[str, str]]:
    """What the header of a file says, each with its first words as the name."""
    for row in head[1:]:
        if row.startswith(("--- ", "+++ ")):
            if row[4:] != "/dev/null":
                yield row[:3], _name(row[4:].rstrip("\t"), "a/" if row[0] == "-" else "b/")
        elif row.startswith(("Binary files ", "GIT binary patch")):
            yield "binary", row
        elif found := _FACT.match(row):
            yield found[1], found[2]
        elif found := re.match(r"((?:rename|copy) (?:from|to)) (.+)", row):
            yield found[1], _name(found[2], "")


def _notes(facts: dict[str, str]) -> Iterator[str]:
    """What changed beside the content: the name, or the mode."""
    if "rename from" in facts:
        yield f"renamed from {facts['rename from']}"
    if "copy from" in facts:
        yield f"copied from {facts['copy from']}"
    if "old mode" in facts:
        yield f"mode {facts['old mode']} → {facts['new mode']}"


def _same_name(head: str) -> str:
    """The name in `diff --git a/NAME b/NAME`, where no other line has it."""
    names = head.removeprefix("diff --git ")
    return _name(names[len(names) // 2 + 1 :], "b/")


def _name(written: str, prefix: str) -> str:
    """A name as git writes it: in quotes if it has odd characters."""
    if len(written) > 1 and written[0] == written[-1] == '"':
        quoted = written[1:-1].encode("utf-8", "surrogateescape")
        written = _ESCAPED.sub(_character, quoted).decode("utf-8", "surrogateescape")
    return written.removeprefix(prefix)


def _character(found: re.Match[bytes]) -> bytes:
    code = found[1]
    return bytes([int(code, 8) & 255]) if len(code) == 3 else _ESCAPES.get(code, code)
