"""Sessions to measure with: `python -m benchmarks.generate_sessions FOLDER [COUNT]` fills a
sessions folder.

The content is the same each time: sessions of a few turns, over two years and five projects.
"""

from __future__ import annotations

import argparse
import random
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ouro.memory.backend import MessageRecord, SessionHeader, SummaryRecord, TitleRecord
from ouro.memory.safe_yaml import dump
from ouro.memory.serialization import header_data, record_data
from ouro.messages import Message, Text, ToolReply, Usage, assistant, user

PROJECTS = (
    "/home/me/src/app",
    "/home/me/src/parser",
    "/home/me/src/api",
    "/home/me/notes",
    "/tmp/scratch",
)
_VERBS = "fix add rename explain test profile split document review port speed-up remove refactor trace".split()
_THINGS = (
    "parser import session picker index cache token window memory note commit worktree lock prompt"
    " wheel retry stream schema migration endpoint login upload queue timer layout theme snapshot"
    " backup export"
).split()
_PLACES = "api.py the-tests docs cli the-worker the-store config the-front-end CI setup.py the-benchmarks".split()
_WORDS = [
    *_VERBS,
    *_THINGS,
    *_PLACES,
    *"the a it and then because which never when where still only again".split(),
]


def main() -> None:
    """Fill a folder with sessions of the current folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("count", type=int, nargs="?", default=10_000)
    args = parser.parse_args()
    generate(args.folder, args.count, project=str(Path.cwd()))


def generate(root: Path, count: int, *, project: str = "", seed: int = 1) -> None:
    """Write `count` sessions below `root`; a third of them belong to `project`, if it is given."""
    chance = random.Random(seed)
    now = datetime.now(UTC).replace(microsecond=0)
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in range(count):
        began = now - timedelta(hours=2 + number * 1.75, minutes=chance.randrange(60))
        where = project if project and number % 3 == 0 else chance.choice(PROJECTS)
        _write(root, _session(chance, began, where))


def _session(chance: random.Random, began: datetime, project: str) -> list[dict]:
    header = SessionHeader(
        str(uuid.UUID(int=chance.getrandbits(128), version=4)),
        project,
        "anthropic/claude-sonnet-5",
        _stamp(began),
    )
    title = (
        f"{chance.choice(_VERBS)} the {chance.choice(_THINGS)} {chance.choice(_THINGS)} in"
        f" {chance.choice(_PLACES)}"
    )
    records: list = [TitleRecord(title.replace("-", " "), _stamp(began))]
    number = 0
    for turn in range(chance.randrange(1, 8)):
        usage = Usage(12_000 + 2_000 * turn, 10_000, 0, 400, chance.randrange(1, 40) / 1000)
        messages = (
            user(_talk(chance, 12)),
            _reply(chance),
            Message("assistant", (Text(_talk(chance, 60)),), usage),
        )
        for message in messages:
            number += 1
            records.append(
                MessageRecord(number, _stamp(began + timedelta(minutes=number)), message)
            )
    if chance.random() < 0.3:
        records.append(
            SummaryRecord(_talk(chance, 25), _stamp(began + timedelta(minutes=number)), number)
        )
    return [header_data(header), *(record_data(each, str, lambda _image: "") for each in records)]


def _reply(chance: random.Random) -> Message:
    return (
        assistant(_talk(chance, 30))
        if chance.random() < 0.5
        else Message("tool", (_output(chance),))
    )


def _output(chance: random.Random) -> ToolReply:
    return ToolReply("call_1", "shell", "\n".join(_talk(chance, 10) for _ in range(12)))


def _talk(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(_WORDS, k=words)).replace("-", " ") + "."


def _stamp(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _write(root: Path, records: list[dict]) -> None:
    header = records[0]["session"]
    folder = root / f"{header['created_at'][:10]}_{header['id'][:8]}"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / "session.yaml"
    path.write_text("".join(f"---\n{dump(each)}...\n" for each in records))
    path.chmod(0o600)


if __name__ == "__main__":
    main()
