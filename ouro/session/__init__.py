"""One live session, for front ends. Exports are imported at first use."""

from typing import TYPE_CHECKING

from ouro.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ouro.extensions import Check
    from ouro.memory.backend import RewindScope, SessionInfo
    from ouro.memory.long_term import (
        AgentMemory,
        BlamedLine,
        Commit,
        EntryDetails,
        FileEdit,
        MemoryEntry,
        MemoryReceipt,
        Proposal,
        ReceiptLine,
        TimelineEntry,
        all_entries,
        details_of,
    )
    from ouro.memory.sessions.session_catalog import (
        SessionCatalog,
        SessionExcerpt,
        SessionHit,
        TurnEvidence,
        has_tags,
    )
    from ouro.session.attachments import Attachment
    from ouro.session.background_work import BackgroundTask
    from ouro.session.context_window import ContextItem, Outlook, WindowReport
    from ouro.session.file_undo import UNDONE
    from ouro.session.opening import (
        PICK,
        OpenCatalog,
        OpenRequest,
        OpenSession,
        open_interactively,
        trust_question,
    )
    from ouro.session.resume import MemorySince, RepositoryChanges, ResumeCard, Resumed, Tail
    from ouro.session.rewind import Branch, Point, Rewind, Rewound
    from ouro.session.session import Session, Status
    from ouro.session.session_diff import SessionDiff, ShownDiff
    from ouro.session.turn_queue import Draft, TurnObserver, TurnQueue
    from ouro.session.wake import WAKE_QUESTION

__getattr__ = lazy_exports(__name__)
