"""The declarations of sessions in the background; their functions are in `frontends/background`."""

from __future__ import annotations

from ouro.commands.action import Action, arg, port, text

_SESSION = arg(
    "session", metavar="SESSION", help="the start of its id, words of its title, or `latest`"
)
BACKGROUND_ACTIONS = (
    Action(
        "agents",
        "ouro.frontends.background.agent_actions.show_agents",
        "List the sessions that run in the background; on a terminal a list to work in",
        (),
        ("agents", "agents --json"),
        "shell",
    ),
    Action(
        "agents answer",
        "ouro.frontends.background.agent_actions.answer_question",
        "Answer the question of a session",
        (
            _SESSION,
            text(
                "choice",
                nargs="+",
                metavar="CHOICE",
                help="y, s, a, n or d; a number or words for a question of the agent",
            ),
        ),
        ("agents answer 3f6c1e y", "agents answer 3f6c1e n use uv instead"),
        "shell",
    ),
    Action(
        "agents stop",
        "ouro.frontends.background.agent_actions.stop_session",
        "End a session; one that has ended leaves the list. It can be resumed",
        (_SESSION, arg("-y", "--yes", action="store_true", help="do not ask")),
        ("agents stop 3f6c1e",),
        "shell",
    ),
    Action(
        "attach",
        "ouro.cli.attach",
        "See and steer a session that runs in the background; leaving it lets it continue",
        (
            arg(
                "session",
                nargs="?",
                default="latest",
                metavar="SESSION",
                help="the start of its id, words of its title; nothing: the newest",
            ),
            arg("--plain", action="store_true", help="in the plain prompt"),
        ),
        ("attach", "attach 3f6c1e", "attach 3f6c1e --plain"),
        "shell",
        has_json=False,
    ),
    Action(
        "serve",
        "ouro.cli.serve",
        "Show the background sessions in a browser: a page for the phone, and the full screen",
        (
            arg("--port", type=port, default=7272, help="7272; 0: a free one"),
            arg("--host", default="127.0.0.1", help="the address to listen on: 127.0.0.1"),
            arg(
                "--allow-host",
                dest="allow_hosts",
                action="append",
                default=[],
                metavar="NAME",
                help="a name under which your proxy reaches it, such as box.tail1234.ts.net",
            ),
            arg(
                "--allow-network",
                action="store_true",
                help="permit a --host that other machines reach, without encryption",
            ),
        ),
        ("serve", "serve --port 8080", "serve --allow-host box.tail1234.ts.net"),
        "shell",
        has_json=False,
    ),
)
BACKGROUND_COMMANDS = (
    Action(
        "bg",
        "conversation.detach",
        "Let this session continue in the background, and leave; the running turn continues",
        (),
        ("bg",),
        aliases=("background", "detach"),
    ),
    Action(
        "running",
        "ouro.frontends.background.agent_actions.list_agents",
        "List the sessions that run in the background",
        (),
        ("running",),
        aliases=("agents-running",),
    ),
)
