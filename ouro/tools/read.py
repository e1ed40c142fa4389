"""Read: show a text, picture, PDF or notebook to the model."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
from msgspec.structs import replace

from ouro.display import Display, Picture, Plain
from ouro.errors import ToolError
from ouro.images import MAX_FILE_BYTES, image_type, make_image
from ouro.messages import Image
from ouro.safety import Effect
from ouro.tools.file_tool import FileTool
from ouro.tools.files_seen import MAX_BYTES, BinaryFileError
from ouro.tools.notebook import CellNotebook, NotebookError
from ouro.tools.tool import ToolContext, ToolResult
from ouro.utils.path_encoding import listed_name
from ouro.utils.text import byte_size, plural
from ouro.utils.text_files import NotTextError, TextFile, guess_encoding

_KINDS_OF_BINARY_FILES = (
    (b"\x7fELF", "an ELF program or library"),
    (b"MZ", "a Windows program"),
    (b"PK\x03\x04", "a zip archive (or an office file, a jar, a wheel)"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\xca\xfe\xba\xbe", "Java bytecode or a macOS program"),
    (b"\xcf\xfa\xed\xfe", "a macOS program"),
    (b"RIFF", "a media file"),
    (b"\x00\x00\x00", "a media file"),
)


def describe_binary(start: bytes) -> str:
    """The kind of a binary file in words, judged by its first bytes; `binary data` if it is
    unknown.
    """
    for mark, kind in _KINDS_OF_BINARY_FILES:
        if start.startswith(mark):
            return kind
    return "binary data"


def pdf_pages(name: str, data: bytes, first: int, count: int) -> tuple[list[str], int]:
    """The text of each of `count` pages of a PDF, from page `first` on (counted from 1), and the
    number of all its pages. There are fewer texts if the PDF ends before.

    Args:
        name: the file, for the error.

    Raises:
        ToolError: the PDF is damaged, or locked.
    """
    from pypdf import PdfReader

    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise ToolError(f"{name} is protected by a password.")
        total = len(reader.pages)
        end = min(first - 1 + count, total)
        return [reader.pages[index].extract_text() for index in range(first - 1, end)], total
    except ToolError:
        raise
    except Exception as error:
        raise ToolError(f"{name} cannot be read: the PDF is damaged ({error}).") from error


MAX_CHARACTERS = 60_000
"""Characters of one result."""
_MAX_LINES = 2000
_MAX_PAGES = 20
"""Pages of a PDF in one result, if the call sets no limit."""
_MAX_LINE = 2000
"""Characters of a line; longer lines are cut."""
_MAX_WHOLE_BYTES = 10_000_000
"""A file with more bytes is read only up to the requested lines."""
_MAX_OFFSET = 1_000_000_000
"""Characters that are read to find the requested lines of a large file."""
_MAX_NAMES = 50
"""Names of a folder that an error lists."""


class ReadArgs(msgspec.Struct, frozen=True):
    path: Annotated[str, msgspec.Meta(description="Relative to the working folder, or absolute.")]
    offset: Annotated[
        int, msgspec.Meta(description="The first line (of a PDF: page), counted from 1.")
    ] = 1
    limit: Annotated[int | None, msgspec.Meta(description="Number of lines (of a PDF: pages).")] = (
        None
    )
    encoding: Annotated[str, msgspec.Meta(description="If the file is not UTF-8.")] = ""

    @property
    def first(self) -> int:
        """The number of the first line or page; models sometimes write 0 for the beginning."""
        return max(1, self.offset)


class Read(FileTool[ReadArgs]):
    """Show lines of a file, each with its number and a tab; also pictures, the text of PDFs, and
    notebooks.

    Read a file before you change it. Up to 2000 lines are shown, each up to 2000 characters; for
    others give offset and limit.
    """

    name = "read"
    effect = Effect.READ
    Args = ReadArgs

    def title(self, args: ReadArgs) -> str:
        shown = self._name_of(args.path)
        if args.limit is None:
            return f"read {shown}" if args.first == 1 else f"read {shown}:{args.first}-"
        return f"read {shown}:{args.first}-{args.first + args.limit - 1}"

    async def run(self, args: ReadArgs, ctx: ToolContext) -> ToolResult:
        return await asyncio.to_thread(self.read_now, args)

    def read_now(self, args: ReadArgs) -> ToolResult:
        """Read a file, of any kind, and return what the model sees of it. Blocks. Raises ToolError:
        it cannot be shown; the message says what to do instead.
        """
        path = self._workspace.resolve(args.path)
        self._workspace.check(path, "read")
        if args.encoding:
            self._seen.set_encoding(path, args.encoding)
        try:
            if path.is_dir():
                raise ToolError(self._folder_message(path))
            if not os.path.lexists(path):
                raise ToolError(
                    f"{self._workspace.shown(path)} does not exist.{self._missing_file_hint(path)}"
                )
            with self._workspace.open(args.path) as file:
                return self._show_file(args, path, file)
        except OSError as error:
            raise ToolError(
                f"{self._workspace.shown(path)} cannot be read: {error.strerror}."
            ) from error

    def _show_file(self, args: ReadArgs, path: Path, file: BinaryIO) -> ToolResult:
        """The result for an opened file, which depends on its kind: picture, PDF, or text. Raises
        ToolError: it is too large, or another kind of binary file.
        """
        start = file.read(65536)
        file.seek(0)
        size = os.fstat(file.fileno()).st_size
        shown = self._workspace.shown(path)
        if image_type(start) or start.startswith(b"%PDF-"):
            if size > MAX_FILE_BYTES:
                raise ToolError(f"{shown} is too large to be shown: {byte_size(size)}.")
            data = file.read()
            if not image_type(start):
                return _pdf_result(shown, data, args)
            image, pixels = make_image(shown, data)
            display = Display(pixels, Picture(shown, image.media_type, len(data)))
            return ToolResult(f"{shown} is a picture ({pixels}).", display, images=(image,))
        try:
            return self._show_text(args, path, file, start)
        except NotTextError:
            hint = "Use the shell to look into it (file, strings, unzip -l, …)."
            raise BinaryFileError(
                f"{shown} is {describe_binary(start)} ({byte_size(size)}), not text. {hint}"
            ) from None

    def _show_text(self, args: ReadArgs, path: Path, file: BinaryIO, start: bytes) -> ToolResult:
        """The result with lines of a text or with cells of a notebook. What the model has now seen
        of the file is recorded. Raises NotTextError.

        Args:
            start: the first bytes of the file.
        """
        status = os.fstat(file.fileno())
        is_notebook = path.suffix.lower() == ".ipynb"
        # Most of a notebook are pictures and outputs, which are left out: it may be larger.
        max_bytes = MAX_BYTES if is_notebook else _MAX_WHOLE_BYTES

        # Of a large file only the wanted lines are kept in memory.
        if status.st_size > max_bytes:
            encoding = guess_encoding(start)
            lines, total = _read_lines(file, encoding, args.first, _limit_of(args))
            self._seen.note_part(path, status)
            of_file = f" of a file of {byte_size(status.st_size)}"
            result = _lines_result(args, path, lines_found=lines, total=total, origin=of_file)
            encoding_note = _describe_encoding(TextFile(raw="", encoding=encoding, is_guess=True))
            return replace(result, text=result.text + encoding_note)

        # Any other file is read as a whole.
        data = self._seen.with_unsaved_changes(path, file.read())
        file_text = self._seen.decode(path, data)
        text = file_text.text
        self._seen.note_read(path, data, text)
        lines = text.removesuffix("\n").split("\n") if text else []
        note = ""
        pictures: list[Image] = []
        if is_notebook:
            lines, pictures, note = _notebook_lines(text, lines)
        shown = lines[args.first - 1 : args.first - 1 + _limit_of(args)]
        result = _lines_result(
            args, path, lines_found=shown, total=len(lines), origin=note, pictures=pictures
        )
        return replace(result, text=result.text + _describe_encoding(file_text))

    def _folder_message(self, path: Path) -> str:
        """The error for the model if the path is a folder: it lists what is in it."""
        return (
            f"{self._workspace.shown(path)} is a folder. Read one of its files, or use glob. It"
            f" holds:\n{_list_folder(path)}"
        )

    def _missing_file_hint(self, path: Path) -> str:
        """The end of an error message about a missing file: which files the model may mean. If there
        are none, what is in the nearest folder that exists, if it is in the working folder: small
        models make up a whole path, and search for the same path next.
        """
        names_hint = self.similar_names_hint(path)
        if names_hint:
            return names_hint
        folder = next(parent for parent in path.parents if parent.is_dir())
        if not folder.is_relative_to(self._workspace.root):
            return " Use glob to find it."
        shown = self._workspace.shown(folder)
        return f" Use glob to find it. The folder {shown} holds:\n{_list_folder(folder)}"


def _notebook_lines(text: str, lines: list[str]) -> tuple[list[str], list[Image], str]:
    """The lines of a notebook by cells, its pictures, and what the note for the model says about
    them. If the notebook is broken: the `lines` of the file, no pictures, and why it is not shown
    by cells.

    Args:
        text: the JSON of the file; `lines` are its lines.
    """
    try:
        rendered, pictures = CellNotebook(text).as_lines()
    except NotebookError as error:
        return lines, [], f" as text, not as cells: {error}"
    note = (
        " of the notebook by cells; edit matches the JSON of the file, notebook_edit changes cells"
    )
    return rendered, pictures, note


def _describe_encoding(file: TextFile) -> str:
    """A line about the encoding of a file that is not UTF-8; else empty."""
    if file.is_damaged:
        return "\n[Bytes that are not UTF-8 are shown as \ufffd. An edit keeps them.]"
    if file.encoding.startswith("utf"):
        return ""
    return f"\n[Read as {file.encoding}{' (a guess)' if file.is_guess else ''}.]"


def _list_folder(folder: Path) -> str:
    """The first _MAX_NAMES names in a folder, one a line; those with a dot at the beginning are last:
    they are rarely the files that the model means. Raises OSError.
    """
    names = [f"{entry.name}/" if entry.is_dir() else entry.name for entry in os.scandir(folder)]
    names.sort(key=lambda name: (name.startswith("."), name))
    others = f"\n… {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return "\n".join(map(listed_name, names[:_MAX_NAMES])) + others


def _limit_of(args: ReadArgs, default: int = _MAX_LINES) -> int:
    """The limit of a call; `default` without one. Models sometimes write 0 or -1 for no limit."""
    return args.limit if args.limit and args.limit > 0 else default


def _pdf_result(shown: str, data: bytes, args: ReadArgs) -> ToolResult:
    """The result with the text of the pages of a PDF, as many as the call wants and as fit. Raises
    ToolError if there is no such page, or the PDF cannot be read.
    """
    pages, total = pdf_pages(shown, data, args.first, count=_limit_of(args, _MAX_PAGES))
    if args.first > total:
        raise ToolError(f"{shown} has {plural(total, 'page')}: there is no page {args.first}.")
    with_numbers = [
        f"--- page {number} of {total}\n{page.strip()}"
        for number, page in enumerate(pages, args.first)
    ]
    fitting = _take_fitting(with_numbers)
    text = "\n".join(fitting)
    if not any(page.strip() for page in pages):
        text += "\n[There is no text on these pages: they may be scanned pictures.]"
    following = args.first + len(fitting)
    missing = len(with_numbers[0]) - len(fitting[0])
    if missing:
        text += (
            f"\n[The last {missing:,} characters of page {args.first} are left out. For these use"
            f" the shell, such as `pdftotext -f {args.first} -l {args.first} FILE -`.]"
        )
    is_cut = following <= total or missing > 0
    if following <= total:
        text += f"\n[Continue with offset={following}.]"
    display = Display(plural(len(fitting), "page"), Plain(text))
    return ToolResult(text, display, is_cut=is_cut)


def _read_lines(
    file: BinaryIO, encoding: str, first: int, count: int
) -> tuple[list[str], int | None]:
    """Read `count` lines of a file of any size, from line `first` on (counted from 1). Returns
    these lines, and the number of all lines of the file; None instead of the number if the end of
    the file was not reached. A long line is cut. Only the returned lines are kept in memory. Raises
    ToolError if they are too far into the file.
    """
    reader = io.TextIOWrapper(file, encoding, errors="replace", newline="\n")
    lines: list[str] = []
    number, characters_read, begins_line = 1, 0, True
    # One line more than wanted shows whether the file ends behind them.
    while len(lines) <= count and characters_read < _MAX_OFFSET:
        piece = reader.readline(_MAX_LINE + 1)  # a line, or a part of a longer one
        if not piece:
            total = number - 1 if begins_line else number
            return lines[:count], total
        characters_read += len(piece)
        if begins_line and number >= first:
            lines.append(piece.rstrip("\r\n"))
        begins_line = piece.endswith("\n")
        if begins_line:
            number += 1
    if number < first:
        raise ToolError(
            f"Line {first} is too far into the file: use the shell (tail, sed -n) to get there."
        )
    return lines[:count], None


def _lines_result(
    args: ReadArgs,
    path: Path,
    lines_found: Sequence[str],
    total: int | None,
    origin: str = "",
    pictures: Sequence[Image] = (),
) -> ToolResult:
    """The result with numbered lines, as many as fit, and where to continue. Raises ToolError if
    there are no lines at the offset of the call.

    Args:
        lines_found: the lines from the offset of the call on.
        total: the number of all lines; None if it is not known.
        origin: what the lines are from, for the note at the end; empty: an ordinary file.
    """
    first = args.first
    if total == 0:
        return ToolResult("[The file is empty.]", Display("empty"))
    if not lines_found:
        raise ToolError(f"The file has {plural(total or 0, 'line')}: there is no line {first}.")
    lines = _take_fitting([_cut_line(line) for line in lines_found])
    last = first + len(lines) - 1
    text = "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, first))
    is_cut = total is None or last < total
    if origin or first > 1 or is_cut:
        of_all = "" if total is None else f" of {total}"
        continuation = f" Continue with offset={last + 1}." if is_cut else ""
        text += f"\n[Lines {first}-{last}{of_all}{origin}.{continuation}]"
    display = Display(
        plural(len(lines), "line"), Plain("\n".join(lines), path.suffix.removeprefix(".").lower())
    )
    return ToolResult(text, display, images=tuple(pictures), is_cut=is_cut)


def _cut_line(line: str) -> str:
    """A line without a carriage return at its end, cut if it is longer than _MAX_LINE."""
    line = line.removesuffix("\r")
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]} [cut: the line goes on]"


def _take_fitting(pieces: Sequence[str]) -> list[str]:
    """The first pieces that fit into a result. If not even the first one does, it is cut."""
    fitting: list[str] = []
    room = MAX_CHARACTERS
    for piece in pieces:
        room -= len(piece) + 8  # the number of a line, and its newline
        if room < 0:
            break
        fitting.append(piece)
    return fitting or [pieces[0][:MAX_CHARACTERS]]
