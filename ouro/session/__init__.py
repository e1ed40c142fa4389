"""One conversation: all that a front end may do."""

from typing import TYPE_CHECKING

from ouro.llm.model_source import ModelChoice
from ouro.memory.backend import RewindScope, SessionInfo
from ouro.memory.long_term.browsing import Browsing
from ouro.memory.long_term.digest import Digest
from ouro.memory.long_term.git.undo import UndoPlan, named
from ouro.memory.long_term.git.values import BlamedLine, Commit, DiffHunk, FileEdit, Scope
from ouro.memory.long_term.manager import CORE_FILES, LongTermMemoryManager
from ouro.memory.long_term.receipt import MemoryReceipt, ReceiptLine
from ouro.memory.long_term.said_turn import SaidTurn
from ouro.memory.long_term.timeline import FileBlame, MemoryDiff, OldFile, Timeline, TimelineEntry
from ouro.memory.long_term.trust.proposals import Proposal
from ouro.memory.sessions.session_catalog import SessionCatalog, SessionExcerpt
from ouro.memory.sessions.session_search import SessionHit
from ouro.open_request import OpenRequest
from ouro.session.context_window import ContextWindow, Outlook, Pinnable, WindowReport
from ouro.session.parts import SessionParts, Status
from ouro.session.resume import RepositoryNews, ResumeCard, Resumed, Tail
from ouro.session.rewind import Branch, Past, Point, Rewound
from ouro.session.session import Session
from ouro.tools.shell_jobs import JobInfo

if TYPE_CHECKING:  # they come with SQLite
    from ouro.memory.long_term.by_hand.overview import Listed as Listed
    from ouro.memory.long_term.by_hand.overview import NoteDetails as NoteDetails

__all__ = [
    "CORE_FILES",
    "BlamedLine",
    "Branch",
    "Browsing",
    "Commit",
    "ContextWindow",
    "DiffHunk",
    "Digest",
    "FileBlame",
    "FileEdit",
    "JobInfo",
    "LongTermMemoryManager",
    "MemoryDiff",
    "MemoryReceipt",
    "ModelChoice",
    "OldFile",
    "OpenRequest",
    "Outlook",
    "Past",
    "Pinnable",
    "Point",
    "Proposal",
    "ReceiptLine",
    "RepositoryNews",
    "ResumeCard",
    "Resumed",
    "RewindScope",
    "Rewound",
    "SaidTurn",
    "Scope",
    "Session",
    "SessionCatalog",
    "SessionExcerpt",
    "SessionHit",
    "SessionInfo",
    "SessionParts",
    "Status",
    "Tail",
    "Timeline",
    "TimelineEntry",
    "UndoPlan",
    "WindowReport",
    "named",
]
