"""What an entry of the tables has."""

from typing import NamedTuple


class Defence(NamedTuple):
    """A line of defence: `old` in `file` becomes `new`, and one of `tests` below tests/faults
    fails.
    """

    code: str
    file: str
    old: str
    new: str
    tests: str
