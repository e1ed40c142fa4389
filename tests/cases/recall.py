"""Notes of a user, messages of a session, and the notes that each message needs."""

NOTES = {
    "uv": "Packages are installed with uv, never with pip: the lock file must stay in step.",
    "pytest": (
        "Run the tests with `pytest -q -n 4`; the whole suite takes twelve minutes without -n."
    ),
    "imperative": (
        "Commit messages are in the imperative mood, at most 60 characters, with the ticket number"
        " in front."
    ),
    "locking": (
        "Optimistic locking with a retry for user updates, not row locks: row locks timed out under"
        " load."
    ),
    "german": "The person likes answers in German, code and comments in English.",
    "postgres": "The database is Postgres 16; SQLite is used only in unit tests.",
    "migrations": (
        "Migrations are written by hand in db/migrations, alembic's autogenerate dropped an index"
        " once."
    ),
    "staging": (
        "Deploy goes to staging first with `make deploy-staging`; production on Tuesdays, after the"
        " standup."
    ),
    "api": "src/api.py is generated from openapi.yaml: change the schema, never the file.",
    "tabs": "Indentation is four spaces, the Makefile alone has tabs.",
    "types": "New functions carry type annotations; mypy runs in strict mode.",
    "retry": "HTTP calls to the billing provider are retried three times with exponential backoff.",
    "celery": (
        "Background jobs run in Celery with Redis as the broker; RabbitMQ was dropped in 2025."
    ),
    "logging": "Logs are structured JSON through structlog; print is forbidden outside of scripts.",
    "money": (
        "Amounts of money are integers in cents, never floats: rounding errors cost us an audit."
    ),
    "timezone": "All timestamps are stored in UTC and shown in the customer's time zone.",
    "frontend": "The frontend is Svelte 5 with runes; React was removed last year.",
    "vim": "The person works in Neovim over ssh on a slow line and dislikes long outputs.",
    "review": (
        "Pull requests need one review by Dana or Tomás, and a screenshot where the interface"
        " changes."
    ),
    "ci": "The CI runs on GitHub Actions; the job `nightly` also runs the benchmarks.",
    "flaky": "test_websocket_reconnect is flaky on macOS: rerun it before you look for a cause.",
    "secrets": (
        "Credentials come from Vault through `vault kv get`; there is no .env file in the"
        " repository."
    ),
    "cache": "The product catalogue is cached for five minutes in Redis under the prefix cat:v2.",
    "names": (
        "Class names are nouns, event handlers begin with on_, private helpers with an underscore."
    ),
    "docs": "Documentation lives in docs/ as MyST Markdown and is built with Sphinx.",
    "license": "New source files begin with the SPDX header for Apache-2.0.",
    "pagination": (
        "Lists of the REST API are paginated by cursor; offsets were too slow beyond 100,000 rows."
    ),
    "rust": (
        "The hot path of the parser is a Rust extension in crates/fastparse, built with maturin."
    ),
    "kaffee": "Rechnungen werden nur auf Deutsch verschickt und müssen die Steuernummer enthalten.",
    "pandas": (
        "The reports use polars instead of pandas, since memory ran out at twenty million rows."
    ),
}

LONG_PASTE = (
    "Traceback (most recent call last):\n"
    + "".join(
        f'  File "/srv/app/handlers/module_{n}.py", line {n}, in handle\n    result ='
        " self.dispatch(event)\n"
        for n in range(30)
    )
    + "sqlalchemy.exc.OperationalError: canceling statement due to lock timeout\n\n"
    "while two people save the same user: should we take row locks for user updates here?"
)
CODE = """```python
from decimal import Decimal

def total(amounts: list[float]) -> float:
    return sum(amounts)  # money
```"""

WANTED = {
    "add requests as a dependency, which command installs packages here?": {"uv"},
    "please run the test suite": {"pytest"},
    "commit this with a good message": {"imperative"},
    LONG_PASTE: {"locking"},
    "which language should your answers to me be in?": {"german"},
    "can I use a jsonb column in the database, or is that not supported by Postgres here?": {
        "postgres"
    },
    "we need a migration that adds an index on orders.customer_id": {"migrations"},
    "deploy this to production": {"staging"},
    "in src/api.py the field `email` should be optional": {"api"},
    "why does the Makefile complain about a missing separator? tabs?": {"tabs"},
    "does mypy check this new function strictly?": {"types"},
    "calls to the billing provider fail now and then with a 503": {"retry"},
    "which broker do our background jobs use?": {"celery"},
    "there is a print in the importer, how should I log instead?": {"logging"},
    CODE + "\nis it right to keep amounts of money so?": {"money"},
    "the customer sees a wrong time zone on the invoice timestamps": {"timezone"},
    "write a small React component for the settings page of the frontend": {"frontend"},
    "the output was too long for my slow ssh line": {"vim"},
    "who has to review this pull request?": {"review"},
    "the nightly job in GitHub Actions is red": {"ci"},
    "test_websocket_reconnect fails on my mac": {"flaky"},
    "where do I get the credentials for the staging database from, is there a .env file?": {
        "secrets"
    },
    "the product catalogue shows old prices for some minutes": {"cache"},
    "how do we name event handlers?": {"names"},
    "build the documentation with sphinx": {"docs"},
    "I made new source files, which header with the license do they begin with?": {"license"},
    "the list endpoint of the REST API is slow on page 4000, offset pagination": {"pagination"},
    "how do I rebuild the Rust extension of the parser?": {"rust"},
    "Was muss auf den Rechnungen stehen, reicht die Adresse ohne Steuernummer?": {"kaffee"},
    "the report runs out of memory in pandas": {"pandas"},
}

EVERYDAY = (
    "yes",
    "go on",
    "thanks, that looks good",
    "no, the other one please",
    "what did you change?",
    "explain this function to me",
    "why does this fail?",
    "make it shorter",
    "undo that",
    "and now?",
    "continue with step 2",
    "hello, can you help me with something?",
    "show me the diff",
    "rename the variable x to width",
    "what does this error mean: KeyError: 'width'?",
    "refactor this loop into a comprehension",
    "how many lines does this file have?",
    "add a docstring",
    "sort the imports",
    "read README.md and tell me what this is about",
    "is there a simpler way to write this?",
    "please fix the typo in the heading",
    "move this into a helper of its own",
    "what is the difference between a list and a tuple?",
    "mach weiter, das sieht gut aus",
    "merci, continue comme ça",
    "def area(w, h):\n    return w * h\n\nwhat is wrong with it?",
    "stop, that is not what I meant",
    "look at the second file again and compare it with the first",
    "draw me an ASCII picture of a cat",
)
