"""The states of a change of memory are data, and the page shows them."""

from pathlib import Path
from typing import get_args

from fakes.knowledge import editor_of
from fakes.memory_actions import record

from ouro.memory.long_term import propose_undecided_text
from ouro.memory.long_term.store import user_store
from ouro.memory.long_term.trust.change_effects import ChangeEffects
from ouro.memory.long_term.trust.proposals import Proposals
from ouro.memory.long_term.trust.states import (
    TRANSITIONS,
    TURN_EVENTS,
    ChangeEvent,
    Effect,
    State,
)

ROOT = Path(__file__).parents[4]
PACKAGE = ROOT / "ouro" / "memory" / "long_term"
WAITS_IN_THE_FILE = ("written", "found, another may have written it")
"""It has no effects: the file stays as it is."""


def test_architecture_page_shows_the_table_of_states():
    page = (ROOT / "docs" / "architecture.md").read_text()
    shown = page.partition("| state | event | then |")[2].partition("\n\n")[0].splitlines()[2:]
    assert shown == [
        f"| {state} | {event} | {to.state} | {', '.join(to.effects) or 'none'} |"
        for (state, event), to in TRANSITIONS.items()
    ]


def test_each_state_is_reached_and_each_event_and_effect_is_used():
    reached = {"written", *(to.state for to in TRANSITIONS.values())}
    effects = {effect for to in TRANSITIONS.values() for effect in to.effects}
    assert reached == {*get_args(State)} == {"written", *reached}
    assert {event for _, event in TRANSITIONS} == {*get_args(ChangeEvent)}
    assert effects == {*get_args(Effect)}


def test_each_effect_has_a_method(home):
    store = user_store(home / "memory", home / "history.git", lambda _text: "")
    assert set(ChangeEffects(store, Proposals(store.repository)).methods) == {*get_args(Effect)}


def test_only_the_table_says_where_an_event_leads():
    """Nothing but the table sets a state: the code names events only."""
    code = "\n".join(
        (PACKAGE / name).read_text()
        for name in ("scope.py", "trust/approval.py", "trust/change_effects.py")
    )
    named = [event for event in get_args(ChangeEvent) if f'"{event}"' in code]
    assert {*named, WAITS_IN_THE_FILE[1], *TURN_EVENTS} == {*get_args(ChangeEvent)}


def test_what_happens_in_sessions_goes_through_each_row_of_the_table(home, monkeypatch):
    rows, move = set(), ChangeEffects.move

    def note(self, state, event, group):
        if group.edits or group.contents or group.undo_target:
            rows.add((state, event))
        return move(self, state, event, group)

    monkeypatch.setattr(ChangeEffects, "move", note)
    for seed in (0, 5, 13, 37):
        record(seed)
    propose_undecided_text(editor_of(home / ".ouro"), "user I may like tea")
    assert {*TRANSITIONS} - rows == {WAITS_IN_THE_FILE}


def test_nothing_trusted_becomes_untrusted_without_the_user():
    leaving = {event for state, event in TRANSITIONS if state in ("trusted", "dropped", "refused")}
    assert leaving == {"undone"}
