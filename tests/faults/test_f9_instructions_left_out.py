"""F9, X12: imports of keys and of files that are not text; what is cut is reported; places of keys."""

import subprocess

import pytest

from ouro.agent.project_instructions import ProjectInstructions
from ouro.safety import Permissions, Workspace
from ouro.safety.key_places import KEYS_IN_HOME
from ouro.safety.rules import Ask, Effect


@pytest.fixture
def project(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path / "p"], check=True)
    return tmp_path / "p"


def load(project):
    found = ProjectInstructions(project, lambda _path: True)
    return "\n".join(found.project_texts()), found.problems


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("logo.bin", bytes(range(256)) * 400),
        ("logo.png", b"\x89PNG\r\n\x1a\nSECRET"),
        ("doc.pdf", b"%PDF-1.7\nSECRET"),
        ("a.zip", b"PK\x03\x04SECRET"),
        ("wide.txt", "SECRET text".encode("utf-16")),
        ("noise", b"SECRET" + b"\xfe\xc3\x28\x90" * 3000),
        (".env", b"KEY=SECRET\n"),
        (".env.production", b"KEY=SECRET\n"),
        ("prod.env", b"KEY=SECRET\n"),
        ("server.key", b"SECRET\n"),
        ("deploy.pem", b"SECRET\n"),
        ("config/credentials.json", b"SECRET\n"),
        ("id_ed25519", b"SECRET\n"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_f9_keys_and_binary_files_are_not_imported_and_are_named(project, name, data):
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_bytes(data)
    (project / "AGENTS.md").write_text(f"R1\n@{name}\nEND\n")
    text, problems = load(project)
    assert "SECRET" not in text
    assert "END" in text
    assert any(name in problem for problem in problems)


@pytest.mark.parametrize("name", ["docs/style.md", "notes.txt", "env.example", "Makefile"])
def test_f9_text_in_any_language_is_imported(project, name):
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text("Grüße, 你好, привет\n" * 50)
    (project / "AGENTS.md").write_text(f"@{name}\n")
    text, problems = load(project)
    assert "привет" in text
    assert problems == []


@pytest.mark.parametrize("name", ["AGENTS.md", "CLAUDE.md", ".ouro/rules/big.md", "docs/big.md"])
def test_f9_what_is_cut_is_reported_with_its_size(project, name):
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_text("é rule\n" * 20_000)
    if name == "docs/big.md":
        (project / "AGENTS.md").write_text(f"@{name}\n")
    _, problems = load(project)
    assert len(problems) == 1
    assert name in problems[0]
    assert "139,999" in problems[0]
    assert "99,999" in problems[0]


@pytest.mark.parametrize(
    "name",
    [
        ".npmrc", ".config/git/credentials", ".vault-token", ".terraform.d/credentials.tfrc.json", ".m2/settings.xml",
        ".gradle/gradle.properties", ".config/containers/auth.json", ".cache/huggingface/token", ".gem/credentials",
        ".cargo/credentials", ".my.cnf", ".s3cfg", ".oci/config", ".config/op/config", ".config/sops/age/keys.txt",
        ".config/pip/pip.conf", ".local/share/opencode/auth.json", ".mozilla/firefox/p/logins.json",
        ".config/google-chrome/Default/Login Data", ".bitcoin/wallet.dat", ".bash_history", ".zsh_history",
    ],
)  # fmt: skip
def test_x12_places_of_keys_are_asked_about_in_auto(tmp_path, monkeypatch, name):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / name).parent.mkdir(parents=True)
    (tmp_path / "home" / name).write_text("secret")
    (tmp_path / "w").mkdir()
    permissions = Permissions(Workspace(tmp_path / "w"), "auto")
    for tool, effect, target in (
        ("read", Effect.READ, f"~/{name}"),
        ("shell", Effect.RUN, f"cat ~/'{name}'"),
    ):
        assert isinstance(permissions.decide(tool, effect, [target]), Ask), tool


def test_x12_each_place_of_keys_is_named_once():
    assert len(set(KEYS_IN_HOME)) == len(KEYS_IN_HOME)
