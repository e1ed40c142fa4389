"""One live session, for front ends. Exports are imported at first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ouro.llm import ModelChoice
    from ouro.memory.backend import RewindScope, SessionInfo
    from ouro.memory.long_term import (
        BlamedLine,
        Browsing,
        Commit,
        DiffHunk,
        FileBlame,
        FileEdit,
        ListedEntry,
        LongTermMemoryManager,
        MemoryDiff,
        MemoryMaintenance,
        MemoryReceipt,
        NoteDetails,
        OldFile,
        Proposal,
        ReceiptLine,
        Scope,
        Timeline,
        TimelineEntry,
        TurnEvidence,
        UndoPlan,
        describe_commits,
    )
    from ouro.memory.sessions.session_catalog import SessionCatalog, SessionExcerpt, SessionHit
    from ouro.session.context_window import ContextWindow, Outlook, Pinnable, WindowReport
    from ouro.session.opening import PICK, OpenDialog, OpenRequest, Part, open_interactively
    from ouro.session.resume import RepositoryChanges, ResumeCard, Resumed, Tail
    from ouro.session.rewind import Branch, Point, Rewind, Rewound
    from ouro.session.session import Session, Status
    from ouro.session.turn_queue import Draft, TurnObserver, TurnQueue
    from ouro.tools.shell import JobInfo

_HOMES = {
    "ouro.llm.model": ("ModelChoice",),
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
    "ouro.memory.sessions.session_catalog": ("SessionCatalog", "SessionExcerpt", "SessionHit"),
    "ouro.session.context_window": ("ContextWindow", "Outlook", "Pinnable", "WindowReport"),
    "ouro.session.opening": ("OpenDialog", "OpenRequest", "PICK", "Part", "open_interactively"),
    "ouro.session.session": ("Session", "Status"),
    "ouro.session.resume": ("RepositoryChanges", "ResumeCard", "Resumed", "Tail"),
    "ouro.session.rewind": ("Branch", "Rewind", "Point", "Rewound"),
    "ouro.session.turn_queue": ("Draft", "TurnObserver", "TurnQueue"),
    "ouro.tools.shell": ("JobInfo",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
__all__ = list(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
