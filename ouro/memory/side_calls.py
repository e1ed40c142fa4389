"""What is asked of a model beside the conversation, and what that cost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ouro.llm.ask import ask
from ouro.llm.model_source import ModelSource, Role
from ouro.memory.backend import CostRecord
from ouro.memory.manager import MemoryManager
from ouro.messages import Message


def beside(
    models: ModelSource, memory: MemoryManager, role: Role, purpose: str
) -> Callable[[list[Message]], Awaitable[str]]:
    """Asks the models of a role, and gives the words of the answer; the session keeps what it cost."""

    async def words(messages: list[Message]) -> str:
        answer = await ask(models.role(role), messages)
        if answer.usage is not None:
            memory.note(CostRecord(purpose, memory.now(), answer.model, answer.usage))
        return answer.text

    return words
