import base64
import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock
from urllib.parse import quote

import pytest
from fakes.tool_benches import ready_mask

from ouro.memory.backend import MessageRecord
from ouro.memory.serialization import record_data
from ouro.messages import Context, Message, Text
from ouro.safety import SecretMask, SecretScanner, is_secret_name, secrets
from ouro.utils.files import lock_file
from ouro.utils.ouro_paths import get_home

KEY = "pa55-word/with+odd=signs"


@pytest.fixture(scope="module")
def mask():
    return ready_mask()


@pytest.fixture
def no_scanner(monkeypatch) -> SecretScanner:
    """A scanner on a machine without the scanner package."""
    monkeypatch.setitem(sys.modules, "kingfisher_sdk", None)
    scanner = SecretScanner()
    assert scanner.find(b"AKIAQYLPMN5HFIQR7BBB", until=time.monotonic() + 60) == []
    return scanner


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        quote(KEY, safe=""),
        quote(KEY),
        json.dumps(KEY)[1:-1],
        base64.b64encode(KEY.encode()).decode(),
        base64.urlsafe_b64encode(KEY.encode()).decode(),
        base64.b64encode(f"a:{KEY}".encode()).decode(),
        base64.b64encode(f"ab:{KEY}\n".encode()).decode(),
        base64.b64encode(f"abc:{KEY};;".encode()).decode(),
    ],
)
def test_known_value_is_masked_in_every_encoding(form, no_scanner):
    text = SecretMask([KEY], scanner=no_scanner).mask(f"before {form} after")

    assert text.startswith("before ")
    assert text.endswith(" after")
    assert not any(form[start : start + 12] in text for start in range(len(form) - 11))


def test_the_longer_of_two_values_wins(no_scanner):
    masked = SecretMask(["first-half", "first-half-and-more"], scanner=no_scanner).mask(
        "x first-half-and-more y"
    )

    assert masked.startswith("x [secret:known:")
    assert masked.endswith("] y")


def test_short_known_values_are_not_masked(no_scanner):
    assert SecretMask(["abc", "1234567"], scanner=no_scanner).mask("abc 1234567") == "abc 1234567"


def test_ordinary_text_is_unchanged(mask):
    text = (
        "def token(self): return self._token  # see https://x.invalid/a?b=c,"
        " 0a1b2c3d4e5f60718293a4b5c6d7e8f901234567\n"
    )

    assert mask(text) == text


def test_text_around_a_secret_is_kept(mask):
    secret = "ghp_" + "a8F3kd92LLs0vm3N4kZx8Qw7Er5Ty6Ui1Op2"

    assert mask(f"ä {secret} ö") == f"ä {mask(secret)} ö"
    assert mask(secret).startswith("[secret:")


def test_unterminated_private_key_is_masked_up_to_its_end(mask):
    body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQDHqXb1Vj3Pz7QW"
    masked = mask(f"-----BEGIN PRIVATE KEY-----\n{body}\n\ndef main(): ...")

    assert body[:20] not in masked
    assert body[-20:] not in masked
    assert masked.endswith("def main(): ...")


def test_quoted_private_key_header_masks_nothing(mask):
    text = 'if text.startswith("-----BEGIN PRIVATE KEY-----"):\n    return load(text)\n'

    assert mask(text) == text


def test_lone_surrogates_do_no_harm(mask):
    assert "ghp_" not in mask("\ud800 ghp_" + "a8F3kd92LLs0vm3N4kZx8Qw7Er5Ty6Ui1Op2")


def test_masking_works_from_many_threads_at_once(mask):
    texts = [f"API_KEY={'a1b2c3d4' * 3}{number}" for number in range(40)]
    found: dict[str, str] = {}
    threads = [
        threading.Thread(target=lambda text=text: found.update({text: mask(text)}))
        for text in texts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [text for text in texts if "[secret:" not in found[text]] == []


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "DB_PASSWORD",
        "apiKey",
        "api_key",
        "x-api-key",
        "client_secret",
        "accessToken",
        "private-key",
    ],
)
def test_secret_names_are_recognized(name):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["path", "max_tokens", "tokenizer", "author", "keyboard", "passenger", "secretary", "command"],
)
def test_ordinary_names_are_not_secret(name):
    assert not is_secret_name(name)


def test_other_passes_work_without_the_scanner(no_scanner):
    masked = SecretMask([KEY], scanner=no_scanner).mask(
        f"{KEY} and DB_PASSWORD=tr0ub4dor3 and 0123456789abcdefgh"
    )

    assert KEY not in masked
    assert "tr0ub4dor3" not in masked


def test_kind_of_secret_names_the_kind_in_a_text():
    mask = SecretMask(["hunter2hunter2"], patience=0.0)

    assert mask.kind_of_secret("nothing to see") == ""
    assert mask.kind_of_secret("the word is hunter2hunter2") == "known"
    assert mask.kind_of_secret("the id AKIAQYLPMN5HFIQR7BBB") == "aws-id"
    assert mask.kind_of_secret("[secret:known:1234] and AKIAQYLPMN5HFIQR7BBB") == "aws-id"


def test_masks_of_a_process_share_one_scanner(mask, monkeypatch):
    mask("the scanner is waited for: 0123456789abcdefgh")
    monkeypatch.setitem(sys.modules, "kingfisher_sdk", None)  # another scanner could not be created

    masked = SecretMask(patience=300).mask("dor_v1_" + "e2c3001c9e893547" * 4)

    assert masked == "[secret:digitalocean-refresh-token:dc0c]"


def test_rules_are_compiled_once_and_in_a_process_that_may_outlive_ouro(tmp_path, monkeypatch):
    started = []

    class Process:
        def __init__(self, command, **options):
            started.append((command[-1], options["start_new_session"]))

        def wait(self):
            (tmp_path / "rules.vscdb").touch()

    monkeypatch.setenv("KF_RULE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(secrets, "_COMPILE_DELAY", 0.0)
    monkeypatch.setattr(secrets.subprocess, "Popen", Process)
    for _ in range(2):
        scanner = SecretScanner()
        scanner.prepare()
        while not list(tmp_path.iterdir()):
            time.sleep(0.001)
        assert not scanner.is_ready  # it is loaded for the first text that may contain a secret
    assert started == [("", True)]


def test_a_message_with_recalled_notes_does_not_load_the_scanner():
    loaded = []

    class Scanner(SecretScanner):
        def find(self, data, until, on_wait):
            loaded.append(data)
            return []

    block = (
        '<memory-db01da77acb78964 recalled="mem_00000007:b59c917e mem_00000003:88a4b9a8">\n'
        "| [mem_00000007] (user · patterns) The queue listens on port 7.\n"
        "</memory-db01da77acb78964>"
    )
    assert SecretMask(scanner=Scanner()).mask(block) == block
    assert not loaded
    SecretMask(scanner=Scanner()).mask(f"{block} password: R8x2LqZ7mVt4Kc9WnB3yHs6Jd")
    assert loaded


def test_many_first_starts_at_once_compile_the_rules_once(tmp_path, monkeypatch):
    begun, rules = tmp_path / "begun", tmp_path / "rules"
    rules.mkdir()
    compiled = (
        f"import time; open({str(begun)!r}, 'a').write('x'); time.sleep(0.5);"
        f" open({str(rules / 'a.vscdb')!r}, 'w')"
    )
    monkeypatch.setenv("KF_RULE_CACHE_DIR", str(rules))
    monkeypatch.setattr(secrets, "_COMPILE_DELAY", 0.0)
    monkeypatch.setattr(secrets, "_COMPILE_PROGRAM", compiled)
    waiting = [threading.Thread(target=secrets._compile_once) for _ in range(4)]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    assert begun.read_text() == "x"


def test_a_process_that_compiles_is_waited_for_after_its_ouro_ended(tmp_path, monkeypatch):
    rules, go = tmp_path / "rules", tmp_path / "go"
    rules.mkdir()
    compiled = (
        f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\n"
        f"open({str(rules / 'a.vscdb')!r}, 'w')"
    )
    monkeypatch.setenv("KF_RULE_CACHE_DIR", str(rules))
    first = (
        "import os, threading, sys, time\nfrom ouro.safety import secrets\n"
        f"secrets._COMPILE_PROGRAM = {compiled!r}\n"
        "real = secrets.subprocess.Popen\n"
        "def begin(*words, **options):\n    real(*words, **options)\n    os._exit(0)\n"
        "secrets.subprocess.Popen = begin\nsecrets._compile_once()"
    )
    subprocess.run([sys.executable, "-c", first], check=True)
    lock = get_home() / "cache" / "secret-rules" / "lock"
    with pytest.raises(BlockingIOError), lock_file(lock, timeout=0):
        pass
    go.touch()
    monkeypatch.setattr(secrets, "_COMPILE_PROGRAM", "raise SystemExit('it is compiled again')")
    secrets._compile_once()
    assert (rules / "a.vscdb").exists()


@pytest.fixture
def installed_rules(mask, rules_of_all_tests, tmp_path, monkeypatch):
    """A new home, and an installation with compiled rules."""
    folder = tmp_path / "prefix" / "share" / "ouro" / "secret-rules"
    folder.mkdir(parents=True)
    for path in rules_of_all_tests.glob("*.vscdb"):
        shutil.copyfile(path, folder / path.name)
        (folder / path.name).chmod(0o644)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setenv("OURO_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KF_RULE_CACHE_DIR")
    monkeypatch.setattr(
        secrets.subprocess, "Popen", Mock(side_effect=OSError("rules are compiled"))
    )
    return folder


def test_installed_compiled_rules_are_used_in_a_new_home(installed_rules):
    masked = SecretMask(scanner=SecretScanner(), patience=300).mask(
        "dor_v1_" + "e2c3001c9e893547" * 4
    )

    assert masked == "[secret:digitalocean-refresh-token:dc0c]"
    secrets.subprocess.Popen.assert_not_called()


@pytest.mark.parametrize("problem", ["writable", "link"])
def test_rules_of_the_installation_that_others_can_change_are_not_used(
    problem, installed_rules, tmp_path
):
    for path in list(installed_rules.iterdir()):
        if problem == "writable":
            path.chmod(0o666)
        else:
            path.symlink_to(path.rename(tmp_path / path.name))
    scanner = SecretScanner()

    assert scanner.find(b"dor_v1_" + b"e2c3001c9e893547" * 4, until=time.monotonic() + 60) == []
    secrets.subprocess.Popen.assert_called_once()


def test_a_text_that_waits_for_the_compiled_rules_says_so_once(installed_rules, monkeypatch):
    (rules,) = list(installed_rules.iterdir())
    content = rules.read_bytes()
    rules.unlink()
    is_announced = threading.Event()

    def compile_rules(arguments, **_options):
        folder = Path(arguments[-1])
        is_announced.wait(60)
        return SimpleNamespace(wait=lambda: (folder / rules.name).write_bytes(content))

    monkeypatch.setattr(secrets.subprocess, "Popen", compile_rules)
    announced = []

    def announce():
        announced.append("now")
        is_announced.set()

    mask = SecretMask(scanner=SecretScanner(), patience=300, on_wait=announce).mask

    assert mask("dor_v1_" + "e2c3001c9e893547" * 4).startswith("[secret:digitalocean")
    mask("dor_v1_" + "e2c3001c9e893548" * 4)
    assert announced == ["now"]


def test_the_installer_compiles_rules_that_every_user_can_read(installed_rules, monkeypatch):
    def compile_rules(cache_dir):
        (cache_dir / "new.vscdb").touch(0o600)

    monkeypatch.setattr("kingfisher_sdk.Rules", compile_rules)
    secrets.compile_for_installation()

    assert [(path.name, path.stat().st_mode & 0o777) for path in installed_rules.iterdir()] == [
        ("new.vscdb", 0o644)
    ]
    assert installed_rules.stat().st_mode & 0o022 == 0


def test_the_environment_of_a_message_does_not_load_the_scanner():
    class Untouched(SecretScanner):
        def find(self, data, until, on_wait=None):
            raise AssertionError(data)

    mask = SecretMask(scanner=Untouched()).mask
    lines = ("Working folder: /home/ada/project-2026-11-release", "Git branch: fix-1234-long-lines")
    text = "\n".join(("<environment>", *lines, "</environment>"))
    record = MessageRecord(
        1, "2026-11-23T00:00:00.000Z", Message("user", (Context(text), Text("hi")))
    )
    assert record_data(record, mask, str)["context"] == [text]


def test_the_shortest_token_without_a_space_is_masked():
    assert "abcdefghij" not in SecretMask().mask("it is xoxb-abcdefghij")
