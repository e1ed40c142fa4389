"""What a shell line fetches from the network, and whether it runs a file of that."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from ouro.safety.shell import network
from ouro.safety.shell.command import Command, Redirect, ShellLine, Word
from ouro.safety.shell.fetches import RUNS_WHAT_IT_FETCHES, fetches_elsewhere
from ouro.safety.shell.paths import Places, written_paths
from ouro.safety.shell.tables import names
from ouro.safety.workspace import FetchedFiles

_DATA_ENDINGS = names("""
    .json .jsonl .ndjson .csv .tsv .txt .md .rst .html .htm .xml .pdf .png .jpg .jpeg .gif .svg .webp .ico .bmp .zip
    .gz .tgz .bz2 .xz .zst .tar .7z .parquet .arrow .log .sqlite .db .mp3 .mp4 .wav .flac .mov .webm .ttf .woff .woff2
    .css .bin .npy .npz .h5 .onnx .safetensors .gguf .geojson .tif .tiff .ics .srt .diff .patch .out .headers
    """)
"""Endings of files that no program runs unless a word names them."""
_OBEYED_NAMES = re.compile(
    r"(package|composer|deno|tsconfig|bower|angular|nx|turbo|project)\.json|requirements.*\.txt|CMakeLists\.txt"
    r"|meson_options\.txt|(GNU)?[Mm]akefile|[Jj]ustfile|Rakefile|Gemfile|Dockerfile|Containerfile|Jenkinsfile|Procfile"
    r"|(docker-)?compose.*\.ya?ml|conftest\.py|(setup|noxfile|tasks|fabfile|manage|__init__|__main__)\.py|\w+\.pth"
    r"|(pyproject|Cargo)\.toml|(setup|tox|pytest|mypy)\.(cfg|ini)|build\.rs|go\.(mod|work)|(Grunt|gulp)file\.[cm]?[jt]s"
    r"|.*(\.config|rc)\.[cm]?[jt]s|build\.(gradle|sbt|zig|xml)(\.kts)?|pom\.xml|WORKSPACE|BUILD(\.bazel)?"
)
"""Files that programs obey in their folder without a word that names them."""


def check_fetched(line: ShellLine, places: Places, fetched: FetchedFiles | None = None) -> str:
    """Returns why a line needs a question: it may run a file that it has fetched from the network,
    or one of `fetched`. Empty if it does not.
    """
    flow = _FetchedFlow(line, places, fetched)
    return next(flow.follow_commands(), "")


def note_fetched(line: ShellLine, places: Places, fetched: FetchedFiles) -> None:
    """Add to `fetched` what a line will fetch when it runs. What it runs itself is removed: the user
    has allowed that.
    """
    flow = _FetchedFlow(line, places, fetched)
    list(flow.follow_commands())  # up to the end of the line
    fetched.paths |= flow.paths
    fetched.forget(flow.used)
    for folder in flow.folders:
        fetched.expect_in(folder)


def unknown_readers(line: ShellLine) -> list[Command]:
    """Returns the commands that get from a pipe what the line fetches, and of which it is not known
    whether they run it.
    """
    readers: list[Command] = []
    has_fetched = False
    for command in filter(network.is_run_by_bash, line.commands):
        is_reader = has_fetched and command.piped
        if is_reader and not network.reads_input_as_data(command):
            readers.append(command)
        has_fetched = has_fetched or network.fetches(command)
    return readers


class _FetchedFlow:
    """Follows what comes from the network through the commands of a line. `earlier` are the files
    that earlier lines have fetched; None: there are none.
    """

    def __init__(self, line: ShellLine, places: Places, earlier: FetchedFiles | None) -> None:
        self._line = line
        self._places = places
        self._earlier = earlier.existing() if earlier is not None else []
        """What earlier lines have fetched."""
        self.paths: set[Path] = set()
        """What the line fetches: files, and folders with all below them."""
        self.folders: set[Path] = set()
        """Existing folders in which the line may put new files that it fetches."""
        self.used: set[Path] = set()
        """What was fetched, and the line runs."""
        self._written: set[Path] = set()
        """What the line writes that does not come from the network."""
        self._has_fetched = False
        """Whether a command before the present one fetches."""

    def follow_commands(self) -> Iterator[str]:
        """Go through the commands of the line, and note what they fetch, write and run. Yields why
        commands need a question, in their order. A line in which a later command may run first is
        read twice.
        """
        if not self._is_needed():
            return
        rounds = 2 if self._line.opaque or self._line.has_loop else 1
        for number in [*range(len(self._line.commands))] * rounds:
            command = self._line.commands[number]
            if not network.is_run_by_bash(command):
                continue
            with self._places.before(number):
                if reason := self._check(command):
                    yield reason
                self._note_written(command, self._redirects_of(number))

    def _is_needed(self) -> bool:
        """Whether the line fetches something, or something was fetched before."""
        commands = [*filter(network.is_run_by_bash, self._line.commands)]
        runs_an_address = any(map(network.runs_an_address, commands))
        return bool(self._earlier) or runs_an_address or any(map(fetches_elsewhere, commands))

    def _redirects_of(self, number: int) -> list[Redirect]:
        """Returns the redirections that write the output of a command. In the list of commands, the
        wrapper that runs it (`sudo`) or a guess about it may come before it: a redirection that was
        read with these is of the command, too.
        """
        first = number
        while first > 0 and not network.is_run_by_bash(self._line.commands[first - 1]):
            first -= 1
        return [
            redirect
            for redirect in self._line.redirects
            if redirect.writes and first <= redirect.commands_before <= number
        ]

    def _check(self, command: Command) -> str:
        """Returns why a command needs a question: it may run what was fetched. Empty if it does
        not. The fetched files that it runs are added to `self.used`.
        """
        words = network.program_words(command)
        # `bash <(curl …)`: bash names a pipe, so that no file is used.
        runs_output = any(word.text.startswith("<(") for word in words)
        if network.runs_an_address(command) or (self._has_fetched and runs_output):
            return RUNS_WHAT_IT_FETCHES
        programs = self._paths_of(words)
        loaded = self._paths_of(setting.value for setting in command.settings)  # LD_PRELOAD=./x
        run_files = [path for path in (*programs, *loaded) if self._is_fetched(path)]
        run_files += self._new_programs(command, programs)
        run_files += self._unnamed_programs(command)
        self.used.update(run_files)
        if not run_files:
            return ""
        return f"it runs {self._places.workspace.shown(run_files[0])}, which comes from the network"

    def _new_programs(self, command: Command, programs: Sequence[Path]) -> list[Path]:
        """Returns the programs of a command that do not exist yet, after a fetch in the line: it
        must be known what else in the line makes them.
        """
        if not self._has_fetched or not network.runs_one_file(command):
            return []
        return [path for path in programs if not path.exists() and path not in self._written]

    def _unnamed_programs(self, command: Command) -> list[Path]:
        """Returns the fetched files that a command may run although it has no word for them: those
        that the text of a program names, and what its folder has, such as modules and settings.
        """
        text = network.program_text(command)
        programs = [path for path in (*self.paths, *self._earlier) if _is_named_in(text, path)]
        if network.may_run_its_folder(command):
            programs += [path for path in self.paths if self._is_in_use(path, _may_be_run)]
            # Of earlier lines only what is obeyed counts: each test run would be a question.
            programs += [path for path in self._earlier if self._is_in_use(path, _is_obeyed)]
        return programs

    def _is_in_use(self, path: Path, is_used: Callable[[Path], bool]) -> bool:
        """Whether a command may run a fetched file or folder: the command is in that folder, or the
        file is in or below the folder of the command, and `is_used`.
        """
        for folder in self._places.folders:
            is_inside = path in (folder, *folder.parents)
            if is_inside or (folder in path.parents and is_used(path)):
                return True
        return False

    def _note_written(self, command: Command, redirects: Sequence[Redirect]) -> None:
        """Note what a command writes: as fetched, if it fetches, gets input after a fetch, or names
        a fetched file.
        """
        is_fetch = fetches_elsewhere(command)
        targets = [redirect.target for redirect in redirects]
        paths = self._paths_of([*targets, *written_paths(command)])
        gets_fetched = self._names_fetched(command) or (self._has_fetched and command.piped)
        if not is_fetch and not gets_fetched:
            self._written.update(paths)
            return
        self._has_fetched = True
        if is_fetch:
            paths += self._places_of_fetch(command)
        if network.changes_the_folder(command):
            self.paths.update(paths, self._folders_now())
            return
        for path in paths:
            if path.is_dir():
                self.folders.add(path)
                self.paths |= {path / name for name in network.names_of_fetched(command)}
            else:
                self.paths.add(path)

    def _places_of_fetch(self, command: Command) -> list[Path]:
        """Returns the files and folders in which a command may put what it fetches."""
        targets = network.target_words(command)
        paths = self._paths_of(targets)
        for name in network.names_of_fetched(command):
            paths += self._places.paths_of(name)
        return [*paths, *self._folders_now()] if targets else paths

    def _folders_now(self) -> list[Path]:
        """Returns the folders in which a command runs: those after `cd`, if there is one."""
        return self._places.folders[1:] or self._places.folders

    def _paths_of(self, words: Iterable[Word]) -> list[Path]:
        return [*chain.from_iterable(self._places.paths_of(word.text) for word in words)]

    def _names_fetched(self, command: Command) -> bool:
        """Whether a word of a command names something that was fetched."""
        paths = chain.from_iterable(map(self._places.paths_of_word, command.arguments))
        return any(map(self._is_fetched, paths))

    def _is_fetched(self, path: Path) -> bool:
        return not self.paths.union(self._earlier).isdisjoint((path, *path.parents))


def _is_obeyed(path: Path) -> bool:
    """Whether programs obey a file with this name in their folder."""
    return bool(_OBEYED_NAMES.fullmatch(path.name))


def _may_be_run(path: Path) -> bool:
    """Whether a program may run or obey a fetched file without a word that names it, as a module.
    Folders are run by name only.
    """
    if _is_obeyed(path):
        return True
    if path.is_dir() or path.suffix.lower() in _DATA_ENDINGS:
        return False
    return bool(path.suffix) or path.exists()


def _is_named_in(text: str, path: Path) -> bool:
    """Whether the text of a program names a fetched file, and may run it: it has a word by which
    it may run any file, or the file may be a module.
    """
    if not re.search(rf"\b{re.escape(path.stem)}\b", text):
        return False
    return network.may_run_files(text) or path.suffix.lower() not in _DATA_ENDINGS
