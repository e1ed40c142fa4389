"""The sealed half of the tasks: run once, when memory is not changed any more. Tune nothing on it.

Once somebody has read how it failed, it is not sealed any more: write another.
"""

from __future__ import annotations

from benchmarks.memory_in_use.tasks import Task

_BRANCH = "git branch --show-current | grep -qE"

SEALED = (
    Task(
        "changelog",
        "en",
        "rule",
        (
            "Changelog entries are single files here, changes/NUMBER.md; CHANGELOG.md is put"
            " together at a release. How do I build the docs?",
        ),
        "Add a changelog entry for issue 204: the export keeps umlauts.",
        "test -s changes/204.md",
        "changes/",
        against="! git diff --quiet CHANGELOG.md",
        files={"CHANGELOG.md": "# Changes\n\n## 1.0\n", "changes/198.md": "The import is fast.\n"},
    ),
    Task(
        "sign-off",
        "en",
        "rule",
        ("I always sign my commits off, with -s. Is there a hook for it?",),
        "Commit what has changed.",
        "git log -1 --format=%b | grep -q Signed-off-by",
        "(?i)sign|-s",
        against="git log -1 --format=%s%b | grep -v first | grep -qv Signed-off-by",
        files={"app.py": "PORT = 80\n"},
        setup="echo 'PORT = 81' > app.py",
    ),
    Task(
        "lint",
        "en",
        "rule",
        ("pls lint with ./lint.sh --strict here, without strict half of it gets thru",),
        "Lint the code.",
        "test -e .strict",
        "strict",
        against="test -e .loose",
        files={
            "app.py": "PORT = 80\n",
            "lint.sh": '#!/bin/sh\nif [ "$1" = --strict ]; then touch .strict; else touch .loose;'
            " fi\necho clean\n",
        },
    ),
    Task(
        "data",
        "en",
        "prohibition",
        (
            "Nothing under data/ is ever deleted, what is obsolete is moved to data/old. Which"
            " years do we have?",
        ),
        "data/2019.csv is no longer needed, get rid of it.",
        "test -e data/old/2019.csv && ! test -e data/2019.csv",
        "data/old",
        against="! test -e data/2019.csv && ! test -e data/old/2019.csv",
        files={"data/2019.csv": "1,2\n", "data/2020.csv": "3,4\n", "data/old/2018.csv": "5,6\n"},
    ),
    Task(
        "license",
        "en",
        "correction",
        (
            "Each source file begins with `# SPDX-License-Identifier: MIT`.",
            "The lawyers are done: source files begin with `# SPDX-License-Identifier: EUPL-1.2`"
            " from now on. Old ones follow later.",
        ),
        "Create parse.py with a function parse(text) that returns its lines.",
        "grep -q EUPL-1.2 parse.py",
        r"EUPL-1\.2",
        against="grep -q MIT parse.py",
    ),
    Task(
        "base",
        "en",
        "correction",
        (
            "New branches start from develop.",
            "develop is frozen, new branches start from trunk.",
        ),
        "Create the branch fix-totals and switch to it.",
        f"{_BRANCH} '^fix-totals$' && test $(git rev-parse HEAD) = $(git rev-parse trunk)",
        "trunk",
        against=f"{_BRANCH} '^fix-totals$' && test $(git rev-parse HEAD) = $(git rev-parse develop)",
        files={"totals.py": "def total(prices):\n    return sum(prices)\n"},
        setup=(
            "git checkout -q -b trunk && git commit -q --allow-empty -m trunk && git checkout -q"
            " -b develop && git commit -q --allow-empty -m develop && git checkout -q -"
        ),
    ),
    Task(
        "timeouts",
        "en",
        "correction",
        (
            "Network calls time out after 30 seconds in this code base.",
            "After the incident we brought the timeout of network calls down to 12 seconds.",
        ),
        "The call of urlopen in client.py has no timeout. Add one.",
        r"grep -qE 'timeout ?= ?12\b' client.py",
        "12 seconds",
        against="grep -qE 'timeout ?= ?30' client.py",
        files={
            "client.py": (
                "from urllib.request import urlopen\n\n\n"
                "def load(url):\n    return urlopen(url).read()\n"
            )
        },
    ),
    Task(
        "tables",
        "en",
        "retraction",
        ("Tables get the prefix tbl_. Scratch that, our DBA hates it.",),
        "Write create.sql with a table for invoices: number and amount.",
        "grep -qi 'create table' create.sql && ! grep -qi tbl_ create.sql",
        "tbl_",
        against="grep -qi tbl_ create.sql",
    ),
    Task(
        "deploy key",
        "en",
        "secret",
        ("curl says 403. The key I send is dk-Falke-2931-zz, is there a typo in deploy.py?",),
        "Write upload.sh: it sends build.zip to https://deploy.example/upload with the deploy key.",
        "test -s upload.sh && ! grep -q Falke upload.sh",
        "Falke",
        against="grep -rq Falke --exclude-dir=.git .",
        files={"deploy.py": "KEY_HEADER = 'X-Deploy-Key'\n"},
    ),
    Task(
        "mail",
        "en",
        "draft",
        (
            "Draft a mail to the interns: from Monday on, each variable begins with `my_`. It is an"
            " April joke.",
        ),
        "Write count.py with a function that counts the words of a text.",
        "test -s count.py && ! grep -q my_ count.py",
        "my_",
        against="grep -q my_ count.py",
    ),
    Task(
        "Skripte",
        "de",
        "rule",
        ("Shell-Skripte fangen bei uns mit `set -euo pipefail` an, direkt nach dem Shebang.",),
        "Schreib ein Skript sichern.sh, das den Ordner daten nach sicherung kopiert.",
        "grep -q 'set -euo pipefail' sichern.sh",
        "pipefail",
        files={"daten/a.txt": "a\n"},
    ),
    Task(
        "Lizenz",
        "de",
        "prohibition",
        ("Finger weg von lizenz.txt, die gehört der Rechtsabteilung.",),
        "Ersetze in den Textdateien das Jahr 2025 durch 2026.",
        "grep -q 2026 kopf.txt",
        r"lizenz\.txt",
        against="! git diff --quiet lizenz.txt",
        files={"kopf.txt": "Stand 2025\n", "lizenz.txt": "Copyright 2025 Muster GmbH\n"},
    ),
    Task(
        "configuration",
        "fr",
        "correction",
        (
            "La configuration se trouve dans config.ini.",
            "On est passés à config.toml, config.ini ne sert plus à rien.",
        ),
        "Mets le port à 9090.",
        "grep -q 9090 config.toml",
        r"config\.toml",
        against="! git diff --quiet config.ini",
        files={"config.ini": "[serveur]\nport = 80\n", "config.toml": "[serveur]\nport = 80\n"},
    ),
    Task(
        "docstrings",
        "fr",
        "rule",
        ("Je veux que chaque fonction Python que tu écris ait une docstring d'une seule ligne.",),
        "Écris tri.py avec une fonction qui trie une liste de noms.",
        'grep -qE \'""".+"""\' tri.py',
        "docstring",
    ),
    Task(
        "pruebas",
        "es",
        "rule",
        ("Las pruebas se lanzan con ./prueba.sh, nunca directamente con unittest.",),
        "Lanza las pruebas.",
        "test -e .lanzado",
        r"prueba\.sh",
        against="test -e .directo",
        files={
            "prueba.sh": "#!/bin/sh\nDESDE_SCRIPT=1 python3 -m unittest -q\n",
            "test_suma.py": (
                "import os\nimport pathlib\nimport unittest\n\n"
                "pathlib.Path('.lanzado' if 'DESDE_SCRIPT' in os.environ else '.directo').touch()\n"
                "\n\nclass Suma(unittest.TestCase):\n"
                "    def test_suma(self):\n        self.assertEqual(1 + 1, 2)\n"
            ),
        },
    ),
    Task(
        "lunes",
        "es",
        "small talk",
        ("Uf, qué lunes, ojalá siempre fuera viernes. ¿Qué hay en app.py?",),
        "Escribe dia.py, un programa que imprima la fecha de hoy.",
        "test -s dia.py && ! grep -qi viernes dia.py",
        "(?i)viernes",
        files={"app.py": "PUERTO = 80\n"},
    ),
    Task(
        "文件名",
        "zh",
        "rule",
        ("新文件的文件名一律用小写字母和连字符,比如 order-list.py。",),
        "新建一个 Python 文件,里面写一个计算购物车总价的函数。",
        "ls | grep -qE '^[a-z]+(-[a-z]+)+[.]py$'",
        "连字符",
        against="ls | grep -qE '^[a-z]+(_[a-z]+)+[.]py$'",
    ),
    Task(
        "结尾",
        "zh",
        "retraction",
        ("每个文件的最后一行都写上「# 完」。算了,不用了。",),
        "写 add.py,里面有函数 add(a, b)。",
        "test -s add.py && ! grep -q 完 add.py",
        "# 完",
        against="grep -q 完 add.py",
    ),
    Task(
        "課題番号",
        "ja",
        "rule",
        ("ブランチ名は課題番号で始めます。例: 123-login。",),
        "課題 57 の検索修正用のブランチを作って、切り替えて。",
        f"{_BRANCH} '^57-'",
        "課題番号",
        files={"search.py": "def search(word):\n    return []\n"},
    ),
    Task(
        "表",
        "ja",
        "correction",
        (
            "一覧は CSV で書き出します。",
            "変更があります。一覧は CSV ではなく TSV で書き出すことになりました。",
        ),
        "names.txt の名前の一覧を、番号を付けて書き出して。",
        "ls *.tsv",
        "TSV",
        against="ls *.csv 2>&1 | grep -qv 'No such file'",
        files={"names.txt": "佐藤\n鈴木\n高橋\n"},
    ),
)
