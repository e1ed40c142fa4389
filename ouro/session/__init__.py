"""One conversation: all that a front end may do."""

from ouro.agent.model_source import ModelChoice
from ouro.memory.backend import RewindScope, SessionInfo
from ouro.memory.long_term.manager import CORE_FILES, LongTermMemoryManager
from ouro.memory.long_term.proposals import Proposal
from ouro.memory.long_term.receipt import MemoryReceipt, ReceiptLine
from ouro.memory.long_term.values import Scope
from ouro.memory.session_words import Hit
from ouro.memory.shelf import Preview, SessionShelf
from ouro.open_request import OpenRequest
from ouro.session.parts import SessionParts, Status
from ouro.session.past import Branch, Past, Point, Rewound
from ouro.session.resumed import RepositoryNews, ResumeCard, Resumed, Tail
from ouro.session.session import Session
from ouro.session.window import ContextWindow, Outlook, Pinnable, WindowReport
from ouro.tools.shell_jobs import JobInfo

__all__ = [
    "CORE_FILES",
    "Branch",
    "ContextWindow",
    "Hit",
    "JobInfo",
    "LongTermMemoryManager",
    "MemoryReceipt",
    "ModelChoice",
    "OpenRequest",
    "Outlook",
    "Past",
    "Pinnable",
    "Point",
    "Preview",
    "Proposal",
    "ReceiptLine",
    "RepositoryNews",
    "ResumeCard",
    "Resumed",
    "RewindScope",
    "Rewound",
    "Scope",
    "Session",
    "SessionInfo",
    "SessionParts",
    "SessionShelf",
    "Status",
    "Tail",
    "WindowReport",
]
