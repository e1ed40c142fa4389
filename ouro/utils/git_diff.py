"""DiffedFile: one file of a diff of git, with its hunks as git wrote them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from ouro.utils.text import byte_size

_FILE_START = "diff --git "
"""Begins a file: a line of a hunk begins with its sign."""
_HUNK_START = "@@ -"
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_HUNK_HEAD = re.compile(r"@@ -\d+(?:,\d+)? \+(?P<start>\d+)(?:,(?P<count>\d+))? @@")
_HEADER_FACT = re.compile(
    r"(?P<name>(?:old|new|new file|deleted file) mode|index)"
    r" (?P<value>[0-9a-f]+(?:\.\.[0-9a-f]+)?)"
)
"""A line of a file's header: `new file mode 100644`, `index 3b18e51..9daeafb`."""
_ESCAPE = re.compile(rb'\\([0-7]{3}|[abfnrtv"\\])')
"""An escape in a quoted name: `\\303`, `\\t`."""
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
    """The files of a diff of git, which must have been made with the arguments `PREFIXES` of `git`. What
    is before the first file is left out.
    """
    files = _split_before(_FILE_START, text)
    return [_parse_file(file) for file in files if file.startswith(_FILE_START)]


def hunk_sides(hunk: str) -> HunkSides:
    """The old and the new lines of a hunk. Raises ValueError if it is not a hunk."""
    head, *body = _LINE.findall(hunk)
    numbers = _HUNK_HEAD.match(head)
    if numbers is None:
        raise ValueError(f"not a hunk: {head}")
    old, new = [], []
    for line, following in zip(body, [*body[1:], ""], strict=True):
        # `\` follows a line that has no newline.
        text = line[1:].removesuffix("\n") if following.startswith("\\") else line[1:]
        if line[0] in " -":
            old.append(text)
        if line[0] in " +":
            new.append(text)
    start = int(numbers["start"])
    if int(numbers["count"] or 1) > 0:
        start -= 1  # git counts from 1
    # A hunk without new lines has the number of the line before it: from 0, that of the next one.
    return HunkSides(start, old, new)


def _parse_file(text: str) -> DiffedFile:
    """One file of a diff, from its header and its hunks."""
    head_text, *hunks = _split_before(_HUNK_START, text.rstrip("\n") + "\n")
    head = head_text.rstrip("\n").split("\n")
    facts = dict(_header_facts(head))
    old_path, new_path = facts.get("rename from", ""), facts.get("rename to", "")
    path = new_path or facts.get("+++", "") or facts.get("---", "") or _name_in_head(head[0])
    kind: Literal["changed", "added", "deleted", "renamed"] = "renamed" if old_path else "changed"
    if "new file mode" in facts:
        kind = "added"
    elif "deleted file mode" in facts:
        kind = "deleted"
    is_binary = "binary" in facts
    notes = tuple(_change_notes(facts))
    mode = facts.get("deleted file mode", "100644")
    before, _, after = facts.get("index", "").partition("..")
    return DiffedFile(
        path=path,
        kind=kind,
        old_path=old_path,
        old_mode=mode,
        blobs=(before, after),
        is_binary=is_binary,
        hunks=tuple(hunks),
        notes=notes,
    )


def _split_before(beginning: str, text: str) -> Iterator[str]:
    """Yield the text in pieces: each line that begins with `beginning` begins a piece. The first piece is
    what is before the first such line.
    """
    start = 0
    while (end := text.find(f"\n{beginning}", start) + 1) > 0:
        yield text[start:end]
        start = end
    yield text[start:]


def _header_facts(head: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the facts in a file's header as name and value: (`new file mode`, `100644`), (`+++`,
    the new path). A path `/dev/null` is left out: it stands for no file.
    """
    for row in head[1:]:
        if row.startswith(("--- ", "+++ ")):
            if row[4:] != "/dev/null":
                yield row[:3], _unquote_name(row[4:].rstrip("\t"), "a/" if row[0] == "-" else "b/")
        elif row.startswith(("Binary files ", "GIT binary patch")):
            yield "binary", row
        elif match := _HEADER_FACT.match(row):
            yield match["name"], match["value"]
        elif match := re.match(r"(?P<name>(?:rename|copy) (?:from|to)) (?P<path>.+)", row):
            yield match["name"], _unquote_name(match["path"], prefix="")


def _change_notes(facts: dict[str, str]) -> Iterator[str]:
    """Yield a phrase for each change besides the content: of the name, or the mode."""
    if "rename from" in facts:
        yield f"renamed from {facts['rename from']}"
    if "copy from" in facts:
        yield f"copied from {facts['copy from']}"
    if "old mode" in facts:
        yield f"mode {facts['old mode']} → {facts['new mode']}"


def _name_in_head(head: str) -> str:
    """The name in `diff --git a/NAME b/NAME`. It is needed if no other line of the header has the
    name of the file.
    """
    # Both halves are equal, so that the middle is found although NAME may contain ` b/`.
    names = head.removeprefix("diff --git ")
    return _unquote_name(names[len(names) // 2 + 1 :], "b/")


def _unquote_name(name: str, prefix: str) -> str:
    """The name that git wrote, without its prefix. git puts a name with odd characters in quotes, with
    escapes, which are removed.
    """
    if len(name) > 1 and name[0] == name[-1] == '"':
        quoted = name[1:-1].encode("utf-8", "surrogateescape")
        name = _ESCAPE.sub(_escaped_byte, quoted).decode("utf-8", "surrogateescape")
    return name.removeprefix(prefix)


def _escaped_byte(match: re.Match[bytes]) -> bytes:
    """The byte that an escape stands for."""
    code = match[1]
    return bytes([int(code, 8) & 255]) if len(code) == 3 else _ESCAPES.get(code, code)
