"""Stories: what a user says in some sessions, and questions in a later one on which it bears, or
does not.

`VISIBLE` may be looked at while memory is changed. `HELD_OUT` was only measured, until it was read
in November 2026. `FRESH` was written then, of other fields; what most of it says stands in the
instructions of public repositories. It is only measured: do not tune anything on it.

`LATEST` was written later, of still other fields, by an author who had not read the code of memory.
Nothing is ever tuned on it: it is measured once.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Story:
    name: str
    said: tuple[str, ...]
    """One message for each session."""
    question: str
    wanted: str
    """A pattern in what is delivered with the question, and in an answer that applies it."""
    outdated: str = ""
    """A pattern that neither holds: what was corrected."""
    other: str = "Write a haiku about rain."
    """A question on which it does not bear."""
    place: str = "repo facts"
    """Scope and kind of the last statement: `preferences`, `decisions` or `facts`; several with
    `|`.
    """


_END = "Answer in one short line."


def _story(
    name: str,
    *said: str,
    ask: str,
    wanted: str,
    outdated: str = "",
    other: str = Story.other,
    place: str = Story.place,
) -> Story:
    return Story(name, said, f"{ask} {_END}", wanted, outdated, other, place)


VISIBLE = (
    _story(
        "tests",
        "The tests of this project run with `pytest -q -x`, never with tox.",
        ask="How do I run the tests here?",
        wanted="pytest -q -x",
    ),
    _story(
        "queue",
        "We use Redis for the job queue.",
        "We changed our mind: RabbitMQ replaces Redis for the job queue.",
        ask="Which job queue do we use now?",
        wanted="RabbitMQ",
        outdated="We use Redis",
        place="repo facts|repo decisions",
    ),
    _story(
        "basket",
        "No, that is wrong: the basket must never hold a negative price.",
        ask="May a price in the basket be negative?",
        wanted=r"(?i)never|\bno\b|must not|cannot",
        other="Sort the list.",
    ),
    _story(
        "name",
        "By the way, my name is Ada.",
        ask="What is my name?",
        wanted="Ada",
        place="user facts",
    ),
    _story(
        "sqlite",
        "We decided on SQLite for the shop because it must run offline. Now show me the README.",
        ask="Which database does the shop use, and why?",
        wanted="(?i)sqlite",
        place="repo decisions",
    ),
    _story(
        "port",
        "The staging server listens on port 8417.",
        ask="Which port does staging listen on?",
        wanted="8417",
    ),
    _story(
        "port changed",
        "The staging server listens on port 8417.",
        "No, the staging server listens on port 9020.",
        ask="Which port does staging listen on?",
        wanted="9020",
        outdated="8417",
    ),
    _story(
        "line length",
        "I prefer lines of at most 88 characters in Python.",
        ask="How long may a line of Python be for me?",
        wanted="88",
        other="thanks, that is all",
        place="user preferences",
    ),
    _story(
        "deploy",
        "We never deploy on Fridays.",
        ask="May I deploy on Friday?",
        wanted="(?i)never|no",
    ),
    _story(
        "owner",
        "Priya owns the billing service.",
        ask="Who owns the billing service?",
        wanted="Priya",
    ),
    _story(
        "retry",
        "Calls to the bank are retried three times.",
        "From now on calls to the bank are retried five times.",
        ask="How often are calls to the bank retried?",
        wanted="(?i)five|5",
        outdated="(?i)retried three",
    ),
    _story(
        "branch",
        "Our main branch is called trunk.",
        ask="What is the name of our main branch?",
        wanted="(?i)trunk",
    ),
    _story(
        "money",
        "Amounts of money are integers in cents, never floats.",
        ask="Which type has an amount of money here?",
        wanted="(?i)cents|integer",
    ),
    _story(
        "package",
        "This project uses uv, not pip.",
        ask="Which package manager does this project use?",
        wanted=r"\buv\b",
    ),
    _story(
        "node",
        "The frontend needs Node 22.",
        ask="Which Node version does the frontend need?",
        wanted="22",
    ),
    _story(
        "review",
        "Each pull request needs two reviews.",
        ask="How many reviews does a pull request need?",
        wanted="(?i)two|2",
    ),
    _story(
        "log",
        "We use structlog for logging instead of print.",
        ask="What do we use for logging?",
        wanted="(?i)structlog",
    ),
    _story(
        "cache",
        "The price cache lives for ten minutes.",
        ask="How long does the price cache live?",
        wanted="(?i)ten|10",
    ),
    _story(
        "two",
        "My editor is Helix. Please fix the typo in line 3.",
        ask="Which editor do I use?",
        wanted="(?i)helix",
        place="user facts",
    ),
    _story(
        "ci",
        "Our CI runs on Buildkite.",
        "Actually our CI runs on Drone now, not Buildkite.",
        ask="Where does our CI run?",
        wanted="Drone",
        outdated="runs on Buildkite",
    ),
)
HELD_OUT = (
    _story(
        "lint",
        "Linting is done with `ruff check --fix`.",
        ask="How do I lint this code?",
        wanted="ruff check",
    ),
    _story(
        "mail",
        "Mail is sent through Postmark.",
        "We moved mail from Postmark to Mailgun.",
        ask="Through which service is mail sent?",
        wanted="Mailgun",
        outdated="sent through Postmark",
        place="repo facts|repo decisions",
    ),
    _story(
        "dates",
        "Dates are always stored in UTC.",
        ask="In which time zone do we store dates?",
        wanted="UTC",
    ),
    _story(
        "city",
        "I live in Lisbon.",
        ask="In which city do I live?",
        wanted="Lisbon",
        place="user facts",
    ),
    _story(
        "secret store",
        "Secrets come from Vault and not from files.",
        ask="Where do secrets come from?",
        wanted="Vault",
    ),
    _story(
        "limit",
        "The upload limit is 20 MB.",
        "The upload limit is 50 MB now.",
        ask="What is the upload limit?",
        wanted="50",
        outdated="20 MB",
    ),
    _story(
        "indent",
        "I like tabs better than spaces.",
        ask="Do I like tabs or spaces better?",
        wanted="(?i)tabs",
        place="user preferences",
    ),
    _story(
        "proto",
        "Services talk gRPC to each other, because JSON was too slow.",
        ask="Which protocol do services talk to each other?",
        wanted="gRPC",
        place="repo facts|repo decisions",
    ),
    _story("oncall", "Marta is on call this month.", ask="Who is on call?", wanted="Marta"),
    _story(
        "license",
        "The code is under the Apache license.",
        ask="Under which license is the code?",
        wanted="Apache",
    ),
    _story(
        "shell",
        "My shell is fish.",
        ask="Which shell do I use?",
        wanted="(?i)fish",
        place="user facts",
    ),
    _story(
        "migrate",
        "Migrations are written by hand; Alembic's autogenerate is not used.",
        ask="Are migrations written by hand or autogenerated?",
        wanted="(?i)by hand",
    ),
    _story(
        "wrong",
        "That is wrong. The parser must accept empty lines.",
        ask="Must the parser accept empty lines?",
        wanted="(?i)accept|yes",
    ),
    _story(
        "python",
        "We support Python 3.10 and newer.",
        "We no longer support Python 3.10; the oldest is 3.12.",
        ask="What is the oldest Python that we support?",
        wanted="3\\.12",
        outdated="3.10 and newer",
    ),
    _story(
        "docs",
        "Docs are built with mkdocs build --strict.",
        ask="How are the docs built?",
        wanted="mkdocs",
    ),
    _story(
        "team",
        "Our team has four developers.",
        ask="How many developers has our team?",
        wanted="(?i)four|4",
    ),
    _story(
        "feature",
        "Feature flags are kept in LaunchDarkly.",
        ask="Where are feature flags kept?",
        wanted="LaunchDarkly",
    ),
    _story(
        "editor",
        "I use a screen reader, so keep tables short.",
        ask="Do I use a screen reader?",
        wanted="(?i)screen reader|yes",
        place="user facts|user preferences",
    ),
    _story(
        "release",
        "Releases are cut on Mondays.",
        "No, releases are cut on Wednesdays.",
        ask="On which day are releases cut?",
        wanted="Wednesday",
        outdated="on Mondays",
    ),
    _story(
        "host", "Production runs at Hetzner.", ask="Where does production run?", wanted="Hetzner"
    ),
)
FRESH = (
    _story(
        "flash",
        "Never flash with `pio run -t upload` here, `./flash.sh` does it. Can you look at the CO2"
        " reading?",
        ask="How do I flash the board?",
        wanted=r"flash\.sh",
    ),
    _story(
        "gameplay",
        "Gameplay code is written in C#, GDScript is only for editor tools.",
        ask="In which language do I write a new enemy?",
        wanted="C#",
    ),
    _story(
        "renderer",
        "The renderer is Forward Plus.",
        "Forward Plus was too slow on the Deck, so we went over to the Mobile renderer.",
        ask="Which renderer do we use?",
        wanted="Mobile",
        outdated="renderer is Forward Plus",
        place="repo facts|repo decisions",
    ),
    _story(
        "variables",
        "All paths of the pipeline are declared in common.smk, so there is one place to look.",
        ask="Where do I declare the path of a new reference genome?",
        wanted="common.smk",
    ),
    _story(
        "brief",
        "When I ask a question I want a short answer without code.",
        ask="Do I want code in the answer to a question?",
        wanted=r"(?i)\bno\b|without|n't",
        place="user preferences",
    ),
    _story(
        "compatible",
        "Nobody but me uses this pipeline yet, so backward compatibility does not matter.",
        ask="Must the pipeline stay backward compatible?",
        wanted=r"(?i)\bno\b|not|n't",
    ),
    _story(
        "save version",
        "The save version goes up whenever World.CHUNK_SIZE changes.",
        ask="I changed World.CHUNK_SIZE. What else has to change?",
        wanted="(?i)save version",
    ),
    _story(
        "sampling",
        "The ECG is sampled at 250 Hz.",
        "The cardiologists asked for more, the ECG is sampled at 500 Hz now.",
        ask="At how many Hz is the ECG sampled?",
        wanted="500",
        outdated="250",
    ),
    _story(
        "colours",
        "I'm red-green colour-blind. The legend of this plot is hard for me.",
        ask="Which colours can I not tell apart?",
        wanted="(?i)red",
        place="user facts",
    ),
    _story(
        "tax tables",
        "The tax tables come from the CSV of the ministry.",
        "Correction: the tax tables come from the API of the ministry since January.",
        ask="Where do the tax tables come from?",
        wanted="API",
        outdated="CSV",
    ),
)
LATEST = (
    _story(
        "rails services",
        "Business logic lives in app/interactions, controllers and models stay thin. Add a gift"
        " text to the order.",
        ask="Where do I put the code that cancels a purchase and refunds the customer?",
        wanted="(?i)interactions",
        other="Explain in one line what a mutex is.",
    ),
    _story(
        "terraform rollout",
        "what does this plan output mean? and pls dont ever run terraform apply localy, it only"
        " happens thru Atlantis from the pull request",
        ask="The change of the bucket is reviewed. How do I roll it out?",
        wanted="(?i)atlantis",
        other='Convert this JSON to YAML: {"a": 1}',
    ),
    _story(
        "oldest phone",
        "The app supports iOS 15 and up.",
        "We dropped the old phones, the deployment target is iOS 17 from this release on. Please"
        " remove the availability checks that are no longer needed.",
        ask="What is the oldest system that our app has to run on?",
        wanted=r"(?i)\b(?:ios|version) ?17|^\W*17\b",
        outdated=r"(?i)\b(?:ios|version) ?15|^\W*15\b",
        place="repo facts|repo decisions",
    ),
    _story(
        "thesis",
        "Please shorten the abstract. I like one sentence per line in my .tex files, the diffs are"
        " readable then.",
        ask="Where do I want line breaks in the source of a new chapter?",
        wanted=(
            "(?i)(?:each|every|per) sentence|sentence (?:per|each|on|in each)|end of (?:a|the)"
            " sentence"
        ),
        other="Correct the grammar of this sentence: he go home.",
        place="user preferences",
    ),
    _story(
        "offsets",
        "We decided that consumers commit their offsets by hand after the batch is in Postgres,"
        " because auto-commit lost orders in March. Can you review OrderConsumer.java?",
        ask="When does the new payment listener tell Kafka that it is done with a message?",
        wanted=(
            r"(?i)postgres|(?:after|once|when) (?:the|its|each|a) (?:whole"
            r" )?batch|after.{0,40}\bdatabase"
        ),
        other="Write a regular expression for a phone number.",
        place="repo decisions",
    ),
    _story(
        "pipe",
        "The facet labels of this plot overlap. Also, I prefer the native pipe |> over %>% when you"
        " write R for me.",
        ask="How do I want filter() and mutate() chained?",
        wanted=r"\|>|(?i:native pipe)",
        place="user preferences",
    ),
    _story(
        "injection",
        "We use Hilt for dependency injection. Add a module for the camera.",
        "We ripped out Hilt last sprint, dependency injection is done with Koin now. Is"
        " AppModule.kt still needed?",
        ask="How does a new view model get its repository in this app?",
        wanted="(?i)koin",
        outdated=r"(?i)(?<!longer )(?<!not )(?<!n't )(?:use|with|through|via) Hilt|^\W*Hilt",
        place="repo facts|repo decisions",
    ),
    _story(
        "errors",
        "Add a --json flag to the list command. No unwrap() outside of tests in this crate: every"
        " failure becomes a variant of CliError in src/error.rs.",
        ask="The export command cannot open its config file. What does it return?",
        wanted="CliError",
        other="What is the capital of Peru?",
    ),
    _story(
        "theme styles",
        "make the footer sticky pls. the css in assets/dist is genrated so edit the files in"
        " src/scss and then run npm run build:theme",
        ask="The header needs another background colour. Which files do I change?",
        wanted="(?i)scss",
    ),
    _story(
        "operator types",
        "After any change in api/v1beta1 run `make codegen-all`, plain `make generate` leaves the"
        " webhooks out.",
        ask="I added a field to the spec of our custom resource. What do I run next?",
        wanted="codegen-all",
        other="How do I squash my last two commits?",
    ),
    _story(
        "robot",
        "The robot runs ROS 2 Humble.",
        "Why does this launch file not find the lidar node? The robot was reflashed, it runs ROS 2"
        " Jazzy now.",
        ask="For which distribution do I build the packages of the robot?",
        wanted="(?i)jazzy",
        outdated="(?i)humble",
    ),
    _story(
        "rounding",
        "We chose half-even rounding for invoices because the auditors insist on it. Where is the"
        " VAT computed?",
        ask="Which cents does a customer pay when the amount on the bill is exactly between two?",
        wanted=(
            r"(?i)half[- ]?(?:to[- ])?even|banker|(?:nearest|to(?: the)?) even|\beven"
            r" (?:cent|one|digit|number)"
        ),
        place="repo decisions",
    ),
    _story(
        "german",
        "Translate checkout.json to German please. Our German texts adress the customer with du,"
        " never with Sie.",
        ask="How formal is the app with a customer in Berlin?",
        wanted=r"(?i)\bdu\b|\binformal|\bcasual|\bnot (?:very )?formal",
        other="Count the letters in the word tree.",
    ),
    _story(
        "findings",
        "In accessibility reviews I want the number of the WCAG criterion behind each finding."
        " Start with login.html.",
        ask="You saw a button without a label. What do I expect next to that remark?",
        wanted="(?i)wcag",
        place="user preferences",
    ),
    _story(
        "bazel",
        "Always call Bazel through ./tools/bzl in this monorepo, the plain binary misses the remote"
        " cache.",
        ask="How do I run the tests of //payments/ledger?",
        wanted="tools/bzl",
        other="What does a lookup in a hash map cost?",
    ),
    _story(
        "workers",
        "Background jobs run on Exq.",
        "No, that is outdated. Exq is gone, background jobs are Oban workers in lib/depot/workers.",
        ask="A reminder has to go out tomorrow at noon. As what do I write it?",
        wanted="(?i)oban",
        outdated=r"(?i)(?:run on|use|using|with|as an?) Exq|^\W*Exq(?: job| worker|\W*$)",
        place="repo facts|repo decisions",
    ),
    _story(
        "mainframe",
        "We decided to leave the CICS screens on the mainframe until 2028, because the branches get"
        " no new terminals before. So port only the batch job INTCALC.",
        ask="When may I begin to move the terminal masks to Java?",
        wanted="2028",
        place="repo decisions",
    ),
    _story(
        "models",
        "Can you explain this incremental strategy? New models go to models/lakehouse,"
        " models/legacy is frozen.",
        ask="Where do I create the table of returns per customer?",
        wanted="(?i)lakehouse",
        other="Which folder does npm install packages to?",
    ),
    _story(
        "testbench",
        "The FIFO loses a word when it is full. I'd rather have testbenches in cocotb than in"
        " SystemVerilog.",
        ask="In what do I want a check of the UART written?",
        wanted="(?i)cocotb",
        place="user preferences",
    ),
    _story(
        "match size",
        "A match has at most 64 players.",
        "After the playtest we made matches smaller, a match has at most 48 players. Does the lobby"
        " still fit on the screen?",
        ask="How many slots does the server reserve when it opens a game?",
        wanted=r"(?<![:-])\b48\b(?!:)",
        outdated=r"\b64 (?:players|slots)|^\W*64\b",
        other="How many players are in a football team?",
        place="repo facts|repo decisions",
    ),
)
SETS = {"visible": VISIBLE, "held-out": HELD_OUT, "fresh": FRESH, "latest": LATEST}
