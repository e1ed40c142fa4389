from fakes.fake_front_end import FakeFrontEnd

from ouro.commands.all_actions import COMMANDS
from ouro.commands.slash import dispatch


async def test_help_lists_every_command_and_the_keys_of_the_front_end_in_columns():
    front_end = FakeFrontEnd()
    await dispatch(front_end, "/help")
    [page] = front_end.shown
    for command in COMMANDS:
        assert f"| `/{command.name}` | {command.help} |" in page
    assert "| `Enter` | send |" in page
    parts = (
        "| Session |",
        "/resume",
        "| Work |",
        "/model",
        "| Memory |",
        "| At the start of a message |",
        "`Enter` | send",
    )
    places = [page.index(part) for part in parts]
    assert places == sorted(places)


async def test_help_for_a_command_shows_its_aliases():
    front_end = FakeFrontEnd()
    await dispatch(front_end, "/help /usage")
    assert front_end.shown == [
        "`/usage [--by day|project|model|purpose]` Show tokens and cost by model: this session, today, this month, all. Also:"
        " `/cost`, `/stats`\n\nFor example: `/usage`"
    ]


async def test_help_for_a_command_shows_an_example_and_its_actions():
    front_end = FakeFrontEnd()
    await dispatch(front_end, "/help memory")
    [page] = front_end.shown
    assert "For example: `/memory search " in page
    assert "| `/memory undo` | " in page


def test_each_command_with_an_argument_has_an_example():
    for command in COMMANDS:
        assert command.examples or not command.argument, command.name
        assert all(example.split()[0] == command.name for example in command.examples)
