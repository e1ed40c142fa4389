"""The script of the action: reads the event, runs `ouro -p`, posts the answer. See docs/ci.md."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

OURO = (sys.executable, "-m", "ouro")
REVIEW = (
    "Review this pull request. The material is its description and its diff; the checkout may be"
    " that of another commit. Report what is wrong, with file and line, the most serious first:"
    " faults, missing tests, security. Do not repeat what the diff says, and do not praise. If"
    " nothing is wrong, say so in one sentence."
)
MARK = "<!-- ouro -->"
"""Begins each comment of ouro."""
MAX_MATERIAL = 200_000
"""Characters of a description and diff that are sent."""
MAX_COMMENT = 60_000
"""Characters; GitHub takes 65,536."""
API_TIMEOUT = 30
RUN_TIMEOUT = 3000
WRITERS = {"admin", "maintain", "write"}
PROVIDERS = Path(__file__).parents[3] / "ouro/llm/providers.json"
OF_SYSTEM = frozenset(
    "PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TERM TMPDIR TEMP TMP SYSTEMROOT"
    " XDG_CONFIG_HOME XDG_CACHE_HOME XDG_DATA_HOME XDG_STATE_HOME OURO_HOME CI GITHUB_ACTIONS"
    " SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY"
    " VIRTUAL_ENV LD_LIBRARY_PATH DYLD_LIBRARY_PATH JAVA_HOME GOPATH GOROOT CARGO_HOME RUSTUP_HOME"
    " NVM_DIR NODE_PATH RUNNER_TEMP RUNNER_OS".split()
)
"""Variables that a program needs; proxies are written in small letters too."""
OF_CLOUDS = frozenset(
    "AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_REGION AWS_DEFAULT_REGION"
    " AWS_PROFILE AWS_ROLE_ARN AWS_WEB_IDENTITY_TOKEN_FILE AWS_BEARER_TOKEN_BEDROCK"
    " GOOGLE_APPLICATION_CREDENTIALS GOOGLE_CLOUD_PROJECT GOOGLE_CLOUD_LOCATION VERTEXAI_PROJECT"
    " VERTEXAI_LOCATION VERTEX_PROJECT VERTEX_LOCATION AZURE_API_KEY AZURE_API_BASE"
    " AZURE_API_VERSION AZURE_AD_TOKEN AZURE_OPENAI_API_KEY AZURE_OPENAI_ENDPOINT HF_TOKEN"
    " WATSONX_APIKEY WATSONX_URL WATSONX_PROJECT_ID WATSONX_TOKEN DATABRICKS_TOKEN"
    " DATABRICKS_HOST REPLICATE_API_TOKEN PERPLEXITYAI_API_KEY CO_API_KEY ARK_API_KEY"
    " CLOUDFLARE_API_KEY CLOUDFLARE_ACCOUNT_ID GIGACHAT_CREDENTIALS".split()
)
"""Variables of models that litellm reaches, besides `PROVIDER_API_KEY` and `PROVIDER_API_BASE`."""
IS_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH(?!OR)|COOKIE|DSN|_PAT\b|JWT|WEBHOOK",
    re.IGNORECASE,
)
LOADING = (
    "img|image|picture|source|video|audio|track|iframe|frame|svg|object|embed|input|link|style|base"
)
"""HTML elements that load something."""
BREAKS = "\r\v\f\x1c-\x1e\x85\u2028\u2029"
"""Characters that some programs read as the end of a line."""
MIN_SECRET = 8
"""Characters; a shorter one would mask words of the text."""


class ActionError(Exception):
    """The action cannot continue; the message says why and what to do."""


@dataclass(frozen=True)
class Order:
    """A prompt, its author, and the pull request or issue."""

    prompt: str
    author: str
    number: int
    is_pull_request: bool
    is_reply: bool
    """Answers a comment, with a new comment each time."""


class GitHub:
    """The REST API of one repository."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._base = f"{environ.get('GITHUB_API_URL', 'https://api.github.com')}/repos/{environ['GITHUB_REPOSITORY']}"
        self._token = environ.get("OURO_CI_TOKEN", "")

    def get(self, path: str) -> Any:
        return json.loads(self._call("GET", path))

    def diff(self, number: int) -> str:
        return self._call("GET", f"/pulls/{number}", accept="application/vnd.github.diff").decode(
            errors="replace"
        )

    def send(self, method: str, path: str, body: Mapping[str, Any]) -> None:
        self._call(method, path, json.dumps(body).encode())

    def _call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        accept: str = "application/vnd.github+json",
    ) -> bytes:
        request = urllib.request.Request(f"{self._base}{path}", body, method=method)  # noqa: S310 (https, or the test's)
        request.add_header("Accept", accept)
        request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=API_TIMEOUT) as answer:  # noqa: S310
                data: bytes = answer.read()
                return data
        except urllib.error.HTTPError as error:
            hint = (
                " Does the job have `permissions: pull-requests: write, issues: write`?"
                if error.code == 403
                else ""
            )
            raise ActionError(
                f"GitHub refused {method} {path}: {error.code} {error.reason}.{hint}"
            ) from error
        except OSError as error:
            raise ActionError(f"GitHub cannot be reached: {error}.") from error


def main(environ: Mapping[str, str]) -> int:
    """Run the action; returns the exit code of the step."""
    try:
        event = json.loads(Path(environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
        order = order_of(event, environ)
        if order is None:
            return skip("nothing to answer in this event")
        api = GitHub(environ)
        if environ.get("OURO_CI_AUTHORS", "write") != "anyone" and not may_write(
            api, order.author, event
        ):
            return skip(f"{order.author} may not write to this repository (input `authors`)")
        result = run_ouro(order, material_of(api, order, event), environ)
        return report(api, order, result, environ)
    except ActionError as error:
        print(f"::error::{one_line(str(error))}")  # noqa: T201
        return 1


def order_of(event: Mapping[str, Any], environ: Mapping[str, str]) -> Order | None:
    """The order in an event; None if there is none."""
    prompt, trigger = environ.get("OURO_CI_PROMPT", ""), environ.get("OURO_CI_TRIGGER") or "/ouro"
    if comment := event.get("comment"):
        words = str(comment.get("body") or "").strip()
        issue = event.get("issue") or event.get("pull_request") or {}
        if event.get("action") != "created" or not re.match(rf"{re.escape(trigger)}(\s|\Z)", words):
            return None
        is_pull_request = "pull_request" in event or "pull_request" in issue
        asked = (
            words.removeprefix(trigger).strip()
            or prompt
            or (REVIEW if is_pull_request else "Answer this issue.")
        )
        return Order(asked, comment["user"]["login"], int(issue["number"]), is_pull_request, True)
    if pull := event.get("pull_request"):
        return Order(prompt or REVIEW, pull["user"]["login"], int(pull["number"]), True, False)
    return None


def may_write(api: GitHub, author: str, event: Mapping[str, Any]) -> bool:
    """Whether the author may write to the repository. A bot may not: anyone could prompt it."""
    asking = event.get("comment") or event["pull_request"]
    if asking["user"].get("type") == "Bot":
        return False
    if not re.fullmatch(r"[A-Za-z0-9-]+", author):
        return False
    found = api.get(f"/collaborators/{author}/permission")
    return found.get("permission") in WRITERS or found.get("role_name") in WRITERS


def material_of(api: GitHub, order: Order, event: Mapping[str, Any]) -> str:
    """Title, description and diff: text of others, for the standard input of ouro."""
    about = event.get("issue") or event.get("pull_request") or {}
    text = f"# {about.get('title') or ''}\n\n{about.get('body') or ''}\n"
    if order.is_pull_request:
        text += f"\n```diff\n{api.diff(order.number)}\n```\n"
    if len(text) > MAX_MATERIAL:
        text = f"{text[:MAX_MATERIAL]}\n[cut here: {len(text):,} characters in all]\n"
    return text


def run_ouro(order: Order, material: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """The result of `ouro -p`, as docs/headless.md describes it."""
    mode = environ.get("OURO_CI_MODE") or "plan"
    # With `=`: a comment that begins with a hyphen is a prompt, not a flag.
    line = [*OURO, f"--print={order.prompt}", "--output=json", f"--mode={mode}"]
    line += [
        "--no-trust",
        "--ephemeral",
        "--no-memory",
    ]  # anyone may have written the instructions in the checkout
    for flag, name in (
        ("--max-cost", "MAX_COST"),
        ("--max-turns", "MAX_TURNS"),
        ("--model", "MODEL"),
    ):
        if value := environ.get(f"OURO_CI_{name}"):
            line.append(f"{flag}={value}")
    line += [
        f"--allow={rule.strip()}"
        for rule in environ.get("OURO_CI_ALLOW", "").splitlines()
        if rule.strip()
    ]
    own = variables_for_ouro(environ)
    folder = environ.get("GITHUB_WORKSPACE", ".")
    try:
        done = subprocess.run(
            line,
            input=material,
            capture_output=True,
            text=True,
            env=own,
            cwd=folder,
            timeout=RUN_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ActionError(f"ouro was stopped after {RUN_TIMEOUT} seconds.") from error
    # The runner obeys lines that begin so.
    log = mask(done.stderr, secrets_of(environ))
    sys.stderr.write(re.sub(r"^(\s*)(::|##\[)", r"\1> \2", log, flags=re.MULTILINE))
    try:
        result: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise ActionError(
            f"ouro ended with exit code {done.returncode}: {done.stderr.strip()[-1000:]}"
        ) from error
    return result


def variables_for_ouro(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of the system and of models. A step has others: tokens of the runner, keys of a
    deployment. A text that misleads the model could send what it reads there.
    """
    named = set(re.findall(r"\w+", environ.get("OURO_CI_VARIABLES", "")))
    named -= {name for name in named if name.startswith("OURO_CI_")}
    passed = OF_SYSTEM | OF_CLOUDS | variables_of_models(environ) | named
    return {
        name: value
        for name, value in environ.items()
        if name in passed
        or name.upper() in OF_SYSTEM
        or (name.startswith(("LC_", "OURO_")) and not name.startswith("OURO_CI_"))
    }


def variables_of_models(environ: Mapping[str, str]) -> set[str]:
    """The names of keys and addresses: of all providers that ouro knows, and in its models.yaml."""
    found = set(re.findall(r'"([A-Z][A-Z0-9]*_[A-Z0-9_]+)"', PROVIDERS.read_text(encoding="utf-8")))
    names = PROVIDERS.with_name("litellm_providers.txt").read_text(encoding="utf-8").split()
    for name in names:
        prefix = re.sub(r"\W", "_", name).upper()
        found |= {f"{prefix}_API_KEY", f"{prefix}_API_BASE"}
    home = environ.get("OURO_HOME") or f"{environ.get('HOME', '')}/.ouro"
    with suppress(OSError, UnicodeDecodeError):
        own = Path(home, "models.yaml").read_text(encoding="utf-8")
        found |= set(re.findall(r"api_key_env:\W*(\w+)", own))
    return found


def report(api: GitHub, order: Order, result: Mapping[str, Any], environ: Mapping[str, str]) -> int:
    """Post the answer and set the outputs of the step; returns the exit code."""
    answered = result["outcome"] == "answered"
    problem = (
        ""
        if answered
        else f"ouro did not finish its answer: {result['detail'] or result['outcome']}"
    )
    text = "\n\n".join(filter(None, (result["result"], problem)))
    # Whatever a prompt injection has made the model say.
    text = disarm(mask(text, secrets_of(environ)))
    cost = result["usage"]["cost"]
    write_outputs(text if answered else "", "" if cost is None else f"{cost:.4f}", environ)
    if environ.get("OURO_CI_COMMENT", "true") == "true":
        spent = f", ${cost:.2f}" if cost is not None else ""
        if len(text) > MAX_COMMENT:
            text = f"{text[:MAX_COMMENT]}\n\n[cut here: {len(text):,} characters in all]"
        post(api, order, f"{MARK}\n{text}\n\n<sub>ouro · {result['model']}{spent}</sub>")
    return 0 if answered else 1


def secrets_of(environ: Mapping[str, str]) -> list[str]:
    """The values of variables that look like keys, the longest first: one may contain another. Of a
    value with many lines, such as a certificate, each line is one.
    """
    values = [value for name, value in environ.items() if IS_SECRET.search(name)]
    found = {line.strip() for value in values for line in (value, *value.splitlines())}
    return sorted((value for value in found if len(value) >= MIN_SECRET), key=len, reverse=True)


def mask(text: str, values: Iterable[str]) -> str:
    """The text without secrets, also without their base64, hexadecimal and URL forms, and if it is
    broken into lines.
    """
    for value in values:
        for form in forms_of(value):
            text = re.sub(r"\s*".join(map(re.escape, form)), "***", text)
    return text


def forms_of(value: str) -> list[str]:
    """How a secret can be written, the longest first.

    In the base64 of longer data its first and last characters mix with their neighbours, and its
    place in the data decides which of three forms it has. What does not depend on the neighbours is
    masked.
    """
    data = value.encode(errors="surrogateescape")
    whole = base64.b64encode(data).decode().rstrip("=")
    forms = {value, quote(value, safe="", errors="replace"), data.hex(), data.hex().upper(), whole}
    for before in range(3):
        coded = base64.b64encode(bytes(before) + data).decode()
        start, end = -(-8 * before // 6), 8 * (before + len(data)) // 6
        forms.add(coded[start:end])
    forms |= {form.replace("+", "-").replace("/", "_") for form in forms - {value}}
    return sorted((form for form in forms if len(form) >= MIN_SECRET), key=len, reverse=True)


def disarm(text: str) -> str:
    """The text without what acts on GitHub: pictures load, mentions notify, `/` starts commands."""
    text = re.sub(r"!(?=\[)", r"!\\", text)
    text = re.sub(rf"<(?=/?(?:{LOADING})\b)", "&lt;", text, flags=re.IGNORECASE)
    # Also in code: a span that is not closed is none. GitHub reads mentions after entities.
    text = re.sub(r"&(?:#0*64|#x0*40|commat);?", "@", text, flags=re.IGNORECASE)
    text = re.sub(r"(?<![A-Za-z0-9])@(?=[A-Za-z0-9])", "@\u200b", text)
    return re.sub(rf"(^|[{BREAKS}])([ \t>*+-]*)/", r"\1\2\\/", text, flags=re.MULTILINE)


def post(api: GitHub, order: Order, body: str) -> None:
    """Post a new comment; a review replaces the previous one."""
    if not order.is_reply:
        for comment in api.get(f"/issues/{order.number}/comments?per_page=100"):
            if comment["user"].get("type") == "Bot" and str(comment.get("body")).startswith(MARK):
                api.send("PATCH", f"/issues/comments/{comment['id']}", {"body": body})
                return
    api.send("POST", f"/issues/{order.number}/comments", {"body": body})


def write_outputs(answer: str, cost: str, environ: Mapping[str, str]) -> None:
    end = f"end-{secrets.token_hex(16)}"  # a text that contains it could set other outputs
    if output := environ.get("GITHUB_OUTPUT"):
        with Path(output).open("a", encoding="utf-8") as file:
            file.write(f"answer<<{end}\n{answer}\n{end}\ncost={cost}\n")
    if summary := environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(f"{answer}\n")


def skip(why: str) -> int:
    print(f"::notice::ouro did nothing: {one_line(why)}")  # noqa: T201
    return 0


def one_line(text: str) -> str:
    """On one line, so that it cannot contain a command for the runner."""
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main(os.environ))
