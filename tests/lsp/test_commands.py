"""`/lsp` and `/lsp log`."""

from types import SimpleNamespace

import pytest
from fakes.waiting import until

from ouro.commands import lsp
from ouro.errors import UsageError


def context_of(servers) -> SimpleNamespace:
    extensions = SimpleNamespace(language_servers=servers)
    return SimpleNamespace(session=SimpleNamespace(extensions=extensions))


async def test_lsp_shows_the_state_and_what_was_reported(bench):
    context = context_of(bench.open())
    assert (await lsp.list_servers(context)).value[0]["state"] == "waiting"
    bench.file("a.toy", "one\n")
    await bench.edit("a.toy", "one", "wrong x")
    [found] = (await lsp.list_servers(context)).value
    assert (found["state"], found["version"], found["reported"]) == ("ready", "1.2", 1)
    assert found["files"] == [".toy"]


async def test_lsp_log_shows_what_a_server_has_logged(bench):
    servers = bench.open()
    context = context_of(servers)
    assert (await lsp.log(context, "toy")).value == []
    bench.file("a.toy", "one\n")
    await bench.edit("a.toy", "one", "two")
    await until(lambda: len(servers.servers[0].log) == 2)
    logged = (await lsp.log(context, "toy")).value
    assert set(logged) == {"a server may print to stderr", "the toy server starts"}
    with pytest.raises(UsageError, match="There is no language server `other`"):
        await lsp.log(context, "other")


async def test_lsp_without_servers_says_why(bench):
    assert (await lsp.list_servers(context_of(bench.open_specs()))).value == []
