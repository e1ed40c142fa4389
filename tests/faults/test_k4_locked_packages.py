"""K4: installed packages match the lock files, which have hashes and no addresses; none runs code
at Python's start.
"""

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
LOCKS = [PROJECT / "requirements" / name for name in ("ouro.txt", "dev.txt")]
VECTORS = PROJECT / "requirements" / "vectors.txt"
STARTS_BY_ITSELF: dict[str, set[str]] = {}
"""Files that Python runs at each start, by package; each would need a reason here."""
_ENTRY = re.compile(
    r"^([A-Za-z0-9][\w.-]*)(?:\[[\w,-]+\])?==([^\s;\\]+)((?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE
)


def entries(lock: Path) -> dict[str, tuple[str, list[str]]]:
    """Name, version (several, if they depend on Python) and hashes of each package in a lock file."""
    found: dict[str, tuple[str, list[str]]] = {}
    for name, version, rest in _ENTRY.findall(lock.read_text()):
        versions, hashes = found.get(plain(name), ("", []))
        more = re.findall(r"--hash=sha256:([0-9a-f]{64})\b", rest)
        assert more, name
        found[plain(name)] = (f"{versions} {version}".strip(), [*hashes, *more])
    return found


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pyproject() -> dict:
    return tomllib.loads((PROJECT / "pyproject.toml").read_text())


@pytest.mark.parametrize("lock", [*LOCKS, VECTORS], ids=lambda lock: lock.name)
def test_k4_each_locked_package_has_a_version_and_hashes(lock):
    begun = [
        line for line in lock.read_text().splitlines() if line and not line.startswith((" ", "#"))
    ]
    assert begun != []
    assert sum(len(versions.split()) for versions, _ in entries(lock).values()) == len(begun)


@pytest.mark.parametrize("lock", [*LOCKS, VECTORS], ids=lambda lock: lock.name)
def test_k4_lock_names_no_package_source(lock):
    assert (
        re.findall(r"://|--(?:extra-)?index-url|--find-links|--trusted-host|@ ", lock.read_text())
        == []
    )


def test_k4_the_two_locks_agree():
    run, develop = map(entries, LOCKS)
    assert {name: entry for name, entry in run.items() if develop.get(name) != entry} == {}
    assert entries(VECTORS)["numpy"] == develop["numpy"]


def test_k4_all_that_is_needed_is_locked_and_litellm_exactly():
    needed = pyproject()["project"]["dependencies"]
    names = {plain(re.split(r"[^\w.-]", each, maxsplit=1)[0]) for each in needed}
    assert names - set(entries(LOCKS[0])) == set()
    version, _ = entries(LOCKS[0])["litellm"]
    assert [each for each in needed if each.startswith("litellm")] == [f"litellm=={version}"]


def test_k4_releases_younger_than_seven_days_are_excluded():
    assert pyproject()["tool"]["uv"]["exclude-newer"] == "7 days"


def test_k4_lock_is_installed_with_require_hashes():
    installs = re.findall(r"^pip .*$", (PROJECT / "install.sh").read_text(), re.MULTILINE)
    from_lock = [line for line in installs if "-r " in line]
    assert len(from_lock) == 2
    assert [line for line in from_lock if "--require-hashes" not in line] == []
    assert [line for line in installs if line not in from_lock and "--no-deps" not in line] == []


def test_k4_no_installed_package_runs_at_python_start():
    locked = {name: version for lock in LOCKS for name, (version, _) in entries(lock).items()}
    found, seen = {}, 0
    for installed in importlib.metadata.distributions():
        name = plain(installed.name)
        if locked.get(name) != installed.version:
            continue  # not ours: other packages of this environment are not checked
        seen += 1
        files = [str(file) for file in installed.files or ()]
        assert files, f"{name} does not say what it has installed"
        if started := {file for file in files if _starts_by_itself(file)}:
            found[name] = started
    assert found == STARTS_BY_ITSELF
    assert seen > 20


def _starts_by_itself(file: str) -> bool:
    top, _, rest = file.partition("/")
    return (not rest and top.endswith(".pth")) or re.fullmatch(
        r"(site|user)customize(\..*)?", top
    ) is not None


@pytest.mark.parametrize(
    ("file", "expected"),
    [("litellm_init.pth", True), ("sitecustomize.py", True), ("sitecustomize/__init__.py", True),
     ("usercustomize.cpython-311.so", True), ("torch/weights.pth", False), ("litellm/main.py", False)],
)  # fmt: skip
def test_k4_files_that_run_at_python_start_are_recognized(file, expected):
    assert _starts_by_itself(file) is expected
