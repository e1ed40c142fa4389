"""The graph of notes and entities as one self-contained HTML page."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.resources import files

import msgspec

from ouro.memory.long_term.entries import MemoryEntry
from ouro.memory.long_term.notes.notebook import NoteFile
from ouro.utils.text import clean, plural

_MAX_NAMES = 150
"""Entities in the graph: those that at least two notes name, the most named first."""
_GOLDEN = math.pi * (3 - math.sqrt(5))
_SPACING = 30.0
_GAP = 120.0


class GraphNode(msgspec.Struct, frozen=True):
    id: str
    kind: str
    """`note` or `name`."""
    group: str
    """The category of a note; `names` for entities."""
    label: str
    """The start of the text, on one line."""
    text: str
    about: str
    """Scope, category, date, badges and id; for an entity, how many notes name it."""
    x: float
    y: float
    """The initial position; the page moves linked nodes closer."""
    scope: str = ""
    past: bool = False
    """Archived or replaced."""


class GraphPicture(msgspec.Struct, frozen=True):
    """Nodes with positions, and edges: from, relationship, to."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[tuple[str, str, str], ...]


def picture_of(entries: Iterable[MemoryEntry], files: Sequence[NoteFile]) -> GraphPicture:
    """Build the graph: the notes of each category as a cluster, around the shared entities."""
    notes = {entry.id: entry for entry in entries}
    named = sorted({(entity, file.note.id) for file in files for entity in file.note.entities})
    counts = Counter(entity for entity, _note in named)
    shared = [entity for entity, count in counts.most_common(_MAX_NAMES) if count > 1]
    groups: dict[str, list[MemoryEntry]] = {}
    for item in sorted(notes.values(), key=lambda item: (item.category, item.id)):
        groups.setdefault(item.category or "none", []).append(item)
    places = _places([len(shared), *(len(group) for group in groups.values())])
    nodes = []
    for entity, place in zip(shared, places[0], strict=True):
        name = clean(entity)
        count = f"{plural(counts[entity], 'note')} with this name"
        nodes.append(GraphNode(entity, "name", "names", name, name, count, *place))
    for (group, members), positions in zip(groups.items(), places[1:], strict=True):
        for note, position in zip(members, positions, strict=True):
            changed = f"changed {plural(note.versions - 1, 'time')}" if note.versions > 1 else ""
            about = " · ".join(filter(None, (note.scope, note.category, note.at[:10], *note.badges, changed, note.id)))
            label, text = " ".join(clean(note.text).split())[:80] or note.id, clean(note.text)
            is_past = not note.is_in_use
            nodes.append(GraphNode(note.id, "note", group, label, text, clean(about), *position, note.scope, is_past))
    known = {node.id for node in nodes}
    edges: list[tuple[str, str, str]] = [
        (file.note.id, edge.relationship, edge.id) for file in files for edge in file.note.related
    ]
    edges += [(file.note.id, "supersedes", file.note.supersedes) for file in files if file.note.supersedes]
    edges += [(note, "names", entity) for entity, note in named]
    return GraphPicture(tuple(nodes), tuple(edge for edge in edges if edge[0] in known and edge[2] in known))


def html_page(picture: GraphPicture) -> str:
    """The page with data and script inline; its content policy forbids any request."""
    data = json.dumps(msgspec.to_builtins(picture), ensure_ascii=True)
    for sign in "<>&":  # so that no text of a note can close the script
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    template = (files("ouro.memory.long_term") / "graph_picture.html").read_text(encoding="utf-8")
    return template.replace("/*DATA*/", data, 1)


def _places(sizes: Sequence[int]) -> list[list[tuple[float, float]]]:
    """The positions of each group's members, in a sunflower spiral; the first group is in the middle."""
    first, *others = [_SPACING * math.sqrt(size + 1) for size in sizes]
    widths = [2 * radius + _GAP for radius in others]
    distance = max(sum(widths) / (2 * math.pi), first + max(others, default=0) + _GAP)
    angle, centres = 0.0, [(0.0, 0.0)]
    for width in widths:
        half = width / sum(widths) * math.pi
        centres.append((distance * math.cos(angle + half), distance * math.sin(angle + half)))
        angle += 2 * half
    return [[_spiral_point(n, centre) for n in range(size)] for size, centre in zip(sizes, centres, strict=True)]


def _spiral_point(number: int, centre: tuple[float, float]) -> tuple[float, float]:
    radius, angle = _SPACING * math.sqrt(number + 0.5), number * _GOLDEN
    return round(centre[0] + radius * math.cos(angle), 1), round(centre[1] + radius * math.sin(angle), 1)
