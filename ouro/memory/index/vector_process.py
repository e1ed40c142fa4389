"""A process that makes missing vectors with the local model at low priority. It may run on after
ouro has ended.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from ouro.errors import ModelError, SearchUnavailable
from ouro.memory.index.index import Index, Sources
from ouro.utils.decoding import decode_json
from ouro.utils.detached_process import LOWEST_PRIORITY, hold_lock, is_locked, start_detached
from ouro.utils.path_encoding import path_text, text_path


def start_vector_process(index: Path, sources: Sources) -> bool:
    """Start a process that indexes these sources and makes all missing vectors. Returns whether it
    was started. False if such a process of any session runs already, because it makes the vectors
    for all sessions; or if the process cannot be started.
    """
    if is_locked(lock_path(index)):
        return False
    return start_detached(__name__, [str(index), _encode(sources)])


def lock_path(index: Path) -> Path:
    """Returns the file that the process locks while it runs."""
    return index.with_name(f"{index.name}.vectors")


def main(index: str, sources: str) -> None:
    """Update the index from `sources`, make all missing vectors, and store their signs. This is the
    program of the process. It does nothing if another one makes them already, or if no local model is installed.
    """
    from ouro.memory.index.embeddings import local_embedder
    from ouro.memory.index.vectors import Vectors

    os.nice(LOWEST_PRIORITY)
    path, embedder = Path(index), local_embedder()
    with suppress(OSError, SearchUnavailable, ModelError):  # the next session tries again
        hold_lock(lock_path(path))
        if embedder is None:
            return
        opened_index = Index(path)
        opened_index.update(_decode(sources))
        opened_index.add_missing_sql_indexes()
        vectors = Vectors(opened_index, embedder)
        while vectors.are_missing() and vectors.fill():
            pass
        vectors.store_signs()
        opened_index.close()


def _encode(sources: Sources) -> str:
    return msgspec.json.encode(sources, enc_hook=path_text).decode()


def _decode(text: str) -> Sources:
    return decode_json(text, Sources, dec_hook=lambda _path, text: text_path(text))
