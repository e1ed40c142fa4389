"""Workspace: which paths the file tools may open, and how they open them safely. Folders of
long-term memory belong to it.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

import msgspec
from msgspec.structs import replace

from ouro.errors import ToolError
from ouro.safety import protected
from ouro.utils.files import path_of, read_start
from ouro.utils.late_pattern import late_pattern
from ouro.utils.path_encoding import path_text

if TYPE_CHECKING:
    from ouro.safety.hard_links import OtherNames

GIT_CONFIG = """\
[core]
\trepositoryformatversion = 0
\tbare = false
\tlogAllRefUpdates = true
\thooksPath = /dev/null
\tfsmonitor = false
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\tautocrlf = false
\tsafecrlf = false
\tfileMode = false
\tquotePath = false
\tfsync = committed,loose-object,reference
[user]
\tname = ouro
\temail = ouro@localhost
[commit]
\tgpgSign = false
\ttemplate = /dev/null
[tag]
\tgpgSign = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
"""
"""The settings of a memory's history: plain git works there and starts no programs, with any
settings of the user.
"""
_HARMLESS_SETTING = late_pattern(
    r"\s*|[#;].*|\[(remote|branch) \"[\w./-]+\"\]|\s*(url|fetch|pushurl|remote|merge) ="
    r" [\w./:@~+*-]+"
)
"""A line that the user may add to these settings, such as a remote for sync."""
_ACTING_IN_GIT_DIR = (
    "commondir",
    "config.worktree",
    "hooks",
    "info/attributes",
    "info/grafts",
    "refs/replace",
    "objects/info/alternates",
)
"""Files of a git directory that let git run programs, or read other objects; ouro makes none."""
_MEMORY_FILE_NAME = late_pattern(r"(?:archive/)?[^/.\x00-\x1f\x7f][^/\x00-\x1f\x7f]*\.md")
_MAX_CONFIG_BYTES = 1 << 16


class GuardedMemory(msgspec.Struct, frozen=True):
    """The folder of one memory, which only the file tools and some commands of git may change."""

    path: Path
    state_dir: Path | None = None
    """The folder of its approval records; None if the repository around the memory keeps it. An
    earlier version kept the git directory there.
    """

    def holds(self, path: Path) -> bool:
        """Whether a real path is in the folder, or the folder itself."""
        return protected.is_under(path, self.path)

    def is_memory_file(self, path: Path) -> bool:
        """Whether a real path is a memory file, or may become one: a Markdown file in the folder or
        in its archive. An existing one must be a regular file without further hard links.
        """
        if not self.holds(path):
            return False
        name = os.path.relpath(path, self.path)
        if not _MEMORY_FILE_NAME.fullmatch(name):
            return False
        try:
            status = path.lstat()
        except OSError:
            return True  # not there yet
        return stat.S_ISREG(status.st_mode) and status.st_nlink == 1

    def find_tampering(self, *, looks_at_files: bool = True) -> str:
        """Returns why a git command in the folder might run programs that are not ouro's choice.
        Empty if it cannot: then the git directory and its settings are those that ouro has made.

        Args:
            looks_at_files: also look for files beside the git directory that git obeys, in the
                folder and below it.
        """
        if self.state_dir is None:  # the repository around it is not ouro's
            return "the host repository keeps this memory"
        git_dir = self.path / ".git"
        if not git_dir.is_dir() or git_dir.is_symlink():
            from ouro.utils.git import named_git_dir  # an earlier version made such files

            named = named_git_dir(git_dir)
            if not named or os.path.realpath(self.path / named) != os.path.realpath(self.state_dir):
                return f"{git_dir} is not ouro's"
            git_dir = self.state_dir
        for name in _ACTING_IN_GIT_DIR:
            if os.path.lexists(git_dir / name):
                return f"{git_dir / name} is not ouro's"
        if not _has_own_settings(git_dir / "config"):
            return f"the settings in {git_dir / 'config'} are not ouro's"
        acting_files = self._find_acting_files() if looks_at_files else ()
        return next((f"{path} names programs" for path in acting_files), "")

    def has_only_own_folders(self) -> bool:
        """Whether the only folders in it are its git directory and its archive, and the archive has
        none: then no file below them can be one that git obeys, unless a folder has changed.
        """
        own_folders = {".git", "archive"}
        for name, allowed in (("", own_folders), ("archive", frozenset[str]())):
            try:
                with os.scandir(self.path / name) as entries:
                    folders = {entry.name for entry in entries if entry.is_dir()}
            except FileNotFoundError:  # there is no archive
                continue
            except OSError:
                return False
            if not folders <= allowed:
                return False
        return True

    def _find_acting_files(self) -> Iterator[Path]:
        """Yields the files in the folder and below it that git obeys: attributes, and nested
        repositories, because `git status` reads the settings of these. The memory's own .git is
        left out.
        """
        for root, folders, files in os.walk(self.path):
            is_top = Path(root) == self.path
            if is_top and ".git" in folders:
                folders.remove(".git")  # is not walked into
            names = {name.casefold(): name for name in (*folders, *files)}
            acting = {".gitattributes"} if is_top else {".gitattributes", ".git"}
            yield from (Path(root, names[name]) for name in sorted(acting & names.keys()))


def _has_own_settings(config: Path) -> bool:
    """Whether a configuration of git has all lines of `GIT_CONFIG`, and besides them only lines
    that name no program, such as a remote. False if it cannot be read.
    """
    own_lines = set(GIT_CONFIG.splitlines())
    lines = read_start(config, _MAX_CONFIG_BYTES, os.O_NOFOLLOW).splitlines()
    are_harmless = all(line in own_lines or _HARMLESS_SETTING.fullmatch(line) for line in lines)
    return are_harmless and own_lines.issubset(lines)


_MAX_TRIES = 20
"""How often a path is resolved while another program changes its links."""
_KIND_NAMES = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a link",
}
_granted: ContextVar[frozenset[tuple[str, str]]] = ContextVar("granted", default=frozenset())
"""What `Workspace.grant` has added in the running task: an access, and a path of `_comparable`."""
Access = Literal["read", "write", "show"]
"""What a file is opened for. `show`: read it to show the user what a call would change; never for
the model.
"""


class FilePlace(msgspec.Struct, frozen=True):
    """The place of a file: its folder is open and was checked, so that no link made later can lead
    `name` elsewhere.
    """

    path: Path
    folder: int
    """The descriptor of the open folder."""
    name: str
    """The name of the file in the folder."""

    def stat(self) -> os.stat_result | None:
        """The status of the file; links are not followed. None if it does not exist."""
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None


class FetchedFiles:
    """The files that shell lines of the session have fetched from the network, until the user
    allows to run them.
    """

    def __init__(self) -> None:
        self.paths: set[Path] = set()
        """Files, and folders with all below them. Some may not exist."""
        self._names_before: dict[Path, frozenset[str]] = {}
        """Folders in which a line may have put files, and the names that were there before."""

    def expect_in(self, folder: Path) -> None:
        """Count the names that will be new in a folder at the next look as fetched."""
        with suppress(OSError):
            self._names_before[folder] = frozenset(os.listdir(folder))  # noqa: PTH208 - names

    def existing(self) -> list[Path]:
        """Returns the fetched files and folders that exist. Blocks for a look at the folders in
        which a line may have put files.
        """
        while self._names_before:
            folder, names_before = self._names_before.popitem()
            with suppress(OSError):
                new_names = set(os.listdir(folder)) - names_before  # noqa: PTH208 - names
                self.paths |= {folder / name for name in new_names}
        return [path for path in self.paths if path.exists()]

    def note_overwritten(self, path: Path) -> None:
        """Remove a file that a tool writes now: its content does not come from the network."""
        # First the look at folders: a file that the tool makes must not count as fetched.
        self.existing()
        self.paths.discard(path)

    def forget(self, used: Collection[Path]) -> None:
        """Remove files that the user has allowed to run, with the fetched folder around them."""
        for file in used:
            self.paths.difference_update((file, *file.parents))


class Workspace:
    """The folders that ouro works in, and the paths elsewhere that the user has allowed.

    Args:
        extra: further folders of the workspace.
        memory: the folders of long-term memory; the file tools read and write Markdown in them, at
            any location.
        confines: returns whether commands run as the user wants it: a sandbox confines them to the
            workspace, or the user does not want a sandbox.
        hides: returns whether a sandbox hides from commands what rules deny to read.
        in_container: whether commands run in a container.
        confines_allowed: whether the sandbox must confine also the commands that rules allow.
    """

    def __init__(
        self,
        root: Path,
        extra: Sequence[Path] = (),
        memory: Sequence[GuardedMemory] = (),
        *,
        confines: Callable[[], bool] = lambda: True,
        hides: Callable[[], bool] = lambda: True,
        in_container: bool = False,
        confines_allowed: bool = False,
    ) -> None:
        self.confines = confines
        self.confines_allowed = confines_allowed
        self.in_container = in_container
        self.hides = hides
        self.root = Path(os.path.realpath(root))
        self.memory = tuple(
            replace(folder, path=Path(os.path.realpath(folder.path))) for folder in memory
        )
        others = (*extra, *(folder.path for folder in self.memory))
        self.roots = (self.root, *(Path(os.path.realpath(folder)) for folder in others))
        self.added: tuple[Path, ...] = ()
        """Folders that the user has added in the session."""
        self.open_to_commands: tuple[Path, ...] = ()
        """Folders elsewhere that confined commands may change."""

    def open_for_commands(self, folder: Path) -> None:
        """Let confined commands change a folder elsewhere, without making it part of the workspace."""
        self.open_to_commands = (*self.open_to_commands, Path(os.path.realpath(folder)))

    def add(self, folder: Path) -> None:
        """Make a folder part of the workspace for this session; places of keys below it stay
        closed.
        """
        real = Path(os.path.realpath(folder))
        if real not in self.roots:
            self.roots = (*self.roots, real)
            self.added = (*self.added, real)

    def resolve(self, text: str) -> Path:
        """Returns the real path that `text` names: `~` is home, a relative path starts from the
        root, and links are followed. Raises ToolError if the path changes all the time.
        """
        text = text.replace("\0", "\ufffd")
        return _real(self.root / os.path.expanduser(text))  # noqa: PTH111 - Path's raises for ~nobody

    def is_inside(self, path: Path) -> bool:
        """Whether a path, with links followed, is part of the workspace: it is below one of the
        roots, and not a system file or in a place of keys.
        """
        return self._covers(_real(path))

    def protection(self, path: Path, *, in_place: bool = True) -> str:
        """Returns why a change of a path, with links followed, needs a question even inside the
        workspace; empty if it does not.

        Args:
            in_place: whether the content of the file may change, not only its name.
        """
        real = _real(path)
        return self._protection(real) or (self._other_names_at_risk(real) if in_place else "")

    def other_names(self, path: Path) -> OtherNames:
        """Returns the other names (hard links) of a real path that are in the workspace."""
        from ouro.safety.hard_links import find_other_names

        return find_other_names(path, self.roots)

    def memory_at(self, path: Path) -> GuardedMemory | None:
        """The memory whose folder a real path is in; None if it is in none."""
        return next((folder for folder in self.memory if folder.holds(path)), None)

    def is_memory(self, path: Path) -> bool:
        """Whether a real path is a memory file, which the file tools may write without asking."""
        return any(folder.is_memory_file(path) for folder in self.memory)

    def grant(self, path: Path, access: Access = "write") -> None:
        """Let the running task open `path` and everything below it, although the path is outside of
        the workspace or protected.

        A tool call is a task: the grant ends with the call.
        """
        _granted.set(_granted.get() | {(access, _comparable(_real(path)))})

    def shown(self, path: Path) -> str:
        """Returns a path as text for the screen and the model: relative to the root, with `~` below
        home, otherwise absolute.
        """
        if _is_below(path, self.root):
            # Below the root only if the disk ignores case: then it stays absolute.
            is_spelled_alike = path.is_relative_to(self.root)
            return path_text(path.relative_to(self.root) if is_spelled_alike else path)
        home = Path.home()
        if path.is_relative_to(home) and path != home:
            return f"~/{path_text(path.relative_to(home))}"
        return path_text(path)

    def check(self, path: Path, access: Access) -> None:
        """Raise ToolError if the running call may not open a real path. The path is outside of the
        workspace, or it is protected and the call writes, and it was not granted. The access `show`
        is always allowed.
        """
        if access == "show" or self._is_granted(path, access):
            return
        if not self._covers(path):
            raise ToolError(
                f"{self.shown(path)} is outside the workspace {self.root}, and the user has not"
                " allowed it."
            )
        if access == "write" and (
            reason := self._protection(path) or self._other_names_at_risk(path)
        ):
            raise ToolError(
                f"{self.shown(path)} may not be changed unless the user allows it: {reason}."
            )

    def closed_below(self, folder: Path) -> list[Path]:
        """Returns the existing places below `folder` that a search of it must leave out: places of
        keys and system files that are neither part of the workspace nor granted to the running
        call.
        """
        inner = (
            area
            for area in protected.reserved_areas()
            if _is_below(area, folder) and area != folder
        )
        return [
            area
            for area in inner
            if area.exists() and not self.is_inside(area) and not self._is_granted(area, "read")
        ]

    @contextmanager
    def place(
        self, text: str, access: Access, *, create_parents: bool = False
    ) -> Iterator[FilePlace]:
        """Yield the place of the file that `text` names, with its folder open inside this context.
        The file itself need not exist.

        Args:
            create_parents: whether missing folders above it are made.

        Raises:
            ToolError: it may not be opened, it is the root of the disk, or its folder is missing or
                not a folder.
        """
        path = self.resolve(text)
        self.check(path, access)
        if not path.name:
            raise ToolError(f"{path} is a folder.")
        folder = self._open_folder(path.parent, create=create_parents)
        try:
            # Checked again: a folder may have become a link since `resolve`. What counts is the
            # real path of the opened folder.
            real = Path(path_of(folder), path.name)
            self.check(real, access)
            yield FilePlace(real, folder, path.name)
        finally:
            os.close(folder)

    @contextmanager
    def folder(self, text: str) -> Iterator[tuple[Path, int]]:
        """Open the folder that `text` names for reading; yields its real path and its descriptor.

        Raises:
            ToolError: it may not be opened, or is not a folder.
        """
        descriptor = self._open_folder(self.resolve(text), create=False)
        try:
            path = Path(path_of(descriptor))
            self.check(path, "read")
            yield path, descriptor
        finally:
            os.close(descriptor)

    def open(self, text: str) -> BinaryIO:
        """Open the regular file that `text` names for reading.

        Raises:
            ToolError: it may not be opened, does not exist, or is a folder, pipe, socket or device.
        """
        with self.place(text, "read") as place:
            return self.open_in(place)

    def open_in(self, place: FilePlace) -> BinaryIO:
        """Open the regular file at a place for reading. Raises ToolError if it may not be opened,
        or is not a regular file.
        """
        # O_NONBLOCK: to open a pipe would wait for its other end.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            # Checked also before it is opened: to open a device can already have an effect.
            self._require_regular(place.path, place.stat())
            descriptor = os.open(place.name, flags, dir_fd=place.folder)
        except OSError as error:
            raise ToolError(
                f"{self.shown(place.path)} cannot be opened: {error.strerror}."
            ) from error
        try:
            self._require_regular(place.path, os.fstat(descriptor))
            self.check(Path(path_of(descriptor)), "read")
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise

    def _protection(self, path: Path) -> str:
        """Returns why a change of a real path needs a question; empty if it needs none.

        In a folder of memory, three things need none: the folder itself, its archive and the memory
        files.
        """
        folder = self.memory_at(path)
        if folder is None or ".git" in path.parts[len(folder.path.parts) :]:
            return protected.protection(path)
        is_folder_of_memory = path in (folder.path, folder.path / "archive")
        if is_folder_of_memory or folder.is_memory_file(path):
            return ""
        return "a memory file is Markdown, directly in the folder of the memory or in its archive"

    def _other_names_at_risk(self, path: Path) -> str:
        """Returns why a change of the content of a real path needs a question because of its other
        names (hard links): one may be outside of the workspace, or may not be changed itself. Empty
        if it needs none.
        """
        names = self.other_names(path)
        if not names.are_all:
            return "the same file has another name (a hard link), perhaps elsewhere"
        for name in names.found:
            reason = self._protection(name)
            if not reason and not self._covers(name):
                reason = "that place is closed"
            if reason:
                return f"the same file has the name {self.shown(name)} (a hard link): {reason}"
        return ""

    def _covers(self, path: Path) -> bool:
        """Whether a real path is below a root, and not in a reserved area below that root."""
        root = next((root for root in self.roots if _is_below(path, root)), None)
        return root is not None and not protected.is_reserved(path, root)

    def _require_regular(self, path: Path, status: os.stat_result | None) -> None:
        """Raise ToolError unless `path` is a regular file. `status` is the status of the path;
        None: nothing is there.
        """
        if status is None:
            raise ToolError(f"{self.shown(path)} does not exist.")
        if not stat.S_ISREG(status.st_mode):
            kind = _KIND_NAMES.get(stat.S_IFMT(status.st_mode), "a device")
            raise ToolError(f"{self.shown(path)} is {kind}, not a file.")

    def _is_granted(self, path: Path, access: Access) -> bool:
        """Whether the running call was granted this access to the path, or to a folder above it. A
        grant to write includes reading.
        """
        granted = {place for kind, place in _granted.get() if kind in (access, "write")}
        if not granted:
            return False
        # A grant for a folder does not include places of keys below it: for a path in such a
        # place only grants in the same place count.
        area = protected.reserved_area(path)
        counting = (
            folder
            for folder in (path, *path.parents)
            if area is None or protected.is_under(folder, area)
        )
        return any(_comparable(folder) in granted for folder in counting)

    def _open_folder(self, folder: Path, *, create: bool) -> int:
        """Open a folder; returns its descriptor. With `create`, the folder and missing folders
        above it are made, if the running call may write there.

        Raises:
            ToolError: it may not be made, or is missing, a link, or not a folder.
        """
        flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
        try:
            return os.open(folder, flags)
        except FileNotFoundError:
            if not create:
                raise ToolError(f"{self.shown(folder)} does not exist.") from None
        except OSError as error:
            raise ToolError(
                f"{self.shown(folder)} cannot be opened as a folder: {error.strerror}."
            ) from error

        # Make the folder in the one above it, which is made first if it is missing too.
        above = self._open_folder(folder.parent, create=True)
        try:
            new = Path(path_of(above), folder.name)
            # The folders above a memory need no grant: the memory may not exist yet.
            if not any(protected.is_under(memory.path, new) for memory in self.memory):
                self.check(new, "write")
            os.mkdir(folder.name, dir_fd=above)
        except FileExistsError:
            pass  # another call has created it
        except OSError as error:
            raise ToolError(f"{self.shown(folder)} cannot be made: {error.strerror}.") from error
        else:
            return os.open(folder.name, flags, dir_fd=above)
        finally:
            os.close(above)
        return self._open_folder(folder, create=False)


def _is_below(path: Path, folder: Path) -> bool:
    """Whether a path is the folder or below it. On macOS case is ignored, as the disk does."""
    inner, outer = _comparable(path), _comparable(folder)
    return inner == outer or inner.startswith(outer if outer.endswith("/") else f"{outer}/")


def _real(path: Path) -> Path:
    """Returns the path with all links followed. Raises ToolError if that fails `_MAX_TRIES` times,
    because another program changes the links meanwhile.
    """
    for _ in range(_MAX_TRIES):
        try:
            return Path(os.path.realpath(path))
        except OSError:  # what was a link a moment ago is something else now
            continue
    raise ToolError(f"{path} changes while it is resolved. Try again.")


def _comparable(path: Path) -> str:
    """Returns a text that is equal for paths which the disk treats as equal. The disks of macOS
    ignore case and the form of accents.
    """
    if sys.platform == "darwin":
        import unicodedata  # 1 MB, only there

        return unicodedata.normalize("NFC", str(path)).casefold()
    return str(path)
