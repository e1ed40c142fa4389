"""A front end that records the calls of commands, and slash commands as a user types them."""

from __future__ import annotations

from fakes.fake_session import FakeSession
from ouro.commands.command_lookup import find_command
from ouro.commands.front_end import RewindChoice
from ouro.commands.rewind import undo_of_last_turn
from ouro.commands.slash import SessionContext, run_command


class FakeFrontEnd:
    """`picks` are the results of `choose`, in order."""

    keys = (("Keys", (("Enter", "send"),)),)
    has_user = True

    def __init__(self, session=None, picks=()):
        self.session = session or FakeSession()
        self.theme = "dark"
        self.picks = list(picks)
        self.shown = []
        self.lines = []
        self.asked = []
        self.opened = []
        self.opens = []
        self.sent = []
        self.drafts = []
        self.events = []
        self.copied = []
        self.redrawn = 0
        self.left = False

    async def use_theme(self, name):
        self.theme = name

    def show(self, markdown, page=""):
        self.shown.append(markdown)

    def say(self, text, level="info"):
        self.lines.append((level, text))

    async def choose(self, title, choices, current=""):
        self.asked.append((title, tuple(choices), current))
        return self.picks.pop(0) if self.picks else None

    async def choose_rewind(self, *, suggest_undo=False, redo=None):
        if suggest_undo and not self.picks:
            return undo_of_last_turn(self)
        if redo and not self.picks:
            return RewindChoice("redo", 0, tuple(redo))
        return self.picks.pop(0) if self.picks else None

    def show_again(self, draft="", images=()):
        self.drafts.append((draft, tuple(images)))

    async def pick_session(self, session_catalog, only=()):
        self.asked.append((session_catalog, tuple(only)))
        return self.picks.pop(0) if self.picks else None

    async def open(self, request):
        self.opened.append(request)
        self.session = self.opens.pop(0) if self.opens else self.session

    async def go_to(self, message):
        self.opened.append(message)

    async def edit(self, text):
        self.asked.append(text)
        return self.picks.pop(0)

    async def send(self, text):
        self.sent.append(text)

    async def run(self, events):
        self.events.extend([event async for event in events])

    async def view_diff(self, reading) -> bool:
        return False

    async def browse(self, page):
        return False

    def copy(self, text):
        self.copied.append(text)
        return "with xclip"

    def redraw(self):
        self.redrawn += 1

    def leave(self):
        self.left = True


async def slash(front_end, name, argument=""):
    """Run `/NAME ARGUMENT`."""
    await run_command(SessionContext(front_end), find_command(name), argument)


async def memory(front_end, argument=""):
    """Run `/memory ARGUMENT`."""
    await slash(front_end, "memory", argument)
