"""What is released: one version and one owner everywhere, a dated section, a wheel that is the same each time."""

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import ouro

ROOT = Path(__file__).parents[1]
_RELEASE = r"(?:ouro@v|ouro:|/ouro@v|tags/v|\"version\": \")(\d+\.\d+\.\d+)"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_the_same_everywhere():
    version = PROJECT["version"]
    assert ouro.__version__ == version
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE)


def test_files_for_other_installers_name_this_version():
    places = ("packaging", "docs/ci.md", "docs/batch.md", "README.md", "integrations")
    found = set()
    for path in sorted(file for place in places for file in _files_in(ROOT / place)):
        text = path.read_text(errors="replace")
        found |= {(path.name, number) for number in re.findall(_RELEASE, text)}
    assert {number for _, number in found} == {PROJECT["version"]}
    named = {name for name, _ in found}
    assert named >= {"ouro.rb", "kubernetes-job.yaml", "devcontainer-feature.json", "ci.md"}


def _files_in(place):
    return [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]


def test_a_release_with_changes_below_unreleased_is_refused(tmp_path):
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    lines = [step.get("run", "") for step in jobs["build"]["steps"]]
    (line,) = [line for line in lines if "CHANGELOG.md" in line]
    released = "## [0.2.0] - 2026-11-29\n\n- b\n"
    for more, code in (("", 0), ("### Added\n\n- a\n\n", 1)):
        (tmp_path / "CHANGELOG.md").write_text(
            f"# Changelog\n\n## [Unreleased]\n\n{more}{released}"
        )
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path)
        assert done.returncode == code


def owner_script():
    spec = importlib.util.spec_from_file_location("set_owner", ROOT / "scripts" / "set_owner.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_owner_of_the_repository_is_the_same_everywhere():
    script = owner_script()
    found = {path: script.owners_in(path.name, path.read_text()) for path in script.files()}
    named = {path: owners for path, owners in found.items() if owners}
    owner = script.owners_in("pyproject.toml", PROJECT["urls"]["Homepage"])
    assert {path: owners for path, owners in named.items() if owners != owner} == {}
    assert len(named) >= 5


def test_another_owner_is_written_into_each_address():
    script = owner_script()
    text = "https://github.com/OWNER/ouro uses: OWNER/ouro@v1 https://OWNER.github.io/ouro/ OWNER"
    assert script.owners_in("a.md", script.with_owner("a.md", text, "ada")) == {"ada"}
    assert script.with_owner("CODEOWNERS", "* @OWNER\n", "ada") == "* @ada\n"


def test_what_the_files_of_the_host_name_exists():
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())["updates"]
    folders = [place for item in updates for place in item.get("directories", [])]
    folders += [item["directory"] for item in updates if "directory" in item]
    owned = [line.split()[0] for line in (ROOT / ".github/CODEOWNERS").read_text().splitlines()
             if line.startswith("/")]  # fmt: skip
    badges = re.findall(r"actions/workflows/([\w.]+)/badge.svg", (ROOT / "README.md").read_text())
    pages = [url.partition("/blob/main/")[2] for url in PROJECT["urls"].values()]
    pages.append(
        re.search(r"^edit_uri: edit/main/(.*)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)[1]
    )
    named = [*folders, *owned, *pages, *(f".github/workflows/{name}" for name in badges)]
    assert len(badges) == 1
    assert [name for name in named if not (ROOT / name.strip("/")).exists()] == []


def test_the_step_of_the_workflow_that_compares_tag_and_version_works():
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    lines = [step.get("run", "") for step in jobs["build"]["steps"]]
    (line,) = [line for line in lines if "GITHUB_REF_NAME" in line]
    for tag, code in ((f"v{PROJECT['version']}", 0), ("v9.9.9", 1)):
        environment = {**os.environ, "GITHUB_REF_NAME": tag}
        assert subprocess.run(["bash", "-c", line], cwd=ROOT, env=environment).returncode == code


@pytest.mark.timeout(300)
def test_a_wheel_is_the_same_each_time_it_is_built(tmp_path):
    digests = []
    for number, when in enumerate((1_700_000_000, 1_600_000_000)):
        tree = tmp_path / str(number)
        words = ["git", "ls-files", "-z", "ouro", "docs", "pyproject.toml", "README.md", "LICENSE"]
        listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        if listed.returncode:
            pytest.skip("not a checkout of git")
        for name in filter(None, listed.stdout.split("\0")):
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
            os.utime(target, (when, when))
        build = [
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "-t",
            "wheel",
            "-d",
            str(tree / "dist"),
        ]
        subprocess.run(build, cwd=tree, check=True, capture_output=True)
        (wheel,) = (tree / "dist").iterdir()
        digests.append(hashlib.sha256(wheel.read_bytes()).hexdigest())
    assert len(set(digests)) == 1
