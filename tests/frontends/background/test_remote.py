"""A session in another process has what front ends read of a session in their own."""

import inspect
import re
from itertools import chain
from pathlib import Path
from typing import Any, cast

import pytest

from ouro.commands.command_lookup import matching_commands
from ouro.errors import UsageError
from ouro.extensions import CommandRegistry, CustomCommand
from ouro.frontends.background.remote import RemoteCommand, RemoteCommands, RemoteSession
from ouro.frontends.background.state import SessionState
from ouro.memory.long_term import SessionMemory
from ouro.session import Rewind, Session, Status
from ouro.session.background_work import BackgroundWork
from ouro.session.plan_approval import PlanApproval
from ouro.session.scrollback import Scrollback
from ouro.session.session import SessionExtensions

OWN_NAMES = {"connection", "state", "commands", "open", "add_to_snapshot"}
"""What only a remote session has."""


def names_of(kind: type) -> set[str]:
    """The attributes of a class, also those that only its constructor assigns."""
    assigned = re.findall(r"self\.(\w+)(?:: [^=\n]+)? =", inspect.getsource(kind))
    return {*dir(kind), *assigned}


def public_names(value: object) -> set[str]:
    names = {*dir(type(value)), *getattr(value, "__dict__", ())}
    return {name for name in names if not name.startswith("_")}


def remote(folder: Path) -> RemoteSession:
    """A remote session that works in this folder, without a process."""
    status = Status("m", "off", "ask", "", context=0, window=1, usage=cast("Any", None))
    state = SessionState("s1", 1, str(folder), "", "", "idle", 0.0, "", 0, status)
    return RemoteSession(cast("Any", None), state)


def test_at_completes_files_and_folders_of_a_remote_session(repository):
    (repository / "src").mkdir()
    (repository / "src" / "b.py").write_text("")

    names = chain.from_iterable(remote(repository).find_files())

    assert {"api.py", "src/", "src/b.py"} <= set(names)


def test_the_custom_commands_that_the_host_sends_are_completed_once(tmp_path):
    session = remote(tmp_path)
    session.commands.take([("model", "of ouro"), ("deploy", "Deploy it")])

    matching = matching_commands(cast("Session", cast("object", session)), "deploy")
    models = matching_commands(cast("Session", cast("object", session)), "model")

    assert [(choice.value, choice.detail) for choice in matching] == [("/deploy", "Deploy it")]
    assert [choice.value for choice in models].count("/model ") == 1


def test_a_remote_session_has_no_name_that_a_session_lacks(tmp_path):
    """A front end takes it for a Session, so the type checker does not see a name that is gone."""
    session = remote(tmp_path)

    assert public_names(session) - OWN_NAMES <= names_of(Session)


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ("background", BackgroundWork),
        ("extensions", SessionExtensions),
        ("session_memory", SessionMemory),
        ("plan", PlanApproval),
        ("rewind", Rewind),
    ],
)
def test_what_stands_for_a_part_of_a_session_has_only_its_names(tmp_path, part, kind):
    names = public_names(getattr(remote(tmp_path), part))

    assert names
    assert names <= names_of(kind)


def test_what_stands_for_other_parts_has_their_names():
    assert public_names(remote(Path("/")).scrollback) - {"events"} <= names_of(Scrollback)
    assert public_names(RemoteCommands()) - {"take"} <= names_of(CommandRegistry)
    assert public_names(RemoteCommand("a", "b")) <= names_of(CustomCommand)


def test_what_only_the_process_of_the_session_has_says_so(tmp_path):
    with pytest.raises(UsageError, match="runs in another process"):
        remote(tmp_path).models()
