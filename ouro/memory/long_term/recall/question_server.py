"""What the process for a first message does: it makes vectors, and finds the candidates among notes.
`ouro.memory.index.question_process` starts and asks it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ouro.errors import SearchUnavailable
from ouro.memory.index import Graph, ReadOnlyIndex, Search, Vectors, local_embedder, parse_query
from ouro.memory.long_term.recall.candidates import CandidateFinder
from ouro.memory.long_term.recall.note_question import NoteQuestion, QuestionForProcess
from ouro.memory.long_term.recall.relevance import questions_in
from ouro.utils.decoding import from_plain

if TYPE_CHECKING:
    from ouro.memory.index import Embedder

BYTES_OF_LENGTH = 4


def serve(index_path: str) -> None:
    """Answer the lines of standard input until it is closed: the program of the process. A line is
    JSON: a list of texts, whose vectors are returned, or a `QuestionForProcess`. An answer is the
    number of its bytes, then these. A line may also be one text: the message that will be asked about.
    """
    embedder = local_embedder()
    if embedder is None:
        return
    embedder.prepare()
    server = _Server(Path(index_path), embedder)
    for line in sys.stdin.buffer:
        value = json.loads(line)
        if isinstance(value, str):
            server.prepare(value)
            continue
        answer = server.embed(value) if isinstance(value, list) else server.find(value)
        sys.stdout.buffer.write(len(answer).to_bytes(BYTES_OF_LENGTH, "little") + answer)
        sys.stdout.buffer.flush()


class _Server:
    def __init__(self, index_path: Path, embedder: Embedder) -> None:
        self._index = ReadOnlyIndex(index_path)
        self._vectors = Vectors(self._index, embedder)
        self._finder = CandidateFinder(Search(self._index, self._vectors), Graph(self._index))

    def prepare(self, text: str) -> None:
        """Make the vectors of a message and its sentences, and search once for it: what that loads
        is ready for the search that counts, with the folders and settings of the session.
        """
        self._vectors.embed_questions([parse_query(part).spoken for part in questions_in(text)])
        with suppress(SearchUnavailable):
            self._finder.find(NoteQuestion(text, project="", linked={}, top_k=1, hop_depth=1))

    def embed(self, texts: Sequence[str]) -> bytes:
        """Returns the vectors of texts, one after the other."""
        vectors = self._vectors.embed_questions(texts)
        return b"".join(vector.tobytes() for vector in vectors)

    def find(self, value: Any) -> bytes:
        """Returns the candidates as JSON; `null` if the index has not all files as they are asked
        for, or not all their vectors.
        """
        asked = from_plain(value, QuestionForProcess)
        candidates = None
        with suppress(SearchUnavailable):
            if self._index.has_all(asked.states) and self._vectors.is_ready("notes"):
                candidates = self._finder.find(asked.question)
        return json.dumps(msgspec.to_builtins(candidates)).encode()
