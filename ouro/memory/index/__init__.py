"""The search index of sessions and memory in SQLite: words, vectors, entities. All SQL is written
here.

Code outside of this package imports from here only. Modules are imported on first use.
"""

from ouro.utils.lazy_exports import lazy_exports

TYPE_CHECKING = False  # without `typing`: a start imports this before anything else
if TYPE_CHECKING:
    from ouro.memory.index.benchmark import (
        MAX_HITS,
        BenchmarkQuestion,
        Document,
        SearchQuality,
        answer_questions,
        ask_own_notes,
        measure_answers,
        read_lines,
    )
    from ouro.memory.index.embeddings import (
        Embedder,
        choose_embedder,
        is_embedder_chosen,
        local_embedder,
        make_embedder,
    )
    from ouro.memory.index.foreign_task_words import is_foreign_task_word
    from ouro.memory.index.function_words import is_function_word, is_in_english, language_of
    from ouro.memory.index.graph import Graph
    from ouro.memory.index.index import Index, Progress, ReadOnlyIndex, Sources, lock_index
    from ouro.memory.index.late_numpy import has_numpy
    from ouro.memory.index.lookup import Lookup
    from ouro.memory.index.memory_folder import CORE_FILES, MemoryFolder, project_of
    from ouro.memory.index.passages import searched_text
    from ouro.memory.index.query import parse_query
    from ouro.memory.index.question_process import (
        end_question_process,
        running_question_process,
        start_question_process,
    )
    from ouro.memory.index.scoring import DAYS_WEIGHT
    from ouro.memory.index.search import MemoryHit, Search, SearchFilter
    from ouro.memory.index.session_search import search_sessions
    from ouro.memory.index.stems import find_stems
    from ouro.memory.index.vectors import Vectors
    from ouro.memory.index.words import (
        ABBREVIATED_WORDS,
        MIN_START,
        STOP_WORDS,
        findable,
        word_starts,
        words_in,
        write_out,
    )

__getattr__ = lazy_exports(__name__)
