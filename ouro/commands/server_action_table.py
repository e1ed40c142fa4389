"""The declarations of `mcp …` and `lsp …`; their functions are in `mcp.py` and `lsp.py`."""

from __future__ import annotations

from ouro.commands.action import YES, Action, arg

_SERVER = arg("server", metavar="SERVER", help="the name of an MCP server")

LSP_ACTIONS: tuple[Action, ...] = (
    Action(
        "lsp log",
        "lsp.log",
        "Show what a language server has logged",
        (arg("server"),),
        ("lsp log pyright",),
    ),
)

MCP_ACTIONS: tuple[Action, ...] = (
    Action(
        "mcp list",
        "mcp.list_servers",
        "List the MCP servers with state, tools, tokens and latency",
        (),
        ("mcp list",),
        "both",
    ),
    Action(
        "mcp show",
        "mcp.show",
        "Show a server: its tools and what each costs, resources, prompts",
        (_SERVER,),
        ("mcp show github",),
        "both",
    ),
    Action(
        "mcp test",
        "mcp.test",
        "Connect to a server, and show what it offers or why it fails",
        (_SERVER,),
        ("mcp test github",),
        "both",
    ),
    Action(
        "mcp log",
        "mcp.log",
        "Show what a server has printed and logged",
        (_SERVER,),
        ("mcp log github",),
    ),
    Action(
        "mcp on",
        "mcp.turn_on",
        "Switch a server or a tool on, here and later",
        (arg("what", metavar="SERVER[.TOOL]"),),
        ("mcp on github", "mcp on github.delete_repo"),
        "both",
    ),
    Action(
        "mcp off",
        "mcp.turn_off",
        "Switch a server or a tool off, here and later",
        (arg("what", metavar="SERVER[.TOOL]"),),
        ("mcp off github", "mcp off github.delete_repo"),
        "both",
    ),
    Action(
        "mcp approve",
        "mcp.approve",
        "Show what a server has changed in its tools, and approve it",
        (_SERVER, YES),
        ("mcp approve github",),
        "both",
    ),
    Action(
        "mcp add",
        "mcp.add",
        "Add a server: a command behind `--`, or an address",
        (
            arg("name", metavar="NAME"),
            arg("command", nargs="*", metavar="COMMAND", default=[]),
            arg("--url", default="", metavar="URL", help="its address"),
            arg("--sse", action="store_true", help="the transport of 2024"),
            arg(
                "--transport",
                "-t",
                choices=("stdio", "http", "sse"),
                help="as in other programs: it is known by the command or the address",
            ),
            arg(
                "--scope",
                "-s",
                choices=("user",),
                help="as in other programs: the server is saved for all projects",
            ),
            arg(
                "--env",
                "-e",
                action="append",
                default=[],
                metavar="NAME=VALUE",
                help="a variable of the command",
            ),
            arg(
                "--header",
                "-H",
                action="append",
                default=[],
                metavar="NAME:VALUE",
                help="a header of each request",
            ),
            arg("--force", action="store_true", help="overwrite the server of that name"),
        ),
        (
            (
                "mcp add github --env 'GITHUB_TOKEN=${GITHUB_TOKEN}' -- npx -y"
                " @modelcontextprotocol/server-github"
            ),
            "mcp add docs --url https://docs.example.com/mcp",
        ),
        "shell",
    ),
    Action(
        "mcp remove",
        "mcp.remove",
        "Remove a server that was added or imported",
        (arg("name", metavar="NAME"),),
        ("mcp remove github",),
        "shell",
    ),
    Action(
        "mcp import",
        "mcp.import_servers",
        "Import servers from Claude Code, .mcp.json and Codex",
        (
            arg(
                "--all",
                dest="every",
                action="store_true",
                help="all that are found, without asking",
            ),
        ),
        ("mcp import --all",),
        "shell",
    ),
    Action(
        "mcp login",
        "mcp.login",
        "Log in to a server with OAuth, in the browser",
        (_SERVER,),
        ("mcp login docs",),
        "shell",
    ),
    Action(
        "mcp serve",
        "mcp_serve.serve",
        "Serve ouro's memory to another agent, on stdin and stdout",
        (),
        ("mcp serve",),
        "shell",
        has_json=False,
    ),
    Action(
        "mcp logout",
        "mcp.logout",
        "Forget the tokens of a server",
        (_SERVER,),
        ("mcp logout docs",),
        "shell",
    ),
)
