"""C1: what the answer of the GitHub action does on GitHub, and what it can tell."""

from __future__ import annotations

import base64
import importlib.util
import json
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / ".github/actions/ouro/run.py"
SPEC = importlib.util.spec_from_file_location("ouro_action_c1", RUN)
action = importlib.util.module_from_spec(SPEC)
sys.modules["ouro_action_c1"] = action
SPEC.loader.exec_module(action)
KEY = "sk-ant-Zq9+x/8vT-w3"


@pytest.mark.parametrize(
    "text",
    [
        "![x](https://evil.example/?d=1)",
        "![x][ref]\n\n[ref]: https://evil.example/",
        "[![x](https://evil.example/a)](https://b.example)",
        "text ![](//evil.example/a.png)",
    ],
)
def test_c1_markdown_pictures_of_other_hosts_do_not_load(text):
    assert "![" not in action.disarm(text)


@pytest.mark.parametrize(
    "text",
    [
        "<img src=https://evil.example/>",
        "<IMG\nsrc=x>",
        "<picture><source srcset=x></picture>",
        "<svg><image href=x /></svg>",
        "<input type=image src=x>",
        "<video src=x></video>",
        "<link rel=stylesheet href=x>",
    ],
)
def test_c1_elements_that_load_something_are_text(text):
    assert "<" not in action.disarm(text)


@pytest.mark.parametrize(
    "text",
    ["@bob", "(@bob)", "\\@bob", "`@bob", "_@bob", "x\n@org/team", "&#64;bob", "&#x40;bob", "&commat;bob", "é@bob"],
)  # fmt: skip
def test_c1_mentions_notify_nobody(text):
    assert "@\u200b" in action.disarm(text)
    assert "@b" not in action.disarm(text)


def test_c1_addresses_of_mail_stay():
    assert action.disarm("a@b.example <b>1 < 2</b>") == "a@b.example <b>1 < 2</b>"


@pytest.mark.parametrize(
    "text", ["/close", "x\n/merge", "  /lgtm", "\t/approve", "a\r/close", "> /close", "- /close", "a\u2028/x"]
)  # fmt: skip
def test_c1_lines_that_begin_with_a_slash_start_no_command(text):
    assert "\\/" in action.disarm(text)


def test_c1_slashes_inside_of_a_line_stay():
    assert action.disarm("see src/a.py, and /etc") == "see src/a.py, and /etc"


@pytest.mark.parametrize("before", range(7))
@pytest.mark.parametrize("after", ["", "x", "tail of it"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_c1_base64_of_longer_data_does_not_tell_a_key(before, after, encode):
    coded = encode(("A" * before + KEY + after).encode()).decode()
    masked = action.mask(f"look: {coded} done", [KEY])
    assert masked.startswith("look: ")
    assert masked.endswith(" done")
    left = masked[6:-5].replace("***", "")
    assert len(left) <= len(coded) - (len(KEY) * 8 // 6 - 2)
    assert "***" in masked


@pytest.mark.parametrize(
    "spell",
    [
        str,
        lambda key: key.encode().hex(),
        lambda key: key.encode().hex().upper(),
        lambda key: key.replace("+", "%2B").replace("/", "%2F"),
        lambda key: f"{key[:7]}\n{key[7:]}",
        lambda key: "\n".join(base64.b64encode(key.encode()).decode()),
    ],
)
def test_c1_other_spellings_of_a_key_are_masked(spell):
    assert action.mask(f"a {spell(KEY)} b", [KEY]).replace("=", "").split() == ["a", "***", "b"]


def test_c1_keys_of_variables_are_found_the_longest_first():
    environ = {
        "A_TOKEN": "token-1234",
        "B_SECRET": "token-1234-and-more",
        "CERT_KEY": "-----BEGIN-----\nMIIEabcdef\n-----END-----",
        "GIT_AUTHOR_NAME": "octocat-bot",
        "OTHER": "not-a-secret-value",
        "SHORT_KEY": "yes",
    }
    found = action.secrets_of(environ)
    assert found.index("token-1234-and-more") < found.index("token-1234")
    assert "MIIEabcdef" in found
    assert not {"octocat-bot", "not-a-secret-value", "yes"} & set(found)


def test_c1_ouro_gets_only_variables_of_the_system_and_of_models(tmp_path):
    (tmp_path / "models.yaml").write_text("models:\n  m:\n    api_key_env: COMPANY_PASS\n")
    passed = {
        "PATH": "/bin", "LC_ALL": "C", "https_proxy": "http://p", "OURO_HOME": str(tmp_path), "ANTHROPIC_API_KEY": "1",
        "OLLAMA_HOST": "h", "AWS_SESSION_TOKEN": "2", "COHERE_API_KEY": "3", "COMPANY_PASS": "4", "NAMED": "5",
        "OURO_MEMORY_WRITE": "no",
    }  # fmt: skip
    withheld = {
        "GITHUB_TOKEN": "6", "GH_TOKEN": "7", "ACTIONS_RUNTIME_TOKEN": "8", "INPUT_X": "9", "NPM_TOKEN": "10",
        "DEPLOY_PASSWORD": "11", "DATABASE_URL": "postgres://u:p@h/d", "SLACK_WEBHOOK": "12", "STRIPE_API_KEY": "13",
        "ACTIONS_ID_TOKEN_REQUEST_URL": "14", "LD_PRELOAD": "15", "OURO_CI_TOKEN": "16", "PYTHONPATH": "/x",
        "OURO_CI_VARIABLES": "NAMED, OURO_CI_TOKEN",
    }  # fmt: skip
    assert action.variables_for_ouro({**passed, **withheld}) == passed


def test_c1_program_gets_no_more_and_its_log_commands_no_runner(tmp_path, monkeypatch, capfd):
    program = tmp_path / "program.py"
    program.write_text(
        "import json, os, sys\n"
        f"sys.stderr.write('::set-env name=A::b\\n  ##[add-path]x\\n{KEY}\\n')\n"
        "print(json.dumps(sorted(os.environ)))\n"
    )
    monkeypatch.setattr(action, "OURO", (sys.executable, str(program)))
    order = action.Order("x", "ada", 1, is_pull_request=False, is_reply=False)
    environ = {
        "PATH": "/bin",
        "NPM_TOKEN": "n",
        "OPENAI_API_KEY": KEY,
        "GITHUB_WORKSPACE": str(tmp_path),
    }
    names = action.run_ouro(order, "", environ)
    assert not {"NPM_TOKEN", "GITHUB_WORKSPACE"} & set(json.loads(json.dumps(names)))
    assert "OPENAI_API_KEY" in names
    log = capfd.readouterr().err
    assert KEY not in log
    assert [line for line in log.splitlines() if line.lstrip().startswith(("::", "##["))] == []
