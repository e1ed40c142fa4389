"""A LoopAgent as a session puts it together, from the parts that a test cares for."""

from __future__ import annotations

from collections.abc import Sequence

from ouro.agent.compactor import Compactor, CompactorParts
from ouro.agent.limits import Limits
from ouro.agent.loop import AgentParts, LoopAgent
from ouro.agent.requests import Requests
from ouro.agent.tool_runner import ToolRunner
from ouro.llm.model import Model
from ouro.memory.compaction import CompactionRules
from ouro.memory.manager import MemoryManager


def make_compactor(
    memory: MemoryManager,
    runner: ToolRunner,
    models: Sequence[Model],
    *,
    summarisers: Sequence[Model] = (),
    rules: CompactionRules | None = None,
    carried: str = "",
    on_compacted=lambda: None,
) -> Compactor:
    """A Compactor; without `summarisers` the models sum up themselves."""

    async def carry() -> str:
        return carried

    return Compactor(
        CompactorParts(
            memory=memory,
            models=lambda: models,
            summarisers=lambda: summarisers or models,
            requests=Requests("Be good.", runner),
            rules=rules or CompactionRules(),
            carried=carry,
            on_compacted=on_compacted,
        )
    )


def make_agent(
    memory: MemoryManager,
    runner: ToolRunner,
    models: Sequence[Model],
    *,
    compactor: Compactor | None = None,
    steering=lambda: (),
    instructions_for=lambda _: "",
    limits: Limits | None = None,
    afford=None,
) -> LoopAgent:
    """A LoopAgent whose system prompt is "Be good."."""
    return LoopAgent(
        AgentParts(
            models=lambda: models,
            memory=memory,
            tools=runner,
            requests=Requests("Be good.", runner),
            compactor=compactor or make_compactor(memory, runner, models),
            steering=steering,
            instructions_for=instructions_for,
            limits=limits or Limits(),
            afford=afford or _rich,
        )
    )


async def _rich() -> str:
    return ""
