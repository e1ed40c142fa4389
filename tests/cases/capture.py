"""Messages, each with its part that should become a note, and pairs of statements. Written before
tuning.

The rules are tuned on `WORK`; `HELD_OUT` only measures them.
"""

from typing import NamedTuple


class Case(NamedTuple):
    said: str
    kept: str = ""
    """The part that should become a note; empty: none."""
    calls: tuple[dict[str, object], ...] = ()
    """The arguments of the tool calls of the turn."""


def edit(path: str, old: str, new: str) -> dict[str, object]:
    return {"path": path, "edits": [{"old_text": old, "new_text": new}]}


def write(path: str, content: str) -> dict[str, object]:
    return {"path": path, "content": content}


def run(command: str) -> dict[str, object]:
    return {"command": command}


def moment(said: str, *calls: dict[str, object]) -> Case:
    return Case(said, "", calls)


def lasts(said: str, *calls: dict[str, object], kept: str = "") -> Case:
    return Case(said, kept or said, calls)


_CASES = (
    # valid only for the current task
    moment("Use the edit tool to make it return a + b.", edit("util.py", "return a - b", "return a + b")),
    moment("add returns a - b, it should add.", edit("util.py", "    return a - b", "    return a + b")),
    moment("The total is off by one cent.", edit("basket.py", "total = sum(prices)", "total = round(sum(prices))")),
    moment("The button does nothing when I click on it.", edit("app.js", "button.onclik", "button.onclick")),
    moment("The new endpoint returns 404 for unknown ids.",
           write("api.py", 'def endpoint(id):\n    """New endpoint: returns 404 for unknown ids."""\n')),
    moment("The flag is called --dry-run.", edit("cli.py", "parser = P()", 'parser.add_argument("--dry-run")  # flag')),
    moment("Use a dict instead.", edit("cache.py", "items = []", "items = {}")),
    moment("Call the variable total_price.", edit("basket.py", "p = 0", "total_price = 0")),
    moment("The loop has to start at 1.", edit("a.py", "for i in range(0, n)", "for i in range(1, n)")),
    moment("Drop the second parameter of load().", edit("load.py", "def load(a, b):", "def load(a):")),
    moment("You can take the code of parse_date for it.", edit("dates.py", "pass", "return parse_date(text)")),
    moment("That file is not needed any more.", run("git rm old.py")),
    moment("The second column is cut off.", edit("table.css", "width: 10px", "width: auto")),
    moment("The function should take a list and return the median.",
           write("stats.py", "def median(numbers: list):\n    return sorted(numbers)[len(numbers) // 2]\n")),
    moment("I'd like to see the diff first.", run("git diff")),
    moment("I want the function to return None for empty input.", edit("a.py", "return x", "return None")),
    moment("The stack trace is below."),
    moment("I ran it twice and got the same result."),
    moment("We need a test for the empty case, too.", edit("test_a.py", "", "def test_empty_case():\n    ...")),
    moment("Both tests pass here."),
    moment("Leave the old function in place.", edit("a.py", "def new", "def old_function")),
    moment("Wrap the call in a try block.", edit("a.py", "call()", "try:\n    call()")),
    moment("The import of os is unused.", edit("a.py", "import os\n", "")),
    moment("Line 40 misses a bracket.", edit("a.py", "f(x", "f(x)")),
    moment("Option two sounds better."),
    moment("The name should be shorter.", edit("a.py", "def compute_the_sum", "def total")),
    moment("Do the same for orders.py.", edit("orders.py", "x", "y")),
    moment("Begin with the smallest file.", run("ls -lS")),
    moment("I will look at the rest tomorrow."),
    moment("My terminal just froze."),
    moment("The server is running in another window."),
    moment("Sort the list by date, newest first.", edit("a.py", "sort(rows)", "sorted(rows, key=date, reverse=True)")),
    moment("The column is called created_at, not created.", edit("q.sql", "select created", "select created_at")),
    moment("No, keep the old name.", edit("a.py", "new_name", "old_name")),
    moment("No, I meant the other file.", edit("b.py", "x", "y")),
    moment("The config key is max_retries and its default is 3.",
           edit("config.py", "KEYS = {}", 'KEYS = {"max_retries": 3}  # default of the config key')),
    moment("Raise a ValueError when the amount is negative.",
           edit("a.py", "pay(amount)", 'if amount < 0:\n    raise ValueError("negative amount")')),
    moment("Split it into two functions.", edit("a.py", "def f", "def g")),
    moment("The error comes from line 12 of app.py.", edit("app.py", "a", "b")),
    moment("There should be a space after the colon.", edit("a.py", ":x", ": x")),
    moment("The test expects 3 but gets 4.", edit("test_a.py", "== 3", "== 4")),
    moment("Take the version from package.json.", edit("build.js", "'1.0'", "require('./package.json').version")),
    moment("We are almost done."),
    moment("I pushed the branch."),
    moment("Only the last paragraph needs work.", edit("README.md", "Old paragraph", "New paragraph")),
    moment("Extract the SQL into a constant.", edit("db.py", 'run("select 1")', 'SQL = "select 1"')),
    moment("Mach die Überschrift kürzer.", edit("index.md", "# Die lange Überschrift", "# Kurz")),
    moment("Die Funktion soll None zurückgeben.", edit("a.py", "return 0", "return None  # Funktion")),
    moment("Hide the sidebar when the window is narrow.",
           edit("s.css", "", "/* narrow window */ .sidebar { display: none }")),
    moment("The parser chokes on an empty line.", edit("parser.py", "for line in text", "if not line: continue")),
    moment("Two of the links in the footer are dead.", edit("footer.html", 'href="/x"', 'href="/y"')),
    moment("The migration has to drop the column legacy_id.",
           write("m/004.sql", "-- migration\nalter table users drop column legacy_id;\n")),
    # worth a note
    lasts("I prefer early returns over nested ifs.", edit("a.py", "if x:", "if not x:\n    return")),
    lasts("Write commit messages in the imperative.", run('git commit -m "Add the parser"')),
    lasts("We deploy from the release branch only."),
    lasts("Ask Marta before you change the billing schema."),
    lasts("Jonas left the company, Aylin owns the importer now."),
    lasts("The demo for the customer is on 12 March."),
    lasts("The API freeze starts on 7 December."),
    lasts("Production runs in eu-central-1."),
    lasts("The staging database is db-stg-2.internal."),
    lasts("No, tests go into tests/unit, not next to the code.", run("git mv src/a_test.py tests/unit/test_a.py"),
          kept="Tests go into tests/unit, not next to the code."),
    lasts("We decided to drop Windows support because nobody uses it.", edit("ci.yaml", "windows-latest", "")),
    lasts("Money is stored in cents.", edit("a.py", "price: float", "price: int")),
    lasts("I'm on a Mac with an M2."),
    lasts("I'm new to Rust, so explain lifetimes when they matter."),
    lasts("Use British spelling in all texts.", edit("a.md", "color", "colour")),
    lasts("Keep functions under 40 lines.", edit("a.py", "def f", "def g")),
    lasts("Errors are logged with structlog.", edit("a.py", "print(error)", "log.error('failed')")),
    lasts("The nightly job runs at 02:00 UTC."),
    lasts("Our on-call rotation changes every Tuesday."),
    lasts("Customers in Brazil pay with Pix."),
    lasts("Please never touch the vendor folder."),
    lasts("Don't add new dependencies without asking me.", edit("a.toml", 'deps = ["left-pad"]', "deps = []")),
    lasts("The linter must pass before each commit."),
    lasts("Feature branches start with the ticket number."),
    lasts("We picked Svelte over React since the bundle has to stay small."),
    lasts("The mobile team needs the v2 API until June."),
    lasts("Responses of the public API are camelCase.", edit("api.py", '"user_name"', '"userName"')),
    lasts("Don't mock the database in tests.", edit("test_db.py", "Mock()", "connect()")),
    lasts("Sentry is at sentry.example.com, project shop-web."),
    lasts("New files are under the MIT license.", write("b.py", "# SPDX-License-Identifier: MIT\n")),
    lasts("My manager is Ruth."),
    lasts("I work from Vienna, so times I name are CET."),
    lasts("Migrations have to be reversible.", write("m/005.py", "def up(): ...\ndef down(): ...\n")),
    lasts("We pin all dependencies to exact versions.", edit("r.txt", "flask", "flask==3.0.1")),
    lasts("That is wrong, the VAT in Switzerland is 8.1 percent.", edit("vat.py", '"CH": 7.7', '"CH": 8.1'),
          kept="The VAT in Switzerland is 8.1 percent."),
    lasts("Wrong: invoices are numbered per year.", kept="Invoices are numbered per year."),
    lasts("Write docstrings in the Google style.", edit("a.py", "def f():", 'def f():\n    """Args: none."""')),
    lasts("Show me the plan before you edit anything."),
    lasts("Run `make check` before each commit.", run("make check")),
    lasts("Put shared helpers into libs/common.", write("libs/common/dates.py", "def today(): ...\n")),
    lasts("The backup bucket is s3://acme-backup."),
    lasts("The test account is demo@example.com."),
    lasts("Fixes for the old version go to the branch 1.x.", run("git switch 1.x")),
    lasts("The audit is in February, until then every change needs a ticket."),
    lasts("Chrome 90 is the oldest browser we have to support."),
    lasts("We stopped using Lombok last year."),
    lasts("Kim reviews everything in infra/.", edit("infra/main.tf", "a", "b")),
    lasts("Ich mag kurze Antworten."),
    lasts("Die Tests brauchen eine laufende Datenbank."),
    lasts("Wir deployen nie am Freitag."),
    # both in one message
    lasts("Add a gift text to the order. Business logic lives in app/interactions, controllers stay thin.",
          write("app/interactions/add_gift_text.rb", "class AddGiftText\nend\n"),
          kept="Business logic lives in app/interactions, controllers stay thin."),
    lasts("Rename it to total. Amounts are named after their currency.", edit("a.py", "x = 0", "total_eur = 0"),
          kept="Amounts are named after their currency."),
)  # fmt: skip
WORK, HELD_OUT = _CASES[::2], _CASES[1::2]

_REPLACES = (
    ("The staging server is stg-1.internal", "The staging server is stg-2.internal now"),
    ("Releases are on Tuesdays", "Releases are on Thursdays from now on"),
    ("We format with yapf", "We format with ruff now"),
    ("Reviews need two people", "Reviews need one person now"),
    ("Priya owns billing", "Billing belongs to Tom now"),
    ("The API freeze is on 3 May", "The API freeze moved to 10 May"),
    ("The audit is due in June", "No, the audit is due in July"),
    ("Tests live next to the code", "Tests live in tests/ now"),
    ("I use vim", "I switched from vim to Helix"),
    ("Errors are returned as strings", "Errors are returned as codes now"),
    ("Always squash commits", "Please stop squashing commits"),
    ("The oldest supported Node is 16", "The oldest supported Node is 20 now"),
    ("We host on Heroku", "We moved from Heroku to Fly"),
    ("Answer in German", "Answer in English from now on"),
    ("The cache lives for ten minutes", "The cache lives for an hour now"),
    ("Lena is the product owner", "Mats is the product owner now"),
    ("Invoices are sent by post", "Invoices are sent by mail from now on"),
    ("The main branch is master", "The main branch is called main now"),
    ("Passwords are hashed with bcrypt", "Passwords are hashed with argon2 now"),
    ("The standup is at 9:30", "The standup is at 10 now"),
    ("Logs are kept for 30 days", "Logs are kept for 90 days now"),
    ("We support Firefox 90 and newer", "We no longer support Firefox 90"),
    ("Amounts are floats", "No, amounts are integers"),
    ("Deploys take ten minutes", "Deploys take two minutes now"),
    ("Docs are written in AsciiDoc", "Docs are written in Markdown now"),
    ("Never rebase shared branches", "It is fine to rebase shared branches now"),
    ("The worker runs on 4 cores", "The worker runs on 8 cores now"),
    ("The monorepo is built with Bazel", "Bazel is gone, the monorepo is built with Buck"),
    ("The token of the bot expires in March", "The token of the bot expires in September now"),
    ("Our team has four developers", "Our team has six developers now"),
)
_BESIDE = (
    ("Reviews need two people", "Reviews take two days now"),
    ("The API returns JSON", "The API speaks HTTP/2 now"),
    ("Releases are on Tuesdays", "Releases need a changelog from now on"),
    ("The worker runs on 4 cores", "The worker runs in Frankfurt now"),
    ("The staging server is in Frankfurt", "The staging server has 4 GB now"),
    ("Invoices are numbered per year", "Invoices have a QR code now"),
    ("Marta owns billing", "Marta works from Lisbon now"),
    ("The app supports iOS 15", "The app supports dark mode now"),
    ("We deploy from main", "We deploy at night now"),
    ("Tests run in parallel", "Tests run on Windows now"),
    ("Passwords are hashed with argon2", "Passwords have at least 12 characters now"),
    ("Logs are kept for 30 days", "Logs are sent to Loki now"),
    ("Our team has four developers", "Our team meets on Mondays now"),
    ("I use vim", "I use a standing desk now"),
    ("Docs are written in Markdown", "Docs are published on Fridays now"),
    ("Migrations run before the deploy", "Migrations run for ten minutes now"),
    ("The cache lives for ten minutes", "The cache lives in Redis now"),
    ("Priya owns billing", "Priya owns search now, too"),
    ("The frontend needs Node 22", "The frontend needs 4 GB to build now"),
    ("The nightly job deletes old sessions", "The nightly job sends a report now"),
    ("Customers pay with Pix", "Customers pay in advance now"),
    ("The linter is ruff", "The linter is strict now"),
    ("Branches start with the ticket number", "Branches are deleted after the merge from now on"),
    ("The CLI prints JSON", "The CLI reads config.toml now"),
    ("Errors are logged with structlog", "Errors are shown in German now"),
    ("Services talk gRPC", "Services start in any order now"),
    ("The parser accepts empty lines", "The parser prints warnings now"),
    ("The deadline for the audit is 3 May", "The deadline for the docs is 1 June now"),
    ("The public API is camelCase", "The public API is versioned now"),
    ("Amounts are integers", "Amounts are rounded up now"),
)
PAIRS = tuple((*pair, True) for pair in _REPLACES) + tuple((*pair, False) for pair in _BESIDE)
"""An entry of memory, a later message, and whether the message replaces the entry."""
PAIRS_WORK, PAIRS_HELD_OUT = PAIRS[::2], PAIRS[1::2]
