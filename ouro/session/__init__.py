"""One conversation: all that a front end may do."""

from ouro.agent.model_source import ModelChoice
from ouro.memory.backend import RewindScope, SessionInfo
from ouro.memory.session_words import Hit
from ouro.memory.shelf import Preview, SessionShelf
from ouro.open_request import OpenRequest
from ouro.session.parts import SessionParts, Status
from ouro.session.past import Branch, Past, Point, Rewound
from ouro.session.session import Session
from ouro.session.window import ContextWindow, Outlook, Pinnable, WindowReport
from ouro.tools.shell_jobs import JobInfo

__all__ = [
    "Branch",
    "ContextWindow",
    "Hit",
    "JobInfo",
    "ModelChoice",
    "OpenRequest",
    "Outlook",
    "Past",
    "Pinnable",
    "Point",
    "Preview",
    "RewindScope",
    "Rewound",
    "Session",
    "SessionInfo",
    "SessionParts",
    "SessionShelf",
    "Status",
    "WindowReport",
]
