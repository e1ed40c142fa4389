"""Resources that are attached to a message with `@server:uri`."""

from fakes.mcp_bench import Bench, fake

from ouro.mcp import read_named_resources, resource_names
from ouro.memory.long_term.trust.provenance import Provenance
from ouro.messages import user


async def test_named_resource_is_attached(bench: Bench):
    servers = bench.open(one=fake())
    text = await read_named_resources(
        servers, "compare @one:note://one with @two:note://x and a@one:b."
    )
    assert text == '<resource name="one:note://one">\nthe content of note://one\n</resource>'
    assert resource_names(servers) == ["one:note://one"]
    assert await read_named_resources(servers, "nothing here, @one: neither") == ""


async def test_m1_resource_text_does_not_count_as_user_words(bench: Bench):
    text = await read_named_resources(bench.open(one=fake()), "see @one:note://one")
    messages = [user("see @one:note://one", context=text)]
    assert Provenance(messages).sources == ("the resource one:note://one",)


async def test_unreadable_resource_is_reported_and_the_message_sent(bench: Bench):
    servers = bench.open(one=fake(start="exit"))
    text = await read_named_resources(servers, "read @one:note://one, please")
    assert text.startswith(
        '<resource name="one:note://one">\nIt cannot be read: The MCP server one cannot be used'
    )
