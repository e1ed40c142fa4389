"""Write the owner of the repository into all files that name it: `python scripts/set_owner.py NAME`.

The owner stands in addresses of the repository, of its pages and of its image. The file that says
who it is now is pyproject.toml; tests/test_release.py finds a place that says another one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = (
    r"(github\.com/)([\w-]+)(/ouro\b)",
    r"(//)([\w-]+)(\.github\.io/ouro\b)",
    r"(ghcr\.io/)([\w-]+)(/ouro\b)",
    r"(uses: )([\w-]+)(/ouro[@/])",
    r"(github:)([\w-]+)(/ouro\b)",
    r"(brew install )([\w-]+)(/tap/ouro\b)",
    r"(@)([\w-]+)()$",
)
"""Each with the owner as its second group. The last one holds in CODEOWNERS only."""


def owners_in(name: str, text: str) -> set[str]:
    return {match[2] for pattern in _patterns(name) for match in pattern.finditer(text)}


def with_owner(name: str, text: str, owner: str) -> str:
    for pattern in _patterns(name):
        text = pattern.sub(rf"\g<1>{owner}\g<3>", text)
    return text


def files() -> list[Path]:
    """The text files of the repository that can name the owner."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    names = [name for name in listing.stdout.split("\0") if name and not name.startswith("tests/")]
    kinds = {".md", ".toml", ".yml", ".yaml", ".rb", ".nix", ".json", ".sh", ""}
    return [ROOT / name for name in names if Path(name).suffix in kinds]


def _patterns(name: str) -> list[re.Pattern[str]]:
    places = PLACES if name.endswith("CODEOWNERS") else PLACES[:-1]
    return [re.compile(place, re.MULTILINE) for place in places]


def main() -> int:
    if len(sys.argv) != 2 or not re.fullmatch(r"[\w-]+", sys.argv[1]):
        print(__doc__.partition("\n")[0], file=sys.stderr)
        return 2
    for path in files():
        text = path.read_text("utf-8")
        changed = with_owner(path.name, text, sys.argv[1])
        if changed != text:
            path.write_text(changed, "utf-8")
            print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
