"""Read objects of a memory's history without git, so that memory can be used while git is missing.

Only what is in the git directory itself is read: no alternates, grafts or replacements.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from ouro.memory.long_term.git.git_dir_checks import unusable_history

_OBJECT_ID_BYTES = 20
_FILE_MODE = b"100"
"""The start of the mode of a file in a tree."""
_FOLDER_MODE = b"40000"


class ObjectReader:
    """The objects in a git directory, loose or in packs. Methods raise MemoryUnusable if one is
    missing or damaged.
    """

    def __init__(self, git_dir: Path) -> None:
        from gitdb.db import LooseObjectDB, PackedDB  # 60 ms

        objects = git_dir / "objects"
        self._git_dir = git_dir
        self._databases = (LooseObjectDB(str(objects)), PackedDB(str(objects / "pack")))

    def read(self, object_id: str) -> tuple[str, bytes]:
        """The kind (`blob`, `tree`, `commit`) and the content of an object."""
        from gitdb.exc import ODBError

        try:
            binary_id = bytes.fromhex(object_id)
            for database in self._databases:
                if database.has_object(binary_id):
                    stream = database.stream(binary_id)
                    return stream.type.decode(), stream.read()
        except (ODBError, OSError, ValueError, AssertionError, zlib.error) as error:
            raise unusable_history(
                self._git_dir, f"{object_id[:12]} of the history cannot be read"
            ) from error
        raise unusable_history(self._git_dir, f"{object_id[:12]} of the history is missing")

    def list_files(self, commit: str, folders: Sequence[str]) -> dict[str, str]:
        """The blob ids of the files at the top of a commit, and directly in these folders of it, by
        name; links are left out.
        """
        kind, content = self.read(commit)
        first_word, _, tree_line = content.partition(b"\n")[0].partition(b" ")
        if kind != "commit" or first_word != b"tree":
            raise unusable_history(self._git_dir, f"{commit[:12]} is no commit")

        files: dict[str, str] = {}
        for mode, name, object_id in self._read_tree(tree_line.decode(errors="replace")):
            if mode.startswith(_FILE_MODE):
                files[name] = object_id
            elif mode == _FOLDER_MODE and name in folders:
                files |= {
                    f"{name}/{inner_name}": inner_id
                    for inner_mode, inner_name, inner_id in self._read_tree(object_id)
                    if inner_mode.startswith(_FILE_MODE)
                }
        return files

    def _read_tree(self, tree_id: str) -> Iterator[tuple[bytes, str, str]]:
        """Yield the mode, name and object id of each entry of a tree, which git stores as
        `MODE NAME<NUL>ID`, the id in binary.
        """
        kind, content = self.read(tree_id)
        if kind != "tree":
            raise unusable_history(self._git_dir, f"{tree_id[:12]} of the history is no tree")
        start = 0
        while start < len(content):
            header_end = content.find(b"\0", start)
            id_end = header_end + 1 + _OBJECT_ID_BYTES
            if header_end < 0 or id_end > len(content):
                raise unusable_history(self._git_dir, f"{tree_id[:12]} of the history is damaged")
            mode, _, name = content[start:header_end].partition(b" ")
            yield mode, os.fsdecode(name), content[header_end + 1 : id_end].hex()
            start = id_end
