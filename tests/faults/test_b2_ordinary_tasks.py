"""B2: ten ordinary tasks in `auto` with bubblewrap ask at most one question each, and their
commands work.
"""

import shutil

import pytest

from ouro.assemble import Options, open_session
from ouro.events import PermissionAsked, Permit, ToolFinished
from ouro.llm import ScriptedModel, call
from ouro.safety import choose_sandbox
from ouro.session import OpenRequest

TASKS = {
    "read the code": ["ls -la && git log --oneline -5", "grep -rn hello . | head", "find . -name '*.py'"],
    "run the tests": ["python3 -m unittest -q test_api 2>&1", "python3 -m compileall -q ."],
    "build with make": ["make", "./built", "make clean"],
    "a change over files": [
        "sed -i 's/hello/greet/g' api.py test_api.py", "git diff --stat", "mv api.py a.py && mv a.py api.py",
    ],
    "commit on a branch": [
        "git checkout -q -b feature", "git add api.py && git commit -qm 'api: greet'", "git status --short",
        "git checkout -q main && git merge -q feature",
    ],
    "a script": [
        "cat > run.sh <<'EOF'\n#!/bin/sh\necho ok > out.txt\nEOF\nchmod +x run.sh", "./run.sh", "rm out.txt run.sh",
    ],
    "a server on loopback": [
        "python3 -m http.server 8765 --bind 127.0.0.1 >/dev/null 2>&1 & p=$!; for i in 1 2 3 4 5 6 7 8 9 10; do "
        "python3 -c \"import urllib.request as u; u.urlopen('http://127.0.0.1:8765/api.py')\" 2>/dev/null "
        "&& break; sleep 0.2; done; kill $p",
    ],
    "an environment": ["python3 -m venv --without-pip env", "env/bin/python -c 'print(1)'", "rm -r env"],
    "data": [
        "python3 -c \"import sqlite3; sqlite3.connect('d.db').execute('create table t(a)')\"",
        "awk '{print $1}' api.py | sort | uniq -c", "rm d.db",
    ],
    "an archive": ["mkdir -p dist && tar czf dist/a.tgz api.py", "cd dist && tar xzf a.tgz && cd .. && rm -r dist"],
}  # fmt: skip


@pytest.mark.slow
async def test_b2_ordinary_tasks_ask_at_most_once_in_auto(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("OURO_SANDBOX_ENABLED", "true")
    if choose_sandbox(tmp_path).sandbox.tier != "bubblewrap":
        pytest.skip("needs bubblewrap")
    (repository / "test_api.py").write_text(
        "import unittest\n\nimport api\n\n\nclass T(unittest.TestCase):\n    def test_it(self): pass\n"
    )
    (repository / "Makefile").write_text(
        "built:\n\tprintf '#!/bin/sh\\necho built\\n' > built; chmod +x built\nclean:\n\trm built\n"
    )
    if not shutil.which("make"):
        TASKS.pop("build with make")
    script = [
        reply
        for lines in TASKS.values()
        for line in lines
        for reply in (call("shell", command=line), "Next.")
    ]
    options = Options(
        repository, {"permissions.mode": "auto"}, ready_model=ScriptedModel(script), trust=True
    )
    session = await open_session(options, OpenRequest())
    asked, failed = dict.fromkeys(TASKS, 0), []
    for task, lines in TASKS.items():
        for line in lines:
            async for event in session.send(task):
                match event:
                    case PermissionAsked(question_id):
                        asked[task] += 1
                        session.answer(question_id, Permit("yes"))
                    case ToolFinished(failed=True, display=display):
                        failed.append((line, display))
    await session.close()
    assert failed == []
    assert max(asked.values()) <= 1
