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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
WITHHELD = re.compile(r"OURO_CI_|GITHUB_TOKEN$|GH_TOKEN$|ACTIONS_|INPUT_")
"""Variables that ouro does not get: tokens of the runner."""
IS_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)


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
    own = {name: value for name, value in environ.items() if not WITHHELD.match(name)}
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
    sys.stderr.write(done.stderr)
    try:
        result: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise ActionError(
            f"ouro ended with exit code {done.returncode}: {done.stderr.strip()[-1000:]}"
        ) from error
    return result


def report(api: GitHub, order: Order, result: Mapping[str, Any], environ: Mapping[str, str]) -> int:
    """Post the answer and set the outputs of the step; returns the exit code."""
    answered = result["outcome"] == "answered"
    problem = (
        ""
        if answered
        else f"ouro did not finish its answer: {result['detail'] or result['outcome']}"
    )
    text = "\n\n".join(filter(None, (result["result"], problem)))
    for name, value in environ.items():  # whatever a prompt injection has made the model say
        if IS_SECRET.search(name) and len(value) >= 8:
            text = mask(text, value)
    text = disarm(text)
    cost = result["usage"]["cost"]
    write_outputs(text if answered else "", "" if cost is None else f"{cost:.4f}", environ)
    if environ.get("OURO_CI_COMMENT", "true") == "true":
        spent = f", ${cost:.2f}" if cost is not None else ""
        if len(text) > MAX_COMMENT:
            text = f"{text[:MAX_COMMENT]}\n\n[cut here: {len(text):,} characters in all]"
        post(api, order, f"{MARK}\n{text}\n\n<sub>ouro · {result['model']}{spent}</sub>")
    return 0 if answered else 1


def mask(text: str, value: str) -> str:
    """The text without a secret, also without its base64 form."""
    coded = base64.b64encode(value.encode()).decode().rstrip("=")
    safe = coded.replace("+", "-").replace("/", "_")
    for form in (value, coded, safe):
        text = text.replace(form, "***")
    return text


def disarm(text: str) -> str:
    """The text without what acts on GitHub: pictures load, mentions notify, `/` starts commands."""
    text = re.sub(r"!(?=\[)", r"!\\", text)
    text = re.sub(
        r"<(?=/?(?:img|picture|source|video|audio|iframe)\b)", "&lt;", text, flags=re.IGNORECASE
    )
    text = re.sub(r"(?<![\w`])@(?=[A-Za-z0-9])", "@\u200b", text)
    return re.sub(r"^([ \t]*)/", r"\1\\/", text, flags=re.MULTILINE)


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
