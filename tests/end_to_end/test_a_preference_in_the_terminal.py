"""The life of a preference in the terminal: three sessions, from the statement to `forget
--everywhere`.
"""

import json
import os
import signal
import subprocess

from fakes.files import git

STATEMENT = "From now on answer in German."
LINE = "- Answer in German.\n"
SAID = ", said the model"


class ScreenUser:
    """A user at the full screen."""

    def __init__(self, ouro) -> None:
        self.terminal = ouro.screen(size=(40, 110))
        self.server = ouro.server

    def say(self, *lines: str) -> None:
        self.terminal.say("\n".join(lines))

    def ask(self, words: str) -> bytes:
        """Send a message and wait for the answer; returns the raw request."""
        before = len(self.server.requests)
        self.say(f"say: {words}{SAID}")
        self.terminal.until(lambda: is_answered(self.terminal, words))
        return next(
            request.raw for request in self.server.requests[before:] if request.tools
        )  # capture sends no tools

    def agree(self, *shown: str) -> None:
        """Choose the first answer of a question."""
        self.terminal.until_shows(*shown)
        self.terminal.press("\r", lambda: not all(map(self.terminal.shows, shown)))

    def leave(self) -> None:
        assert self.terminal.leave() == 0


def test_a_preference_is_saved_edited_undone_blamed_and_forgotten(ouro):
    folder = ouro.home / "memory"
    file = folder / "preferences.md"

    # first session: stated, written with the file tool, committed in the shell; then ouro is killed
    first = ScreenUser(ouro)
    first.say(
        STATEMENT,
        f"call: write {json.dumps({'path': str(file), 'content': LINE})}",
        f'run: git -C "{folder}" add -A && git -C "{folder}" commit -qm "Prefer German"',
        "run: sleep 60",
    )
    first.terminal.until(lambda: len(ouro.server.requests) == 3)
    first.terminal.until_shows("run sleep 60 ·")
    os.kill(first.terminal.pid, signal.SIGKILL)
    first.terminal.end()
    assert git(folder, "log", "--format=%s") == "Prefer German"

    # second session, at the plain prompt: it is in the system prompt
    second = ouro.start("--plain")
    second.until_shows("›")
    second.send(f"say: Guten Tag{SAID}\r")
    second.until(lambda: is_answered(second, "Guten Tag"))
    assert "| - Answer in German." in system_of(ouro.server.requests[3].raw)
    second.send("\x04")
    assert second.end() == 0

    # third session: an edit by hand and its undo are each sent to the model as a change; the prefix
    # is the same
    third = ScreenUser(ouro)
    begun = third.ask("Guten Morgen")
    file.write_text(LINE.replace("German", "French"))
    edited = third.ask("Bonjour")
    third.terminal.until_shows("changed outside of ouro")
    third.say("/memory undo")
    third.agree("Undo", "❯ 1 Undo it")
    third.terminal.until_shows("Undone: preferences.md: + Answer in French.")
    assert file.read_text() == LINE
    undone = third.ask("Guten Abend")
    assert "| -- Answer in German.\n| +- Answer in French." in last_of(edited)
    assert "| -- Answer in French.\n| +- Answer in German." in last_of(undone)
    for earlier, later in ((begun, edited), (edited, undone)):
        assert later.startswith(sent_before_the_answer(earlier))
        assert tools_of(later) == tools_of(earlier)

    # blame: the line leads to the message of the first session, which can be opened
    third.say("/memory blame preferences 1")
    third.terminal.until_shows("Turn 1 (message 1)", STATEMENT)
    third.agree("❯ 1 Stay here")
    third.leave()
    [line] = json.loads(ouro.headless("memory", "blame", "preferences", "--json").out)["lines"]
    assert line["commit"]["trailers"]["Ouro-Origin"] == "undo"
    assert ouro.headless("memory", "blame", "preferences", "--open", "1").out.startswith(
        "Turn 1 (message 1)"
    )

    # forgotten: in no file, in no form
    assert holders(ouro.home)
    done = ouro.headless(
        "memory", "forget", "--everywhere", "Answer in German", "--yes", "--no-backup"
    )
    assert (done.code, "NOT DONE" in done.out) == (0, False)
    assert holders(ouro.home) == []
    assert git(folder, "fsck", "--strict") == ""
    ouro.headless("-p", "say: hello")
    assert "Nothing is remembered yet." in system_of(ouro.server.requests[-1].raw)


def is_answered(terminal, words):
    """Whether the answer is on the screen. The message, which begins with `say:`, may be on it twice
    before it is sent: in the transcript, and in the prompt that is not yet drawn again.
    """
    return any(f"{words}{SAID}" in line and "say:" not in line for line in terminal.lines())


def holders(home):
    """The files below ouro's home that contain the preference, and the git directory if its objects
    contain it.
    """
    files = [
        path for path in home.rglob("*") if path.is_file() and "secret-rules" not in path.parts
    ]
    found = [str(path) for path in files if b"answer in german" in path.read_bytes().lower()]
    git_dir = home / "memory" / ".git"
    command = ["git", "--git-dir", git_dir, "cat-file", "--batch-all-objects", "--batch"]
    objects = subprocess.run(command, check=True, capture_output=True).stdout
    return found + ([str(git_dir)] if b"answer in german" in objects.lower() else [])


def messages_of(raw):
    return json.loads(raw)["messages"]


def tools_of(raw):
    return json.loads(raw)["tools"]


def system_of(raw):
    return json.dumps(messages_of(raw)[0])


def last_of(raw):
    return str(messages_of(raw)[-1]["content"])


def sent_before_the_answer(raw):
    """A request up to the end of its last message."""
    return raw[: raw.rindex(SAID.encode()) + len(SAID)]
