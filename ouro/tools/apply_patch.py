"""ApplyPatch: change several files with one patch."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, groupby
from typing import Annotated, Literal, cast

import msgspec
from msgspec.structs import replace

from ouro.display import Diff, Display, FileChange
from ouro.errors import ToolError
from ouro.safety import Access
from ouro.tools.file_tool import ChangeTool, display_of, file_change
from ouro.tools.files_seen import (
    FileBefore,
    FilesSeen,
    encode,
    require_encodable,
    require_writable,
)
from ouro.tools.lookalike_names import find_existing
from ouro.tools.text_match import (
    TOLERANCES,
    Lines,
    find_lines,
    keep_characters,
    nearest_lines,
    reindent_between,
)
from ouro.utils.late_pattern import late_pattern
from ouro.utils.log import log
from ouro.utils.path_encoding import path_text
from ouro.utils.text_files import Span, TextFile, save_file

BEGIN, END = "*** Begin Patch", "*** End Patch"
_END_OF_FILE = "*** End of File"
_FILE_HEADER = late_pattern(r"\*\*\* (?P<verb>Add|Delete|Update) File: (?P<path>.+)")
_MOVE_HEADER = late_pattern(r"\*\*\* Move to: (.+)")
_UNIFIED_HEADER = late_pattern(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@.*")
_HEREDOC_OR_FENCE = late_pattern(r"(?:.*<<-?\s*['\"]?\w+['\"]?|```\w*)\s*")
"""A line that models write before a patch: `apply_patch <<'EOF'`, or a Markdown fence."""
_COMPARISONS: dict[str, Callable[[str], str]] = {"": str, **TOLERANCES}
"""The tolerances in words, each with the function that makes lines comparable; first, with an empty
text, lines that are equal.
"""


NoteWritten = Callable[[FileBefore, bytes | None], None]
"""Notes that a call has written a file: its arguments are the file before, and its new content; None if
it was deleted.
"""
FileVerb = Literal["Add", "Delete", "Update"]


class Hunk(msgspec.Struct):
    """One place to change: lines marked ` `, `-` or `+`, after the lines that `headers` name."""

    line: int
    """The line of the patch where it begins."""
    headers: tuple[str, ...] = ()
    lines: list[tuple[str, str]] = msgspec.field(default_factory=list)
    """The mark and the text of each line."""
    at_end: bool = False
    """Whether the patch says that it is at the end of the file."""

    @property
    def old(self) -> list[str]:
        """The lines that the file must have."""
        return [text for mark, text in self.lines if mark != "+"]

    @property
    def has_text(self) -> bool:
        """Whether it has more than blank lines of context."""
        return any(text or mark != " " for mark, text in self.lines)


class FilePatch(msgspec.Struct):
    """The changes of one file."""

    kind: FileVerb
    path: str
    moved_to: str = ""
    content: list[str] = msgspec.field(default_factory=list)
    """The lines of an added file."""
    hunks: list[Hunk] = msgspec.field(default_factory=list)


def parse_patch(text: str) -> list[FilePatch]:
    """What a patch says about each of its files. Raises ToolError if it does not follow the format;
    the message names the line.
    """
    lines = TextFile(text).text.strip("\n").split("\n")
    first, last = _find_begin_and_end(lines)
    files: list[FilePatch] = []
    for number in range(first + 1, last):
        line = lines[number]
        # Inside of an update an indented header is a context line: a file may hold one.
        is_inside = bool(files) and files[-1].kind == "Update"
        if match := _FILE_HEADER.fullmatch(line.rstrip() if is_inside else line.strip()):
            files.append(FilePatch(cast("FileVerb", match["verb"]), match["path"].strip()))
        elif files:
            _read_line(files[-1], lines, number)
        elif line.strip():
            raise _wrong_line_error(
                number, line, "expected *** Add File:, *** Update File: or *** Delete File:"
            )
    _require_complete(files)
    return files


def _read_line(file: FilePatch, lines: list[str], number: int) -> None:
    """Read the line with this number below the header of a file, into `file`. Blank lines that are
    no part of it are skipped. Raises ToolError for any other line.
    """
    line = lines[number]
    expected = "expected a file header"
    if file.kind == "Update":
        _read_update(file, number, line)
        return
    if file.kind == "Add":
        expected = "each line of an added file begins with +"
        # A blank line belongs to the added file if more lines of it follow. There is a next line:
        # the end mark, at the latest.
        is_blank_inside = not line.strip() and lines[number + 1].startswith("+")
        if is_blank_inside or line.startswith("+"):
            file.content.append(line[1:])
            return
    if line.strip():
        raise _wrong_line_error(number, line, expected)


def _find_begin_and_end(lines: list[str]) -> tuple[int, int]:
    """The indexes of the lines with the begin mark and with the end mark. Before the begin mark
    only a heredoc or a Markdown fence may stand; what follows the end mark is ignored. Raises
    ToolError if a mark is missing.
    """
    first = next((at for at, line in enumerate(lines) if line.strip() == BEGIN), None)
    if first is None or any(
        line.strip() and not _HEREDOC_OR_FENCE.fullmatch(line) for line in lines[:first]
    ):
        raise _wrong_line_error(number=0, line=lines[0], expected=f"a patch begins with {BEGIN}")
    last = next((at for at in range(len(lines) - 1, first, -1) if lines[at].strip() == END), None)
    if last is None:
        raise _wrong_line_error(
            len(lines) - 1, lines[-1], f"a patch ends with {END}; this one may have been cut off"
        )
    return first, last


def _read_update(file: FilePatch, number: int, line: str) -> None:
    """Read a line below the header of an update, into `file`: the new path of the file, a header or
    a line of a hunk, or the mark of the end of the file. Raises ToolError for any other line.
    """
    hunk = file.hunks[-1] if file.hunks else None
    if hunk is None and (moved := _MOVE_HEADER.fullmatch(line.rstrip())):
        file.moved_to = moved[1].strip()
    elif line.startswith("@@"):
        _read_hunk_header(file, number, line)
    elif line.strip() == _END_OF_FILE:
        if hunk is None:
            raise _wrong_line_error(number, line, "there is no change before it")
        hunk.at_end = True
    elif line[:1] in (" ", "+", "-", ""):
        _read_hunk_line(file, number, line)
    else:
        raise _wrong_line_error(number, line, "a line of a change begins with a space, + or -")


def _read_hunk_header(file: FilePatch, number: int, line: str) -> None:
    """Read a line `@@ NAME`, which begins a new hunk. Several such lines in a row belong to one
    hunk. The line numbers of a unified diff (`@@ -1,2 +1,3 @@`) are ignored.
    """
    if not file.hunks or file.hunks[-1].lines:
        file.hunks.append(Hunk(number))
    if _UNIFIED_HEADER.fullmatch(line):
        return
    header = line[2:].removeprefix(" ")
    if header.strip():
        file.hunks[-1].headers += (header,)


def _read_hunk_line(file: FilePatch, number: int, line: str) -> None:
    """Add a line to the last hunk of a file. If there is no hunk yet, or the last one is at the end
    of the file, a new hunk begins with this line, unless it is blank: then it is ignored. An empty
    line counts as a blank line of context.
    """
    if not file.hunks or file.hunks[-1].at_end:
        if not line.strip():
            return
        file.hunks.append(Hunk(number))
    file.hunks[-1].lines.append((line[:1] or " ", line[1:]))


def _require_complete(files: list[FilePatch]) -> None:
    """Remove the hunks that have only blank lines. Raises ToolError if the patch then changes
    nothing in a file, or names no file, or names one twice.
    """
    if not files:
        raise ToolError("The patch is empty: it names no file.")
    for file in files:
        file.hunks = [hunk for hunk in file.hunks if hunk.has_text]
        if file.kind == "Update" and not file.hunks and not file.moved_to:
            raise ToolError(f"The patch changes nothing in {file.path}.")
    paths = _list_paths(files)
    for path in paths:
        if paths.count(path) > 1:
            raise ToolError(f"The patch names {path} twice: put all its changes below one header.")


def _list_paths(files: Sequence[FilePatch]) -> tuple[str, ...]:
    """The paths that a patch names, also those to which it moves files."""
    paths: list[str] = []
    for file in files:
        paths += filter(None, (file.path, file.moved_to))
    return tuple(paths)


def _wrong_line_error(number: int, line: str, expected: str) -> ToolError:
    """The error about a line of the patch, to be raised."""
    return ToolError(
        f"Line {number + 1} of the patch is wrong: {expected}. The line is: {line[:200]}"
    )


def apply_hunks(file: TextFile, hunks: Sequence[Hunk], notes: list[str]) -> TextFile:
    """The file with its hunks applied. A note on each tolerated difference is added to `notes`. A
    last line without a newline keeps that, unless a hunk writes it.

    Raises:
        ToolError: a place cannot be found; the message shows the nearest lines.
    """
    # With a newline at the end, all lines are alike.
    lacks_last_newline = file.text != "" and not file.text.endswith("\n")
    if lacks_last_newline:
        file = replace(file, raw=file.raw + file.newline)
    lines = file.text.split("\n")[:-1]
    spans: list[Span] = []  # in lines, not yet in characters
    taken: set[int] = set()
    search_from = 0
    for hunk in hunks:
        start = search_from
        for header in hunk.headers:
            start = _find_header(lines, hunk, header, start) + 1
        first, size = _find_hunk(lines, hunk, start, taken, notes)
        taken.update(range(first, first + size))
        spans += _changed_spans(lines, hunk, first, size)
        search_from = first + size
    starts = Lines(file.text).starts
    after = file.splice(Span(starts[span.start], starts[span.end], span.new) for span in spans)
    is_last_written = any(span.end == len(lines) for span in spans)
    if lacks_last_newline and not is_last_written:
        return replace(after, raw=after.raw.removesuffix(file.newline))
    return after


def _find_header(lines: list[str], hunk: Hunk, header: str, start: int) -> int:
    """The index of the line that a header names: a line with this text; if there is none, a line
    that begins with it. The first such line from `start` on counts; if there is none, the first one
    in the file. Raises ToolError if no line begins with it.
    """
    positions, _ = _find_positions(lines, [header], start)
    if not positions:
        positions, _ = _find_positions(lines, [header], start=0)
    if positions:
        return positions[0]
    beginning = header.strip()
    begins_with = [at for at, line in enumerate(lines) if line.strip().startswith(beginning)]
    if not begins_with:
        near = nearest_lines(lines, [header])
        raise ToolError(
            f"Line {hunk.line + 1} of the patch: no line is `{header}`.{_nearest_lines_hint(near)}"
        )
    return next((at for at in begins_with if at >= start), begins_with[0])


def _find_hunk(
    lines: list[str], hunk: Hunk, start: int, taken: set[int], notes: list[str]
) -> tuple[int, int]:
    """The index of the line where a hunk begins, and how many lines of the file it replaces.

    A hunk that only adds lines is put below its headers; without headers, at the end of the file. A
    note on a tolerated difference is added to `notes`. Raises ToolError if its lines are not there.

    Args:
        start: the index of the line from which on the hunk is looked for first.
        taken: the indexes of lines that other hunks replace.
    """
    old = hunk.old
    if not old:
        is_below_headers = bool(hunk.headers) and not hunk.at_end
        return (start if is_below_headers else len(lines)), 0
    attempts = [old]
    if len(old) > 1 and not old[-1]:
        # Models sometimes end a hunk with an empty line that is not in the file.
        attempts.append(old[:-1])
    for wanted in attempts:
        positions, tolerance = _find_free_positions(lines, hunk, wanted, start, taken)
        if positions:
            notes += _deviation_notes(hunk, positions, tolerance)
            return positions[0], len(wanted)
    raise ToolError(
        f"Line {hunk.line + 1} of the patch: these lines are not in the"
        f" file.{_nearest_lines_hint(nearest_lines(lines, old))}"
    )


def _find_free_positions(
    lines: list[str], hunk: Hunk, wanted: list[str], start: int, taken: set[int]
) -> tuple[list[int], str]:
    """The positions of the lines `wanted` that no other hunk has taken, and the tolerance that
    found them. They are looked for from `start` on; if they are not there, in the whole file, where
    they must be unique. For a hunk at the end of the file, a position at its end is preferred.
    """
    positions, tolerance = _find_positions(lines, wanted, start)
    if not positions:  # the changes are not in the order of the file
        positions, tolerance = _find_positions(lines, wanted, start=0)
        if len(positions) > 1:
            positions = []
    if hunk.at_end:
        at_end = [at for at in positions if at + len(wanted) == len(lines)]
        positions = at_end or positions
    return [at for at in positions if taken.isdisjoint(range(at, at + len(wanted)))], tolerance


def _deviation_notes(hunk: Hunk, positions: list[int], tolerance: str) -> Iterator[str]:
    """Yields notes on what the model must check: that the lines of the hunk differed from the file,
    or are in the file at more than one position. Yields nothing if they were equal and unique.
    """
    which = f"The change at line {hunk.line + 1} of the patch was made at line {positions[0] + 1}"
    if tolerance:
        yield f"{which} of the file, though {tolerance}."
    if len(positions) > 1 and not hunk.headers:
        others = ", ".join(str(at + 1) for at in positions[1:6])
        yield f"{which}; the same lines are also at {others}. Check it."


def _find_positions(lines: list[str], wanted: Sequence[str], start: int) -> tuple[list[int], str]:
    """The indexes, from `start` on, at which the lines `wanted` begin; and the tolerance that found
    them, in words. It is the strictest one that finds any; it is empty if the lines are equal.
    """
    for tolerance, normalize in _COMPARISONS.items():
        if positions := [at for at in find_lines(lines, wanted, normalize) if at >= start]:
            return positions, tolerance
    return [], ""


def _nearest_lines_hint(near: str) -> str:
    """The end of an error message about lines that are not in the file.

    Args:
        near: the lines that the model may mean; empty if there are none.
    """
    if not near:
        return " The file has no similar lines: read it again."
    return f" The nearest lines are:\n{near}"


def _changed_spans(lines: list[str], hunk: Hunk, first: int, size: int) -> list[Span]:
    """The ranges of lines that a hunk changes, each with its new text. Lines of context stay as
    they are in the file, also where the hunk has them with other spaces.

    Args:
        first, size: the index of the first line of the hunk in the file, and the number of its lines.
    """
    reindent = reindent_between(hunk.old[:size], lines[first : first + size]) if size else None
    indent = reindent or str  # as the file is indented; `str` leaves a line as it is
    spans: list[Span] = []
    start = first  # the line of the file where the next lines of the hunk begin
    for is_context, marked_lines in groupby(hunk.lines, key=_is_context):
        group = list(marked_lines)
        if is_context:
            start += len(group)
            continue
        old = [text for mark, text in group if mark == "-"]
        new = [text for mark, text in group if mark == "+"]
        end = start + len(old)
        new_lines = keep_characters(old, lines[start:end], new)
        spans.append(Span(start, end, "".join(f"{indent(line)}\n" for line in new_lines)))
        start = end
    return spans


def _is_context(marked_line: tuple[str, str]) -> bool:
    """Whether a line of a hunk stays as it is in the file."""
    mark, _text = marked_line
    return mark == " "


class ApplyPatchArgs(msgspec.Struct, frozen=True):
    input: Annotated[
        str, msgspec.Meta(description="The whole patch, from *** Begin Patch to *** End Patch.")
    ]


class _Step(msgspec.Struct, frozen=True):
    """What the patch does to one file."""

    patch: FilePatch
    file_before: FileBefore
    after: TextFile | None
    """The new text; None: the file is deleted."""
    target: FileBefore | None = None
    """The file at the new path, if it moves."""

    @property
    def changes(self) -> list[FileChange]:
        """The change of the file. If it is moved over another file, the deletion of that other file
        comes first.
        """
        changes = []
        if self.target and self.target.file:
            changes.append(file_change(self.target.shown, self.target.text, after=None))
        before = self.file_before
        after = None if self.after is None else self.after.text
        moved_to = self.target.shown if self.target else ""
        return [*changes, file_change(before.shown, before.text, after, moved_to)]


class ApplyPatch(ChangeTool[ApplyPatchArgs]):
    """Add, change, move and delete files with one patch. All of the patch is applied, or nothing.

    The format:

        *** Begin Patch
        *** Update File: path/of/file.py
        *** Move to: path/of/new_name.py
        @@ class Parser
        @@     def read(self):
         a line that stays
        -a line that goes
        +a line that comes
        *** Add File: path/of/new.py
        +every line of a new file begins with +
        *** Delete File: path/of/old.py
        *** End Patch

    - Show about three lines that stay before and after each change, exactly as the file has them. Where they are not
      unique, name the class or function above with @@ lines, outermost first.
    - *** Move to: stands right below *** Update File: and is left out when the file keeps its name. *** End of File
      after a change says that it is at the end of the file.
    - *** Add File: and *** Move to: replace a file that exists.
    - Give the changes of a file in its order, all below one header. Paths are relative to the working folder.
    - When a place is not found, the answer shows the nearest lines: correct the patch by them.
    """

    name = "apply_patch"
    Args = ApplyPatchArgs

    def title(self, args: ApplyPatchArgs) -> str:
        targets = self.targets(args)
        if len(targets) == 1:
            return f"patch {self._name_of(targets[0])}"
        return f"patch {len(targets)} files" if targets else "patch"

    def targets(self, args: ApplyPatchArgs) -> tuple[str, ...]:
        try:
            files = self._files(args)
        except ToolError:
            return ()  # `run` reports the error and changes nothing
        return _list_paths(files)

    def _files(self, args: ApplyPatchArgs) -> list[FilePatch]:
        """The files of the patch. A path that does not exist, but looks like the path of one file,
        is replaced by that path. Where the patch may mean a new file, it is only replaced if the
        model has read the file.
        """
        files = parse_patch(args.input)
        for file in files:
            is_meant = self._seen.has_read if file.kind == "Add" else lambda _path: True
            file.path = find_existing(self._workspace, file.path, is_meant)
            if file.moved_to:
                file.moved_to = find_existing(self._workspace, file.moved_to, self._seen.has_read)
        return files

    def _change(self, args: ApplyPatchArgs, access: Access, notes: list[str]) -> Display:
        """Check the whole patch, and write it if `access` allows it: all of its files, or none."""
        files = self._files(args)
        names = _list_paths(files)
        if len(set(map(self._workspace.resolve, names))) < len(names):
            raise ToolError(
                "The patch names one file under two names: put all its changes below one header."
            )
        with self._seen.lock(names) as stack:
            steps = [self._plan_step(file, access, stack, notes) for file in files]
            if access == "write":
                for step in steps:
                    require_writable(step.file_before)
                with all_or_nothing(self._seen) as note_written:
                    for step in steps:
                        self._write_step(step, note_written)
            return display_of([*chain.from_iterable(step.changes for step in steps)])

    def _report(self, args: ApplyPatchArgs, display: Display) -> str:
        """The text for the model: a line for each file, which begins with A (added), D (deleted) or
        M (changed).
        """
        lines = ["Applied the patch:"]
        changes = display.body.changes if isinstance(display.body, Diff) else ()
        for change in changes:
            moved = f" -> {change.moved_to}" if change.moved_to else ""
            lines.append(f"{_change_mark(change)} {change.path}{moved}")
        return "\n".join(lines)

    def _plan_step(
        self, patch: FilePatch, access: Access, stack: ExitStack, notes: list[str]
    ) -> _Step:
        """Plan what the patch does to one file; nothing is written. Notes for the model are added
        to `notes`. Raises ToolError if it cannot be done.

        Args:
            stack: keeps the folders of the files open.
        """
        file_before = self._seen.find(patch.path, access, stack, creates=patch.kind == "Add")
        if patch.kind == "Add":
            return self._plan_addition(patch, file_before, notes)
        goes_away = patch.kind == "Delete" or bool(patch.moved_to)
        if goes_away:
            self._seen.require_current(file_before, if_read=True)
        if file_before.file is None:
            raise ToolError(f"{file_before.shown} does not exist.")
        if goes_away and (self._workspace.root / patch.path).is_symlink():
            raise ToolError(
                f"{path_text(patch.path)} is a link: use the shell to move or delete it."
            )
        if patch.kind == "Delete":
            return _Step(patch, file_before, after=None)
        after = self._change_text(patch, file_before, file_before.file, notes)
        target = self._plan_target(patch, access, stack, notes) if patch.moved_to else None
        return _Step(patch, file_before, after, target)

    def _plan_addition(self, patch: FilePatch, file_before: FileBefore, notes: list[str]) -> _Step:
        """Plan a new file. If there is one, it will be replaced, which is added to `notes`. Raises
        ToolError if it has changed since the model read it, or if its encoding lacks a character.
        """
        self._seen.require_current(file_before, if_read=True)
        if file_before.file is not None:
            notes.append(f"{file_before.shown} existed: its text was replaced.")
        after = file_before.with_text("".join(f"{line}\n" for line in patch.content))
        require_encodable(file_before.shown, after, file_before.file)
        return _Step(patch, file_before, after)

    def _change_text(
        self, patch: FilePatch, file_before: FileBefore, file: TextFile, notes: list[str]
    ) -> TextFile:
        """The text of a file with the hunks of its patch applied. What the model must check is
        added to `notes`. Raises ToolError if it cannot be done.

        Args:
            file: the text of `file_before`.
        """
        hunk_notes: list[str] = []
        try:
            after = apply_hunks(file, patch.hunks, hunk_notes)
        except ToolError as error:
            self._seen.require_current(file_before, if_read=True)  # reported first
            raise ToolError(f"{file_before.shown}: {error.message} No file was changed.") from None
        self._seen.check_match(file_before, notes, is_exact=not hunk_notes, if_read=True)
        require_encodable(file_before.shown, after, file_before.file)
        notes += [f"{file_before.shown}: {note}" for note in hunk_notes]
        return after

    def _plan_target(
        self, patch: FilePatch, access: Access, stack: ExitStack, notes: list[str]
    ) -> FileBefore:
        """The file at the new path of a file that the patch moves. If there is one, it will be
        replaced, which is added to `notes`. Raises ToolError if it has changed since the model read
        it.
        """
        target = self._seen.find(patch.moved_to, access, stack, creates=True)
        if target.file is not None:
            self._seen.require_current(target, if_read=True)
            notes.append(f"{target.shown} existed: it was replaced.")
        return target

    def _write_step(self, step: _Step, note_written: NoteWritten) -> None:
        """Write the new text of one file, at its new path if it moves. If it moves or is deleted,
        delete the old file. Raises ToolError.
        """
        if step.after is not None:
            self._write_text(step, step.after, note_written)
        if step.after is None or step.target is not None:
            self._delete_file(step.file_before, note_written)

    def _write_text(self, step: _Step, after: TextFile, note_written: NoteWritten) -> None:
        """Write the new text of a file, at its new path if it moves; it keeps its mode. Raises
        ToolError.
        """
        file_before, seen = step.file_before, self._seen
        target = step.target or file_before
        # Of a file that was not read as it is now, only the lines around the change are known.
        is_known = step.patch.kind == "Add" or seen.knows(file_before)
        seen.store(target, after, is_known=is_known)
        note_written(target, encode(target.shown, after))
        if step.target is not None and file_before.stat is not None:
            os.chmod(
                target.place.name,
                stat.S_IMODE(file_before.stat.st_mode),
                dir_fd=target.place.folder,
            )

    def _delete_file(self, file_before: FileBefore, note_written: NoteWritten) -> None:
        """Delete a file, or the old file of one that has moved. Raises ToolError."""
        place, seen = file_before.place, self._seen
        try:
            with seen.recording(place.path, file_before.content, None):
                os.unlink(place.name, dir_fd=place.folder)
        except OSError as error:
            raise ToolError(f"{file_before.shown} cannot be deleted: {error.strerror}.") from error
        seen.forget(place.path)
        seen.note_change(place.path, file_before.text, None)
        note_written(file_before, None)


def _change_mark(change: FileChange) -> str:
    """The letter of a change in the report: `A` added, `D` deleted, `M` changed."""
    if change.before is None:
        return "A"
    return "D" if change.after is None else "M"


@contextmanager
def all_or_nothing(seen: FilesSeen) -> Iterator[NoteWritten]:
    """In this context a call writes several files, and notes each by the function that is yielded. If
    one cannot be written, those before it are restored, the last one first.

    Raises:
        ToolError: that of the file, with the names of those that could not be restored.
    """
    written: list[tuple[FileBefore, bytes | None]] = []

    def note_written(file_before: FileBefore, content: bytes | None) -> None:
        written.append((file_before, content))

    try:
        yield note_written
    except BaseException as error:
        not_restored = [
            file_before.shown
            for file_before, content in reversed(written)
            if not _restore_file(file_before, content, seen)
        ]
        if not_restored and isinstance(error, ToolError):
            names = ", ".join(not_restored)
            raise ToolError(f"{error.message} Not restored, so still changed: {names}.") from error
        raise


def _restore_file(file_before: FileBefore, written: bytes | None, seen: FilesSeen) -> bool:
    """Restore a file as it was before a call that could write only a part of its files. Returns False
    if that fails, which is logged.

    Args:
        written: what the call has written to the file; None if it has deleted it.
    """
    place = file_before.place
    try:
        with seen.recording(place.path, written, file_before.content):
            if file_before.stat is None:
                os.unlink(place.name, dir_fd=place.folder)
            else:
                save_file(place.folder, place.name, file_before.data, expected=place.stat())
                os.chmod(place.name, stat.S_IMODE(file_before.stat.st_mode), dir_fd=place.folder)
    except OSError as error:
        log.warning("%s was not restored: %s", place.path, error)
        return False
    return True
