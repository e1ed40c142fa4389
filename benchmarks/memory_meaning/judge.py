"""How one case of the benchmark is judged: with a model, or a classifier that accepts everything."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from benchmarks.memory_meaning.values import Message, Pair
from ouro.memory.long_term import categories_with
from ouro.memory.long_term.capture.operations import Operation, OperationLimits
from ouro.memory.long_term.capture.session_parts import Spoken
from ouro.memory.long_term.capture.small_model import find_operations
from ouro.memory.long_term.notes.note import Note
from ouro.utils.relative_dates import local_day

OTHERS = ("Black formats the code", "Kaffee steht in der Küche")


class Asker:
    """Asks a model; without one every sentence is a fact, and no subject is named."""

    def __init__(self, model: Any = None, kind: str = "") -> None:
        self._model = model
        self._kind = kind
        """The label of every sentence; empty: the model labels."""

    async def __call__(self, messages: Any, schema: Any = None) -> str:
        is_label = bool({"kind", "label"} & set((schema or {}).get("properties", {})))
        if is_label and self._kind:
            return json.dumps({"kind": self._kind, "label": "own"})
        if self._model is None:
            return json.dumps({"kind": "fact", "same": False})
        chunks = [chunk async for chunk in self._model.with_schema(schema).stream(messages)]
        return "".join(getattr(chunk, "text", "") for chunk in chunks)


async def operations(ask: Asker, said: str, known: Sequence[str] = ()) -> Sequence[Operation]:
    notes = [Note(id=f"mem_{number:08}", text=text) for number, text in enumerate(known)]
    limits = OperationLimits(notes, categories_with({}), ("user", "repo"))
    return await find_operations(ask, [Spoken(1, "user", said)], limits)


async def is_replaced_right(ask: Asker, name: str, pair: Pair) -> bool:
    """Whether a statement replaces the earlier one, or leaves it if both hold."""
    found_operations = await operations(ask, pair.said, (*OTHERS, pair.before))
    replaced = {operation.target for operation in found_operations if operation.verb == "supersede"}
    return replaced == ({f"mem_{len(OTHERS):08}"} if name == "corrections" else set())


async def is_kept(ask: Asker, message: Message) -> str:
    """`stated` or `doubtful` if the expected text is remembered in the right scope; else empty.

    What holds for today only is remembered until the evening: it does not count.
    """
    today = local_day().isoformat()
    lasting = [item for item in await operations(ask, message.said) if item.until != today]
    matching = [item for item in lasting if re.search(message.wanted, item.text)]
    if not any(not message.scope or message.scope == item.scope for item in matching):
        return ""
    return "doubtful" if all(item.certainty == "doubtful" for item in matching) else "stated"
