"""Evidence recall on two public sets, from a folder of yours: REALTALK and BEAM-100K.

    python -m benchmarks.public_sets realtalk REALTALK/data
    python -m benchmarks.public_sets beam BEAM/chats/100K

Prints the share of each question's evidence within the first 5 and 10 hits, by category, for the
search by words, the search with vectors (if a local embedder is installed), and plain BM25. Each
conversation has a store of its own. Nothing is downloaded, and nothing here is tuned on these sets.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from ouro.memory.index import BenchmarkQuestion, Document, answer_questions, local_embedder

KS = (5, 10)
_WORD = re.compile(r"\w+")
_SESSION = re.compile(r"session_(\d+)")
_INDEX_MARK = re.compile(r"\s*->->\s*\d+,\d+\s*$")
"""BEAM ends each main question with its place in the plan: `->-> 1,1`."""


class Question(NamedTuple):
    id: str
    text: str
    category: str
    evidence: frozenset[str]


class Talk(NamedTuple):
    name: str
    documents: list[Document]
    questions: list[Question]


Way = Callable[[Talk], dict[str, Sequence[str]]]
"""Returns the ids of the documents for each question of a conversation, best first."""


# The formats


def read_realtalk(folder: Path) -> Iterator[Talk]:
    """A file for each conversation: `session_N` with messages, and `qa` with questions."""
    for path in sorted(folder.rglob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(data, dict) and data.get("qa"):
            yield _realtalk(path.stem, data)


def _realtalk(name: str, data: dict[str, Any]) -> Talk:
    documents: list[Document] = []
    sessions = {int(found[1]): key for key in data if (found := _SESSION.fullmatch(key))}
    for number, key in sorted(sessions.items()):
        for turn, message in enumerate(data[key]):
            text = message.get("clean_text") or message.get("text") or ""
            if not text.strip():
                continue
            speaker, at = message.get("speaker", "user"), _iso_day(message.get("date_time", ""))
            documents.append(Document(message["dia_id"], text, speaker, at, number, turn))
    questions: list[Question] = []
    for number, item in enumerate(data["qa"]):
        evidence = frozenset(map(str, _flat(item.get("evidence", []))))
        category = f"category {item.get('category', '?')}"
        questions.append(Question(f"q{number}", item["question"], category, evidence))
    return _with_known_evidence(Talk(name, documents, questions))


def read_beam(folder: Path) -> Iterator[Talk]:
    """A folder for each conversation: `chat.json`, and `probing_questions/probing_questions.json`."""
    for path in sorted(folder.rglob("chat.json"), key=lambda path: _number(path.parent.name)):
        probe_file = path.parent / "probing_questions" / "probing_questions.json"
        if probe_file.is_file():
            chat = json.loads(path.read_text(encoding="utf-8"))
            probes = json.loads(probe_file.read_text(encoding="utf-8"))
            yield _beam(path.parent.name, chat, probes)


def _beam(name: str, chat: list[dict[str, Any]], probes: dict[str, list[Any]]) -> Talk:
    documents: list[Document] = []
    for batch in chat:
        day = ""
        for turn in batch["turns"]:
            for message in turn:
                day = _iso_day(message.get("time_anchor") or "") or day
                text = _INDEX_MARK.sub("", message.get("content") or "")
                place = (day, batch["batch_number"], message["id"])
                documents.append(Document(str(message["id"]), text, message["role"], *place))
    questions: list[Question] = []
    for category, items in probes.items():
        for number, item in enumerate(items):
            evidence = frozenset(map(str, _flat(item.get("source_chat_ids", []))))
            questions.append(Question(f"{category}-{number}", item["question"], category, evidence))
    return _with_known_evidence(Talk(name, documents, questions))


def _with_known_evidence(talk: Talk) -> Talk:
    """Without the questions that have no evidence in the conversation: they cannot be counted."""
    known = {document.id for document in talk.documents}
    kept = [item for item in talk.questions if item.evidence and item.evidence <= known]
    return Talk(talk.name, talk.documents, kept)


def _flat(value: object) -> Iterator[object]:
    """The values of nested lists and objects: BEAM groups the ids of some categories by name."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _flat(item)
    elif value is not None:
        yield value


def _iso_day(text: str) -> str:
    """`2024-03-15` of `March-15-2024` or `15.03.2024, 10:00:00`; empty if it is neither."""
    for form in ("%B-%d-%Y", "%d.%m.%Y, %H:%M:%S", "%Y-%m-%d"):
        try:
            return datetime.strptime(text.strip(), form).replace(tzinfo=UTC).date().isoformat()
        except ValueError:
            continue
    return ""


def _number(name: str) -> tuple[int, str]:
    return (int(name) if name.isdigit() else sys.maxsize, name)


READERS = {"realtalk": read_realtalk, "beam": read_beam}


# The searches


def by_ouro(embedder: Any | None) -> Way:
    """The code that searches sessions, with or without vectors."""

    def find(talk: Talk) -> dict[str, Sequence[str]]:
        asked = [BenchmarkQuestion(item.id, item.text) for item in talk.questions]
        with tempfile.TemporaryDirectory(prefix="ouro-sets-") as work:
            found = answer_questions(talk.documents, asked, max(KS), Path(work), embedder)
            return {answer.qid: answer.ids for answer in found}

    return find


def by_bm25(talk: Talk) -> dict[str, Sequence[str]]:
    """Plain BM25 (Robertson and Zaragoza 2009; k1 = 1.2, b = 0.75) of words without stems."""
    texts = [Counter(_WORD.findall(document.text.casefold())) for document in talk.documents]
    lengths = [sum(words.values()) for words in texts]
    mean = sum(lengths) / max(1, len(lengths))
    holding = Counter(word for words in texts for word in words)

    def score(at: int, asked: Sequence[str]) -> float:
        total = 0.0
        for word in asked:
            count = texts[at][word]
            if count:
                rarity = math.log(1 + (len(texts) - holding[word] + 0.5) / (holding[word] + 0.5))
                size = 0.25 + 0.75 * lengths[at] / mean
                total += rarity * count * 2.2 / (count + 1.2 * size)
        return total

    found: dict[str, Sequence[str]] = {}
    for question in talk.questions:
        asked = _WORD.findall(question.text.casefold())
        scores = [score(at, asked) for at in range(len(texts))]
        best = sorted(range(len(texts)), key=lambda at: -scores[at])[: max(KS)]
        found[question.id] = [talk.documents[at].id for at in best if scores[at] > 0]
    return found


# The figures


def recall_by_category(talks: Sequence[Talk], way: Way) -> dict[str, tuple[int, dict[int, float]]]:
    """The number of questions and the mean recall within the first 5 and 10, by category; `all` is
    the mean over all questions.
    """
    shares: dict[str, list[dict[int, float]]] = defaultdict(list)
    for talk in talks:
        found = way(talk)
        for item in talk.questions:
            ids = found.get(item.id, ())
            share = {k: len(item.evidence & {*ids[:k]}) / len(item.evidence) for k in KS}
            shares[item.category].append(share)
            shares["all"].append(share)
    ordered = sorted(shares, key=lambda name: (name == "all", name))
    return {name: (len(shares[name]), _means(shares[name])) for name in ordered}


def _means(rows: Sequence[dict[int, float]]) -> dict[int, float]:
    return {k: sum(row[k] for row in rows) / len(rows) for k in KS}


def print_table(talks: Sequence[Talk], ways: dict[str, Way]) -> None:
    found = {name: recall_by_category(talks, way) for name, way in ways.items()}
    heads = [f"{name} R@{k}" for name in ways for k in KS]
    print(f"| category | questions | {' | '.join(heads)} |")
    print("|---" * (2 + len(heads)) + "|")
    for category, (count, _) in next(iter(found.values())).items():
        cells = [f"{found[name][category][1][k]:.3f}" for name in ways for k in KS]
        print(f"| {category} | {count:,} | {' | '.join(cells)} |")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("set", choices=READERS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="first N conversations")
    args = parser.parse_args(arguments)
    talks = [*READERS[args.set](args.folder)][: args.limit or None]
    if not any(talk.questions for talk in talks):
        print(f"{args.folder} has no conversation with questions of {args.set}.", file=sys.stderr)
        return 1
    embedder = local_embedder()
    ways: dict[str, Way] = {"words": by_ouro(None)}
    if embedder:
        ways["vectors"] = by_ouro(embedder)
    print_table(talks, {**ways, "BM25": by_bm25})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
