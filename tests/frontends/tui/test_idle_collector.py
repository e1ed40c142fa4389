"""Python collects garbage in short pieces, and what takes long when no key waits."""

import gc

import pytest

from ouro.frontends.tui.idle_collector import (
    FULL_COLLECTION_EVERY,
    IDLE_SECONDS,
    IdleCollector,
    shorten_collections,
)


class Screen:
    """A clock, the timers and the collections of a screen."""

    def __init__(self):
        self.now, self.pressed, self.timers, self.collected = 0.0, 0.0, [], []
        self.collector = IdleCollector(
            lambda seconds, act: self.timers.append((self.now + seconds, act)),
            lambda: self.pressed,
            lambda generation: self.collected.append(generation) or 0,
            lambda: self.now,
        )

    def wait(self):
        """Let the next timer end."""
        self.now, act = self.timers.pop(0)
        act()


def test_old_objects_are_collected_after_a_turn():
    screen = Screen()
    screen.collector.turn_ended()
    assert screen.collected == []
    screen.wait()
    assert (screen.collected, screen.timers) == ([1], [])


def test_a_collection_waits_until_no_key_is_pressed():
    screen = Screen()
    screen.collector.turn_ended()
    for _ in range(3):
        screen.pressed = screen.now + IDLE_SECONDS / 2
        screen.wait()
    assert screen.collected == []
    screen.wait()
    assert screen.collected == [1]


def test_turns_in_a_row_are_followed_by_one_collection():
    screen = Screen()
    for _ in range(5):
        screen.collector.turn_ended()
    screen.wait()
    assert (screen.collected, screen.timers) == ([1], [])


def test_all_objects_are_visited_now_and_then():
    screen = Screen()
    for _ in range(FULL_COLLECTION_EVERY):
        screen.collector.turn_ended()
        screen.wait()
    assert screen.collected.count(2) == 1


@pytest.fixture
def python_collects():
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("python_collects")
def test_python_itself_visits_few_objects_at_once():
    shorten_collections()
    new, of_new, of_old = gc.get_threshold()
    assert new <= 5_000
    assert min(of_new, of_old) >= 1_000
