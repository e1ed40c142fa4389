"""K1, U1, U4: no key reaches the disk, and foreign text does not control the terminal."""

import base64
import subprocess
import time

import pytest
from fakes.model_server import Call, Reply, failure
from fakes.ouro_program import KEY, OuroProgram

from ouro.frontends.tui.first_frame_prompt import PASTE_GAP

IN_DOTENV = "ghp_" + "R4nd0mMadeUpT0kenForThisTestOnly12" + "ab"
PASTED = "sk-ant-api03-" + "MadeUpPastedKey0123456789-ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijk" + "-AA"
IN_ARGUMENTS = "AKIA" + "Q7MADEUP3TESTKE2"
IN_ENVIRONMENT = "correct-horse-0-battery-staple"


@pytest.fixture
def ouro_with_secrets(ouro):
    (ouro.folder / ".env").write_text(f"GITHUB_TOKEN={IN_DOTENV}\n")
    ouro.more = {"SERVICE_PASSWORD": IN_ENVIRONMENT, "OURO_DEBUG": "1"}
    return ouro


def written_files(ouro: OuroProgram) -> dict[str, bytes]:
    """All bytes below ouro's home, except models.yaml, into which the user wrote the key."""
    files = (path for path in ouro.home.rglob("*") if path.is_file() and path.name != "models.yaml")
    return {
        str(path.relative_to(ouro.home)): path.read_bytes()
        for path in files
        if path.suffix != ".vscdb"
    }


def hits(ouro: OuroProgram, secret: str) -> list[str]:
    forms = [secret.encode(), base64.b64encode(secret.encode())]
    return [
        name for name, data in written_files(ouro).items() if any(form in data for form in forms)
    ]


def test_k1_session_files_contain_no_key(ouro_with_secrets):
    ouro = ouro_with_secrets
    ouro.server.script(
        [
            Call("shell", {"command": "env; cat .env; seq 1 20000; cat .env"}),
            Call("read", {"path": ".env"}),
            Call(
                "shell",
                {
                    "command": (
                        f"echo AWS_ACCESS_KEY_ID={IN_ARGUMENTS} > aws; echo {KEY} | base64 -w0;"
                        f" echo {KEY}"
                    )
                },
            ),
            Reply(f"Your key is {KEY}, and {IN_ENVIRONMENT}.", thinking=f"I saw {KEY}"),
            failure(401, f"Incorrect API key provided: {KEY}", code="invalid_api_key"),
        ]
    )
    terminal = ouro.screen("--mode", "auto", "--debug")
    terminal.say(f"my key is {PASTED} and my other {KEY}")
    answered = False
    while not answered:
        terminal.until(lambda: terminal.shows("Allow?") or terminal.shows("Your key is"))
        answered = not terminal.shows("Allow?")
        if not answered:
            terminal.answer("y")
    terminal.say("again")
    terminal.until_shows("API key")
    terminal.say(f"/rename with {KEY}")
    terminal.leave()
    assert len(ouro.server.requests) == 5
    assert "session.yaml" in " ".join(written_files(ouro))
    found = {
        secret: hits(ouro, secret)
        for secret in (KEY, IN_ENVIRONMENT, IN_DOTENV, PASTED, IN_ARGUMENTS)
    }
    assert found == {KEY: [], IN_ENVIRONMENT: [], IN_DOTENV: [], PASTED: [], IN_ARGUMENTS: []}


def test_k1_commands_do_not_see_the_keys(ouro_with_secrets):
    ouro = ouro_with_secrets
    ouro.more = {**ouro.more, "ANTHROPIC_API_KEY": KEY}
    ouro.headless(
        "-p",
        "run: env; tr '\\0' '\\n' < /proc/self/environ",
        "--mode",
        "auto",
        "--allow",
        "shell(*)",
    )
    (result,) = ouro.server.requests[1].results
    assert "PATH=" in result
    assert KEY not in result
    assert IN_ENVIRONMENT not in result


HOSTILE = {
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;b3duZWQ=\x07",
    "link": "\x1b]8;;http://evil.invalid\x1b\\here\x1b]8;;\x1b\\",
    "device": "\x1bP$qm\x1b\\",
    "clear": "\x1b[2J\x1b[31;1mred",
    "c1": "\x9b31mred\x9d0;owned\x9c",
    "bidi": "a\u202eb\u2066c",
    "markup": "[@click=app.quit]press[/] [/x] [red",
}


def test_u1_external_text_does_not_control_the_terminal(ouro):
    text = " ".join(HOSTILE.values())
    name = "evil\x1b]0;owned\x07\u202e.txt"
    (ouro.folder / name).write_text(text)
    (ouro.folder / "out.txt").write_text(text)
    subprocess.run(
        ["git", "checkout", "-q", "-b", "evil\u202e\u2066branch"], cwd=ouro.folder, check=True
    )
    ouro.server.script(
        [
            Reply(
                f"Here: {text}",
                [Call("shell", {"command": "cat out.txt; ls"}), Call("glob", {"pattern": "*"})],
            ),
            Reply(
                f"# {text}\n\n```python\n{text}\n```\n\n| {text} |\n|---|\n| {text} |\n\nthe end"
            ),
            failure(400, f"refused {text}"),
        ]
    )
    terminal = ouro.screen("--mode", "auto")
    terminal.say("look")
    terminal.until(lambda: terminal.shows("the end") or terminal.shows("Allow?"))
    if terminal.shows("Allow?"):
        terminal.answer("y")
    terminal.until_shows("the end")
    terminal.say("again")
    terminal.until_shows("refused")
    terminal.say("/rename owned by [red")
    terminal.leave()
    again = ouro.screen("--resume", "latest")
    again.until_shows("the end")
    again.leave()
    plain = ouro.headless("sessions", "export", "latest")
    for raw in (terminal.raw, again.raw, plain.out.encode()):
        for sequence in (
            b"owned\x07",
            b"\x1b]52;c;b3du",
            b"\x1b]8;;http",
            b"\x1bP$q",
            b"\x1b[31;1m",
            b"\xc2\x9b",
            b"\xc2\x9d",
        ):
            assert sequence not in raw
        assert "\u202e".encode() not in raw
        assert "\u2066".encode() not in raw


def test_u4_a_paste_of_a_megabyte_is_folded_and_sent_whole(ouro):
    terminal = ouro.screen()
    pasted = "0123456789abcde\n" * 65_536
    terminal.send(f"\x1b[200~{pasted}\x1b[201~")
    terminal.until(lambda: terminal.shows("lines") or terminal.shows("characters"))
    assert not terminal.shows("0123456789abcde")
    terminal.send(" count it")
    terminal.until_shows("count it")
    time.sleep(4 * PASTE_GAP)  # then one Enter is enough: a second one would answer the question
    terminal.send("\r")
    terminal.until_shows("Send everything")
    terminal.press("2", lambda: bool(ouro.server.requests))
    assert pasted.strip() in ouro.server.requests[0].prompt


def test_u4_control_bytes_and_line_ends_in_a_paste_do_nothing(ouro):
    terminal = ouro.screen()
    terminal.send("\x1b[200~first\rsecond\x03\x04\x1b[31m third\x1b[201~")
    terminal.until_shows("third")
    assert ouro.server.requests == []
    terminal.press("\r", lambda: bool(ouro.server.requests))
    assert "\x03" not in ouro.server.requests[0].prompt
    assert "\x1b" not in ouro.server.requests[0].prompt
    assert "first\nsecond" in ouro.server.requests[0].prompt
