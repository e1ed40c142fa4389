"""One conversation: all that a front end may do."""

from ouro.agent.model_source import ModelChoice
from ouro.memory.backend import SessionInfo
from ouro.open_request import OpenRequest
from ouro.session.parts import SessionParts, Status
from ouro.session.session import Session
from ouro.tools.shell_jobs import JobInfo

__all__ = ["JobInfo", "ModelChoice", "OpenRequest", "Session", "SessionInfo", "SessionParts", "Status"]
