"""E16: what hooks and MCP servers of a project run is trusted with its content, and is shown whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes.mcp_bench import Bench

from ouro.errors import ConfigError, ToolError
from ouro.extensions import describe_files
from ouro.mcp import McpServers
from ouro.mcp.configuration import expand_variables, find_servers
from ouro.safety import TrustStore, acting_files
from ouro.settings import McpServerSettings

PROGRAM = "tools/inner/программа.py"
HOOKS = [
    f"python {PROGRAM}", f"./{PROGRAM} --fast", f"sh -c '{PROGRAM} | cat'", f"env A=1 python3 -u {PROGRAM}",
    f'"$CLAUDE_PROJECT_DIR"/{PROGRAM}', f"${{OURO_PROJECT_DIR}}/{PROGRAM}", f"cd tools/..; cat <{PROGRAM}",
    f"run --config={PROGRAM}", "node tools/inner/программа", f"echo $(./{PROGRAM})", f"true&&./{PROGRAM};true",
    f"uv run --with=x ./tools/../{PROGRAM}",
]  # fmt: skip
SERVERS = [
    {"command": "python", "args": [PROGRAM]}, {"command": f"./{PROGRAM}"},
    {"command": "sh", "args": ["-c", f"exec ./{PROGRAM}"]}, {"command": "x", "env": {"PRELOAD": f"./{PROGRAM}"}},
    {"command": "python", "args": ["inner/программа.py"], "cwd": "tools"},
    {"command": "node", "args": ["--require", f"./{PROGRAM}", "-"]},
]  # fmt: skip


@pytest.fixture
def project(repository) -> Path:
    for name in (
        PROGRAM,
        "tools/inner/программа.js",
        "tools/other.py",
        "src/hook.py",
        "src/app/__main__.py",
    ):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text("one\n")
    (repository / ".ouro").mkdir()
    (repository / ".claude").mkdir()
    return repository.resolve()


def asks_after_a_change(project: Path, tmp_path: Path, name: str) -> bool:
    store = TrustStore(tmp_path / "trusted.yaml")
    store.trust(project, acting_files(project))
    assert store.is_trusted(project, acting_files(project))
    (project / name).write_text("two\n")
    return not store.is_trusted(project, acting_files(project))


@pytest.mark.parametrize("command", HOOKS)
@pytest.mark.parametrize("name", [".ouro/config.yaml", ".claude/settings.json"])
def test_e16_a_changed_program_of_a_hook_is_asked_about(project, tmp_path, command, name):
    in_claude = {"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": command}]}]}}
    in_ouro = {"hooks": [{"event": "before-tool", "command": command}]}
    (project / name).write_text(json.dumps(in_ouro if name.endswith("yaml") else in_claude))
    changed = "tools/inner/программа.js" if command.startswith("node") else PROGRAM
    assert asks_after_a_change(project, tmp_path, changed)
    assert not asks_after_a_change(project, tmp_path, "tools/other.py")


@pytest.mark.parametrize("server", SERVERS, ids=str)
def test_e16_a_changed_program_of_a_server_is_asked_about(project, tmp_path, server):
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"one": server}}))
    assert asks_after_a_change(project, tmp_path, PROGRAM)


def test_e16_a_program_in_a_file_with_comments_is_shown_and_asked_about(project, tmp_path):
    entry = f'{{"command": "sh", "args": ["-c", "exec ./{PROGRAM}"],}}'
    (project / ".mcp.json").write_text(f'{{ // one\n "mcpServers": {{"one": {entry}}},\n}}')
    assert f"exec ./{PROGRAM}" in "\n".join(describe_files(project, [project / ".mcp.json"]))
    assert asks_after_a_change(project, tmp_path, PROGRAM)


@pytest.mark.parametrize(
    "command",
    ["date >> out", "date >out", "touch out", "make 2> out", "x | tee out", "x --to hook.log"],
)
def test_e16_what_a_hook_writes_is_not_asked_about(project, tmp_path, command):
    for name in ("out", "hook.log"):
        (project / name).write_text("one\n")
    hooks = {"hooks": [{"event": "turn-end", "command": command}]}
    (project / ".ouro/config.yaml").write_text(json.dumps(hooks))
    assert not asks_after_a_change(project, tmp_path, "out")
    assert not asks_after_a_change(project, tmp_path, "hook.log")


@pytest.mark.parametrize(
    ("command", "name"),
    [("python -m src.hook", "src/hook.py"), ("python -m src.app", "src/app/__main__.py")],
)
def test_e16_a_module_is_a_program(project, tmp_path, command, name):
    hooks = {"hooks": [{"event": "turn-end", "command": command}]}
    (project / ".ouro/config.yaml").write_text(json.dumps(hooks))
    assert asks_after_a_change(project, tmp_path, name)


@pytest.mark.parametrize(
    "command", ["'my tools/go now.sh' x", 'sh "my tools/go now.sh"', "sh my\\\\ tools/other.sh"]
)
def test_e16_a_name_with_spaces_is_a_program(project, tmp_path, command):
    command = command.replace("\\\\", "\\")
    name = "my tools/go now.sh" if "now" in command else "my tools/other.sh"
    (project / "my tools").mkdir()
    (project / name).write_text("one\n")
    (project / ".ouro/config.yaml").write_text(
        json.dumps({"hooks": [{"event": "turn-end", "command": command}]})
    )
    assert asks_after_a_change(project, tmp_path, name)


def test_e16_a_program_that_appears_later_or_leads_out_is_not_trusted(project, tmp_path):
    hooks = {"hooks": [{"event": "turn-end", "command": "./later.sh; ./out.sh"}]}
    (project / ".ouro/config.yaml").write_text(json.dumps(hooks))
    (tmp_path / "outside").write_text("x")
    (project / "out.sh").symlink_to(tmp_path / "outside")
    assert project / "out.sh" not in acting_files(project)
    assert asks_after_a_change(project, tmp_path, "later.sh")


def test_e16_hidden_files_of_a_skill_are_asked_about(project, tmp_path):
    skill = project / ".claude/skills/one"
    (skill / ".bin").mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: one\ndescription: x\n---\nRun .bin/go\n")
    (skill / ".env.sh").write_text("x")
    assert asks_after_a_change(project, tmp_path, ".claude/skills/one/.bin/go")
    assert asks_after_a_change(project, tmp_path, ".claude/skills/one/.env.sh")


def test_e16_the_question_shows_programs_headers_folders_and_every_variable(project):
    long = "x" * 5_000
    servers = {
        "far": {"url": "https://evil.invalid/" + long + "/${LAST_ONE}", "headers": {"X-A": "Bearer ${IN_HEADER:-no}"}},
        "near": {"command": "python", "args": [PROGRAM, long, "$BARE"], "cwd": "tools", "env": {"A": "${IN_ENV}"}},
    }  # fmt: skip
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    shown = "\n".join(describe_files(project, acting_files(project)))
    for word in ("X-A: Bearer ${IN_HEADER:-no}", "LAST_ONE", "IN_HEADER", "BARE", "IN_ENV",
                 "in the folder tools", f"programs that these run: {PROGRAM}"):  # fmt: skip
        assert word in shown


SECRET = {"GITHUB_TOKEN": "ghp_" + "a" * 36, "DB_PASSWORD": "hunter2hunter2", "PLAIN": "docs"}


@pytest.mark.parametrize("name", ["GITHUB_TOKEN", "DB_PASSWORD"])
@pytest.mark.parametrize("field", ["env", "headers", "url", "args"])
def test_e16_a_secret_variable_is_refused_for_a_server_of_the_project(name, field):
    values = {"env": {"A": f"${{{name}}}"}, "headers": {"A": f"b ${{{name}:-x}}"}, "url": f"https://x.invalid/${{{name}}}",
              "args": (f"${{{name}}}",)}  # fmt: skip
    server = McpServerSettings(**{field: values[field]})
    with pytest.raises(ConfigError, match=f"{name} looks secret, and a file of the project asks"):
        expand_variables(server, SECRET, (), {"GITHUB_TOKEN", "DB_PASSWORD"})


async def test_e16_the_server_of_the_project_is_not_started_with_it(project, monkeypatch):
    for name, value in SECRET.items():
        monkeypatch.setenv(name, value)
    server = {"command": "true", "env": {"A": "${GITHUB_TOKEN}"}}
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"one": server}}))
    registry = find_servers({}, project)
    assert registry.projects == {"one"}
    bench = Bench(project)
    servers = McpServers(registry, bench.host())
    with pytest.raises(ToolError, match="GITHUB_TOKEN looks secret"):
        await servers.connect("one")
    await servers.close()
