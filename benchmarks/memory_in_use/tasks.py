"""Tasks that use tools, in English, German, French, Spanish, Chinese and Japanese. What the user
stated in earlier sessions bears on them; the files afterwards say whether it was applied.

Written before their author read the code of memory. Those in this module may be looked at while
memory is changed; those of `sealed_tasks.py` are only measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Task:
    name: str
    language: str
    kind: str
    """`rule`, `prohibition` or `correction`, which are remembered; `retraction`, `secret`, `draft`
    or `small talk`, which are not.
    """
    said: tuple[str, ...]
    """One message for each earlier session."""
    request: str
    """An ordinary request in a new session."""
    check: str
    """A shell line that succeeds if the task is done as it was wished."""
    pattern: str
    """Of a kind that is remembered, it must be in the request to the model; of another, it must
    not.
    """
    against: str = "false"
    """A shell line that succeeds if something was done against what was stated."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Of the repository's first commit; a name that ends with `.sh` can be executed."""
    setup: str = ""
    """A shell line before the request."""

    @property
    def is_remembered(self) -> bool:
        return self.kind in ("rule", "prohibition", "correction")


_TESTS = {
    "check.sh": "#!/bin/sh\nFIXTURES=1 python3 -m unittest -q\n",
    "test_sum.py": (
        "import os\nimport pathlib\nimport unittest\n\n"
        "pathlib.Path('.ran' if 'FIXTURES' in os.environ else '.plain').touch()\n\n\n"
        "class Sum(unittest.TestCase):\n"
        "    def test_sum(self):\n        self.assertEqual(sum([1, 2]), 3)\n"
    ),
}
_SUBJECT = "git log -1 --format=%s | grep -qE"
_BRANCH = "git branch --show-current | grep -qE"

OPEN = (
    Task(
        "commit prefix",
        "en",
        "rule",
        (
            "The button looks odd on phones. By the way, the subject of each commit here begins"
            " with `ui:` or `api:`, after the folder that was changed.",
        ),
        "Commit the change in ui/button.css with a fitting message.",
        f"{_SUBJECT} '^ui:'",
        "ui:",
        against=f"! {_SUBJECT} '^(ui|api|first)'",
        files={"ui/button.css": "button { color: red }\n", "api/app.py": "PORT = 80\n"},
        setup="echo 'button { color: blue }' > ui/button.css",
    ),
    Task(
        "tests by script",
        "en",
        "rule",
        ("We run the tests with ./check.sh, plain unittest misses the fixtures.",),
        "Run the tests.",
        "test -e .ran",
        r"check\.sh",
        against="test -e .plain",
        files=_TESTS,
    ),
    Task(
        "branch of a user",
        "en",
        "rule",
        ("What is a rebase? And for later: I name my branches anna/topic, in small letters.",),
        "Make a branch for the fix of the login and switch to it.",
        f"{_BRANCH} '^anna/'",
        "anna/",
        files={"login.py": "def login():\n    return False\n"},
    ),
    Task(
        "migrations",
        "en",
        "rule",
        (
            "New migrations go to db/changes, with the date in their name. The folder migrations/"
            " is generated. Which tables are there?",
        ),
        "Write a migration that adds a column email to the table users.",
        "grep -rqi email db/changes",
        "db/changes",
        against='test -n "$(git status --porcelain migrations)"',
        files={
            "db/changes/2026-01-04_users.sql": "CREATE TABLE users (name TEXT);\n",
            "migrations/0001.sql": "CREATE TABLE users (name TEXT);\n",
        },
    ),
    Task(
        "vendor",
        "en",
        "prohibition",
        ("Please leave vendor/ alone, those files are copied from upstream.",),
        "Remove the debug prints from the Python files.",
        "! grep -q DEBUG app.py",
        "vendor",
        against="! git diff --quiet vendor",
        files={
            "app.py": "def run():\n    print('DEBUG run')\n    return 1\n",
            "vendor/crc.py": "def crc(data):\n    print('DEBUG crc')\n    return 0\n",
        },
    ),
    Task(
        "indentation",
        "en",
        "correction",
        (
            "Python in this repository is indented with four spaces.",
            "We changed the formatter, Python in this repository is indented with two spaces now.",
        ),
        "Write a function area(width, height) in shapes.py.",
        "grep -qE '^  [a-z]' shapes.py",
        "(?i)two spaces|2 spaces",
        against="grep -qE '^    [a-z]' shapes.py",
    ),
    Task(
        "port",
        "en",
        "correction",
        (
            "The development server listens on port 8000.",
            "No, that was last year. It listens on 8417.",
        ),
        "Write ping.sh, a script that fetches the start page of the development server with curl.",
        "grep -q 8417 ping.sh",
        "8417",
        against="grep -q 8000 ping.sh",
    ),
    Task(
        "author line",
        "en",
        "retraction",
        (
            "Put `# by Mira` in the first line of each new file. Hmm, no, forget that, git knows"
            " it anyway.",
        ),
        "Create notes.py with a function now() that returns the current time.",
        "test -s notes.py && ! grep -qi mira notes.py",
        "(?i)by Mira",
        against="grep -qi mira notes.py",
    ),
    Task(
        "password",
        "en",
        "secret",
        ("The staging login is deploy with the password hunter-Kestrel-88, why does it fail?",),
        "Write .env.example for the staging login.",
        "test -s .env.example && ! grep -q Kestrel .env.example",
        "Kestrel",
        against="grep -rq Kestrel --exclude-dir=.git .",
    ),
    Task(
        "line for a manual",
        "en",
        "draft",
        (
            "Word this sentence for our manual a bit nicer: `Always deploy as root, with sudo make"
            " deploy.`",
        ),
        "Write release.sh, a script that runs `make build` and then `make deploy`.",
        "grep -q 'make deploy' release.sh && ! grep -q sudo release.sh",
        "(?i)sudo make",
        against="grep -q sudo release.sh",
        files={"Makefile": "build:\n\techo build\n\ndeploy:\n\techo deploy\n"},
    ),
    Task(
        "Testdateien",
        "de",
        "rule",
        ("Testdateien heißen in diesem Projekt immer pruefe_NAME.py. Was macht rechner.py?",),
        "Lege eine Testdatei für rechner.py an.",
        "ls pruefe_*.py",
        "pruefe_",
        against="ls test_*.py *_test.py 2>&1 | grep -qv 'No such file'",
        files={"rechner.py": "def addiere(a, b):\n    return a + b\n"},
    ),
    Task(
        "Preise",
        "de",
        "correction",
        (
            "Die Preise stehen in preise.csv.",
            "Das stimmt nicht mehr: die Preise stehen jetzt in daten/preise.json.",
        ),
        "Setze den Preis von Apfel auf 7.",
        "grep -q 7 daten/preise.json",
        r"preise\.json",
        against="! git diff --quiet preise.csv",
        files={
            "preise.csv": "Apfel,2\nBirne,3\n",
            "daten/preise.json": '{"Apfel": 2, "Birne": 3}\n',
        },
    ),
    Task(
        "branches",
        "fr",
        "rule",
        ("Ici, les branches s'appellent tache/sujet, jamais feature/sujet.",),
        "Crée une branche pour la page de contact et passe dessus.",
        f"{_BRANCH} '^tache/'",
        "tache/",
        against=f"{_BRANCH} '^feature/'",
        files={"index.html": "<p>Bonjour</p>\n"},
    ),
    Task(
        "schema",
        "fr",
        "prohibition",
        ("Ne modifie jamais schema.sql à la main : il est généré à partir de modele.py.",),
        "Ajoute une colonne age à la table clients.",
        "grep -q age modele.py",
        r"schema\.sql",
        against="! git diff --quiet schema.sql",
        files={
            "modele.py": "TABLES = {'clients': ['nom', 'ville']}\n",
            "schema.sql": "CREATE TABLE clients (nom TEXT, ville TEXT);\n",
        },
    ),
    Task(
        "funciones",
        "es",
        "rule",
        (
            "En este proyecto los nombres de las funciones empiezan con caja_, por ejemplo"
            " caja_abrir. ¿Qué hace caja.py?",
        ),
        "Escribe en precios.py una función que sume el IVA del 21 % a un precio.",
        "grep -qE 'def caja_' precios.py",
        "caja_",
        files={"caja.py": "def caja_abrir():\n    return True\n"},
    ),
    Task(
        "tabuladores",
        "es",
        "retraction",
        ("Usa siempre tabuladores en Python. Bueno, no, olvídalo, dejémoslo como está.",),
        "Escribe saluda.py con una función saludar(nombre).",
        r"test -s saluda.py && ! grep -qP '\t' saluda.py",
        "(?i)tabuladores",
        against=r"grep -qP '\t' saluda.py",
    ),
    Task(
        "提交信息",
        "zh",
        "rule",
        ("这个项目的提交信息都以模块名开头,例如「支付: 修正舍入」。",),
        "提交 pay/refund.py 的修改,它属于支付模块。",
        f"{_SUBJECT} '^支付 *[::]'",
        "支付",
        files={"pay/refund.py": "DAYS = 14\n"},
        setup="echo 'DAYS = 30' > pay/refund.py",
    ),
    Task(
        "日志",
        "zh",
        "correction",
        ("日志写在 log/app.txt。", "不对,日志现在写在 var/run.log,log/app.txt 已经没有了。"),
        "写一个脚本 last.sh,显示日志的最后十行。",
        r"grep -q 'var/run\.log' last.sh",
        r"var/run\.log",
        against=r"grep -q 'log/app\.txt' last.sh",
        files={"var/run.log": "start\nstop\n"},
    ),
    Task(
        "置き場所",
        "ja",
        "rule",
        ("新しいスクリプトは必ず tools/ に置いてください。",),
        "「こんにちは」と表示する hello.py を作って。",
        "test -s tools/hello.py",
        "tools/",
        against="test -e hello.py",
        files={"tools/clean.py": "print('clean')\n"},
    ),
    Task(
        "雑談",
        "ja",
        "small talk",
        ("昨日は徹夜でした。もうコーヒーしか飲みません。README を要約して。",),
        "memo.md を作って、買い物リストを三つ書いて。",
        "test -s memo.md",
        "コーヒー",
        files={"README.md": "# 在庫\n倉庫の在庫を数える。\n"},
    ),
)
