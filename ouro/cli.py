"""Read the flags, pick a front end, run it."""

from __future__ import annotations

# Nothing else is imported here: `--version` took four times as long as Python alone.
import atexit
import gc
import io
import os
import sys

from ouro.command_line import GROUPS, HOST_FLAG, PICK, read_flags, whole_parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import SimpleNamespace
    from typing import Any

    from ouro.commands.shell_context import ShellContext
    from ouro.errors import OuroError
    from ouro.frontends.tui.screen_settings import ScreenSettings
    from ouro.session import OpenCatalog, OpenRequest, OpenSession, Session, SessionCatalog
    from ouro.session_options import Options


_is_program = False
"""Whether this process runs ouro alone; False in tests, which call `main`."""


def run() -> int:
    """Run `main` as the program `ouro`: this process runs nothing else. Returns its exit code."""
    # What a start loads is never freed: repeated garbage collection of it took a tenth of the time
    # to the first request.
    gc.set_threshold(150_000, 20, 20)
    for name in ("stdin", "stdout", "stderr"):
        # The shell closed it (`>&-`): else a file that is opened later would get its descriptor.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # if the locale lacks characters, replace them
            stream.reconfigure(errors="replace")
    global _is_program
    _is_program = True
    # The handler that is registered first is called last: after those of `main`, and after threads
    # have ended. It gets the list before the exit code is in it.
    exit_codes: list[int] = []
    atexit.register(_end_at_once, exit_codes)
    exit_codes.append(main())
    return exit_codes[0]


def _end_at_once(codes: Sequence[int]) -> None:
    """End the process now, as the last exit handler: to free all objects, as Python does after it,
    takes half of the time of an exit.

    Without an exit code, or if output cannot be written, it returns, and Python prints the reason.

    Args:
        codes: a list with the exit code; empty if `main` has raised an error.
    """
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except (OSError, ValueError):
        return
    if codes:
        os._exit(codes[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ouro with the arguments of the command line. Returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    is_action = bool(given) and given[0] in GROUPS
    try:
        code = run_action(given[0], given[1:]) if is_action else _run_with_flags(read_flags(given))
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        failure_code = _report_failure(error)
        if failure_code is None:  # a defect of ouro: Python prints the traceback
            raise
        return failure_code


def _report_failure(error: Exception) -> int | None:
    """Print the error; returns the exit code, or None if the error is a defect of ouro."""
    from ouro.errors import OuroError, plain_error  # not for `--help`

    if isinstance(error, OuroError):
        _report(error)
        return error.exit_code
    if not isinstance(error, OSError):
        return None
    try:
        sys.stdout.flush()
    except OSError:  # a closed pipe, or a full disk: Python would print another error at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):
        _report(_deleted_folder() or plain_error(error))
    return 1


def _deleted_folder() -> OuroError | None:
    """An error about the current folder if it does not exist any more: it causes many other errors."""
    from ouro.errors import OuroError

    try:
        os.getcwd()
    except FileNotFoundError:
        name = os.environ.get("PWD", "")
        return OuroError(
            f"The current folder{f' {name}' if name else ''} was deleted or moved.",
            "Change to another folder, or name one with --cd.",
        )
    return None


def _report(error: OuroError) -> None:
    """Print an error, with its hint, to stderr."""
    from ouro.utils.text import clean

    print(f"ouro: {clean(error.text('ouro '))}", file=sys.stderr)  # noqa: T201


def run_action(group: str, words: Sequence[str]) -> int:
    """Run a command such as `ouro session list`: its group and the other words. Returns the exit
    code.
    """
    from ouro.commands.current_folder import Folder
    from ouro.commands.subcommands import run
    from ouro.subcommand_setup import folder_settings, unsaved_session
    from ouro.utils.log import start_log

    start_log()
    return run(group, words, Folder(folder_settings), unsaved_session)


async def completion(_context: ShellContext, shell: str) -> None:
    """Print the script that completes the command line in this shell: `bash`, `zsh` …"""
    import shtab

    sys.stdout.write(shtab.complete(whole_parser(), shell=shell))


def acp(_context: ShellContext, **flags: Any) -> int:
    """Serve an editor; returns the exit code. Not a coroutine: its imports precede the event loop."""
    import asyncio

    from ouro.frontends.acp.transport import import_sdk
    from ouro.utils.standard_output import take_stdout

    stdout = take_stdout()  # done before anything can print: standard output carries the protocol
    import_sdk()
    from ouro.assemble import opener
    from ouro.frontends.acp.server import run_acp
    from ouro.utils.libc_memory import limit_arenas
    from ouro.utils.log import start_log

    limit_arenas()
    args = read_flags()
    vars(args).update(flags)
    start_log(args.debug)
    worktrees = None
    if args.worktree:
        from ouro.own_worktree import NamedWorktrees

        worktrees = NamedWorktrees(args.worktree)
    options = _options(args, interactive=True)
    enter = worktrees.enter if worktrees else None
    serving = run_acp(options, opener, _open_catalog, sys.stdin.fileno(), stdout, enter)
    try:
        return asyncio.run(serving)
    finally:
        if worktrees:
            for outcome in worktrees.leave():
                print(outcome, file=sys.stderr)  # noqa: T201


def _run_with_flags(args: SimpleNamespace) -> int:
    """Run ouro with these flags; returns the exit code. With `--bg` it runs in the background, with
    `--worktree` in a worktree, which the user is asked about at the end.
    """
    if args.background_host:
        from ouro.frontends.background.process import read_start

        vars(args).update(read_start())
    _refuse_contradictions(args)
    if args.bg:
        return _run_in_background(args)
    if not args.worktree:
        return _run_front_end(args)
    from ouro.own_worktree import describe_missing, enter_worktree, leave_worktree
    from ouro.utils.terminal_question import ask_on_terminal, wrap_text

    own = enter_worktree(_folder(args), args.worktree)
    sys.stderr.write(describe_missing(own))
    args.cd = str(own.cwd)
    try:
        code = _run_front_end(args)
    except BaseException:
        print(leave_worktree(own, None), file=sys.stderr)  # noqa: T201 (leaves without a question)
        raise
    is_asked = args.prompt is None and sys.stdin.isatty() and sys.stdout.isatty()
    outcome = leave_worktree(own, ask_on_terminal if is_asked else None)
    print(wrap_text(outcome), file=sys.stdout if is_asked else sys.stderr)
    return code


def _refuse_contradictions(args: SimpleNamespace) -> None:
    """Raises UsageError if flags do not go together."""
    from ouro.errors import UsageError

    names_session = bool(args.resume or args.latest)
    needs_session = args.fork or args.part != "full"
    if needs_session and not names_session:
        problem = "--fork copies a session." if args.fork else "--part needs a session."
        raise UsageError(f"{problem} Name it with --resume, or use --continue for the last one.")
    if args.ephemeral and names_session:
        raise UsageError(
            "--ephemeral begins a session of its own.",
            "Resume one without it, or leave out --resume.",
        )


def _run_in_background(args: SimpleNamespace) -> int:
    """Start a process that runs the session, and print how to reach it; returns the exit code."""
    from ouro.frontends.background.process import StartFailed, start_host, trust_error_of
    from ouro.session import trust_question
    from ouro.utils.terminal_question import ask_on_terminal
    from ouro.utils.text import clean

    _refuse_foreground_flags(args)
    folder = _folder(args)
    flags = {**vars(args), "bg": False, "background_host": True, "cd": str(folder)}
    flags["add_dir"] = [str(place) for place in _absolute(args.add_dir)]
    report = start_host(HOST_FLAG, flags, folder)
    # The first process only reports that trust is needed; after the answer another one is started.
    needed = trust_error_of(report)
    if needed is not None and sys.stdin.isatty() and sys.stdout.isatty():
        title, _choices = trust_question(needed)
        answer = ask_on_terminal(f"{clean(title)}\n[y/n, Enter: quit]: ", "qyn")
        if answer in ("y", "n"):
            flags |= {"trust": answer == "y", "no_trust": answer == "n"}
            report = start_host(HOST_FLAG, flags, folder)
    if report.error:
        raise StartFailed(report.error, report.exit_code)
    short = report.id[:8]
    print(f"{short} runs in the background with {clean(report.model)}.")  # noqa: T201
    print(f"ouro attach {short}   ouro agents   ouro agents stop {short}")  # noqa: T201
    return 0


def _refuse_foreground_flags(args: SimpleNamespace) -> None:
    """Raises UsageError if there are flags that do not go with `--bg`."""
    from ouro.errors import UsageError

    other_format = args.output != "text" or args.input != "text"
    if args.prompt is not None or other_format or args.schema:
        raise UsageError("--bg runs a session, not one answer.", "Leave out -p and its flags.")
    if args.ephemeral:
        raise UsageError("--bg saves its session.", "Leave out --ephemeral.")
    if args.resume == PICK:
        raise UsageError("With --bg no session can be picked.", "Name it: --resume latest")
    names_session = args.resume or args.latest
    if not args.message.strip() and not names_session:
        raise UsageError("--bg needs a task.", 'Usage: ouro --bg "fix the failing test"')


def _run_hosted_session(args: SimpleNamespace) -> int:
    """Run the session in the process that `--bg` has started; returns the exit code."""
    import asyncio

    from ouro.frontends.background.process import run_host
    from ouro.settings_sources import load_settings
    from ouro.utils.standard_output import take_stdout

    report_to = take_stdout()  # the process that started this one waits for a report there
    minutes = load_settings().session.background_idle_minutes
    open_session = _opener(args, interactive=True)
    return asyncio.run(run_host(open_session, _request(args), args.message, minutes, report_to))


def attach(_context: ShellContext, session: str, *, plain: bool = False) -> int:
    """See and steer a session that runs in the background; returns the exit code. It is not a
    coroutine: the full screen has its own event loop.
    """
    from ouro.frontends.background.attach import attach_plain, attach_screen, record_to_attach
    from ouro.frontends.tui.first_frame import can_draw
    from ouro.frontends.tui.screen_settings import screen_settings_in

    record = record_to_attach(session)
    if plain or not can_draw():
        return attach_plain(record)
    return attach_screen(record, screen_settings_in(record.cwd))


def serve(context: ShellContext, **given: Any) -> int:
    """Show sessions in a browser; returns the exit code. Not a coroutine: it has a loop of its own."""
    from ouro.errors import OuroError

    try:
        from ouro.frontends.web.serve import ServeOptions, run_serve
    except ModuleNotFoundError as error:
        if error.name != "aiohttp":
            raise
        raise OuroError("`ouro serve` needs a package.", "pip install ouro[serve]") from error
    from ouro.frontends.web.sessions import SavedSessions

    return run_serve(ServeOptions(**given), SavedSessions(context, _host_flags))


def _host_flags(folder: Path, message: str, resume: str) -> tuple[str, Mapping[str, Any]]:
    """The flag of a process that hosts a session, and the flags that it reads."""
    flags = {"background_host": True, "cd": str(folder), "message": message, "resume": resume}
    return HOST_FLAG, {**vars(read_flags()), **flags}


def _run_front_end(args: SimpleNamespace) -> int:
    """Run the front end that fits the flags and the terminal; returns the exit code."""
    from ouro.errors import UsageError

    if args.background_host:
        return _run_hosted_session(args)

    if args.prompt is not None or args.input == "stream-json":
        return _start_headless(args)
    if args.output != "text" or args.schema:
        raise UsageError(
            "--output and --schema need -p.", 'Usage: ouro -p "fix the failing test" --output json'
        )
    from ouro.frontends.tui.first_frame import can_draw

    is_plain = args.plain or not can_draw()
    return _sync_at_end(args, _start_plain(args) if is_plain else _start_full_screen(args))


def _start_headless(args: SimpleNamespace) -> int:
    """Answer the prompt of `-p`, or the messages on standard input; returns the exit code. If notes are
    searched, a process is started for that first: it works while this one imports.
    """
    from ouro.utils.ouro_paths import vectors_made_name

    uses_memory = not (args.no_memory or args.ephemeral or args.safe)
    has_one_message = args.input == "text"
    # In a fork of `ouro batch` nothing is left to import, and other sessions need the other cores.
    is_cold = _is_program and "ouro.assemble" not in sys.modules
    if not (is_cold and uses_memory and has_one_message and os.path.exists(vectors_made_name())):
        return _run_headless(args)
    from ouro.memory.index import start_question_process

    with start_question_process(_folder_name(args), args.prompt or ""):
        return _run_headless(args)


def _run_headless(args: SimpleNamespace) -> int:
    """Answer the prompt of `-p`, or the messages on standard input; returns the exit code."""
    import asyncio

    from ouro.errors import OuroError
    from ouro.frontends.headless.headless import HeadlessOptions, report_failed_start, run_headless

    try:
        _refuse_to_pick(args)
        open_session, request = _opener(args), _request(args)
    except OuroError as error:
        report_failed_start(error, args.output)
        raise
    prompt = "\n\n".join(filter(None, (args.prompt, args.message)))
    options = HeadlessOptions(prompt, args.input, args.output, args.schema)
    return asyncio.run(run_headless(open_session, request, options))


def _refuse_to_pick(args: SimpleNamespace) -> None:
    """Raises UsageError if the user wants to pick a session, which needs a screen."""
    from ouro.errors import UsageError

    if args.resume == PICK:
        hint = "Name a session: an id, words of its title, or `latest`."
        raise UsageError("With -p no session can be picked.", hint)


def _start_plain(args: SimpleNamespace) -> int:
    """Run the front end that prints lines; returns the exit code."""
    if needs_launcher():
        from ouro.utils.terminal_parent import continue_in_child

        continue_in_child(reset="")
    import asyncio
    from functools import partial

    from ouro.frontends.plain.repl import run_repl
    from ouro.settings_sources import load_settings

    open_catalog = partial(_open_catalog, _folder(args))
    open_session = _opener(args, interactive=True)
    settings = load_settings().tui
    return asyncio.run(run_repl(open_session, _request(args), args.message, open_catalog, settings))


def _start_full_screen(args: SimpleNamespace) -> int:
    """Run the front end that fills the terminal; returns the exit code."""
    from ouro.frontends.tui.screen_settings import save_theme, screen_settings_in

    # Without `functools`, which the first frame does not need.
    return run_full_screen(
        screen_settings_in(_folder_name(args)),
        lambda: _opener(args, interactive=True),
        lambda: _request(args),
        args.message,
        save_theme,
        lambda: _open_catalog(_folder(args)),
        may_leave=lambda code: _may_leave(args, code),
        has_launcher=needs_launcher(),
    )


def needs_launcher() -> bool:
    """Whether the session runs in a child of this process: it may leave the terminal later."""
    return _is_program and sys.stdin.isatty() and sys.stdout.isatty()


def _sync_at_end(args: SimpleNamespace, code: int) -> int:
    """Synchronize after a session at a terminal, if the user has set that; returns `code`."""
    if _syncs_at_end(args, code):
        run_action("sync", ["--later"])
    return code


def _may_leave(args: SimpleNamespace, code: int) -> bool:
    """Whether a session may leave its terminal at once: nothing is printed or asked after it."""
    from ouro.errors import OuroError

    try:
        return not args.worktree and not _syncs_at_end(args, code)
    except OuroError:  # the settings are wrong, which `_sync_at_end` reports: it reads them again
        return False


def _syncs_at_end(args: SimpleNamespace, code: int) -> bool:
    """Whether a session that ended with this exit code is followed by a sync."""
    from ouro.settings_sources import load_settings

    is_saved = code == 0 and not args.ephemeral
    return is_saved and load_settings().memory.sync in ("end", "both")


def run_full_screen(
    screen_settings: ScreenSettings,
    get_opener: Callable[[], OpenSession],
    get_request: Callable[[], OpenRequest],
    message: str,
    save_theme: Callable[[str], None] | None = None,
    open_catalog: OpenCatalog | None = None,
    may_leave: Callable[[int], bool] | None = None,
    has_launcher: bool = False,
) -> int:
    """Run the full screen; returns the exit code. The first frame is drawn before the heavy imports: it
    collects the keys that the user types meanwhile. So the session is named by functions.
    """
    from ouro.frontends.tui import first_frame

    frame = first_frame.draw(screen_settings, has_launcher=has_launcher)
    try:
        from ouro.frontends.tui.full_screen import run_tui

        open_session, request = get_opener(), get_request()
    except BaseException:
        frame.restore()
        raise
    return run_tui(
        open_session,
        request,
        message,
        frame,
        save_theme=save_theme,
        open_catalog=open_catalog,
        may_leave=may_leave,
    )


def _opener(args: SimpleNamespace, *, interactive: bool = False) -> OpenSession:
    """Returns a function that opens sessions; with `interactive`, titles and notes are made in the
    background.

    The modules are loaded in a thread with the first session: the prompt is on the screen by then.
    """
    import asyncio
    from functools import cache

    from ouro.utils.log import start_log

    start_log(args.debug)

    @cache
    def make() -> OpenSession:
        """Import what a session needs, and return what opens one. Blocks at first use."""
        from ouro.assemble import opener

        if interactive:
            from ouro.utils.libc_memory import limit_arenas

            limit_arenas()  # imports `ctypes`: 2 ms, too much for one answer
        return opener(_options(args, interactive=interactive))

    async def open_session(request: OpenRequest) -> Session:
        return await (await asyncio.to_thread(make))(request)

    return open_session


def _options(args: SimpleNamespace, *, interactive: bool) -> Options:
    """The options of a session from the flags. A setting that is None or empty is not set by a flag."""
    from ouro.session_options import Options

    stays_open = interactive or args.input == "stream-json"  # else ouro ends with the answer
    return Options(
        cwd=_folder(args),
        settings={
            "model": args.model or None,
            "permissions.mode": args.mode,
            "permissions.allow": tuple(args.allow),
            "permissions.deny": tuple(args.deny),
            "llm.retry_seconds": args.retry,
            "limits.max_turns": args.max_turns,
            "limits.max_cost": args.max_cost,
            "session.wake": None if stays_open else "off",
            "sandbox.enabled": False if args.no_sandbox else None,
        },
        add_dirs=_absolute(args.add_dir),
        ephemeral=args.ephemeral,
        memory=not args.no_memory,
        more_instructions=args.append_system_prompt,
        safe=args.safe,
        interactive=interactive,
        trust=args.trust,
    )


async def _open_catalog(folder: Path) -> SessionCatalog:
    """Read the saved sessions as `_catalog` does, but in a thread. asyncio is imported when this is
    called: the first frame does not need it.
    """
    import asyncio

    return await asyncio.to_thread(_catalog, folder)


def _catalog(folder: Path) -> SessionCatalog:
    """The saved sessions, those of `folder` first. Blocks."""
    from ouro.memory.sessions.session_catalog import SessionCatalog
    from ouro.memory.yaml_backend import YamlFileMemoryStore
    from ouro.safety import SecretMask, secret_values
    from ouro.utils.ouro_paths import get_index_path, get_sessions_dir
    from ouro.utils.path_encoding import path_text

    mask = SecretMask(secret_values(os.environ)).mask
    root = get_sessions_dir()
    return SessionCatalog(
        YamlFileMemoryStore(root, mask), path_text(folder), root, get_index_path()
    )


def _folder(args: SimpleNamespace) -> Path:
    from pathlib import Path

    return Path(_folder_name(args))


def _folder_name(args: SimpleNamespace) -> str:
    """The absolute path of the folder to work in, without symbolic links."""
    return os.path.realpath(os.path.expanduser(args.cd or "."))


def _absolute(folders: Sequence[str]) -> tuple[Path, ...]:

    from ouro.utils.ouro_paths import expand_home

    return tuple(expand_home(folder).absolute() for folder in folders)


def _request(args: SimpleNamespace) -> OpenRequest:
    """The request for the session that the flags name."""
    from ouro.session.opening import OpenRequest

    resume = "latest" if args.latest else args.resume
    return OpenRequest(
        resume, fork=args.fork, part=args.part, trust="no" if args.no_trust else "unknown"
    )
