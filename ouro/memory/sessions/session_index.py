"""`.index.yaml`: what a list says of each session, so that a list opens no folder. Derived; may be deleted.

One line a session, JSON, which is YAML too and read a hundred times faster. Each line holds size and time of the file
it speaks of: what does not fit any more is read again, so nobody has to keep it up to date while a session runs.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path

import msgspec

from ouro.errors import SessionError
from ouro.memory.backend import Progress, SessionInfo
from ouro.memory.sessions.session_file import FILE_NAME, read_file, replace
from ouro.memory.sessions.session_folders import is_named_after
from ouro.memory.sessions.session_survey import Survey, survey

INDEX_NAME = ".index.yaml"
_HEAD = b"# Made from the sessions in this folder; may be deleted at any time.\nformat: 3\nsessions: "
_TAIL = b"\n]\n"
_WORTH_WRITING = 1 << 20
"""Bytes of sessions that had to be looked at: below it the next list does so again, which costs less than to write."""
_TOLD_EVERY = 50


def entries(root: Path, *, anew: bool = False, progress: Progress | None = None) -> list[Survey]:
    """An entry for each session below `root`, as it is now; the index is brought up to date where it can be.

    Args:
        root: the folder of the sessions.
        anew: whatever the index says.
        progress: told now and then how many sessions have been looked at, of how many.
    """
    known = {} if anew else _read(root)
    names = _folders(root)
    current: dict[str, Survey] = {}
    looked_at = 0
    with _place_of(root) as place:
        for count, name in enumerate(names):
            found = _stat(f"{name}/{FILE_NAME}", place)
            if found is not None:
                entry = known.get(name)
                if entry is None or entry.mtime != found.st_mtime_ns or entry.info.size != found.st_size:
                    entry = survey(root / name, found, entry)
                    looked_at += entry.info.size
                current[name] = entry
            if progress is not None and count % _TOLD_EVERY == 0:
                progress(count, len(names))
    if progress is not None:
        progress(len(names), len(names))
    if anew or looked_at > _WORTH_WRITING or current.keys() != known.keys():
        _write(root, current)
    return list(current.values())


def entry_of(root: Path, folder: str) -> Survey | None:
    """One session as it is now; None where there is none."""
    with _place_of(root) as place:
        known, found = _line_of(root, folder), _stat(f"{folder}/{FILE_NAME}", place)
    if found is None:
        return None
    is_as_known = known is not None and known.mtime == found.st_mtime_ns and known.info.size == found.st_size
    return known if is_as_known else survey(root / folder, found, known)


def infos(root: Path, progress: Progress | None = None) -> list[SessionInfo]:
    """The sessions in which something was said, last used first."""
    with _no_collecting():
        found = [each.info for each in entries(root, progress=progress) if each.info.messages or each.info.title]
    ordered = _told_apart(found)[::-1]  # of those of one moment the last by name is first
    ordered.sort(key=attrgetter("updated_at"), reverse=True)
    return ordered


def _told_apart(found: list[SessionInfo]) -> list[SessionInfo]:
    """Where a folder was copied by hand, two sessions have one id: the copy goes by the name of its folder.

    It is a copy that costs nothing: what was spent is counted with the first one.
    """
    if len({each.id for each in found}) == len(found):
        return found
    firsts: dict[str, str] = {}
    for each in found:
        if is_named_after(each.folder, each.id):
            firsts.setdefault(each.id, each.folder)
    counts = Counter(each.id for each in found)
    return [each if counts[each.id] == 1 or firsts.get(each.id) == each.folder else _as_copy(each) for each in found]


def _as_copy(info: SessionInfo) -> SessionInfo:
    title = f"{info.title} [{info.folder}]".lstrip()
    return msgspec.structs.replace(info, id=info.folder, fork_of=info.id, title=title, spent=(), cost=0.0)


@contextmanager
def _no_collecting() -> Iterator[None]:
    """Ten thousand new values, none of them garbage: looking for some among them takes longer than reading them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _folders(root: Path) -> list[str]:
    try:
        with os.scandir(root) as found:
            return sorted(
                each.name for each in found if not each.name.startswith(".") and each.is_dir(follow_symlinks=False)
            )
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _not_readable(root, error) from error


def _not_readable(root: Path, error: OSError) -> SessionError:
    return SessionError(
        f"The sessions in {root} cannot be read: {error.strerror}.", "Put a folder of yours there, or set OURO_HOME."
    )


def _read(root: Path) -> dict[str, Survey]:
    try:
        found = msgspec.json.decode(_text(root), type=list[Survey])
        return {each.info.folder: each for each in found}
    except (OSError, SessionError, msgspec.MsgspecError, UnicodeDecodeError):
        # Missing, broken, of a newer ouro: it is made again from the sessions.
        return {}


def _line_of(root: Path, folder: str) -> Survey | None:
    try:
        text = _text(root)
        place = text.find(b'"folder":' + msgspec.json.encode(folder) + b",")
        line = text[text.rfind(b"\n", 0, place) + 1 : text.find(b"\n", place)].rstrip(b",")
        return msgspec.json.decode(line, type=Survey) if place >= 0 else None
    except (OSError, SessionError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _text(root: Path) -> bytes:
    text = read_file(root, INDEX_NAME)
    return text[len(_HEAD) :] if text.startswith(_HEAD) else b""


def _write(root: Path, current: dict[str, Survey]) -> None:
    encode = msgspec.json.Encoder().encode
    lines = b",\n".join(encode(each) for each in current.values())
    try:
        replace(root, INDEX_NAME, _HEAD + b"[\n" + lines + _TAIL)
    except (OSError, SessionError):
        # A folder that cannot be written: the next list looks again.
        return


@contextmanager
def _place_of(root: Path) -> Iterator[int | None]:
    """A descriptor of the folder, from which its files are named: shorter names are found faster."""
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise _not_readable(root, error) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _stat(name: str, place: int | None) -> os.stat_result | None:
    try:
        return None if place is None else os.stat(name, dir_fd=place, follow_symlinks=False)
    except OSError:
        return None
