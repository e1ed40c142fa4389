"""OutputPace: a slow link is noticed from the terminal's answers about its status."""

import pytest

from ouro.frontends.tui.driver import KeyReader
from ouro.frontends.tui.output_pace import STATUS_ANSWER, STATUS_REQUEST, OutputPace


class Link:
    """A terminal that reads `rate` characters a second, and answers."""

    def __init__(self, rate: float, *, answers: bool = True) -> None:
        self.now = 0.0
        self.unread = 0
        self.asked = 0
        self._rate = rate
        self._answers = answers
        self._due: list[float] = []
        self.pace = OutputPace(lambda: self.now)
        self.pace.start()

    def write(self, size: int) -> None:
        text = self.pace.add_request("x" * size)
        self.unread += len(text)
        if text.endswith(STATUS_REQUEST):
            self.asked += 1
            self._due.append(self.now + self.unread / self._rate)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.unread = max(0, self.unread - int(seconds * self._rate))
        while self._answers and self._due and self._due[0] <= self.now:
            del self._due[0]
            self.pace.on_answer()


def draw_for(link: Link, seconds: float) -> int:
    """Draw a frame of 400 characters 30 times a second, if the terminal is not behind. Returns the
    largest number of characters that it had not read, from the tenth second on: until the first
    answer, nothing shows that the link is slow.
    """
    most_unread = 0
    while link.now < seconds:
        if not link.pace.is_behind:
            link.write(400)
        link.pass_time(1 / 30)
        if link.now > 10:
            most_unread = max(most_unread, link.unread)
    return most_unread


def test_a_slow_link_has_little_output_before_it():
    assert draw_for(Link(rate=2000), 30) <= 2 * 2400


def test_a_fast_link_is_never_behind():
    link = Link(rate=1_000_000)
    for _ in range(300):
        link.write(3000)
        assert not link.pace.is_behind
        link.pass_time(1 / 30)


def test_a_terminal_that_does_not_answer_is_asked_once_and_gets_everything():
    link = Link(rate=2000, answers=False)
    for _ in range(100):
        link.write(3000)
        assert not link.pace.is_behind
        link.pass_time(1)
    assert link.asked == 1


def test_a_lost_answer_stops_the_output_only_for_a_moment():
    link = Link(rate=100_000)
    link.write(3000)
    link.pass_time(1)
    link._answers = False
    link.write(3000)
    link.pass_time(1)
    assert link.pace.is_behind
    link.pass_time(5)
    assert not link.pace.is_behind


@pytest.mark.parametrize("is_due", [True, False])
def test_nothing_is_asked_after_the_end(is_due):
    link = Link(rate=100_000)
    link.write(3000 if is_due else 100)
    link.pass_time(1)
    link.pace.stop(0)
    link.write(5000)
    assert link.asked == int(is_due)


@pytest.mark.parametrize("cut", range(1, len(STATUS_ANSWER)))
def test_an_answer_that_comes_in_two_parts_is_no_key(cut):
    answers: list[bool] = []
    reader = KeyReader(False, lambda _: "", lambda: answers.append(True))
    first, second = STATUS_ANSWER[:cut], STATUS_ANSWER[cut:]
    events = [*reader.feed("a" + first), *reader.feed(second + "b")]
    assert [event.character for event in events] == ["a", "b"]
    assert answers == [True]


def test_an_answer_that_comes_at_any_moment_is_no_error():
    """The thread that reads the terminal handles an answer while the other one looks at the clock."""
    answers_now = False
    now = 0.0

    def clock():
        nonlocal now, answers_now
        now += 0.1
        if answers_now:
            answers_now = False
            pace.on_answer()
        return now

    pace = OutputPace(clock)
    pace.start()
    for _ in range(3):
        assert pace.add_request("x" * 100_000).endswith(STATUS_REQUEST)
        answers_now = True
        assert not pace.is_behind
        pace.on_answer()
        pace.add_request("x" * 100_000)
        answers_now = True
        pace.add_request("x" * 100_000)
        pace.on_answer()
