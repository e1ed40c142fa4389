"""One remembered line enters few functions of long-term memory, in few floors, through few objects."""

from fakes.entered_functions import remembered_lines

MAX_FUNCTIONS = {
    "/remember, a line of the core": 138,
    "/remember, a note": 150,
    "the agent writes a line in its turn": 179,
    "ouro memory remember": 171,
}
"""As few as there are now, each with at most 15 decisions: a function that only calls another one
is not needed.

For a line of the core: 26 start git and keep its repository, 20 read and write files that may be
hostile, 14 know what was approved, 4 record whose words they are until the commit is made, 19 find
what the words say and which entry they replace, 12 list the entries, 18 are the scope and the store,
25 the action itself, its place and its event.
"""
MAX_FLOORS = 16
MAX_OBJECTS = 7


async def test_a_remembered_line_enters_no_more_functions_than_before(home, tmp_path):
    found = await remembered_lines(home)
    more = {
        path: sorted(entered.functions)
        for path, entered in found.items()
        if len(entered.functions) > MAX_FUNCTIONS[path]
    }
    assert more == {}
    assert {
        path: entered.chain for path, entered in found.items() if len(entered.chain) > MAX_FLOORS
    } == {}
    assert {
        path: entered.objects
        for path, entered in found.items()
        if len(entered.objects) > MAX_OBJECTS
    } == {}
