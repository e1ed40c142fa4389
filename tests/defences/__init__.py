"""The defences of docs/threats.md: one table for each package of ouro; see `tests.mutate`."""

from tests.defences import (
    agent,
    batch,
    checkpoints,
    commands,
    extensions,
    frontends,
    llm,
    long_term_memory,
    lsp,
    mcp,
    memory,
    safety,
    sandbox,
    session,
    shell_judge,
    tools,
    top_level,
    utils,
)

_TABLES = (
    agent,
    batch,
    checkpoints,
    commands,
    extensions,
    frontends,
    llm,
    long_term_memory,
    lsp,
    mcp,
    memory,
    safety,
    sandbox,
    session,
    shell_judge,
    tools,
    top_level,
    utils,
)
DEFENCES = tuple(entry for table in _TABLES for entry in table.DEFENCES)
