"""The graph of notes and entities, as one self-contained HTML page."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import resources

import msgspec

from ouro.memory.long_term.entry_lookup import MemoryEntry
from ouro.memory.long_term.notes.notebook import NoteFile
from ouro.utils.text import clean, plural

_MAX_NAMES = 150
"""Entities in the graph: those that at least two notes name, the most named first."""
_GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))
_SPACING = 30.0
_GAP = 120.0
_Point = tuple[float, float]


class GraphNode(msgspec.Struct, frozen=True):
    """A note or an entity, as the page draws it."""

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


def _named_entities(files: Iterable[NoteFile]) -> list[tuple[str, str]]:
    """Each entity with the id of a note that names it, sorted."""
    links: set[tuple[str, str]] = set()
    for file in files:
        links.update((entity, file.note.id) for entity in file.note.entities)
    return sorted(links)


def _group_by_category(notes: Iterable[MemoryEntry]) -> list[list[MemoryEntry]]:
    """The notes of each category, sorted by id, as a list for each category; the lists are sorted
    by category. Notes without a category are together.
    """
    groups: dict[str, list[MemoryEntry]] = {}
    for note in sorted(notes, key=lambda note: (note.category, note.id)):
        groups.setdefault(note.category or "none", []).append(note)
    return list(groups.values())


def picture_of(entries: Iterable[MemoryEntry], files: Sequence[NoteFile]) -> GraphPicture:
    """The graph of notes: the notes of each category are a cluster, and all clusters are around the
    entities that several notes name. Links of notes that are not in `entries` are left out.

    Args:
        files: the same notes, with their links and entities.
    """
    notes = {entry.id: entry for entry in entries}
    names_of_notes = _named_entities(files)
    counts = Counter(entity for entity, _note in names_of_notes)
    shared_entities = [entity for entity, count in counts.most_common(_MAX_NAMES) if count > 1]
    groups = _group_by_category(notes.values())
    positions_of_groups = _position_groups([len(shared_entities), *map(len, groups)])
    nodes = [
        _node_of_name(entity, counts[entity], position)
        for entity, position in zip(shared_entities, positions_of_groups[0], strict=True)
    ]
    for members, positions in zip(groups, positions_of_groups[1:], strict=True):
        nodes += map(_node_of_note, members, positions)
    node_ids = {node.id for node in nodes}
    edges = [*_edges_between(files), *((note, "names", entity) for entity, note in names_of_notes)]
    visible_edges = [edge for edge in edges if edge[0] in node_ids and edge[2] in node_ids]
    return GraphPicture(tuple(nodes), tuple(visible_edges))


def _node_of_name(entity: str, count: int, position: _Point) -> GraphNode:
    """The node of an entity that several notes name."""
    name = clean(entity)
    about = f"{plural(count, 'note')} with this name"
    return GraphNode(entity, "name", "names", name, name, about, *position)


def _node_of_note(note: MemoryEntry, position: _Point) -> GraphNode:
    """The node of a note, with what the page shows about it."""
    changed = f"changed {plural(note.versions - 1, 'time')}" if note.versions > 1 else ""
    about = (note.scope, note.category, note.at[:10], *note.badges, changed, note.id)
    text = clean(note.text)
    x, y = position
    return GraphNode(
        note.id,
        kind="note",
        group=note.category or "none",
        label=" ".join(text.split())[:80] or note.id,
        text=text,
        about=clean(" · ".join(filter(None, about))),
        x=x,
        y=y,
        scope=note.scope,
        past=not note.is_in_use,
    )


def _edges_between(files: Sequence[NoteFile]) -> list[tuple[str, str, str]]:
    """The edges (from, relationship, to) between notes: their links, then what they supersede."""
    edges: list[tuple[str, str, str]] = []
    for file in files:
        edges += ((file.note.id, edge.relationship, edge.id) for edge in file.note.related)
    for file in files:
        if file.note.supersedes:
            edges.append((file.note.id, "supersedes", file.note.supersedes))
    return edges


def html_page(picture: GraphPicture) -> str:
    """The page with data and script inline; its content policy forbids any request."""
    data = json.dumps(msgspec.to_builtins(picture), ensure_ascii=True)
    for sign in "<>&":  # so that no text of a note can close the script
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    template = (resources.files("ouro.memory.long_term") / "graph_picture.html").read_text(
        encoding="utf-8"
    )
    return template.replace("/*DATA*/", data, 1)


def _position_groups(sizes: Sequence[int]) -> list[list[_Point]]:
    """The positions of the members of each group with these sizes, in the order of the sizes. Each
    group is a spiral; the first one is in the middle, the others are on a circle around it, on
    which a larger group gets a larger part.
    """
    first_radius, *radii = [_SPACING * math.sqrt(size + 1) for size in sizes]
    widths = [2 * radius + _GAP for radius in radii]
    # So far from the middle that the groups touch neither each other nor the first one.
    distance = max(sum(widths) / (2 * math.pi), first_radius + max(radii, default=0) + _GAP)
    centres = [(0.0, 0.0)]
    angle = 0.0
    for width in widths:
        half_angle = width / sum(widths) * math.pi
        middle = angle + half_angle
        centres.append((distance * math.cos(middle), distance * math.sin(middle)))
        angle += 2 * half_angle
    return [_spiral(size, centre) for size, centre in zip(sizes, centres, strict=True)]


def _spiral(size: int, centre: _Point) -> list[_Point]:
    """`size` positions around a centre, from the inside to the outside, like the seeds of a
    sunflower: each is turned by the golden angle.
    """
    centre_x, centre_y = centre
    points = []
    for number in range(size):
        radius = _SPACING * math.sqrt(number + 0.5)
        angle = number * _GOLDEN_ANGLE
        x, y = centre_x + radius * math.cos(angle), centre_y + radius * math.sin(angle)
        points.append((round(x, 1), round(y, 1)))
    return points
