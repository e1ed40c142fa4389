"""Remove from an installation what ouro never loads: `python scripts/remove_unused.py FOLDER`.

FOLDER is the folder of installed packages. With the sizes of the versions in requirements/ouro.txt:
the pages of litellm's server (40 MB), tests of numpy (17 MB), botocore's descriptions of the services
of AWS other than those that models are behind (25 MB), a faster downloader of Hugging Face (11 MB),
which falls back to its plain one; types for editors (2 MB).
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

PLACES = (
    "hf_xet",
    "litellm/proxy/_experimental/out",
    "litellm/proxy/_lazy_openapi_snapshot.json",
    "litellm/proxy/swagger",
)
AWS = "botocore/data"
KEPT_OF_AWS = re.compile(r"bedrock(-runtime)?|sts|sso(-oidc)?|signin|sagemaker-runtime")
"""litellm signs in to AWS, and calls models of Bedrock and SageMaker."""
TESTS = ("numpy",)


def unused(packages: Path) -> Iterator[Path]:
    yield from (packages / name for name in PLACES)
    yield from packages.glob("hf_xet-*.dist-info")
    services = packages / AWS
    if services.is_dir():
        for folder in services.iterdir():
            if folder.is_dir() and not KEPT_OF_AWS.fullmatch(folder.name):
                yield folder
    for name in TESTS:
        yield from (packages / name).rglob("tests")
    yield from packages.rglob("*.pyi")


def main() -> int:
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print(__doc__.partition("\n")[0], file=sys.stderr)
        return 2
    for path in list(unused(Path(sys.argv[1]))):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
