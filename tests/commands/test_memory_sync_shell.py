"""`ouro memory sync` and `ouro memory forget --everywhere` as command lines."""

import io
import json
import random
import shutil
import subprocess

import pytest
from properties import examples

from ouro.cli import main
from ouro.safety import TrustStore
from ouro.utils.ouro_paths import get_trust_path


@pytest.fixture
def homes(tmp_path, monkeypatch):
    """Two machines: `homes(n)` changes to one of them."""
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "remote.git"], check=True)

    def sit_at(number: int):
        folder = tmp_path / f"machine{number}"
        (folder / "work").mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv("OURO_HOME", str(folder / ".ouro"))
        monkeypatch.setenv("OURO_MEMORY_REMOTE", str(tmp_path / "remote.git"))
        monkeypatch.chdir(folder / "work")
        return folder / ".ouro"

    return sit_at


def test_two_homes_converge_after_random_edits_and_syncs(homes, capsys):
    drawn, wanted = random.Random(2), set()
    for step in range(examples(40)):
        home = homes(drawn.randrange(2))
        name = drawn.choice(["facts", "preferences"])
        if drawn.random() < 0.3:
            assert main(["memory", "sync"]) == 0
        entry = f"The number {step} matters."
        wanted.add(entry)
        assert main(["memory", "remember", "--scope", "user", entry]) == 0, name
    for number in (0, 1, 0, 1):
        home = homes(number)
        assert main(["memory", "sync"]) == 0
    capsys.readouterr()

    for number in (0, 1):
        home = homes(number)
        text = "".join(each.read_text() for each in sorted((home / "memory").glob("*.md")))
        assert [entry for entry in wanted if entry not in text] == []
        assert main(["memory", "sync", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {
            "received": [],
            "sent": 0,
            "conflicts": [],
            "commit": "",
            "waiting": [],
            "pending": 0,
            "disputed": [],
        }


@pytest.mark.parametrize("command", [["sync"], ["memory", "sync"]])
def test_sync_says_how_many_changes_wait_for_approval_and_are_not_sent(homes, capsys, command):
    home = homes(0)
    assert main(["memory", "remember", "--scope", "user", "Tea is served at noon"]) == 0
    assert main(command) == 0
    assert "Not sent" not in capsys.readouterr().out
    facts = home / "memory" / "facts.md"
    facts.write_text(facts.read_text() + "- Deploys run at night.\n")

    assert main(command) == 0

    said = capsys.readouterr().out
    assert "Not sent: 1 change of memory waits for your approval. See `ouro memory inbox`." in said


def test_offline_sync_prints_a_one_line_error(homes, capsys):
    homes(0)
    assert main(["memory", "sync", "--remote", "/no/such/place.git"]) == 1
    assert "cannot be synchronized with /no/such/place.git" in capsys.readouterr().err


def test_sync_without_a_remote_reports_how_to_set_one(homes, capsys, monkeypatch):
    homes(0)
    monkeypatch.delenv("OURO_MEMORY_REMOTE")
    assert main(["memory", "sync"]) == 2
    assert "The user memory has no remote yet." in capsys.readouterr().err


def test_sync_without_a_scope_takes_the_only_one_with_a_remote(homes, capsys, monkeypatch):
    home = homes(0)
    remote = home.parents[1] / "remote.git"
    monkeypatch.delenv("OURO_MEMORY_REMOTE")
    subprocess.run(["git", "init", "-q"], check=True)
    main(["memory", "remember", "--scope", "repo", "The cluster is called birch"])
    assert main(["memory", "sync", "repo", str(remote)]) == 0
    main(["memory", "remember", "--scope", "repo", "Deploys run at noon"])
    capsys.readouterr()

    assert main(["memory", "sync"]) == 0

    assert "1 commit sent" in capsys.readouterr().out


def test_forget_everywhere_reads_the_secret_from_stdin(homes, capsys, monkeypatch, tmp_path):
    home = homes(0)
    main(["memory", "remember", "--scope", "user", "The code word is Blackbird-77"])
    monkeypatch.setattr("sys.stdin", io.StringIO("blackbird-77\n"))
    code = main(
        [
            "memory",
            "forget",
            "--everywhere",
            "--secret",
            "--yes",
            "--backup",
            str(tmp_path / "b.tar"),
        ]
    )
    out = capsys.readouterr().out

    assert code == 0
    assert "blackbird" not in out.partition("Forgotten")[2].lower()
    assert "your memory: git history" in out
    assert (
        (home / "memory" / "facts.md").read_text().strip().endswith("The code word is [forgotten]")
    )
    assert (tmp_path / "b.tar").exists()


def test_forget_everywhere_without_a_terminal_changes_nothing(homes, capsys, monkeypatch):
    home = homes(0)
    main(["memory", "remember", "--scope", "user", "The code word is Blackbird-77"])
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(["memory", "forget", "--everywhere", "blackbird-77"]) == 2
    assert main(["memory", "forget", "--everywhere", "blackbird-77", "--yes"]) == 2
    assert main(["memory", "forget", "--everywhere", "--secret", "blackbird-77"]) == 2
    assert main(["memory", "forget", "--everywhere"]) == 2
    assert main(["memory", "forget", "--everywhere", "no such words", "--yes", "--no-backup"]) == 1
    assert "Blackbird-77" in (home / "memory" / "facts.md").read_text()
    assert capsys.readouterr().err.count("\n") >= 4


@pytest.mark.parametrize("command", [("sync",), ("memory", "sync")])
def test_sync_lists_what_two_machines_say_about_the_same_subject(homes, capsys, command):
    for number, text in enumerate(("La API escucha en el puerto 8080", "Ich mag grünen Tee")):
        homes(number)
        assert main(["memory", "remember", "--scope", "user", text]) == 0
        assert main([*command]) == 0
    assert "same subject" not in capsys.readouterr().out
    main(["memory", "remember", "--scope", "user", "La API escucha en el puerto 9090"])

    homes(0)
    assert main(["memory", "remember", "--scope", "user", "The build runs on Mondays"]) == 0
    homes(1)
    assert main([*command]) == 0
    homes(0)
    capsys.readouterr()
    assert main([*command, "--json"]) == 0

    value = json.loads(capsys.readouterr().out)
    report = value.get("memory", value)
    assert report["disputed"] == [
        ["La API escucha en el puerto 8080", "La API escucha en el puerto 9090"]
    ]


def test_sync_covers_the_memory_of_a_repository_with_a_remote(
    homes, capsys, repository, tmp_path, monkeypatch
):
    def sit_in(number: int):
        project = homes(number).parent / "app"
        if not project.exists():
            shutil.copytree(repository, project)
            TrustStore(get_trust_path()).trust(project, [])
        monkeypatch.chdir(project)
        return project

    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "app.git"], check=True)
    for number, text in enumerate(("Run tox for the tests", "Never edit api.py")):
        sit_in(number)
        assert main(["sync"]) == 0
        assert "repository memory" not in capsys.readouterr().out
        assert main(["memory", "remember", "--scope", "repo", text]) == 0
        assert main(["memory", "sync", "repo", str(tmp_path / "app.git")]) == 0

    project = sit_in(0)
    capsys.readouterr()
    assert main(["sync"]) == 0
    assert "repository memory 1 received, 0 sent" in capsys.readouterr().out
    texts = [path.read_text() for path in (project / ".ouro" / "memory").glob("*.md")]
    assert [text for text in texts if "Never edit api.py" in text]
