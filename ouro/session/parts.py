"""What a Session is made of, and what its status line tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ouro.agent.limits import Limits
from ouro.llm.model import Effort
from ouro.llm.model_source import ModelSource
from ouro.memory.backend import SessionInfo
from ouro.memory.compaction import CompactionRules
from ouro.memory.long_term.session_memory import SessionMemory
from ouro.memory.manager import MemoryManager
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.messages import Usage
from ouro.safety.permissions import Mode, Permissions
from ouro.session.background import Background
from ouro.session.turn import Questions
from ouro.tools.files_seen import FilesSeen
from ouro.tools.shell import Shell
from ouro.tools.shell_jobs import ShellJobs
from ouro.tools.todo import Plan
from ouro.tools.tool import AnyTool


class Status(msgspec.Struct, frozen=True):
    """What the status line tells."""

    model: str
    effort: Effort
    mode: Mode
    branch: str
    context: int
    """Tokens that the next request carries."""
    window: int
    usage: Usage
    memories: int = 0
    """Notes that went to the model with the last message."""


class SessionParts(msgspec.Struct, frozen=True):
    """What a Session is made of; `assemble.py` puts it together."""

    cwd: Path
    memory: MemoryManager
    permissions: Permissions
    jobs: ShellJobs
    shell: Shell
    plan: Plan
    seen: FilesSeen
    tools: Sequence[AnyTool]
    models: ModelSource
    instructions: str
    """The system prompt."""
    trusts: Callable[[Path], bool]
    """Whether the person trusts a file of instructions as it is now."""
    limits: Limits
    remembers: SessionMemory
    """Long-term memory, also where it is off."""
    background: Background
    questions: Questions
    compaction: CompactionRules
    session_catalog: SessionCatalog
    list_files: Callable[[], list[str]]
    titles: bool = False
    """A model finds a title after the first turn."""
    notices: tuple[str, ...] = ()
    is_kept: bool = True
    """Can be taken up again later."""
    resumed: SessionInfo | None = None
    """What was known of the session when it was resumed; None for a new one."""
