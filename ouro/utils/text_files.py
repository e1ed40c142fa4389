"""Text files: a change keeps encoding, byte order mark, line endings, mode and group."""

from __future__ import annotations

import codecs
import errno
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ouro.errors import ToolError
from ouro.utils.files import note_written_dir, replace_file

_CONTROLS = bytes([*range(1, 8), *range(14, 27), *range(28, 32), 127])
"""Control characters that text does not have. Escape (27) is in colored output."""
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

_DAMAGED_BYTE = re.compile(r"[\udc80-\udcff]")
"""A byte that is no UTF-8, as Python decodes it with `surrogateescape`."""
_MARK_OF_DAMAGE = "\N{REPLACEMENT CHARACTER}"
"""What stands for a damaged byte in the text that the model and the user see."""
_MIN_CHARS_PER_DAMAGE = 2
"""Characters outside of ASCII for each damaged byte. Texts in other encodings have fewer: in Russian
cp866, which comes nearest, there are twice as many invalid bytes as valid characters.
"""


_COPIED_ATTRIBUTES = ("user.", "system.posix_acl_access")


class NotTextError(ValueError):
    """The bytes are not text."""


class ChangedMeanwhileError(OSError):
    """Another program changed the file between reading and writing."""


class Span(msgspec.Struct, frozen=True):
    """A span of a text and its replacement."""

    start: int
    end: int
    new: str


class TextFile(msgspec.Struct, frozen=True, dict=True):
    """The text of a file, and what must stay when it is changed."""

    raw: str
    """The text with its own line endings."""
    encoding: str = "utf-8"
    byte_order_mark: bytes = b""
    """The byte order mark at its beginning; empty if it has none."""
    is_guess: bool = False
    """Whether nothing but its bytes says which encoding it has."""
    rivals: tuple[str, ...] = ()
    """Encodings that fit the text nearly as well as the guess."""
    is_damaged: bool = False
    """Whether some bytes are no UTF-8. In `raw` each is a surrogate, so that it stays as it is."""

    @cached_property
    def text(self) -> str:
        """The text with `\\n` at the end of each line, and a mark for each damaged byte."""
        text = self.raw.replace("\r" if self.newline == "\r" else "\r\n", "\n")
        return _DAMAGED_BYTE.sub(_MARK_OF_DAMAGE, text) if self.is_damaged else text

    @cached_property
    def newline(self) -> str:
        """The line ending that most lines have."""
        windows, lines = self.raw.count("\r\n"), self.raw.count("\n")
        if not lines and "\r" in self.raw:  # old Mac line endings (before 2001)
            return "\r"
        return "\r\n" if windows * 2 > lines else "\n"

    def splice(self, spans: Iterable[Span]) -> TextFile:
        """Replace the given spans of `text` (they do not overlap); everything else stays byte for
        byte. Raises ToolError as `_restore_damaged`.
        """
        from bisect import bisect_left  # imported late: few sessions need it

        pieces, copied_to = [], 0
        windows_endings = self._positions_of_windows_endings
        for span in sorted(spans, key=lambda item: (item.start, item.end)):
            # For each `\r\n` before it, a position in `text` is less by one than in `raw`.
            start = span.start + bisect_left(windows_endings, span.start)
            end = span.end + bisect_left(windows_endings, span.end)
            new = self._restore_damaged(span.new, self.raw[start:end])
            pieces += [self.raw[copied_to:start], self._with_own_newlines(new)]
            copied_to = end
        return replace(self, raw="".join([*pieces, self.raw[copied_to:]]))

    def with_text(self, text: str) -> TextFile:
        """A copy with another text, in the encoding and with the line endings of this one. Raises
        ToolError as `_restore_damaged`.
        """
        return replace(self, raw=self._with_own_newlines(self._restore_damaged(text, self.raw)))

    def encode(self) -> bytes:
        """The bytes of the file. Raises UnicodeEncodeError: the encoding has no such character."""
        errors = "surrogateescape" if self.is_damaged else "strict"
        return self.byte_order_mark + self.raw.encode(self.encoding, errors)

    def _restore_damaged(self, new: str, old: str) -> str:
        """The text `new`, which replaces `old` of `raw`, with the damaged bytes of `old` instead of
        their marks. Raises ToolError: it is not clear which mark stands for which byte.
        """
        marks = new.count(_MARK_OF_DAMAGE) if self.is_damaged else 0
        if not marks:
            return new
        is_damaged_or_mark = f"{_DAMAGED_BYTE.pattern}|{_MARK_OF_DAMAGE}"
        originals = re.findall(is_damaged_or_mark, old)
        if len(originals) != marks:
            raise ToolError(
                f"The new text has {marks} times U+FFFD, but it replaces {len(originals)} of them, which"
                " stand for bytes that are not UTF-8. Keep all of them, or leave all out."
            )
        return re.sub(_MARK_OF_DAMAGE, lambda _mark: originals.pop(0), new)

    @cached_property
    def _positions_of_windows_endings(self) -> list[int]:
        """Where lines end as in Windows, as offsets into the text without their carriage returns."""
        positions: list[int] = []
        at = self.raw.find("\r\n")
        while at >= 0:
            positions.append(at - len(positions))
            at = self.raw.find("\r\n", at + 2)
        return positions

    def _with_own_newlines(self, text: str) -> str:
        newline = self.newline
        return text if newline == "\n" else text.replace("\r\n", "\n").replace("\n", newline)


def decode_text(data: bytes, path: Path | None = None, encoding: str = "") -> TextFile:
    """Decode a text in the first encoding that fits: `encoding`, that of its byte order mark, UTF-8, the
    one that the file or its project declares, a guessed one. Raises NotTextError if it is not text.

    Args:
        path: where the file is; None: nothing is declared, and there are no files beside it.
        encoding: what the user or the model has named; empty if they named none.
    """
    if encoding and _fits(data, encoding):
        return TextFile(data.decode(encoding), encoding)
    for mark, its_encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            with suppress(UnicodeDecodeError):
                return TextFile(data[len(mark) :].decode(its_encoding), its_encoding, mark)
    with suppress(UnicodeDecodeError):
        if b"\0" not in data:
            return TextFile(data.decode("utf-8"))
    if b"\0" in data:
        utf16 = _guess_utf16(data)
        return TextFile(data.decode(utf16), utf16)
    return _decode_legacy(data, path)


def _decode_legacy(data: bytes, path: Path | None) -> TextFile:
    """Decode a text that is not UTF-8: in the encoding that is declared for it if that fits, otherwise as
    damaged UTF-8 or in a guessed encoding. `path` as in `decode_text`. Raises NotTextError if it is
    not text.
    """
    _require_text(data)
    from ouro.utils.text_encoding import (
        guess_legacy_encoding,
        guess_neighbour_encodings,
        list_declared_encodings,
    )

    declared = list_declared_encodings(path, data[:1024]) if path else []
    for name in declared:
        if _fits(data, name):
            return TextFile(data.decode(name), name)
    if (damaged := _decode_damaged(data)) is not None:
        return damaged
    neighbours = guess_neighbour_encodings(path) if path else ()
    best = guess_legacy_encoding(data, neighbours)
    if best is None:  # in Latin-1 all bytes are characters
        return TextFile(data.decode("latin-1"), "latin-1", is_guess=True)
    return TextFile(data.decode(best.encoding), best.encoding, is_guess=True, rivals=best.rivals)


def _decode_damaged(data: bytes) -> TextFile | None:
    """Decode a text in UTF-8 of which a few bytes were cut, or come from another encoding. None if
    most bytes outside of ASCII are no UTF-8.
    """
    text = data.decode("utf-8", "surrogateescape")
    damaged = len(_DAMAGED_BYTE.findall(text))
    others = len(text) - damaged - len(text.encode("ascii", "ignore"))
    if others < damaged * _MIN_CHARS_PER_DAMAGE:
        return None
    return TextFile(text, is_damaged=True)


def guess_encoding(start: bytes) -> str:
    """The name of the encoding with which a file can be opened, by its first bytes `start`, which
    may end within a character. Raises NotTextError if the file is not text.
    """
    for mark, encoding in _BYTE_ORDER_MARKS:
        if start.startswith(mark):
            # Python skips the mark with these names: `utf-8-sig`, `utf-16`, `utf-32`.
            return "utf-8-sig" if encoding == "utf-8" else encoding.rpartition("-")[0]
    decoder = codecs.getincrementaldecoder("utf-8")()
    with suppress(UnicodeDecodeError):
        if b"\0" not in start:
            decoder.decode(start)  # a character cut at the end is not an error here
            return "utf-8"
    if b"\0" in start:
        whole_units = len(start) // 2 * 2  # the last one may be cut
        return _guess_utf16(start[:whole_units])
    return _decode_legacy(start, path=None).encoding


def _guess_utf16(data: bytes) -> str:
    """`utf-16-le` or `utf-16-be`, for bytes without a mark. In mostly Western text, more than half of the
    high bytes of the characters are zero, and no low byte is. Raises NotTextError if it is neither.
    """
    even, odd = data[:4096:2], data[1:4096:2]
    for encoding, high, low in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        is_western = high.count(0) > len(data[:4096]) / 4 and low.count(0) == 0
        if is_western and _fits(data, encoding):
            return encoding
    raise NotTextError


def _require_text(data: bytes) -> None:
    """Raise NotTextError if more than one byte in fifty is a control character. Only the first 64
    KB are looked at.
    """
    beginning = data[:65536]
    control_count = sum(map(beginning.count, _CONTROLS))
    if control_count * 50 > len(beginning):
        raise NotTextError


def _fits(data: bytes, encoding: str) -> bool:
    """Whether bytes can be decoded, and the text becomes the same bytes again."""
    try:
        return data.decode(encoding).encode(encoding) == data
    except (UnicodeError, LookupError):
        return False


def find_ambiguous_char(before: TextFile, after: TextFile) -> str:
    """A character that a change adds, and that a rival of the guessed encoding would write as other
    bytes: a wrong guess would spoil it. Empty if there is none, or the encoding is not a guess.
    """
    new = Counter(after.raw) - Counter(before.raw) if before.is_guess else Counter()
    for char in sorted(char for char in new if char > "\x7f"):
        own = char.encode(before.encoding, "ignore")
        if any(char.encode(rival, "ignore") != own for rival in before.rivals):
            return char
    return ""


def save_file(
    folder: int,
    name: str,
    data: bytes,
    *,
    expected: os.stat_result | None = None,
    changes_links: bool = True,
) -> os.stat_result:
    """Write `name` in an open folder atomically; its mode, group, access list and extended attributes
    stay. Returns the status of the new file.

    Args:
        changes_links: whether the other hard links of the file get the new content, too.

    If a new file cannot replace the old one without changing its nature (hard links, another owner,
    a group of which the user is no member, a read-only folder), the old file is written in place.

    Raises:
        ChangedMeanwhileError: the file is not as `expected` any more (None: no file is expected).
    """
    before = _stat(folder, name)
    has_links = before is not None and before.st_nlink > 1 and changes_links
    if before is not None and (has_links or before.st_uid != os.geteuid()):
        return _save_in_place(folder, name, data, expected)

    note_written_dir(folder)  # after a kill, the next start removes the temporary file
    try:
        return replace_file(
            folder,
            name,
            data,
            mode=0o666,  # of a new file, less the umask
            prepare=partial(_make_alike, folder, name, before) if before else _leave_as_it_is,
            check=lambda: _require_unchanged(_stat(folder, name), expected),
        )
    except PermissionError:
        if before is None:
            raise
        return _save_in_place(folder, name, data, expected)


def _leave_as_it_is(_descriptor: int) -> None:
    """Change nothing: there was no file before."""


def _make_alike(folder: int, name: str, before: os.stat_result, descriptor: int) -> None:
    """Give a new, empty file the group, the permissions and the attributes of the file `name`. Raises
    PermissionError if it cannot have one of them.
    """
    if os.fstat(descriptor).st_gid != before.st_gid:
        os.fchown(descriptor, -1, before.st_gid)  # before fchmod: it removes the setgid bit
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
    try:
        _copy_attributes(folder, name, descriptor)
    except OSError as error:
        raise PermissionError(errno.EPERM, "cannot copy the attributes") from error


def _copy_attributes(folder: int, name: str, descriptor: int) -> None:
    """Copy the access list and the attributes of the user. Others (`security.…`) are set by the system,
    which also removes a capability from a file that is written.
    """
    if sys.platform != "linux":
        return
    source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        for attribute in _attributes_of(source):
            if attribute.startswith(_COPIED_ATTRIBUTES):
                os.setxattr(descriptor, attribute, os.getxattr(source, attribute))
    finally:
        os.close(source)


def _attributes_of(descriptor: int) -> list[str]:
    """The names of the attributes of an open file; none on a file system without them."""
    if sys.platform != "linux":
        return []
    try:
        return os.listxattr(descriptor)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return []
        raise


def _save_in_place(
    folder: int, name: str, data: bytes, expected: os.stat_result | None
) -> os.stat_result:
    """Overwrite a file that must not be replaced. Raises ChangedMeanwhileError if it is not the
    expected one; None: no file is expected.
    """
    descriptor = os.open(
        name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
    )
    with os.fdopen(descriptor, "wb"):
        _require_unchanged(os.fstat(descriptor), expected)
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.ftruncate(descriptor, len(data))
        os.fsync(descriptor)
        return os.fstat(descriptor)


def _stat(folder: int, name: str) -> os.stat_result | None:
    """The status of a file, or of a link itself; None if there is none."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _require_unchanged(status: os.stat_result | None, expected: os.stat_result | None) -> None:
    """Raise ChangedMeanwhileError if the two are not the same state of a file (None: no file)."""
    if _identity(status) != _identity(expected):
        raise ChangedMeanwhileError


def _identity(status: os.stat_result | None) -> tuple[int, ...]:
    """What differs as soon as a file is replaced or written; empty if there is no file."""
    if status is None:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
