"""Files for other installers: they parse, name files that exist, and the steps of the image work in a folder."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PACKAGING = ROOT / "packaging"


def instructions():
    """The lines of the Containerfile by word: [(stage, word, rest)]."""
    text = (PACKAGING / "Containerfile").read_text().replace("\\\n", " ")
    found, stage = [], -1
    for row in text.splitlines():
        if not row.strip() or row.startswith("#"):
            continue
        word, _, rest = row.partition(" ")
        stage += word == "FROM"
        found.append((stage, word, rest.strip()))
    return found


def test_the_image_copies_what_exists_runs_as_a_user_and_holds_git():
    words = {word for _, word, _ in instructions()}
    assert words <= {"FROM", "LABEL", "WORKDIR", "COPY", "RUN", "USER", "ENV", "ENTRYPOINT"}
    for _, word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from"):
            *sources, _ = rest.split()
            assert all((ROOT / source).exists() for source in sources)
    last = [(word, rest) for stage, word, rest in instructions() if stage == 1]
    assert ("USER", "ouro") in last
    assert "git" in next(rest for word, rest in last if rest.startswith("apt-get"))
    names = [rest.split()[-1] for _, word, rest in instructions() if word == "ENTRYPOINT"]
    assert json.loads(names[0]) == ["ouro"]


def test_what_the_image_installs_is_locked():
    pips = [rest for _, _, rest in instructions() if "pip install" in rest]
    for line in pips:
        assert "--require-hashes" in line or line.endswith("--no-build-isolation .")


@pytest.mark.skipif(
    not os.environ.get("TEST_IMAGE_STEPS"), reason="TEST_IMAGE_STEPS is not set: it takes minutes"
)
@pytest.mark.timeout(1500)
def test_the_steps_of_the_image_work_in_a_folder(tmp_path):
    """The first stage is run with `/opt` and `/src` in a folder; the result answers there."""
    places = {"/opt/ouro": str(tmp_path / "opt"), "/src": str(tmp_path / "src")}

    def here(text):
        for old, new in places.items():
            text = text.replace(old, new)
        return text.replace("python -m venv", f"{shlex.quote(sys.executable)} -m venv")

    cwd = tmp_path
    for stage, word, rest in instructions():
        if stage > 0:
            break
        if word == "WORKDIR":
            cwd = Path(here(rest))
            cwd.mkdir(parents=True)
        elif word == "COPY":
            *sources, target = rest.split()
            for source in sources:
                copy(ROOT / source, cwd / target / (source if (ROOT / source).is_file() else ""))
        elif word == "RUN":
            subprocess.run(["sh", "-c", here(rest)], cwd=cwd, check=True)
    ouro = tmp_path / "opt" / "bin" / "ouro"
    environment = {**os.environ, "OURO_HOME": str(tmp_path / "home")}
    demo = subprocess.run([ouro, "demo", "--headless"], env=environment, cwd=tmp_path)
    assert demo.returncode == 0


def copy(source, target):
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def test_the_feature_of_a_development_container_is_complete():
    folder = PACKAGING / "devcontainer-feature"
    feature = json.loads((folder / "devcontainer-feature.json").read_text())
    script = (folder / "install.sh").read_text()
    assert feature["id"] == "ouro"
    assert all(name.upper() in script for name in feature["options"])
    assert feature["containerEnv"]["OURO_HOME"] == feature["mounts"][0]["target"]
    subprocess.run(["sh", "-n", folder / "install.sh"], check=True)


def test_the_job_of_kubernetes_calls_an_action_that_exists_and_keeps_its_state():
    job = yaml.safe_load((PACKAGING / "kubernetes-job.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}
    assert pod["securityContext"]["runAsNonRoot"]
    keys = [entry for entry in container["env"] if "KEY" in entry["name"]]
    assert all("secretKeyRef" in entry["valueFrom"] for entry in keys)
    words = ["--help" if word == "/tasks/licences.yaml" else word for word in container["args"]]
    line = [sys.executable, "-m", "ouro", *words]
    assert subprocess.run(line, capture_output=True).returncode == 0


def test_the_formula_is_ruby_that_parses_and_names_files_that_exist():
    text = (PACKAGING / "ouro.rb").read_text()
    for name in re.findall(r'"((?:requirements|scripts)/[\w.]+)"', text):
        assert (ROOT / name).is_file()
    opened = re.findall(r"^\s*(?:class|def|test do)\b|\bdo$", text, re.MULTILINE)
    assert len(opened) == len(re.findall(r"^\s*end$", text, re.MULTILINE))
    ruby = shutil.which("ruby")
    if ruby:
        subprocess.run([ruby, "-c", PACKAGING / "ouro.rb"], check=True, capture_output=True)


def test_the_flake_is_nix_that_parses():
    text = (ROOT / "flake.nix").read_text()
    bare = re.sub(r"#.*|''(?:.|\n)*?''|\"[^\"\n]*\"", "", text)
    for opening, closing in ("{}", "[]", "()"):
        assert bare.count(opening) == bare.count(closing)
    assert re.search(r"\binputs\.nixpkgs\.url = ", text)
    assert "default = pkgs.writeShellApplication" in text
    nix = shutil.which("nix-instantiate")
    if nix:
        subprocess.run([nix, "--parse", ROOT / "flake.nix"], check=True, capture_output=True)


def test_what_is_removed_from_an_installation_is_nothing_else(tmp_path):
    removed = ("hf_xet/a.so", "hf_xet-1.0.dist-info/RECORD", "litellm/proxy/swagger/a.js",
               "botocore/data/ec2/service.json", "numpy/_core/tests/test_a.py", "yarl/a.pyi",
               "litellm/proxy/_lazy_openapi_snapshot.json")  # fmt: skip
    kept = ("botocore/data/bedrock-runtime/service.json", "botocore/data/sts/service.json",
            "botocore/data/endpoints.json", "numpy/testing/a.py", "litellm/proxy/types.py",
            "mypackage/tests/a.py")  # fmt: skip
    for name in (*removed, *kept):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    subprocess.run([sys.executable, ROOT / "scripts" / "remove_unused.py", tmp_path], check=True)
    assert {name for name in (*removed, *kept) if (tmp_path / name).exists()} == set(kept)


def test_the_installer_says_what_it_does_before_each_long_step(tmp_path):
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    shutil.copy(ROOT / "install.sh", tmp_path)
    for folder in ("requirements", "scripts"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    # Nothing is downloaded: this Python only says what it was asked for.
    (programs / "python").write_text('#!/bin/sh\ncase "$*" in *"pip install"*) echo "$*" ;; esac\n')
    (programs / "python").chmod(0o755)
    (programs / "ouro").write_text("import re\nimport sys\n")
    done = subprocess.run(
        ["sh", tmp_path / "install.sh"], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    steps = [index for index, line in enumerate(lines) if "pip install" in line]
    assert len(steps) == 3
    assert all(lines[step - 1].startswith("Installing ") for step in steps)
    packages = re.findall(
        r"^[a-z].*==", (ROOT / "requirements" / "ouro.txt").read_text(), re.MULTILINE
    )
    assert lines[0].startswith(f"Installing {len(packages)} packages ")
