"""What a start may import, in a fresh interpreter: each heavy package is imported in one place, on
demand.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ouro.memory.index import Index, MemoryFolder, Sources, Vectors, local_embedder
from ouro.utils.ouro_paths import get_config_path

HEAVY = ("litellm", "textual", "prompt_toolkit", "sqlite3", "httpx", "yaml", "rich", "PIL", "pypdf",
         "kingfisher", "rapidfuzz", "jsonschema", "asyncio")  # fmt: skip


def modules_of(statement: str) -> set[str]:
    """The full names of the modules that are loaded after `statement`."""
    code = f"{statement}\nimport sys\nprint(*sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.strip().splitlines()[-1].split())


def loaded_by(statement: str) -> set[str]:
    """The same, packages only."""
    return {name.partition(".")[0] for name in modules_of(statement)}


@pytest.mark.parametrize(
    "statement",
    [
        "import ouro.cli",
        "import ouro.cli; ouro.cli.read_flags(['--mode', 'plan'])",
        "import ouro.frontends.tui.first_frame",
    ],
)
def test_start_loads_nothing_heavy(statement):
    assert loaded_by(statement).isdisjoint(HEAVY)


@pytest.mark.parametrize(
    ("flag", "allowed"),
    [("--version", set()), ("--help", {"argparse", "gettext", "locale", "shutil", "re"})],
)
def test_a_line_about_the_program_needs_little_more_than_python(flag, allowed):
    bare = modules_of("")
    run = f"import ouro.cli\ntry: ouro.cli.main(['{flag}'])\nexcept SystemExit: pass"
    loaded = loaded_by(run) - {name.partition(".")[0] for name in bare}
    heavy = {"typing", "pathlib", "datetime", "difflib", "argparse", "re", "shutil", "msgspec"}
    assert loaded & heavy <= allowed
    own = {name for name in modules_of(run) if name.startswith("ouro")}
    assert own <= {
        "ouro",
        "ouro.cli",
        "ouro.command_line",
        "ouro.errors",
        "ouro.utils",
        "ouro.utils.lazy_exports",
    }


def test_assembling_a_session_loads_no_screen_and_no_litellm():
    modules = loaded_by("import ouro.assemble, ouro.frontends.headless.headless")
    assert modules.isdisjoint({"litellm", "textual", "prompt_toolkit", "rich", "sqlite3", "numpy"})


def test_session_without_memory_loads_almost_no_memory_module():
    """Imports that only memory needs are where it is built: see `assemble_memory`."""
    memory = "ouro.memory.long_term"
    built = f"{memory}.maintenance.background, {memory}.trust.running_turns"
    modules = modules_of(f"import ouro.assemble, ouro.frontends.headless.headless, {built}")
    packages = {"git", "maintenance", "trust"}
    rooms = {name.removeprefix(f"{memory}.") for name in modules if name.startswith(f"{memory}.")}
    assert rooms - packages == {
        "git.values",
        "maintenance.background",
        "session_memory",
        "trust.running_turns",
    }
    assert {name for name in modules if name.startswith("ouro.memory.index")} == {
        "ouro.memory.index"
    }


def modules_at_the_first_frame() -> set[str]:
    """What is loaded when the first frame of a start without arguments is drawn."""
    return modules_of(
        "import ouro.cli\nfrom ouro.frontends.tui import first_frame\nfirst_frame.can_draw ="
        " lambda: True\nfirst_frame.draw = lambda _look, **_:"
        " os._exit(print(*sorted(sys.modules), file=sys.stderr, flush=True) or 0)\nimport os,"
        " sys\nouro.cli.main([])"
    )


def test_first_frame_needs_little_more_than_python():
    modules_at_the_first_frame()  # the first start copies the settings of the first frame
    modules = modules_at_the_first_frame()
    assert "ouro.frontends.tui.first_frame" in modules
    assert {name.partition(".")[0] for name in modules}.isdisjoint(
        {*HEAVY, "msgspec", "logging", "subprocess", "argparse", "pathlib", "re", "typing",
         "threading", "contextlib", "urllib", "fnmatch", "select", "zlib", "enum", "functools",
         "collections"}
    )  # fmt: skip
    assert len(modules - modules_of("")) <= 38


def test_prompt_appears_before_session_modules_are_loaded():
    modules = modules_of(
        "import ouro.cli; args = ouro.cli.read_flags(); ouro.cli._opener(args);"
        " ouro.cli._request(args)\nimport ouro.frontends.tui.full_screen, ouro.frontends.tui.app,"
        " ouro.frontends.tui.driver"
    )
    rooms = {"agent", "assemble", "commands", "llm", "memory", "safety", "session", "tools"}
    light = {"ouro.session", "ouro.session.opening", "ouro.session.turn_queue"}
    assert {
        name for name in modules - light if name.startswith("ouro.") and name.split(".")[1] in rooms
    } == set()
    assert {name.partition(".")[0] for name in modules}.isdisjoint(
        {"httpx", "yaml", "markdown_it", "kingfisher_sdk"}
    )


def test_http_client_loads_without_its_command_line_and_http2():
    modules = loaded_by("from ouro.llm.http_client import load_httpx; load_httpx()")
    assert "httpcore" in modules
    assert modules.isdisjoint({"h2", "rich", "click", "pygments", "litellm"})


def test_start_defines_no_dataclass():
    """A frozen dataclass takes forty times as long to define as a section of settings."""
    count = (
        "import dataclasses as d; n = []; p = d._process_class\nd._process_class = lambda *a:"
        " n.append(a[0]) or p(*a)"
    )
    code = f"{count}\nimport ouro.assemble, sys; print(len(n), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stderr) == 0


FIRST_PICTURE = (
    "import ouro.cli; ouro.cli.read_flags()\n"
    "import ouro.frontends.tui.screen_settings as s; s.screen_settings_in('.')\n"
    "import ouro.frontends.tui.first_frame"
)


@pytest.mark.parametrize(
    ("statement", "most"),
    [
        ("import ouro.cli", 80),
        (FIRST_PICTURE, 105),
        ("import ouro.assemble, ouro.frontends.headless.headless", 327),
        ("import ouro.cli; ouro.cli.main(['sessions', 'list'])", 280),
        ("import ouro.cli; ouro.cli.main(['config'])", 275),
    ],
)
def test_number_of_modules_loaded_at_start_is_limited(statement, most):
    """Counts, not times: they are the same on each machine. A module takes 0.3 ms on average."""
    assert len(modules_of(statement)) <= most + 2 * (sys.version_info >= (3, 13))


def test_the_first_picture_of_a_second_start_reads_no_settings(monkeypatch):
    for name in [name for name in os.environ if name.startswith("OURO_") and name != "OURO_HOME"]:
        monkeypatch.delenv(name)
    get_config_path().parent.mkdir(mode=0o700, exist_ok=True)
    get_config_path().write_text("tui: {theme: light}\n")
    assert "ouro.settings_sources" in modules_of(FIRST_PICTURE)
    assert modules_of(FIRST_PICTURE).isdisjoint({"yaml", "ouro.settings", "ouro.settings_sources"})


def test_the_first_picture_loads_nothing_that_it_can_do_without():
    """Of CPU: dataclasses 8 ms, json 3, datetime 2."""
    assert modules_of(FIRST_PICTURE).isdisjoint({"dataclasses", "inspect", "json", "datetime"})


@pytest.mark.parametrize("word", ["list", "stats"])
def test_a_list_of_notes_loads_no_session(word):
    modules = modules_of(f"import ouro.cli; ouro.cli.main(['memory', '{word}'])")
    assert modules.isdisjoint(
        {
            "ouro.agent.loop",
            "ouro.assemble",
            "ouro.commands.front_end",
            "ouro.llm.catalog",
            "ouro.memory.manager",
            "ouro.memory.yaml_backend",
            "ouro.session.session",
            "ouro.utils.editor",
        }
    )


ANSWER = """
import os, sys
leave = os._exit
def report(code):
    print(*sorted(sys.modules), file=open(os.environ["MODULES_OF_ANSWER"], "w"), flush=True)
    leave(code)
os._exit = report
sys.argv = ["ouro", *sys.argv[1:]]
from ouro.cli import run
sys.exit(run())
"""


def modules_of_answer(ouro, tmp_path, *flags):
    """All modules that the second headless answer of a home has loaded when it exits."""
    listed = tmp_path / "modules"
    environment = {**ouro.environment, "MODULES_OF_ANSWER": str(listed)}
    command = [sys.executable, "-c", ANSWER, *flags, "-p", "say hello"]
    # A long path can look like a secret in base64, for which the scanner is loaded.
    with tempfile.TemporaryDirectory() as short:
        folder = shutil.copytree(ouro.folder, Path(short) / "app")
        for _ in range(2):  # the first one makes caches
            listed.unlink(missing_ok=True)
            subprocess.run(
                command, check=True, env=environment, cwd=folder, capture_output=True,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
    return set(listed.read_text().split())


def test_a_headless_answer_loads_few_modules(ouro, tmp_path):
    """It had 612 modules, of which no answer needs these: an HTTP client with proxies and cookies,
    the tools that were not called, checkpoints, the search index and the list of commands.
    """
    modules = modules_of_answer(ouro, tmp_path)
    assert {name.partition(".")[0] for name in modules}.isdisjoint(
        {"httpx", "httpcore", "anyio", "h11", "email", "http", "tomllib", "difflib", "yaml"}
    )
    assert modules.isdisjoint(
        {
            "ouro.agent.stuck_turn",
            "ouro.agent.worktree",
            "ouro.commands.all_actions",
            "ouro.llm.rejected_requests",
            "ouro.llm.sealed_items",
            "ouro.lsp.configuration",
            "ouro.memory.index.index",
            "ouro.memory.long_term.core_consolidator",
            "ouro.memory.long_term.notes.note",
            "ouro.memory.long_term.recall.attempts",
            "ouro.memory.long_term.recall.recall_log",
            "ouro.memory.sessions.repair",
            "ouro.safety.checkpoints.checkpoints",
            "ouro.safety.sandbox.landlock",
            "ouro.tools.edit",
            "ouro.mcp.tools",
            "ouro.tools.grep",
            "ouro.tools.read",
            "ouro.tools.skill",
            "ouro.tools.web_fetch",
            "ouro.utils.line_changes",
            "logging.handlers",
        }
    )
    # One is the finder of an installation in place.
    assert len(modules) <= 374 + 6 * (sys.version_info >= (3, 13)), sorted(modules)


def test_a_section_of_the_settings_is_defined_without_generated_code():
    code = (
        "import builtins, sys; n = []; run = exec; builtins.exec = lambda *a: n.append(*a[:1]) or"
        " run(*a)"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport ouro; n.clear(); import ouro.settings; print(str(n).count('(self'))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(done.stdout) <= 2


@pytest.mark.skipif(local_embedder() is None, reason="requirements/vectors.txt is not installed")
def test_a_headless_answer_with_notes_imports_no_search(ouro, tmp_path, monkeypatch):
    """A process finds the notes. Of CPU numpy and the model are 67 ms, the search 40."""
    home = Path(ouro.environment["OURO_HOME"])
    (home / "memory").mkdir(parents=True, exist_ok=True)
    for number in range(20):
        (home / "memory" / f"mem_{number:08x}.md").write_text(
            f"The port of host {number} is 4711.\n"
        )
    index = Index(home / "cache" / "index.db")
    index.update(Sources(None, (MemoryFolder("user", "", home / "memory"),)))
    Vectors(index, local_embedder()).fill_all()
    index.close()
    (home / "cache" / "index.db.vectors").touch()
    started = (
        "\nfrom ouro.memory.index import question_process\nquestion_process._has_idle_core ="
        " lambda: True\nquestion_process.ANSWER_SECONDS = question_process.FIND_SECONDS = 60\nimport"
        " ouro.memory.long_term.recall.turn_recall as recall\nrecall.VECTOR_TIMEOUT ="
        " recall.INDEX_TIMEOUT = recall.LOCAL_TIMEOUT = 60\nimport"
        " ouro.memory.long_term.recall.note_finder as finder\nfinder.UPDATE_TIMEOUT = 60\n"
        "sys.modules.pop('ouro.assemble', None)\n"
    )
    monkeypatch.setitem(
        globals(), "ANSWER", ANSWER.replace("from ouro.cli", f"{started}from ouro.cli")
    )
    modules = modules_of_answer(ouro, tmp_path)
    assert "ouro.memory.long_term.recall.selection" in modules
    assert modules.isdisjoint({"numpy", "sqlite3", "ouro.memory.long_term.recall.candidates"})
