"""One live session, for front ends. Exports are imported at first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ouro.llm import ModelChoice as ModelChoice
    from ouro.memory.backend import RewindScope as RewindScope
    from ouro.memory.backend import SessionInfo as SessionInfo
    from ouro.memory.long_term import BlamedLine as BlamedLine
    from ouro.memory.long_term import Browsing as Browsing
    from ouro.memory.long_term import Commit as Commit
    from ouro.memory.long_term import DiffHunk as DiffHunk
    from ouro.memory.long_term import FileBlame as FileBlame
    from ouro.memory.long_term import FileEdit as FileEdit
    from ouro.memory.long_term import ListedEntry as ListedEntry
    from ouro.memory.long_term import LongTermMemoryManager as LongTermMemoryManager
    from ouro.memory.long_term import MemoryDiff as MemoryDiff
    from ouro.memory.long_term import MemoryMaintenance as MemoryMaintenance
    from ouro.memory.long_term import MemoryReceipt as MemoryReceipt
    from ouro.memory.long_term import NoteDetails as NoteDetails
    from ouro.memory.long_term import OldFile as OldFile
    from ouro.memory.long_term import Proposal as Proposal
    from ouro.memory.long_term import ReceiptLine as ReceiptLine
    from ouro.memory.long_term import Scope as Scope
    from ouro.memory.long_term import Timeline as Timeline
    from ouro.memory.long_term import TimelineEntry as TimelineEntry
    from ouro.memory.long_term import TurnEvidence as TurnEvidence
    from ouro.memory.long_term import UndoPlan as UndoPlan
    from ouro.memory.long_term import describe_commits as describe_commits
    from ouro.memory.sessions.session_catalog import SessionCatalog as SessionCatalog
    from ouro.memory.sessions.session_catalog import SessionExcerpt as SessionExcerpt
    from ouro.memory.sessions.session_search import SessionHit as SessionHit
    from ouro.session.context_window import ContextWindow as ContextWindow
    from ouro.session.context_window import Outlook as Outlook
    from ouro.session.context_window import Pinnable as Pinnable
    from ouro.session.context_window import WindowReport as WindowReport
    from ouro.session.opening import PICK as PICK
    from ouro.session.opening import OpenDialog as OpenDialog
    from ouro.session.opening import OpenRequest as OpenRequest
    from ouro.session.opening import Part as Part
    from ouro.session.opening import open_interactively as open_interactively
    from ouro.session.resume import RepositoryChanges as RepositoryChanges
    from ouro.session.resume import ResumeCard as ResumeCard
    from ouro.session.resume import Resumed as Resumed
    from ouro.session.resume import Tail as Tail
    from ouro.session.rewind import Branch as Branch
    from ouro.session.rewind import Point as Point
    from ouro.session.rewind import Rewind as Rewind
    from ouro.session.rewind import Rewound as Rewound
    from ouro.session.session import Session as Session
    from ouro.session.session import Status as Status
    from ouro.session.turn_queue import Draft as Draft
    from ouro.session.turn_queue import TurnObserver as TurnObserver
    from ouro.session.turn_queue import TurnQueue as TurnQueue
    from ouro.tools.shell_jobs import JobInfo as JobInfo

_HOMES = {
    "ouro.llm.model_source": ("ModelChoice",),
    "ouro.memory.backend": ("RewindScope", "SessionInfo"),
    "ouro.memory.long_term.browsing": ("Browsing",),
    "ouro.memory.long_term.overview": ("ListedEntry", "NoteDetails"),
    "ouro.memory.long_term.maintenance.background": ("MemoryMaintenance",),
    "ouro.memory.long_term.git.undo": ("UndoPlan", "describe_commits"),
    "ouro.memory.long_term.git.values": ("BlamedLine", "Commit", "DiffHunk", "FileEdit", "Scope"),
    "ouro.memory.long_term.manager": ("LongTermMemoryManager",),
    "ouro.memory.long_term.receipt": ("MemoryReceipt", "ReceiptLine"),
    "ouro.memory.long_term.evidence": ("TurnEvidence",),
    "ouro.memory.long_term.timeline": ("FileBlame", "MemoryDiff", "OldFile", "Timeline", "TimelineEntry"),
    "ouro.memory.long_term.trust.proposals": ("Proposal",),
    "ouro.memory.sessions.session_catalog": ("SessionCatalog", "SessionExcerpt"),
    "ouro.memory.sessions.session_search": ("SessionHit",),
    "ouro.session.context_window": ("ContextWindow", "Outlook", "Pinnable", "WindowReport"),
    "ouro.session.opening": ("OpenDialog", "OpenRequest", "PICK", "Part", "open_interactively"),
    "ouro.session.session": ("Session", "Status"),
    "ouro.session.resume": ("RepositoryChanges", "ResumeCard", "Resumed", "Tail"),
    "ouro.session.rewind": ("Branch", "Rewind", "Point", "Rewound"),
    "ouro.session.turn_queue": ("Draft", "TurnObserver", "TurnQueue"),
    "ouro.tools.shell_jobs": ("JobInfo",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
__all__ = list(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
