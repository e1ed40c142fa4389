"""How often each note was recalled, over the sessions that are kept."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from ouro.utils.log import log

_RECORD = re.compile(rb"^---\nrecalled: \d+\n(.*?)^\.\.\.$", re.DOTALL | re.MULTILINE)
_LOADED = re.compile(rb"^- \{id: (mem_[0-9a-f]{8,32}), state: loaded", re.MULTILINE)
_MOST_BYTES = 16 << 20
"""Of one session that are looked through: its end."""


def recall_counts(sessions: Path) -> dict[str, int]:
    """Note id -> how many messages it went with. Reads the sessions' files; blocks."""
    counted: Counter[str] = Counter()
    for path in sorted(sessions.glob("*/session.yaml")):
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _MOST_BYTES))
                data = file.read(_MOST_BYTES)
        except OSError as error:
            log.warning("%s is not counted: %s", path, error)
            continue
        for record in _RECORD.findall(data):
            counted.update(each.decode() for each in _LOADED.findall(record))
    return dict(counted)
