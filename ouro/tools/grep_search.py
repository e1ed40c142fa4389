"""GrepSearch: one search for text in files, with ripgrep."""

from __future__ import annotations

import base64
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from itertools import takewhile
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import msgspec

from ouro.errors import ToolError
from ouro.safety import Workspace
from ouro.tools.glob import name_pattern, plain_name
from ouro.utils.git import find_root
from ouro.utils.text import plural

MAX_BYTES = 50_000_000
"""Maximum bytes of a file; larger files in a folder are skipped."""
LONG_LINE = 400
"""Characters of a line after which a part of it is shown."""
_MAX_NAMES = 5
"""Files over the limit that a note names."""


class FoundLine(msgspec.Struct, frozen=True):
    """A matching line, or a context line."""

    number: int
    text: str
    is_match: bool
    """Whether the line matches; otherwise it is context."""
    match_start: int = 0
    """The character at which the first match begins, in a line over LONG_LINE characters; else 0."""


class FileMatches(msgspec.Struct, frozen=True):
    """A file with matches; its path is relative to the searched folder."""

    path: str
    lines: tuple[FoundLine, ...]

    @property
    def count(self) -> int:
        """The number of lines that match."""
        return sum(line.is_match for line in self.lines)


_FILE_OPTIONS = (
    # No configuration of the user or the project may change the result or run a program.
    "--no-config",
    "--hidden",
    "--no-ignore-dot",
    "--no-ignore-global",
    "--no-ignore-exclude",
    "--no-ignore-messages",
)
# One thread: to list names alone, several threads cost half as much again.
_LIST_OPTIONS = ("--files", "--null", "--threads=1", *_FILE_OPTIONS, "--no-messages")
_SEARCH_OPTIONS = (*_FILE_OPTIONS, "--json", "--crlf", "--engine=auto", "--binary")
_SIZE_LIMIT = f"--max-filesize={MAX_BYTES}"
_LOOK_INTERVAL = 0.2
"""Seconds between two looks at how much a search has read."""
_MAX_UNSORTED = 8_000_000
"""Up to so many bytes of results ripgrep may search in any order, on all cores; with sorting it
uses only one.
"""
_REPOSITORY_FOLDERS = (".git", ".hg", ".svn", ".jj")
_READ_COUNT = re.compile(r"rchar: (\d+)")
_PLAIN_FOLDER = re.compile(r"[\w.-]+", re.ASCII)
_MAX_LEADING_SIZE = 100
"""Characters of the folders that a glob begins with: two rules of ripgrep for each."""
_TIMEOUT = 60.0
_KILL_WITH_OURO = ("setpriv", "--pdeathsig=KILL", "--") if shutil.which("setpriv") else ()
"""Ends a search if ouro is killed."""
_ULIMIT = (
    "/bin/sh",
    "-c",
    'ulimit -v 4194304 2>/dev/null; ulimit -t "$0"; exec "$@"',
    str(int(_TIMEOUT)),
)
"""Limits a search to 4 GB of address space (one search took 23 GB), and its time if it outlives
ouro.
"""


def find_ripgrep() -> str | None:
    """The path of ripgrep. It is the program of the Python package; if that is missing, the program
    of the system. None if there is none.
    """
    folders = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    )
    return shutil.which("rg", path=folders)


SearchScope = tuple[Path, str, str]
"""What a search covers: a folder, and the glob and the type of the files that are searched there."""


class GrepSearch:
    """One search. After `files` has ended, `notes` says what was not searched.

    Args:
        restricts_reading: returns whether a file must be skipped, because of a rule of the user.
        scopes_with_large_files: the scopes in which earlier searches of the tool have found files
            that are too large; this search adds its own, or removes it.

    Raises:
        ToolError: there is no such file or folder, or no ripgrep; `files` raises it for a wrong regular expression.
    """

    def __init__(
        self,
        args: GrepArgs,
        workspace: Workspace,
        restricts_reading: Callable[[Path], bool],
        scopes_with_large_files: set[SearchScope],
    ) -> None:
        self._args = args
        self._workspace = workspace
        self._restricts_reading = restricts_reading
        self._path = workspace.resolve(args.path)
        """The file or the folder to search."""
        workspace.check(self._path, "read")
        if not self._path.exists():
            raise ToolError(f"{workspace.shown(self._path)} does not exist.")
        if (program := find_ripgrep()) is None:
            raise ToolError(
                "ripgrep is missing. Use shell, and tell the user to install ripgrep or ouro again."
            )
        self._program = program
        self._is_file = self._path.is_file()
        self.folder = self._path.parent if self._is_file else self._path
        self._scope = (self.folder, args.glob, args.type)
        self._scopes_with_large_files = scopes_with_large_files
        patterns = _path_patterns(args)
        self._path_tests = [name_pattern(pattern) for pattern in patterns]
        self._name_glob = next(filter(None, map(plain_name, patterns)), "")
        """A glob that matches the name of every file to search; empty: none is known."""
        self._leading_parts = next(filter(None, map(_leading_folders, patterns)), ())
        """The folder of every file to search, as its parts."""
        self._large_files: list[str] | None = None
        """Files that are too large, by their paths in the folder. None: not looked for."""
        self._process: subprocess.Popen[bytes] | None = None
        """The search that runs."""
        self._bytes_read: float = 0
        """Bytes that the search has read, at the least of all its files."""
        self._binary_count = 0
        """Binary files that match: their lines are not shown."""
        self._unreadable_count = 0
        """Files that ripgrep could not read."""
        self._skipped_by_rules: set[str] = set()
        """Files that a rule of the user keeps from being read, by their paths in the folder."""
        self._is_stopped = False
        """Whether the search took too long, so that some files were not reached."""

    def notes(self) -> str:
        """The text for the end of a result: what was left out, and why. Empty if everything was
        searched.
        """
        left_out: list[str] = []
        if self._large_files:
            names = ", ".join(self._large_files[:_MAX_NAMES])
            if len(self._large_files) > _MAX_NAMES:
                names += ", …"
            size = f"{MAX_BYTES // 1_000_000} MB"
            left_out.append(f"{plural(len(self._large_files), 'file')} over {size} ({names})")
        if self._unreadable_count:
            left_out.append(f"{plural(self._unreadable_count, 'file')} that cannot be read")
        if self._binary_count:
            left_out.append(f"the lines of {plural(self._binary_count, 'binary file')} that match")
        lines: list[str] = []
        if left_out:
            advice = " Name one in path to search it." if self._large_files else ""
            lines.append(f"[Left out: {'; '.join(left_out)}.{advice}]")
        if self._is_stopped:
            lines.append(
                f"[Stopped after {_TIMEOUT:.0f} s: more may match. Narrow the pattern, path or"
                " glob.]"
            )
        if self._skipped_by_rules:
            files = plural(len(self._skipped_by_rules), "file")
            lines.append(f"[Left out: {files} that a rule of the user keeps from being read.]")
        return "\n".join(lines)

    def files(self) -> Iterator[FileMatches]:
        """Search, and yield the files with matches in the order of their paths. First a search in
        any order is tried, because it uses all cores. If it finds too much, a second search in
        order is made instead.
        """
        if self._is_file:
            yield from self._search()
            return
        try:
            hits = self._search_unsorted()
        except _TooManyResults:
            # Counted again. A search that finds too much ends before it counts unreadable files.
            self._binary_count = 0
            # `_SIZE_LIMIT` skips the large files without a word, and the notes have to name them.
            if self._large_files is None:
                self._find_large_files()
            yield from self._search("--sort=path", _SIZE_LIMIT)
            return
        # The order of `--sort=path`: folder by folder, by bytes.
        yield from sorted(
            hits, key=lambda hit: hit.path.encode("utf-8", "surrogateescape").split(b"/")
        )

    def _search_unsorted(self) -> list[FileMatches]:
        """The files with matches, in any order. Raises _TooManyResults if the results have more
        than _MAX_UNSORTED bytes, and ToolError.

        Few searches meet files that are too large, and to find these files costs time: a fifth of
        the search if ripgrep asks for each size, a tenth to list the files. So files of all sizes
        are searched first. If there were large ones among them, the search is made again without.
        """
        reads_whole_files = self._args.multiline  # so a file that is too large fills the memory
        if reads_whole_files or self._scope in self._scopes_with_large_files:
            self._find_large_files()
        else:
            hits = self._search_all_sizes()
            if not self._large_files:
                return hits
            self._binary_count = self._unreadable_count = 0  # counted again
        return list(self._search(_SIZE_LIMIT, max_bytes=_MAX_UNSORTED))

    def _search_all_sizes(self) -> list[FileMatches]:
        """The files with matches, whatever their size, in any order. If this has found large files
        (`_large_files`), the search may have been ended before all other files were searched. Raises as
        `_search_unsorted`.
        """
        has_ended = threading.Event()
        watcher = threading.Thread(
            target=self._end_if_files_are_large, args=(has_ended,), daemon=True
        )
        watcher.start()
        try:
            hits = list(self._search(max_bytes=_MAX_UNSORTED))
        finally:
            has_ended.set()
            watcher.join()
        if self._large_files is None and self._bytes_read > MAX_BYTES:
            self._find_large_files()
        return hits

    def _end_if_files_are_large(self, has_ended: threading.Event) -> None:
        """Wait for the end of the running search. As soon as it has read more than the limit, look
        for files that are too large, and end it if there are some.
        """
        while not has_ended.wait(_LOOK_INTERVAL):
            process = self._process
            if process is None or _bytes_read_by(process.pid) <= MAX_BYTES:
                continue
            with suppress(OSError, ToolError):  # it is tried again after the search
                self._find_large_files()
            if self._large_files:
                process.kill()
            return

    def _admit_file(self, name: str) -> bool:
        """Returns whether a file is to be searched: its path in the folder matches all globs, and
        no rule of the user keeps it from being read. If a rule does, the file is added to
        `_skipped_by_rules`, for `notes`.
        """
        if not all(test(name) for test in self._path_tests):
            return False
        if self._restricts_reading(self.folder / name):
            self._skipped_by_rules.add(name)
            return False
        return True

    def _make_command(self, options: Iterable[str]) -> list[str]:
        """The search program with its options and the pattern."""
        args = self._args
        context = args.context if args.mode == "content" else 0
        command = [
            self._program,
            *_SEARCH_OPTIONS,
            *options,
            f"--context={context}",
            "--regexp",
            args.pattern,
        ]
        if args.ignore_case:
            command.append("--ignore-case")
        if args.multiline:
            command += ["--multiline", "--multiline-dotall"]
        return command

    def _search(self, *options: str, max_bytes: float = math.inf) -> Iterator[FileMatches]:
        """Run ripgrep once, and yield the files with matches as it finds them.

        Args:
            options: further options of ripgrep.
            max_bytes: the maximum of its output.

        Raises:
            ToolError: the pattern is not a regular expression.
            _TooManyResults: the output has more than `max_bytes`.
        """
        command = self._make_command(options)
        with ExitStack() as stack:
            errors = stack.enter_context(tempfile.TemporaryFile())
            if self._is_file:
                # Opened here and passed as stdin, so that exactly the checked file is searched.
                file = stack.enter_context(self._workspace.open(str(self._path)))
                process = stack.enter_context(
                    _run_with_limits([*command, "-"], stdin=file, stderr=errors, cwd="/")
                )
            else:
                folder, descriptor = stack.enter_context(self._workspace.folder(str(self._path)))
                command += [*self._file_rules(folder), "./"]
                where = _path_of_folder(folder, descriptor)
                process = stack.enter_context(
                    _run_with_limits(command, stdin=subprocess.DEVNULL, stderr=errors, cwd=where)
                )
            assert isinstance(process.stdout, BufferedReader)
            self._process = process

            # ripgrep prints nothing at all if it does not understand the pattern.
            has_begun = bool(process.stdout.peek(1))
            yield from self._read_hits(process.stdout, max_bytes)
            self._bytes_read = _bytes_read_by(process.pid)
            self._is_stopped = process.wait() < 0  # ended by a signal: a limit

            errors.seek(0)
            messages = errors.read().decode("utf-8", "replace").strip()
            if has_begun:
                self._unreadable_count += _count_files_with_errors(messages)
            elif messages and not self._is_stopped:
                reason = messages.removeprefix("rg: ")[:2000]
                raise ToolError(f"{self._args.pattern} is not a regular expression: {reason}")

    def _find_large_files(self) -> None:
        """Find the files that are too large, for `notes`. One ripgrep lists all files, another one
        lists those up to the limit.
        """
        with self._listing() as listing, self._listing(_SIZE_LIMIT) as listing_of_small:
            names, small_names = _output_of(listing), _output_of(listing_of_small)
        if len(names) == len(small_names):
            self._large_files = []
            self._scopes_with_large_files.discard(self._scope)
            return
        small = set(small_names.split(b"\0"))
        large = [os.fsdecode(name) for name in names.split(b"\0") if name not in small]
        self._large_files = sorted(
            filter(self._admit_file, (name.removeprefix("./") for name in large))
        )
        self._scopes_with_large_files.add(self._scope)

    @contextmanager
    def _listing(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """In this context ripgrep prints the names of the files to search."""
        quiet = subprocess.DEVNULL
        with ExitStack() as stack:
            folder, descriptor = stack.enter_context(self._workspace.folder(str(self._path)))
            command = [self._program, *_LIST_OPTIONS, *options, *self._file_rules(folder), "./"]
            where = _path_of_folder(folder, descriptor)
            yield stack.enter_context(
                _run_with_limits(command, stdin=quiet, stderr=quiet, cwd=where)
            )

    def _file_rules(self, folder: Path) -> list[str]:
        """The options of ripgrep that say which files of a folder to search."""
        rules: list[str] = []
        if not os.path.lexists(find_root(folder) / ".git"):
            # In a repository, .gitignore files above it would count too.
            rules.append("--no-require-git")
        if self._name_glob:  # passed as a type, because a --glob would include ignored files
            rules += [f"--type-add=ouro:{self._name_glob}", "--type=ouro"]
        rules += [f"--glob=!{other}" for other in _exclude_other_folders(self._leading_parts)]
        rules += [f"--glob=!**/{name}/" for name in _REPOSITORY_FOLDERS]
        rules += [
            f"--glob=!/{area.relative_to(folder)}" for area in self._workspace.closed_below(folder)
        ]
        return rules

    def _read_hits(self, output: IO[bytes], max_bytes: float) -> Iterator[FileMatches]:
        """Read the JSON that ripgrep prints, an event in each line, and yield the files with
        matches. Binary files that match are counted. Raises _TooManyResults after `max_bytes`.
        """
        lines: list[FoundLine] = []
        decoder = msgspec.json.Decoder()
        bytes_left = max_bytes
        for raw in output:
            if not raw.endswith(b"\n"):  # ended while it wrote
                return
            bytes_left -= len(raw)
            if bytes_left < 0:
                raise _TooManyResults
            event: dict[str, Any] = decoder.decode(raw)
            data = event["data"]
            match event["type"]:
                case "begin":
                    lines = []
                case "match" | "context" as kind:
                    lines += _found_lines(data, is_match=kind == "match")
                case "end" if any(line.is_match for line in lines):
                    path = self._searched_path(data)
                    if path is None:
                        continue
                    # A file with a zero byte is binary, even if lines before it matched.
                    if data["binary_offset"] is None:
                        yield FileMatches(path, tuple(lines))
                    else:
                        self._binary_count += 1

    def _searched_path(self, data: dict[str, Any]) -> str | None:
        """The path of the file that an event is about, relative to the folder; None if it is not to
        be searched.
        """
        if self._is_file:
            return self._path.name
        path = _ripgrep_path(data["path"]).removeprefix("./")
        return path if self._admit_file(path) else None


class _TooManyResults(Exception):
    """Too many results to sort afterwards: a search in the order of paths finds the first ones
    soon.
    """


def _leading_folders(pattern: str) -> tuple[str, ...]:
    """The folders at the beginning of a glob that have no wildcard: `src` and `lib` for
    `src/lib/**/*.ts`. Empty if there are none, or if their names are very long.
    """
    if "{" in pattern:
        return ()
    folders = pattern.removeprefix("/").split("/")[:-1]
    plain_folders = tuple(takewhile(_PLAIN_FOLDER.fullmatch, folders))
    return plain_folders if sum(map(len, plain_folders)) <= _MAX_LEADING_SIZE else ()


def _exclude_other_folders(folders: Sequence[str]) -> Iterator[str]:
    """Yields globs that together match everything that is not on the way to one folder; `folders`
    are the parts of its path. For `src` they are `/[!s]*`, `/s[!r]*`, `/s` and so on.

    So only this folder is searched. If the folder itself were an argument of ripgrep, it would be
    searched even if it is ignored.
    """
    parent = "/"
    for name in folders:
        for index, character in enumerate(name):
            start = parent + name[:index]
            yield f"{start}[!{character}]*"
            if index:
                yield start
        yield f"{parent}{name}?*"
        parent += f"{name}/"


@contextmanager
def _run_with_limits(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """In this context a program runs, with limits on time and memory. At the end it is killed if it
    still runs.
    """
    process = subprocess.Popen(
        [*_KILL_WITH_OURO, *_ULIMIT, *command], stdout=subprocess.PIPE, **options
    )
    timer = threading.Timer(_TIMEOUT, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield process
    finally:
        timer.cancel()
        with suppress(ProcessLookupError):
            process.kill()
        if process.stdout is not None:
            process.stdout.close()
        process.wait()


def _output_of(process: subprocess.Popen[bytes]) -> bytes:
    """All that a process prints."""
    assert process.stdout is not None
    return process.stdout.read()


def _count_files_with_errors(messages: str) -> int:
    """How many files of a folder the error messages of ripgrep are about. Such a message begins
    with the path of the file, which begins with `./`.
    """
    return sum(line.removeprefix("rg: ").startswith("./") for line in messages.splitlines())


def _bytes_read_by(pid: int) -> float:
    """Bytes that a process has read in all; infinite where the system does not count them."""
    try:
        counts = Path(f"/proc/{pid}/io").read_text()
    except OSError:
        return math.inf
    count = _READ_COUNT.match(counts)
    return int(count[1]) if count else math.inf


def _path_of_folder(folder: Path, descriptor: int) -> str:
    """The path by which a new process enters a folder that is open here; it is the `cwd` of the
    process. On Linux it leads through the descriptor, which the new process inherits until its
    program begins: so it is the same folder even if it was moved or replaced.
    """
    return f"/proc/self/fd/{descriptor}" if sys.platform == "linux" else str(folder)


def _ripgrep_path(value: dict[str, str]) -> str:
    """A path in the JSON of ripgrep. A path that is not UTF-8 is encoded there."""
    return value["text"] if "text" in value else os.fsdecode(base64.b64decode(value["bytes"]))


def _found_lines(data: dict[str, Any], *, is_match: bool) -> Iterator[FoundLine]:
    """The lines of one event of ripgrep. A match can be several lines."""
    texts = _ripgrep_text(data["lines"]).removesuffix("\n").split("\n")
    for number, text in enumerate(texts, data["line_number"]):
        line = text.removesuffix("\r")
        # A match of several lines begins somewhere in the first one.
        is_first = number == data["line_number"]
        match_start = 0
        if is_match and is_first and len(line) > LONG_LINE:
            match_start = _characters_before(data)
        yield FoundLine(number, line, is_match, match_start)


def _characters_before(data: dict[str, Any]) -> int:
    """How many characters an event of ripgrep has before its first match. Its JSON counts bytes."""
    submatches = data["submatches"]
    if not submatches:
        return 0
    lines = data["lines"]
    text = lines["text"].encode() if "text" in lines else base64.b64decode(lines["bytes"])
    return len(text[: submatches[0]["start"]].decode("utf-8", "replace"))


def _ripgrep_text(value: dict[str, str]) -> str:
    """A text in the JSON of ripgrep; bytes that are not UTF-8 are replaced."""
    return (
        value["text"]
        if "text" in value
        else base64.b64decode(value["bytes"]).decode("utf-8", "replace")
    )


_TYPES = {
    "c": "*.{c,h}",
    "cpp": "*.{cpp,cc,cxx,hpp,hh,hxx,h}",
    "css": "*.{css,scss,sass,less}",
    "go": "*.go",
    "html": "*.{html,htm}",
    "java": "*.java",
    "js": "*.{js,jsx,mjs,cjs}",
    "json": "*.{json,jsonl}",
    "kotlin": "*.{kt,kts}",
    "make": "{Makefile,makefile,GNUmakefile,*.mk}",
    "md": "*.{md,markdown,mdx}",
    "php": "*.php",
    "py": "*.{py,pyi}",
    "python": "*.{py,pyi}",
    "ruby": "*.{rb,rake,gemspec}",
    "rust": "*.rs",
    "sh": "*.{sh,bash,zsh,fish}",
    "sql": "*.sql",
    "swift": "*.swift",
    "toml": "*.toml",
    "ts": "*.{ts,tsx,mts,cts}",
    "txt": "*.txt",
    "xml": "*.{xml,xsd,xsl,svg}",
    "yaml": "*.{yaml,yml}",
}


class GrepArgs(msgspec.Struct, frozen=True):
    pattern: Annotated[str, msgspec.Meta(min_length=1)]
    path: Annotated[str, msgspec.Meta(description="A folder or file.")] = "."
    mode: Annotated[
        Literal["content", "files", "count"],
        msgspec.Meta(description="count: the number of lines in each file."),
    ] = "content"
    glob: Annotated[str, msgspec.Meta(description="Such as *.py, src/**/*.{js,ts}, !*.min.js.")] = (
        ""
    )
    type: Annotated[str, msgspec.Meta(description="py, js, ts, go, md, …")] = ""
    context: Annotated[
        int, msgspec.Meta(ge=0, le=50, description="Lines before and after each match.")
    ] = 0
    ignore_case: bool = False
    multiline: Annotated[bool, msgspec.Meta(description="Matches may span lines.")] = False
    limit: Annotated[
        int, msgspec.Meta(ge=1, le=2000, description="Maximum of lines, or files.")
    ] = 100


def _path_patterns(args: GrepArgs) -> list[str]:
    """The globs for the path of a file. A file is only searched if its path matches all of them."""
    patterns: list[str] = []
    if kind := args.type.lower().removeprefix("."):
        patterns.append(_TYPES.get(kind, f"*.{kind}"))
    if args.glob:
        patterns.append(args.glob)
    return patterns
