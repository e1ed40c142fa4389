"""A crash campaign: `python -m tests.soak --minutes 2 --seed 7`.

Real `ouro -p` processes, one, two or eight at a time, use a model server on loopback and are
killed: at random moments, or before the N-th write, fsync or rename of the process (a library in C,
if `cc` is installed). At the same time an editor writes into memory, and git pulls into the
project. After each round these rules are checked:

- everything that was acknowledged on standard output is in the session,
- everything that others wrote is there,
- the transcript can be sent,
- git finds no damage,
- nothing is left behind: no temporary file, no unfinished folder, no process.

A quarter of the time turns are killed and then undone, and undos are killed and finished: each file
is compared byte for byte with what it was before the turn (`--undo`: only these). Another quarter
of the time `sessions sync` and `memory sync` of two machines are killed while their remotes go back
(`--sync`: only these).

`--turns 1000` runs one session of that many turns instead, and compares the growth of its memory
with a limit (Linux).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from soak.campaign import Campaign  # noqa: E402 (found by the line above)
from soak.growth import run  # noqa: E402
from soak.sync_rounds import SyncRounds  # noqa: E402
from soak.undo_rounds import UndoRounds  # noqa: E402


def _run_rounds(campaign: Campaign, folder: Path, options: argparse.Namespace) -> list[str]:
    """Run the chosen kinds of rounds; returns the broken rules of the first kind that has some."""
    is_all = not (options.undo or options.sync)
    seconds = options.minutes * 60 / (4 if is_all else options.undo + options.sync)
    kinds = [
        kind(folder, options.seed, campaign.killer)
        for kind, is_chosen in ((UndoRounds, options.undo), (SyncRounds, options.sync))
        if is_chosen or is_all
    ]
    for rounds in kinds:
        broken = rounds.run(seconds)
        print(rounds.summary(), flush=True)
        if broken:
            return broken
    if not is_all:
        return []
    broken = campaign.run(options.minutes * 30, options.rounds)
    print(campaign.summary())
    return broken


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=0, help="end after this many rounds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--undo", action="store_true", help="only turns and undos that are killed")
    parser.add_argument("--sync", action="store_true", help="only synchronizations that are killed")
    parser.add_argument(
        "--turns",
        type=int,
        default=0,
        help="measure the growth of memory over this many turns instead",
    )
    options = parser.parse_args()
    if options.turns:
        with tempfile.TemporaryDirectory(prefix="ouro-soak-") as folder:
            broken = run(Path(folder), options.turns)
        print(*broken or ["memory grows within the limit"], sep="\n")
        return bool(broken)
    with (
        tempfile.TemporaryDirectory(prefix="ouro-soak-") as folder,
        Campaign(Path(folder), options.seed) as campaign,
    ):
        broken = _run_rounds(campaign, Path(folder), options)
    print("\n".join(broken[:20]) if broken else "no rule was broken")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
