"""The settings: names, meanings and defaults. `settings_sources.py` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from ouro.utils.sections import field, section

StatusItem = Literal[
    "model",
    "mode",
    "goal",
    "loops",
    "saved",
    "branch",
    "context",
    "tokens",
    "cost",
    "memories",
    "jobs",
    "queued",
    "sandbox",
]
STATUS_ITEMS: tuple[StatusItem, ...] = get_args(StatusItem)
THEME_NAMES = ("auto", "dark", "light", "high-contrast", "ansi")
MODES_BY_WIDTH = ("plan", "ask", "edit", "auto")
"""The permission modes, the narrowest first."""


@section
class PermissionSettings:
    mode: Literal["ask", "edit", "plan", "auto"] = "ask"
    """The mode of a new session. A project can only make it narrower."""
    allow: tuple[str, ...] = ()
    """Rules that run without a question, such as `shell(git status *)`. Rules of all places add up.
    """
    ask: tuple[str, ...] = ()
    """Rules that are always asked."""
    deny: tuple[str, ...] = ()
    """Rules that never run; they win over all others."""
    judge: str = ""
    """A model that answers questions which the mode `auto` would not ask, and those about hosts;
    empty: the user answers all.
    """


@section
class ModelSettings:
    """Models for certain turns."""

    plan: str = ""
    """The model that answers in plan mode; empty: `plan` of models.yaml, else that of the session.
    """
    favorites: tuple[str, ...] = ()
    """The models that F2 and `/model next` go through."""


@section
class LimitSettings:
    """When a turn stops automatically; unset: no limit. A project can only lower them."""

    max_turns: int | None = None
    """Maximum model calls in one turn."""
    max_cost: float | None = None
    """Maximum US dollars in one session."""
    max_cost_day: float | None = None
    """Maximum US dollars in all sessions of a day."""
    max_cost_month: float | None = None
    """Maximum US dollars in all sessions of a month."""
    max_failures: int = 30
    """Failed tool calls in a row before ouro asks; with `-p` it stops."""
    max_idle_calls: int = 40
    """Tool calls in a row without progress before ouro asks; with `-p` it stops."""


@section
class LlmSettings:
    """Requests to models."""

    retry_seconds: int = 0
    """How long to wait for a server that cannot be reached, such as one that is starting."""
    max_retry_seconds: int | None = None
    """How long a call is repeated that failed, for example with the status 500: the waits together,
    without those that the provider asks for; unset: 120 with `-p`, else 11 attempts.
    """


@section
class ShellSettings:
    timeout_seconds: int = 120
    """The time limit of a command for which the model sets none."""
    tool_env: tuple[str, ...] = ()
    """Variables that look secret and that tools from your own files get nevertheless: `JIRA_TOKEN`."""


@section
class SandboxSettings:
    enabled: bool = True
    """Confine commands that run without asking, with the strongest sandbox that works on this
    machine.
    """
    network: bool = False
    """Whether they reach the network."""
    hosts: tuple[str, ...] = ()
    """Hosts that they can reach by HTTP and HTTPS, such as `pypi.org`; needs bubblewrap."""
    writable: tuple[str, ...] = ()
    """Folders outside the workspace that they may change in `edit` and `auto`, such as
    `~/.cache/uv`.
    """
    confine_allowed: bool = False
    """Confine also the commands that rules allow; only your answer to a question lets one out."""
    project_hooks: bool = True
    """Confine hooks of projects and plugins like commands in `edit`; the user's hooks run outside
    of the sandbox.
    """
    max_memory_mb: int = 0
    """Megabytes of memory that each of their processes may have; 0: three quarters of the
    machine's.
    """
    max_processes: int = 4_096
    """Maximum processes and threads of a command."""
    max_open_files: int = 16_384
    """Maximum open files of a process."""
    engine: Literal["", "podman", "docker"] = ""
    """The engine of the container in which the agent's commands run; empty: the first that is
    installed, if an image or the devcontainer is set.
    """
    image: str = ""
    """The image of that container, such as `python:3.13`."""
    devcontainer: bool = False
    """Take image, variables and mounts from the project's `.devcontainer/devcontainer.json`."""

    @property
    def in_container(self) -> bool:
        """Whether the agent's commands run in a container, and nowhere else."""
        return self.enabled and bool(self.engine or self.image or self.devcontainer)


@section
class SubagentSettings:
    """When a subagent stops automatically. The limits of the session hold for it too."""

    max_turns: int = 60
    """Maximum model calls."""
    max_seconds: int = 1_800
    """Maximum seconds, without the time for which a question waits for the user."""
    max_cost: float | None = None
    """Maximum US dollars; unset: only the limits of the session."""
    max_running: int = 8
    """Maximum subagents that work at the same time."""


FailureAction = Literal["", "refuse", "permit"]
HookEvent = Literal[
    "session-start",
    "user-prompt",
    "before-tool",
    "after-tool",
    "before-compaction",
    "after-compaction",
    "turn-end",
    "subagent-end",
    "session-end",
    "notification",
]


@section
class HookSettings:
    """What runs at an event: a command, a POST to a server on this machine, or a question to a
    model.
    """

    event: HookEvent
    command: str = ""
    url: str = ""
    prompt: str = ""
    """A check that a small model carries out: it answers whether this may happen."""
    model: str = ""
    """The model for `prompt`; empty: `classify` of models.yaml, else the model that compacts."""
    agent: str = ""
    """The kind of subagent that carries out `prompt` with its tools, such as `explore`; one that
    only reads. Empty: a model answers without tools.
    """
    matcher: str = ""
    """A regular expression for the name of a tool; empty: every tool."""
    if_: str = ""
    """A permission rule: the hook of a tool runs only for calls that it covers; empty: for all."""
    async_: bool = False
    """Run in the background: the hook decides nothing."""
    once: bool = False
    """Run once in a session."""
    timeout_seconds: int = 60
    on_failure: FailureAction = ""
    """What happens if a hook of `before-tool` crashes, takes too long or answers nonsense: empty or
    `refuse`: the call is refused; `permit`: it runs. A notice says so in both cases.
    """


@section
class CheckpointSettings:
    """Files as they were before and after each turn, for `/undo` and `/rewind`."""

    enabled: bool = True
    keep_days: int = 14
    max_mb: int = 2_000
    """Maximum MB for all workspaces together; the oldest checkpoints are deleted first."""
    max_file_mb: int = 5
    """A larger file is kept only where that costs nothing, or git has it."""


@section
class TuiSettings:
    theme: str = "auto"
    """`auto`, `dark`, `light`, `high-contrast`, `ansi`, or the name of a file in `~/.ouro/themes`."""
    editing: Literal["emacs", "vim"] = "emacs"
    """How the prompt is edited."""
    mouse: bool = True
    """Whether the full screen uses the mouse; false leaves it to the terminal."""
    animations: bool = True
    """Whether the sign of running work turns; false: nothing moves but seconds and text."""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Name of an action -> its keys, if they differ from the default."""
    status: tuple[StatusItem, ...] = STATUS_ITEMS
    """The items of the status line, in this order."""
    status_command: str = ""
    """A command that writes the status line, from the state of the session as JSON."""
    notify_seconds: int = 15
    """A bell when a turn longer than this ends or a question waits; 0: never."""


@section
class LiveSessionSettings:
    """How a session behaves while it is open."""

    wake: Literal["auto", "ask", "off"] = "auto"
    """What happens when a background job or a subagent ends and the agent is idle: it continues, the
    user is asked, or it is informed with the next message.
    """
    goal_turns: int = 20
    """Turns after which `/goal` pauses."""
    goal_cost: float | None = 5.0
    """US dollars after which it pauses; unset: no cap."""
    goal_minutes: int = 60
    """Minutes after which it pauses."""
    background_idle_minutes: float = 60
    """Minutes without work, question and viewer after which a session in the background ends; it
    can be resumed. 0: never.
    """


@section
class SessionSettings:
    titles: bool = True
    """Let a model find a title after the first turn."""
    summaries: bool = True
    """Let a model summarize sessions that were left, or have grown, in three lines."""
    carry_over: Literal["off", "summary"] = "off"
    """Whether a new session begins with the summary of the last one of the project."""
    remote: str = ""
    """A git remote for `ouro sessions sync`; empty: the last one, else that of memory."""
    encrypt: bool = False
    """Encrypt what is sent to a new remote, with the key in `sessions.key`."""
    keep_days: int | None = None
    """Days that sessions are kept; unset: permanently. Only `ouro sessions clean` moves older ones
    to the trash.
    """


@section
class CompactionSettings:
    """When a summary replaces older messages in requests."""

    auto: bool = True
    at: float = 0.8
    """The share of the model's window."""
    reserve: int = 16_000
    """Tokens of the window that always stay free for the answer; never more than a quarter of the
    window.
    """
    keep: int = 20_000
    """Tokens of user messages that stay verbatim; never more than a quarter of the window."""
    review: bool = True
    """`/compact` shows its summary before it is used, so that the user can use, edit or discard it.
    """


@section
class RepoMemorySettings:
    enabled: bool = True
    share: bool = False
    """Keep `.ouro/memory` as an ordinary part of the repository, which the team commits."""


@section
class MemorySettings:
    enabled: bool = True
    write: Literal["tell", "ask", "silent"] = "tell"
    """What the user sees of each write: an event with undo, a question first, or nothing."""
    consolidation_threshold: int = 5_000
    """If core memory has more tokens, it is merged and compressed."""
    capture: bool = True
    """Make notes of what is said, in the background."""
    commands: bool = True
    """Record which commands of the agent passed or failed in a project, and send it those relevant
    to a message.
    """
    cadence_turns: int = 5
    """Turns between two captures: 1 to 10."""
    classifier_model: str = ""
    """The model that decides what becomes a note; empty: `classify` of models.yaml, else the model
    that compacts.
    """
    retrieval: Literal["auto", "local", "hyde", "off"] = "auto"
    retrieval_model: str = ""
    """The model for `hyde`; empty: `retrieve` of models.yaml."""
    embedding_model: str = ""
    """The embedding model; empty: `embed` of models.yaml, else the local one
    (requirements/vectors.txt).
    """
    retrieval_top_k: int = 10
    retrieval_hop_depth: int = 1
    """Steps along the edges between notes: 1 to 3."""
    retrieval_hypothesis_count: int = 5
    """The number of hypotheses for `hyde`: 1 to 10."""
    injection_token_budget: int = 1_500
    """Tokens of notes that are sent with one message."""
    history_versions: int = 2
    """How many earlier versions of a note are sent with it; 0: all."""
    half_life_days: int = 30
    """After so many days without confirmation the confidence in an inferred note is halved."""
    other_projects: bool = True
    """Show what the memory of another project says about a message; sent only by a key."""
    private_projects: tuple[str, ...] = ()
    """Folders of projects whose memory is not shown in others."""
    categories: Mapping[str, tuple[Literal["user", "repo"], ...]] = field(default_factory=dict)
    """Further categories of notes, each with its usual scope: `api-quirks: [repo]`."""
    core: tuple[str, ...] = ()
    """Further core files, besides decisions.md, preferences.md and facts.md, such as `style.md`."""
    remote: str = ""
    """A git remote that the user's memory is synchronized with."""
    sync: Literal["off", "start", "end", "both"] = "off"
    """Whether `ouro sync` also runs when ouro starts or ends at a terminal."""
    repo: RepoMemorySettings = field(default_factory=RepoMemorySettings)


@section
class SkillSettings:
    prompt_tokens: int = 2_000
    """Tokens of names and descriptions in the system prompt; longer descriptions are cut."""
    without: tuple[str, ...] = ()
    """Skills that are not used."""


@section
class McpServerSettings:
    """An MCP server: a program (`command`), or an address (`url`)."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of the program, in addition to PATH, HOME and similar ones; `${NAME}` is a variable
    of ouro.
    """
    cwd: str = ""
    """The folder of the program; empty: the folder of the session."""
    url: str = ""
    transport: Literal["http", "sse"] = "http"
    """The transport of `url`; `sse` for servers of 2024."""
    type: Literal["", "stdio", "http", "streamable-http", "sse"] = ""
    """The transport, as other programs name it."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of each request; `${NAME}` is a variable of ouro."""
    headers_helper: str = ""
    """A line of bash that prints further headers, as a JSON object. It runs at each connection."""
    client_id: str = ""
    """The client id for OAuth servers at which clients cannot register themselves."""
    client_secret: str = ""
    enabled: bool = True
    disabled: bool = False
    """The opposite of `enabled`, as other programs write it."""
    sandbox: bool = False
    """Run the program in the sandbox, like commands in `edit`."""
    timeout_seconds: int = 120
    """Seconds to start, and between two messages during a call."""
    tools: tuple[str, ...] = ()
    """The tools to use, such as `get_*`; empty: all."""
    without: tuple[str, ...] = ()
    """Tools not to use."""


@section
class McpSettings:
    servers: Mapping[str, McpServerSettings] = field(default_factory=dict)
    tool_budget_tokens: int = 3_000
    """Tokens of tool descriptions in each request; the tools of further servers are found with
    `tool_search`.
    """
    remember: tuple[str, ...] = ()
    """Clients of `ouro mcp serve` whose memories need no approval, such as `claude-code`."""


@section
class LanguageServerSettings:
    """A language server: one that ouro knows, or another one with its command and languages."""

    command: str = ""
    args: tuple[str, ...] = ()
    languages: Mapping[str, str] = field(default_factory=dict)
    """The ending of a file -> its language id in the protocol: `.zig: zig`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Its `initializationOptions`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What it gets when it asks for its configuration."""
    enabled: bool = True


@section
class LspSettings:
    enabled: bool = True
    """Whether installed language servers check the changes of the agent."""
    servers: Mapping[str, LanguageServerSettings] = field(default_factory=dict)


@section
class WebSettings:
    search: Literal["", "brave", "exa", "tavily", "kagi", "searxng", "model", "ddgs", "off"] = ""
    """The backend of `web_search`; empty: the first one whose key or address is in a variable.
    `model`: the provider of the model in use; `ddgs`: DuckDuckGo, by the extra `ddgs`.
    """
    search_url: str = ""
    """The address of the SearXNG server, or another one of the named backend."""


@section
class TelemetrySettings:
    enabled: bool = False
    """Whether turns, model calls, tool calls, tokens and costs are exported with OpenTelemetry; needs
    the extra `otel`.
    """
    endpoint: str = ""
    """The address of the collector (OTLP over HTTP); empty: OTEL_EXPORTER_OTLP_ENDPOINT, else
    http://localhost:4318.
    """
    texts: bool = False
    """Whether messages and the arguments of tools are sent, too."""


@section
class Settings:
    model: str = ""
    """The model of a new session; empty: `default` of models.yaml, or what is found."""
    effort: Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"] = "medium"
    """The effort of a model that can think."""
    style: str = ""
    """The output style of a new session, such as `concise`; empty: none."""
    updates: Literal["off", "notify"] = "off"
    """Whether ouro asks the package index of pip once a day for a newer version, and says so."""
    models: ModelSettings = field(default_factory=ModelSettings)
    permissions: PermissionSettings = field(default_factory=PermissionSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    llm: LlmSettings = field(default_factory=LlmSettings)
    shell: ShellSettings = field(default_factory=ShellSettings)
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    hooks: tuple[HookSettings, ...] = ()
    """Hooks; those of a project run only if it is trusted, and cannot permit anything."""
    claude_hooks: bool = False
    """Also run the hooks of `~/.claude/settings.json`."""
    subagents: SubagentSettings = field(default_factory=SubagentSettings)
    checkpoints: CheckpointSettings = field(default_factory=CheckpointSettings)
    tui: TuiSettings = field(default_factory=TuiSettings)
    session: LiveSessionSettings = field(default_factory=LiveSessionSettings)
    sessions: SessionSettings = field(default_factory=SessionSettings)
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    skills: SkillSettings = field(default_factory=SkillSettings)
    mcp: McpSettings = field(default_factory=McpSettings)
    web: WebSettings = field(default_factory=WebSettings)
    lsp: LspSettings = field(default_factory=LspSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)


class SettingsSources(NamedTuple):
    """Where settings come from besides the user's file and variables."""

    project: Path | None = None
    """The root of a repository that is trusted; its `.ouro/config.yaml` is read, but cannot permit
    more.
    """
    flags: Mapping[str, Any] = {}
    """Settings of the command line or a program, by dotted name (`permissions.mode`); None: not
    set.
    """
