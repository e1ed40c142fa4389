"""Removes the defences of docs/threats.md one by one, and expects a failing test: `python -m
tests.mutate [CODE …]`.

It works on a copy of the tree, beside the checkout. A defence whose removal no test detects is a failure, and so is an
entry whose text is not in its file exactly once.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).parents[1]
_LIMIT = 150
"""The minimum of seconds for the tests of one defence; a test that hangs without it has detected
its removal.
"""
_MAX_SLOWER = 10
"""For loaded machines: tests hang if they take this many times as long as with all defences."""


class Defence(NamedTuple):
    """A line of defence: `old` in `file` becomes `new`, and one of `tests` below tests/faults
    fails.
    """

    code: str
    file: str
    old: str
    new: str
    tests: str


LOOPS = "test_x6_loops_and_names.py"
SHELL, MEMORY, SESSIONS = "ouro/safety/shell", "ouro/memory/long_term", "ouro/memory/sessions"
CHECKPOINTS = "ouro/safety/checkpoints"
ACTION = ".github/actions/ouro/run.py"
DEFENCES = (
    # tools from files
    Defence("E17", "ouro/extensions/tool_files.py", "if path.parent == of_project and trusts(path):",
            "if path.parent == of_project:", "test_e17_tool_files.py"),
    Defence("E17", "ouro/extensions/tool_files.py", '_WORKER = ("-P", ', "_WORKER = (", "test_e17_tool_files.py"),
    Defence("E17", "ouro/extensions/tool_files.py", 'limits: Limits = "read" if self.effect is Effect.READ else "workspace"',
            'limits: Limits = "off"', "test_e17_tool_files.py"),
    Defence("E17", "ouro/extensions/tool_files.py", 'runs = (\n        host.run(file, request, "read", DESCRIBE_SECONDS)',
            'runs = (\n        host.run(file, request, "off", DESCRIBE_SECONDS)', "test_e17_tool_files.py"),
    Defence("E17", "ouro/extensions/tool_files.py",
            "if value is not None and not any(secret in value for secret in withheld):", "if value is not None:",
            "test_e17_tool_files.py"),
    Defence("E17", "ouro/extensions/tool_files.py",
            'self.own_environment if file.source == "user" else self.environment', "self.own_environment",
            "test_e17_tool_files.py"),
    # batches
    Defence("C2", "ouro/batch/attempt.py",
            "known = self._state.result(task.id)\n            if known is not None:", "known = None\n            if known is not None:",
            "test_c2_batches.py"),
    Defence("C2", "ouro/batch/attempt.py", "pass_fds=(lease,) if lease >= 0 else (),", "pass_fds=(),", "test_c2_batches.py"),
    Defence("C2", "ouro/batch/attempt.py", "left = self._left_behind(task)", "left = None", "test_c2_batches.py"),
    Defence("C2", "ouro/batch/engine.py", "if limit is not None and limit <= 0:", "if False:", "test_c2_batches.py"),
    Defence("C2", "ouro/batch/engine.py", "spent += result.cost or 0.0", "spent += 0.0", "test_c2_batches.py"),
    Defence("C3", "ouro/batch/tasks.py", "if task.id and not _NAME.fullmatch(task.id):", "if False:", "test_c3_tasks.py"),
    Defence("C3", "ouro/batch/tasks.py", "validator_of(task.answer_schema)", "pass", "test_c3_tasks.py"),
    Defence("C3", "ouro/batch/attempt.py", "        return MISFIT", "        pass", "test_c3_tasks.py"),
    Defence("C3", "ouro/batch/attempt.py", '"--trust" if task.trust else "--no-trust"', '"--trust"', "test_c3_tasks.py"),
    Defence("C3", "ouro/batch/attempt.py", 'confinement.wrap(["/bin/sh", "-c", line], "workspace")', '["/bin/sh", "-c", line]',
            "test_c3_tasks.py"),
    Defence("C3", "ouro/batch/attempt.py", "os.environ if lease >= 0 else child_environment(os.environ)", "os.environ",
            "test_c3_tasks.py"),
    Defence("C3", "ouro/batch/attempt.py", 'flags += ["--deny", rule]', "pass", "test_c3_tasks.py"),
    Defence("C3", "ouro/batch/attempt.py", "if target.is_symlink() or target.is_file():", "if False:", "test_c3_tasks.py"),
    Defence("C3", "ouro/batch/attempt.py", '{"OURO_MEMORY_WRITE": "ask"} if task.memory == "read" else {}', "{}", "test_c3_tasks.py"),
    Defence("C3", "ouro/commands/batch.py", "if kind and state.result(task.id) is None:", "if False:", "test_c3_tasks.py"),
    Defence("C4", "ouro/batch/remote.py", 'if sent["version"] != version:', "if False:", "test_c4_orders.py"),
    Defence("C4", "ouro/batch/remote.py", "    if missing:", "    if False:", "test_c4_orders.py"),
    Defence("C4", "ouro/batch/remote.py", "if path.is_relative_to(root) and not path.exists():", "if not path.exists():",
            "test_c4_orders.py"),
    Defence("C4", "ouro/batch/remote.py", "attempt = Attempt(state, has_lifeline=True)", "attempt = Attempt(state)",
            "test_c4_workers.py"),
    Defence("C4", "ouro/batch/remote.py", "        if _is_full(folder):", "        if False:", "test_c4_workers.py"),
    Defence("C4", "ouro/batch/dask_runner.py", "            if parcel.is_unfit:", "            if False:", "test_c4_workers.py"),
    Defence("C4", "ouro/batch/dask_runner.py", 'if self._client.status != "running":', "if False:", "test_c4_workers.py"),
    # sockets of background sessions
    Defence("X22", "ouro/frontends/background/host.py", 'if not is_own_peer(writer.get_extra_info("socket")):', "if False:",
            "test_x22_background_sockets.py"),
    Defence("X22", "ouro/utils/private_socket.py", "if not is_own_peer(connection):", "if False:",
            "test_x22_background_sockets.py"),
    Defence("X22", "ouro/utils/private_socket.py", "except (OSError, struct.error):\n        return False",
            "except (OSError, struct.error):\n        return True", "test_x22_background_sockets.py"),
    Defence("X22", "ouro/utils/private_socket.py", "if owner != own_uid():", "if False:", "test_x22_background_sockets.py"),
    Defence("X22", "ouro/utils/private_socket.py", "if not stat.S_ISSOCK(found.st_mode):", "if False:",
            "test_x22_background_sockets.py"),
    Defence("X22", "ouro/utils/private_socket.py", "if not stat.S_ISDIR(found.st_mode):", "if False:",
            "test_x22_background_sockets.py"),
    Defence("X22", "ouro/utils/private_socket.py", "if stat.S_IMODE(found.st_mode) & 0o077:", "if False:",
            "test_x22_background_sockets.py"),
    Defence("X22", "ouro/frontends/background/viewer.py", "if self._sender.done() or self._outgoing.qsize() >= MAX_WAITING:",
            "if self._sender.done():", "test_x22_background_sockets.py"),
    # programs with a terminal
    Defence("X19", "ouro/tools/shell_input.py", "return job is not None and not job.is_confined", "return False",
            "test_x19_typed_into_programs.py"),
    Defence("X19", "ouro/tools/shell_input.py", "return (args.text,)", 'return ("true",)',
            "test_x19_typed_into_programs.py"),
    # threads
    Defence("X20", "ouro/utils/decoding.py", "    with _first_use:\n", "    if True:\n", "test_x20_first_use_in_threads.py"),
    # a model that answers permission questions
    Defence("X21", "ouro/safety/permissions.py", "if not isinstance(decision, Allow):\n            return None\n        is_confined",
            "if not isinstance(decision, Allow):\n            return Allow()\n        is_confined", "test_x21_judged_calls.py"),
    Defence("X21", "ouro/safety/permissions.py", 'decision.limits != "off" and self.workspace.hides()', "True",
            "test_x21_judged_calls.py"),
    Defence("X21", "ouro/safety/permissions.py", "(isinstance(decision, Ask) and bool(decision.rule))", "isinstance(decision, Ask)",
            "test_x21_judged_calls.py"),
    Defence("X21", "ouro/agent/tool_runner.py", "if is_same and allowed is not None else (None, None)",
            "if (allowed := allowed or Allow()) else (None, None)", "test_x21_judged_calls.py"),
    Defence("X21", "ouro/session/judge.py", 'found.verdict == "allow", reason', "True, reason", "test_x21_judged_calls.py"),
    Defence("X21", "ouro/session/judge.py", "if len(key) > MAX_CALL:", "if False:", "test_x21_judged_calls.py"),
    Defence("X21", "ouro/session/judge.py", 'dump_json(value).replace("<"', 'dump_json(value).replace("\\0"', "test_x21_judged_calls.py"),
    Defence("X21", "ouro/session/judge.py", "if not self.is_on or key in self._revoked:\n            return None\n        words", "words",
            "test_x21_judged_calls.py"),
    # the check of a goal
    Defence("X18", "ouro/session/goal.py", "limits=limits, call_id", 'limits="off", call_id', "test_x18_checks_of_goals.py"),
    Defence("X18", "ouro/commands/goal.py", "session.permissions.find_danger, command)", "str, '')", "test_x18_checks_of_goals.py"),
    Defence("X18", "ouro/session/standing_work.py", "is_kept=True, is_paused=True)", "is_kept=True)", "test_x18_checks_of_goals.py"),
    # review comments
    Defence("M20", f"{MEMORY}/review_comments.py", "elif own.store.secret_in(comment.text):", "elif False:", "test_m20_reviews.py"),
    Defence("M20", f"{MEMORY}/review_comments.py", "_LINK.fullmatch(link) is not None", "True", "test_m20_reviews.py"),
    Defence("M20", f"{MEMORY}/review_comments.py",
            "ids.append(own.propose([edit], _WANTED, sources, editor.moment).id)",
            'ids.append(own.write({edit.name: edit.after}, "x", editor.moment, "import", {}).undo)', "test_m20_reviews.py"),
    # received settings
    Defence("S27", "ouro/synchronize.py", "if problem := _problem_of(name, value):", "if problem := '':",
            "test_s27_received_settings.py"),
    Defence("S27", "ouro/synchronize.py", "if not (asks and context.can_ask):", "if False:", "test_s27_received_settings.py"),
    Defence("S27", "ouro/settings_sources.py", "if name in SHARED_SETTINGS and found", "if found",
            "test_s27_received_settings.py"),
    Defence("S27", "ouro/memory/settings_remote.py", "self._repository.sizes([blob])[0] > _MAX_FILE", "False",
            "test_s27_received_settings.py"),
    # memory of other agents
    Defence("M17", "ouro/commands/memory_offer.py", "offers.was_made, root)", "bool)", "test_m17_offered_imports.py"),
    Defence("M17", f"{MEMORY}/agent_memory.py", "if path.resolve() in in_use:", "if False:", "test_m17_offered_imports.py"),
    Defence("M17", f"{MEMORY}/import_files.py", "return trust.was_trusted(root) and trust", "return True or trust",
            "test_m17_offered_imports.py"),
    Defence("M17", "ouro/frontends/tui/screens/conversation.py", "self.start.is_open and self.start.has_room", "True",
            "test_m17_offered_imports.py"),
    # sessions
    Defence("S1", f"{SESSIONS}/session_file.py", 'return records, b"" if _BLANK.match(tail) else tail',
            'return [*records, *_raw_records(tail, offset + position, len(tail))], b""', "test_s1_s2_s3_cut_saves.py"),
    Defence("S2", f"{SESSIONS}/session_file.py", "os.ftruncate(descriptor, size)", "pass",
            "test_s1_s2_s3_cut_saves.py"),
    Defence("S3", f"{SESSIONS}/session_file.py", "set_tail_aside(self.folder, descriptor)\n            size", "size",
            "test_s1_s2_s3_cut_saves.py"),
    Defence("S4", f"{SESSIONS}/session_file.py", "lock_descriptor(self._descriptor, timeout=0)", "pass",
            "test_s4_two_writers.py"),
    Defence("S6", "ouro/utils/yaml.py", "elif event.anchor is not None or ", "elif ", "test_s6_hostile_yaml.py"),
    Defence("S6", "ouro/utils/yaml.py", " or len(outer) >= max_depth:", ":", "test_s6_hostile_yaml.py"),
    Defence("S6", "ouro/utils/yaml.py", "or len(outer) >= max_depth", "or False", "../utils/test_yaml_tree.py"),
    Defence("S7", f"{SESSIONS}/session_file.py", "length, is_whole=False\n", "length\n",
            "test_s7_s8_s9_s10_records.py test_s1_s2_s3_cut_saves.py"),
    Defence("S13", f"{SESSIONS}/session_file.py", "flags | os.O_NOFOLLOW | os.O_NONBLOCK", "flags | os.O_NONBLOCK",
            "test_s13_s14_s15_s16_places.py"),
    Defence("S13", f"{SESSIONS}/session_file.py", "if found.st_mode & 0o077:", "if False:",
            "test_s13_s14_s15_s16_places.py"),
    Defence("S13", f"{SESSIONS}/session_file.py", "if os.fstat(place).st_uid != os.getuid():", "if False:",
            "test_s13_s14_s15_s16_places.py"),
    Defence("S16", f"{SESSIONS}/session_folders.py", "if session_id in names:", "if (place / session_id).exists():",
            "test_s13_s14_s15_s16_places.py"),
    Defence("S17", f"{SESSIONS}/session_file.py", "os.fsync(descriptor)\n                self._note_end(desc",
            "self._note_end(desc", "test_s17_order_on_disk.py"),
    Defence("S17", "ouro/utils/files.py", "os.fsync(descriptor)\n                status", "status",
            "test_s17_order_on_disk.py"),
    # memory
    Defence("M1", f"{MEMORY}/trust/provenance.py", "if not self.sources:", "if True:", "test_m1_words_of_others.py"),
    Defence("M1", f"{MEMORY}/recall/dead_ends.py", "if not is_file or _NAME.fullmatch(name)", "if True", "test_m1_dead_ends.py"),
    Defence("M1", f"{MEMORY}/recall/dead_ends.py", "self.repo.propose([edit], reason, sources, turn)",
            "self.repo.store.save_and_commit({note.file_name: note_text(note)}, reason, {})", "test_m1_dead_ends.py"),
    Defence("M1", f"{MEMORY}/trust/states.py",
            '"pending", ("store the proposal", "record the lines", "withdraw the lines")',
            '"trusted", ("commit the lines",)', "test_m1_words_of_others.py"),
    Defence("M21", f"{MEMORY}/recall/other_projects.py", "or store.find_unapproved([place.name])", "",
            "test_m21_other_projects.py"),
    Defence("M21", f"{MEMORY}/recall/other_projects.py",
            "if not is_memory_trusted(project, self.finder.cwd):", "if False:", "test_m21_other_projects.py"),
    Defence("M21", f"{MEMORY}/recall/other_projects.py", "and not _is_rule(hit)", "", "test_m21_other_projects.py"),
    Defence("M21", f"{MEMORY}/recall/other_projects.py", "note, self._chosen = self._chosen, None",
            "note, self._chosen = self.offered, None", "test_m21_other_projects.py"),
    Defence("M2", f"{MEMORY}/prompt_block.py", "\\n{quoted(text)}\\n", "\\n{text}\\n", "test_m2_words_that_pose.py"),
    Defence("M3", f"{MEMORY}/git/files.py", "with self._lock:\n            self._listing",
            "if True:\n            self._listing", "test_m3_memory_from_outside.py"),
    Defence("M3", f"{MEMORY}/scope.py", "if not agent_was_idle or self.foreign:", "if False:",
            "test_m3_memory_from_outside.py"),
    Defence("M3", f"{MEMORY}/git/approved_files.py", "if contents_of(now) != contents:", "if False:",
            "test_m3_memory_from_outside.py"),
    Defence("M3", f"{MEMORY}/trust/approval.py", "may_be_ours = is_own or not provenance.knows_all_writing",
            "may_be_ours = True", "test_m3_memory_from_outside.py"),
    Defence("M4", f"{SHELL}/floor.py", "elif not only_reads(command) or command.settings:",
            "elif False:", "test_m4_commands_that_write_memory.py"),
    Defence("M4", f"{SHELL}/floor.py", "if reason := folder.tampered():", 'if reason := "":',
            "test_m4_commands_that_write_memory.py"),
    Defence("M5", f"{MEMORY}/git/repository.py", "lock_descriptor(descriptor, timeout)", "pass",
            "test_m5_concurrent_commits.py"),
    Defence("M5", f"{MEMORY}/trust/effects.py", "if is_decided and edit.name not in group.others:",
            "if is_decided:",
            "test_m5_side_by_side.py"),
    Defence("M5", f"{MEMORY}/trust/effects.py", "self._store.find(name)) for name, edits in without",
            "edits[0].after) for name, edits in without", "test_m5_side_by_side.py"),
    Defence("M5", f"{MEMORY}/trust/scope_state.py", "return not self._unapproved_seen", "return not self.foreign",
            "test_m5_side_by_side.py"),
    Defence("M6", f"{MEMORY}/git/process.py", "if name not in variables]",
            "if False]", "test_m6_odd_repositories.py"),
    Defence("M7", "ouro/utils/git_process.py", "return variables | dict(own or {})", "return dict(os.environ)",
            "test_m7_hostile_git_settings.py"),
    Defence("M7", "ouro/utils/git.py", "open_regular(path, os.O_NOFOLLOW)", "open_regular(path)",
            "test_m7_hostile_git_settings.py -k git_file"),
    Defence("M8", f"{MEMORY}/trust/approval.py",
            "if kind := finds_secret(", 'if kind := "" and finds_secret(',
            "test_m8_secrets_in_memory.py"),
    Defence("M9", f"{MEMORY}/git/files.py", "if found.st_nlink > 1:", "if False:", "test_m9_links_and_devices.py"),
    Defence("M9", f"{MEMORY}/git/files.py", "if self.folder.is_symlink():", "if False:",
            "test_m9_links_and_devices.py"),
    Defence("M9", f"{MEMORY}/git/files.py", "if stat.S_ISLNK(mode):", "if False:",
            "test_m9_links_and_devices.py"),
    Defence("M10", f"{MEMORY}/git/files.py",
            "twins = _twins(by_name, odd) if odd else {}", "twins = {}", "test_m10_huge_and_odd_files.py"),
    Defence("M12", f"{MEMORY}/git/files.py", 'seen = clean(text)', "seen = text",
            "test_m12_invisible_text.py"),
    # extensions
    Defence("F7", "ouro/tools/web_search.py", "return (self._address(self._url, args.query),)",
            "return (self._url,)", "../tools/test_web_search.py -k f7"),
    Defence("F7", "ouro/tools/model_search.py", "return (self._address(self._found().url, args.query),)",
            "return (self._found().url,)", "../tools/test_model_search.py -k secret"),
    Defence("E14", "ouro/lsp/stdio.py", "if self._is_flooded(length):", "if False:", "test_e14_language_servers.py"),
    Defence("E14", "ouro/lsp/stdio.py", "if garbage > MAX_GARBAGE:", "if False:", "test_e14_language_servers.py"),
    Defence("E14", "ouro/lsp/stdio.py", "if length > MAX_MESSAGE:", "if False:", "test_e14_language_servers.py"),
    Defence("E14", "ouro/lsp/diagnostics.py", "if path is None or not path.is_relative_to(self._root):", "if path is None:",
            "test_e14_language_servers.py"),
    Defence("E14", "ouro/lsp/connection.py", "if self._silent >= MAX_SILENT:", "if False:",
            "test_e14_language_servers.py"),
    Defence("E14", "ouro/lsp/servers.py", 'if self.state == "failed" and self.failures > MAX_RESTARTS:', "if False:",
            "test_e14_language_servers.py"),
    Defence("E14", "ouro/lsp/configuration.py", "filter(os.path.isabs, search_path.split(os.pathsep))",
            "search_path.split(os.pathsep)", "test_e14_language_servers.py"),
    Defence("E14", "ouro/assemble_extensions.py", "is_used = settings.enabled and basis.inputs.trusted",
            "is_used = settings.enabled", "test_e14_language_servers.py"),
    Defence("E14", "ouro/assemble_extensions.py", """        root,
        environment,
        lambda text, level: tasks.emit(Notice(text, level)),
        lambda argv: confinement.wrap(argv, "workspace"),""", """        root,
        environment,
        lambda text, level: tasks.emit(Notice(text, level)),
        lambda argv: argv,""", "test_e14_language_servers.py"),
    Defence("E4", "ouro/assemble_extensions.py", "(path := root / name).is_file() and trusts(path)",
            "(path := root / name).is_file()", "../session/test_session_hooks.py -k e4"),
    Defence("E5", "ouro/extensions/hook_process.py", "send_signal(process.pid, signal.SIGKILL, group=True)", "pass",
            "../extensions/test_hooks.py -k e5"),
    Defence("E5", "ouro/extensions/hook_process.py", "kept = data[: max(0, max_bytes - len(into))]", "kept = data",
            "../extensions/test_hooks.py -k e5"),
    Defence("E11", "ouro/extensions/hooks.py", "    if garbled:\n", "    if False:\n", "test_e11_unreadable_hooks.py"),
    Defence("E11", "ouro/extensions/hooks.py", "    if not hook.is_guard:\n", "    if True:\n",
            "test_e11_unreadable_hooks.py"),
    Defence("E11", "ouro/extensions/hooks.py", 'start = out.find("{", at)', 'start = 0 if at == 0 and out[:1] == "{" else -1',
            "test_e11_unreadable_hooks.py"),
    Defence("E6", "ouro/safety/permissions.py",
            "return narrower(self._mode, self._parent.mode) if self._parent else self._mode", "return self._mode",
            "../agent/test_subagents.py -k e6"),
    Defence("E6", "ouro/agent/subagents.py", "if calls_made >= most:", "if False:",
            "../agent/test_subagents.py -k e6"),
    Defence("R2", "ouro/extensions/hooks.py", 'if verdict == "allow" and hook.is_project:', "if False:",
            "../extensions/test_hooks.py -k r2"),
    Defence("R2", "ouro/extensions/hooks.py", "if hook.is_project and not hook.check:", "if False:",
            "../extensions/test_hooks.py -k r2"),
    Defence("R2", "ouro/mcp/servers.py", "if command and settings.sandbox else", "if False else",
            "../mcp/test_servers.py -k sandbox"),
    Defence("R2", "ouro/commands/folder.py", "            confine=confine,\n", "",
            "../commands/test_mcp.py -k r2"),
    # commands and file tools
    Defence("X1", "ouro/tools/truncate.py", "del self._tail[: -MAX_IN_MEMORY // 2]", "pass",
            "test_x1_endless_output.py"),
    Defence("X1", "ouro/tools/truncate.py", "if data := data[: self._room]:", "if data:", "test_x1_endless_output.py"),
    Defence("X2", "ouro/tools/shell_process.py", "for pid in self._members() - {self._process.pid}:",
            "for pid in ():", "test_x2_processes_that_stay.py"),
    Defence("X2", "ouro/tools/shell_process.py", 'ulimit -S -m "$1"; ', "",
            "test_x2_processes_that_stay.py"),
    Defence("X2", "ouro/tools/shell_process.py", '{ ulimit -S -u "$2" || ulimit -S -p "$2"; } 2>&-; ', "",
            "test_x2_processes_that_stay.py"),
    Defence("X2", "ouro/safety/sandbox/confinement.py", """removesuffix('exec "$@"') + WATCHED""", "strip()",
            "test_x2_processes_that_stay.py"),
    Defence("X2", "ouro/tools/shell.py", "refusal, *_describe_left(left)]", "refusal]",
            "test_x2_processes_that_stay.py"),
    Defence("X3", "ouro/tools/shell_process.py", "start_new_session=True,", "", "test_x3_no_terminal.py"),
    Defence("X3", "ouro/tools/shell_process.py", "environment, asyncio.subprocess.DEVNULL,", "environment, None,", "test_x3_no_terminal.py"),
    Defence("X4", "ouro/safety/environment.py", "_looks_secret(name, value) or ", "", "test_x4_keys_of_the_parent.py"),
    Defence("X4", "ouro/safety/environment.py", " or _SECRET_VALUE.search(value)", "", "test_x4_keys_of_the_parent.py"),
    Defence("X4", "ouro/safety/sandbox/confinement.py", 'if limits == "off":', "if True:",
            "test_x4_keys_of_the_parent.py"),
    Defence("X6", f"{SHELL}/parse.py", "((?:(?!\\2)[^", "((?:(?!\\2\\n)[^", "test_x6_shell_judge.py"),
    Defence("X6", f"{SHELL}/parse.py", "return reads_documents or not", "return True or not", "test_x6_shell_judge.py"),
    Defence("X6", f"{SHELL}/parse.py", 'self._opaque("a word of it continues in the next line")', "pass",
            "test_x6_shell_judge.py"),
    Defence("X6", f"{SHELL}/parse.py", 'self._opaque(f"it uses `{operator}`")', "pass", "test_x6_shell_judge.py"),
    Defence("X6", f"{SHELL}/read_only.py", ' and not re.match(r"-[^\\d]", rest[0].text)', "", "test_x6_battery.py"),
    Defence("X6", f"{SHELL}/read_only.py", "and not has_no_pattern", "", "test_x6_battery.py"),
    Defence("X6", f"{SHELL}/parse.py", 'if word.text.startswith("~"):', "if False:", LOOPS),
    Defence("X6", f"{SHELL}/parse.py", "_REST_OF_LINE.match(self._text, self._at)", "True", LOOPS),
    Defence("X6", f"{SHELL}/parse.py", "for name in loop.variables:", "for name in ():", LOOPS),
    Defence("X6", f"{SHELL}/parse.py", "if files := [", "if False and [", LOOPS),
    Defence("X6", f"{SHELL}/parse.py", " if self._is_certain else None\n        if match is", "\n        if match is",
            "test_x6_battery.py"),
    Defence("X6", f"{SHELL}/needs.py", "if is_own_program or _mixes", "if _mixes", LOOPS),
    Defence("X6", f"{SHELL}/needs.py", "return filters and not writes", "return True", LOOPS),
    Defence("X6", f"{SHELL}/read_only.py", "if not _GIT_SETTING.fullmatch(word.text)", "if False",
            "test_x6_battery.py"),
    Defence("X6", f"{SHELL}/wrappers.py", " and _ALTERNATIVES.isdisjoint(texts)", "", LOOPS),
    Defence("X6", f"{SHELL}/paths.py", '[word.text] if command.name == "diff"', '[] if command.name == "diff"', LOOPS),
    Defence("X6", f"{SHELL}/read_only.py", '== ["{}", "+"]', '[-1:] == ["+"]', LOOPS),
    Defence("X6", f"{SHELL}/wrappers.py", "        if not _prints_lines_unchanged(command):\n", "        if False:\n", LOOPS),
    Defence("X6", f"{SHELL}/wrappers.py", "if not all(_UNDERSTOOD.fullmatch(", "if False and (_UNDERSTOOD.fullmatch(", LOOPS),
    Defence("X6", f"{SHELL}/paths.py", "if is_split and (odd := ", "if False and (odd := ", LOOPS),
    Defence("X6", f"{SHELL}/paths.py", "self.tracked(lister, ODD_NAME.search)", "\"\"", LOOPS),
    Defence("X6", f"{SHELL}/judge.py", " or _find_unknown(self.line)", "", LOOPS),
    Defence("X6", f"{SHELL}/paths.py", '".." if re.fullmatch(', '"" if re.fullmatch(', "test_x6_battery.py"),
    Defence("X6", f"{SHELL}/read_only.py", "(number or word.glob or word.under)", "False", "test_x6_shell_judge.py"),
    Defence("X6", f"{SHELL}/read_only.py", "is_listed and name in row.letters", "is_listed", "test_x6_shell_judge.py"),
    Defence("X6", f"{SHELL}/tables.py", 're.compile(r"(?!-v)(?!', 're.compile(r"(?!',
            "test_x6_shell_judge.py"),
    Defence("X6", f"{SHELL}/needs.py", "setting := _program_of_git(command, places)", 'setting := ""',
            "test_x6_shell_judge.py"),
    Defence("X6", f"{SHELL}/floor.py", '    CommandCheck("irreversible", _check_irreversible),\n', "",
            "../safety/test_permissions.py"),
    Defence("X7", "ouro/frontends/tui/widgets/question_panel.py", "self._listens_from = time.monotonic() + self.GRACE",
            "self._listens_from = 0.0", "../frontends/tui/widgets/test_question_panel.py -k x7"),
    Defence("X8", "ouro/tools/shell_process.py", "if not cwd.exists():", "if False:",
            "test_x8_folders_that_are_gone.py"),
    Defence("X9", "ouro/tools/files_seen.py",
            "if seen not in ((size, _digest(found.data)), (size, found.stat.st_mtime_ns)):", "if False:",
            "test_x9_parallel_edits.py"),
    Defence("X9", "ouro/tools/files_seen.py", "held.enter_context(lock)", "pass", "test_x9_parallel_edits.py"),
    Defence("X10", "ouro/safety/workspace.py", "self.check(real, access)\n            yield FilePlace",
            "yield FilePlace", "test_x10_file_tools.py"),
    Defence("X10", "ouro/safety/rules.py", " if is_enough else ", " if False else ", "test_x10_places_of_keys.py"),
    Defence("X10", "ouro/safety/workspace.py", "        if not self._covers(path):", "        if False:",
            "test_x10_file_tools.py"),
    Defence("X10", "ouro/safety/workspace.py", 'if access == "write" and (reason := self._protection(path)):',
            'if reason := "":', "test_x10_file_tools.py"),
    Defence("X10", "ouro/safety/sandbox/confinement.py", "hidden += self._kept_back", "pass",
            "test_x10_denied_files.py -k programs"),
    Defence("X10", "ouro/safety/sandbox/landlock.py", '_all_but(path, plan["hidden"])', "[path]",
            "test_x10_denied_files.py -k programs"),
    Defence("X10", "ouro/safety/shell/judge.py", '    LineRule("leak", _ask_about_a_leak),\n', "", "test_x10_denied_files.py"),
    Defence("X10", "ouro/safety/permissions.py", "if time.time_ns() - status.st_ctime_ns > _SETTLED:", "if True:",
            "test_x10_denied_files.py"),
    Defence("X10", "ouro/safety/permissions.py", "status.st_ctime_ns, ", "", "test_x10_denied_files.py"),
    Defence("X10", "ouro/safety/permissions.py", "if len(found) > _MAX_UNREADABLE or seen > _MAX_SEEN:", "if False:",
            "test_x10_denied_files.py -k too_many"),
    Defence("X10", "ouro/safety/permissions.py", "*(self._parent._roots if self._parent else ())", "",
            "test_x10_denied_files.py -k subagent"),
    Defence("X10", "ouro/safety/workspace.py", "if not stat.S_ISREG(found.st_mode):", "if False:",
            "test_x10_file_tools.py"),
    Defence("X10", "ouro/safety/workspace.py", "            if area is None or protected.is_under(folder, area)\n", "",
            "test_x10_places_of_keys.py"),
    Defence("X10", "ouro/agent/tool_runner.py", "while isinstance(decision, Ask) and decision != answered:",
            "while isinstance(decision, Ask) and answered is None:", "test_x10_no_more_than_was_shown.py"),
    Defence("S18", "ouro/agent/tool_runner.py", "if self._save:", "if False:",
            "test_s18_parallel_results.py"),
    Defence("S19", f"{SESSIONS}/session_file.py", "self.check(descriptor)", "pass", "test_s19_lost_files.py"),
    Defence("S19", f"{SESSIONS}/session_file.py", 'save_beside(self.folder, "found", found)', "None",
            "test_s19_lost_files.py"),
    Defence("X2", "ouro/tools/grep.py", "(found := _TOO_LARGE.search(line))",
            "(found := None)", "test_x2_searches.py"),
    Defence("S20", f"{SESSIONS}/session_reader.py", "if found and (not found[1].isdigit() or int(found[1]) > FORMAT):",
            "if False:", "test_s20_newer_formats.py"),
    Defence("S21", "ouro/memory/session_sync.py", "if header.id != other.id:", "if False:",
            "../memory/test_session_sync.py"),
    Defence("S21", "ouro/memory/session_sync.py", "is_damaged or ends_in_a_record)", "is_damaged)",
            "../memory/test_session_sync.py"),
    Defence("S23", "ouro/memory/sessions/session_catalog.py", " or project in self._earlier_paths", "",
            "test_s23_moved_projects.py"),
    Defence("S23", "ouro/memory/sessions/moved_projects.py", ":{_birth(folder, found)}", "",
            "test_s23_moved_projects.py"),
    Defence("S22", "ouro/memory/session_compare.py", "if here.startswith(body):", "if False:",
            "test_s22_remotes_that_go_back.py"),
    Defence("S22", "ouro/memory/session_compare.py", "else SyncStep.LEAVE\n    if here == body",
            "else SyncStep.TAKE\n    if here == body", "test_s22_remotes_that_go_back.py"),
    Defence("S22", "ouro/memory/session_compare.py", "else SyncStep.FORK", "else SyncStep.TAKE",
            "test_s22_remotes_that_go_back.py"),
    Defence("S22", "ouro/memory/session_compare.py", "if not any(repeated):", "if True:",
            "test_s22_remotes_that_go_back.py -k other_bytes"),
    Defence("S22", "ouro/memory/session_sync.py", "len(set(found)) < len(found) or ", "",
            "test_s22_remotes_that_go_back.py"),
    Defence("S22", "ouro/memory/session_sync.py", " or not other.is_complete", "",
            "test_s22_remotes_that_go_back.py"),
    Defence("S22", "ouro/memory/session_remote.py", "data) != name:", "data) != name and False:",
            "test_s22_remotes_that_go_back.py"),
    Defence("S22", "ouro/memory/session_remote.py", "or not self._has(newest.tip)", "",
            "test_s22_remotes_that_go_back.py"),
    Defence("S22", "ouro/memory/session_remote.py", "self._state.generation < newest.generation or", "",
            "test_s22_remotes_that_go_back.py -k new_commit"),
    Defence("S24", "ouro/memory/session_remote.py", " or self._key_file.exists()", "",
            "test_s24_sent_without_encryption.py"),
    Defence("S24", "ouro/memory/session_remote.py", "or bool(sealed) or", "or sealed == self._address or",
            "test_s24_sent_without_encryption.py"),
    Defence("S24", "ouro/memory/session_remote.py", "return sealed == self._address", "return False",
            "test_s24_sent_without_encryption.py"),
    Defence("S25", "ouro/utils/git_process.py", "            on_wait(seconds)", "            pass",
            "test_s25_remotes_that_hang.py"),
    Defence("S25", "ouro/utils/git_process.py",
            "send_signal(process.pid, signal.SIGKILL, group=profile in _OWN_GROUP)", "process.kill()",
            "test_s25_remotes_that_hang.py"),
    Defence("S25", f"{MEMORY}/git/remote_wait.py", "timeout=_LOCK_STEP", "timeout=None",
            "test_s25_remotes_that_hang.py"),
    Defence("S25", "ouro/commands/sessions.py", "report = sync_sessions(", "report = await asyncio.to_thread(sync_sessions,",
            "test_s25_remotes_that_hang.py"),
    Defence("S26", "ouro/utils/files.py", "int(words[0]) <= LAYOUT", "True", "test_s26_newer_layouts.py -k action_on"),
    Defence("S26", f"{MEMORY}/git/folders.py",
            "demand_known_layout(git_dir / MARK, str(git_dir), MemoryUnusable)", "pass",
            "test_s26_newer_layouts.py -k action_on"),
    Defence("S26", f"{MEMORY}/git/folders.py",
            "demand_known_layout(own_dir / MARK, str(own_dir.parent), MemoryUnusable)", "pass",
            "test_s26_newer_layouts.py -k action_on"),
    Defence("S26", f"{SESSIONS}/session_folders.py", "demand_known_layout(root / MARK, str(root), SessionError)",
            "pass", "test_s26_newer_layouts.py -k no_session"),
    Defence("S26", f"{SESSIONS}/usage.py",
            "demand_known_layout(self._mark, str(self._path), SpendingUnreadable)", "pass",
            "test_s26_newer_layouts.py -k spending"),
    Defence("S26", f"{CHECKPOINTS}/checkpoint_repository.py", "demand_known_layout(base / MARK, str(base), CheckpointError)",
            "pass", "test_s26_newer_layouts.py -k checkpoints"),
    Defence("S26", "ouro/memory/index/index.py", "if version > VERSION:", "if False:",
            "test_s26_newer_layouts.py -k newer_index"),
    Defence("S21", "ouro/memory/session_remote.py", "if must_seal:\n                raise",
            "if False:\n                raise", "../memory/test_session_sync.py"),
    Defence("X12", "ouro/tools/files_seen.py", "(char := unconfirmed(before, file)):",
            "(char := unconfirmed(before, file)) and False:", "test_x12_foreign_encodings.py"),
    Defence("X14", "ouro/assemble_memory.py", "path_text(scope.store.folder)", "str(scope.store.folder)",
            "test_x14_paths_that_are_not_utf8.py -k each_command"),
    Defence("X14", "ouro/tools/grep.py", 'path = _ripgrep_path(data["path"])', 'path = _ripgrep_text(data["path"])',
            "test_x14_paths_that_are_not_utf8.py -k tools_find"),
    Defence("X15", "ouro/tools/similar_names.py", 'return similar[0] if similar else ""', 'return ""',
            "test_x15_similar_names.py"),
    Defence("X15", "ouro/tools/similar_names.py", "if len(similar) > 1:", "if False:",
            "test_x15_similar_names.py -k several_files"),
    Defence("X16", "ouro/safety/key_places.py", '    ".mozilla",\n', "", "test_x16_fifty_places_of_keys.py"),
    Defence("X16", "ouro/safety/sandbox/confinement.py", "for place in existing(protected.existing_reserved())",
            "for place in existing(())", "test_x16_fifty_places_of_keys.py -k confined_program"),
    Defence("X2", "ouro/safety/sandbox/tiers.py", "keeps_tag=True", "keeps_tag=False",
            "test_x2_processes_that_stay.py -k landlock"),
    Defence("X2", "ouro/tools/shell_process.py", "sum(parent not in parents for parent in parents.values())", "0",
            "test_x2_processes_that_stay.py -k left_running_is_named"),
    Defence("X2", "ouro/safety/sandbox/tiers.py", '?" 1 "*)', "*)",
            "test_x2_processes_that_stay.py -k left_running_is_named"),
    Defence("X8", "ouro/cli.py", "_report(_deleted_folder() or plain_error(error))", "_report(plain_error(error))",
            "test_x8_folders_that_are_gone.py -k named_at_start"),
    Defence("X8", "ouro/agent/environment.py", '.read, "status", "--short")', '.ask, "status", "--short")',
            "test_x8_folders_that_are_gone.py -k git_refuses"),
    Defence("X17", "ouro/tools/text_match.py", "for line in fresh] if pairs else list(fresh)",
            "for line in ()] if () else list(fresh)", "test_x17_own_characters.py"),
    Defence("X13", "ouro/tools/apply_patch.py", "                    require_writable(step.found)\n", "                    pass\n",
            "test_x13_read_only_files.py -k refused_as_a_whole"),
    Defence("E13", "ouro/safety/checkpoints/turn_journal.py",
            "            self.written.pop(kept[0], None)  # a tool changes it again\n", "",
            "test_e13_killed_turns.py -k writing_again"),
    Defence("E13", f"{CHECKPOINTS}/checkpoints.py", "        sweep_written_dirs(())", "        pass",
            "test_e13_killed_turns.py -k half_written"),
    Defence("E13", "ouro/safety/checkpoints/turn_journal.py", "_PATIENCE if is_awaited else 0.0", "0.0",
            "test_e13_killed_turns.py -k waited_for"),
    Defence("E13", f"{CHECKPOINTS}/checkpoints.py", "changes.lost[name] = reason", "pass",
            "../safety/checkpoints/test_large_files.py -k nested_repository_are_named"),
    Defence("E13", f"{CHECKPOINTS}/checkpoints.py", 'changes.lost[name] = f"it is over {limit} now"', "pass",
            "../safety/checkpoints/test_large_files.py -k grown_files"),
    Defence("E13", f"{CHECKPOINTS}/undo.py", "        if self.leads_away(file):\n", "        if False:\n",
            "../safety/checkpoints/test_large_files.py -k became_a_link"),
    Defence("X13", "ouro/tools/files_seen.py", "not found.stat.st_mode & 0o222", "False",
            "test_x13_read_only_files.py"),
    Defence("X11", "ouro/memory/session_remote.py", "        self.repository.drop_leftovers(older_than=_TIMEOUT)\n", "",
            "test_x11_left_by_kills.py -k sync_of_sessions"),
    Defence("X11", "ouro/memory/long_term/sync.py", "    repo.drop_leftovers(_MAX_FETCH_SECONDS)\n", "",
            "test_x11_left_by_kills.py -k sync_of_memory"),
    Defence("X11", "ouro/tools/shell_process.py", "if _namespace(pid) == _namespace(os.getpid()) and",
            "if False and", "test_x11_left_by_kills.py"),
    Defence("X11", "ouro/memory/yaml_backend.py", "            await self._sweep()\n", "", "test_x11_left_by_kills.py"),
    # models
    Defence("L1", "ouro/llm/model_call.py", "if self.reason is None:", "if False:", "test_l1_l2_streams_that_break.py"),
    Defence("L1", "ouro/llm/wire.py", "await self._check_kind(response)", "pass",
            "test_l1_l2_streams_that_break.py"),
    Defence("L1", "ouro/llm/model_call.py", 'raise EmptyAnswer("The model returned no text and no tool call.")',
            "return self.message()", "test_l1_l2_streams_that_break.py"),
    Defence("L2", "ouro/llm/model_call.py", 'block.kind == "call" and not cut:', 'block.kind == "call":',
            "test_l1_l2_streams_that_break.py test_l3_l6_l9_in_a_turn.py"),
    Defence("L3", "ouro/llm/model_call.py", "while call_id in taken or not _USABLE_ID.fullmatch(call_id):",
            "if not call_id:", "test_l3_calls_that_are_wrong.py test_l3_l6_l9_in_a_turn.py"),
    Defence("L3", "ouro/agent/tool_runner.py", "if call.malformed:", "if False:", "test_l3_l6_l9_in_a_turn.py"),
    Defence("L4", "ouro/llm/provider_errors.py", "redact(words, endpoint.api_key).split()", "words.split()",
            "test_l4_l5_l6_refusals.py"),
    Defence("L5", "ouro/llm/model_call.py", "if wait > MAX_WAIT:\n                    break", "pass",
            "../llm/test_retry.py"),
    Defence("L7", "ouro/llm/wire.py", "limit = self._endpoint.timeouts.idle", "limit = None",
            "test_l7_l8_l9_l10_waiting_and_stopping.py"),
    Defence("L11", "ouro/llm/wire.py", "    if None in counts:\n        return None\n", "", "test_l11_odd_answers.py"),
    Defence("L11", "ouro/llm/wire.py", "asyncio.timeout_at(deadline)", "asyncio.timeout(None)",
            "test_l11_odd_answers.py"),
    Defence("L11", "ouro/llm/event_stream.py", 'getincrementaldecoder("utf-8-sig")', 'getincrementaldecoder("utf-8")',
            "test_l11_odd_answers.py"),
    Defence("L13", "ouro/llm/text_tools.py", "if broken := _broken_by(calls, messages):",
            "if broken := None:", "../llm/test_small_steps.py"),
    Defence("L11", "ouro/llm/event_stream.py", "decompress(data, MAX_PIECE)", "decompress(data)",
            "test_l11_odd_answers.py"),
    Defence("S10", "ouro/memory/record_fields.py", "        data = _repair(data, path, problem)", "        break",
            "test_s7_s8_s9_s10_records.py"),
    Defence("L12", "ouro/llm/model_call.py", '_INCOMPLETE.get(self.reason, "")', '""', "test_l12_cut_answers.py"),
    Defence("L12", "ouro/agent/loop.py", 'TurnFinished("cut", incomplete) if incomplete else', "",
            "test_l12_cut_answers.py"),
    Defence("L8", "ouro/llm/http_client.py", "follow_redirects=False", "follow_redirects=True",
            "test_l7_l8_l9_l10_waiting_and_stopping.py"),
    Defence("L14", "ouro/agent/loop.py", "if progress.idle < limits.max_idle_calls:", "if True:",
            "test_l14_turns_in_circles.py"),
    Defence("L14", "ouro/agent/loop.py", "if progress.failures >= limits.max_failures:", "if False:",
            "test_l14_turns_in_circles.py"),
    Defence("L14", "ouro/agent/loop.py", "if looks and await asyncio.to_thread(progress.has_changed_files):", "if False:",
            "test_l14_turns_in_circles.py"),
    Defence("L9", "ouro/llm/model_call.py", "if self._size > MAX_CHARACTERS:", "if False:",
            "test_l7_l8_l9_l10_waiting_and_stopping.py"),
    Defence("L9", "ouro/llm/streamed_answer.py", "if len(self.text) > MAX_CHARACTERS:", "if False:",
            "../llm/test_text_tools.py -k endless_held_back"),
    # terminal
    Defence("U1", "ouro/utils/text.py", "return _INVISIBLE.sub(_replacement, text)", "return text",
            "test_u1_u2_u3_u6_transcript.py test_u1_errors.py"),
    # sandbox
    Defence("B1", "ouro/safety/sandbox/tiers.py", '    "--unshare-pid",\n', "", "test_b1_b3_sandbox_escapes.py"),
    Defence("B1", "ouro/safety/sandbox/seccomp.py", "denied.append(_CONNECT[column])", "pass",
            "test_b1_b3_sandbox_escapes.py"),
    Defence("B1", "ouro/safety/sandbox/tiers.py", 'return ["--ro-bind", "/dev/null", str(place)]', "return []",
            "test_b1_b3_sandbox_escapes.py"),
    Defence("B1", "ouro/safety/sandbox/proxy.py",
            "for name in addresses if is_own or is_on_internet(name)]", "for name in addresses]",
            "../safety/sandbox/test_proxy.py"),
    Defence("B1", "ouro/safety/sandbox/proxy.py", '("proxy-", "connection:", "host:")', '("proxy-", "connection:")',
            "../safety/sandbox/test_proxy.py"),
    Defence("B5", "ouro/safety/sandbox/acting_files.py",
            "if self._accepted.get(place) != kind and not is_plain_repository(Path(place)):", "if False:",
            "test_b5_acting_files.py"),
    Defence("B5", "ouro/safety/sandbox/acting_files.py", "if before == after or _is_harmless", "if True or _is_harmless",
            "test_b5_acting_files.py"),
    Defence("B5", "ouro/safety/sandbox/acting_files.py", "and (not config.exists() or _is_plain_config(_start_of(config)))",
            "and True", "test_b5_acting_files.py"),
    Defence("B5", "ouro/safety/protected.py", 'if any(_is_acting_name(name, above) for', "if any(False for",
            "test_b5_acting_files.py"),
    Defence("B1", "ouro/safety/sandbox/landlock.py", "handled & ~_NEVER", "handled", "test_b1_b3_sandbox_escapes.py"),
    Defence("B1", "ouro/safety/sandbox/landlock.py", '(*plan["hidden"], _DEVICE_FOLDER)', 'plan["hidden"]',
            "test_b1_b3_sandbox_escapes.py -k other_devices"),
    Defence("B1", "ouro/safety/sandbox/seccomp.py", "_TYPES_INTO_TERMINAL = (0x5412, 0x541C)", "_TYPES_INTO_TERMINAL = (0x541C,)",
            "test_b1_b3_sandbox_escapes.py -k into_a_terminal"),
    Defence("B3", "ouro/safety/sandbox/confinement.py", "protected=(*policy.protected, *existing(closed))", "protected=()",
            "test_b1_b3_sandbox_escapes.py -k opened_folders"),
    Defence("B3", "ouro/safety/sandbox/confinement.py", "protected=existing(starmap(Path, product(self._opened, _PROTECTED)))",
            "protected=()", "test_b1_b3_sandbox_escapes.py -k opened_folders"),
    Defence("S22", "ouro/memory/session_remote.py", 'return path.rpartition("-")[0].encode() if "/chunks/" in path else path.encode()',
            'return b""', "test_s22_remotes_that_go_back.py -k bound_to_its_place"),
    Defence("F2", "ouro/mcp/configuration.py", "if any(key in found for key in keys):", "if False:",
            "test_f1_f2_untrusted_folder.py -k key_of_a_provider"),
    Defence("F2", "ouro/settings_sources.py", '    "lsp.servers",\n    "hooks",\n', '    "mcp.servers",\n    "hooks",\n    "sandbox.hosts",\n',
            "test_f1_f2_untrusted_folder.py -k open_the_sandbox"),
    Defence("B6", "ouro/safety/sandbox/tiers.py", 'command += ("--ro-bind", os.devnull, str(place))', "pass",
            "test_b6_sockets.py"),
    Defence("B6", "ouro/safety/sandbox/sockets.py", "_find_by_owner(own)", "pass", "test_b6_sockets.py"),
    Defence("F9", "ouro/safety/trust.py", "if reason := _why_no_instructions(target):", 'if reason := "":',
            "test_f9_instructions_left_out.py -k f9"),
    Defence("F9", "ouro/agent/project_instructions.py", "if size > MAX_INSTRUCTIONS:", "if False:",
            "test_f9_instructions_left_out.py -k f9"),
    Defence("X12", "ouro/safety/protected.py", "(home / name for name in KEYS_IN_HOME)",
            "(home / name for name in KEYS_IN_HOME[:10])", "test_f9_instructions_left_out.py -k x12"),
    Defence("B3", "ouro/safety/sandbox/tiers.py", 'command += _bound("--ro-bind-try", policy.protected)', "pass",
            "test_b1_b3_sandbox_escapes.py"),
    Defence("B4", "ouro/safety/sandbox/tiers.py", "not outside.exists():", "True:",
            "../safety/sandbox/test_confinement.py"),
    Defence("B4", "ouro/tools/shell.py", "ctx.emit(Notice(warning, \"warning\"))", "pass", "test_b4_no_sandbox.py"),
    # modes, and the limits and hosts of the sandbox
    Defence("E3", "ouro/assemble.py", "saved = stricter_mode(saved, basis.inputs.places)", "pass", "../session/test_mode.py"),
    Defence("E3", "ouro/session/resumed_mode.py", 'if mode == "auto" and configured != "auto":', "if False:",
            "../session/test_mode.py"),
    Defence("E3", "ouro/frontends/headless/headless.py", "prompt == options.prompt.strip()", "True",
            "../frontends/headless/test_commands.py -k pipe"),
    Defence("B7", "ouro/safety/sandbox/proxy.py", "if is_own or is_on_internet(name)", "if True",
            "../safety/sandbox/test_proxy.py"),
    Defence("B7", "ouro/safety/sandbox/proxy.py",
            "if not self._is_allowed(host, port):", "if False:",
            "../safety/sandbox/test_proxy.py"),
    Defence("B7", "ouro/safety/sandbox/confinement.py", "str(_memory_mb(settings) * 1024)", '"unlimited"',
            "../safety/sandbox/test_confinement.py -k b7"),
    Defence("B7", "ouro/safety/sandbox/tiers.py", "(deny default)", "(allow default)",
            "../safety/sandbox/test_confinement.py -k b7"),
    # folders that are not trusted
    Defence("F3", "ouro/mcp/definition.py", '{**msgspec.to_builtins(self), "problem": ""}',
            "[self.name, self.description]", "test_f3_f5_servers.py -k f3"),
    Defence("F6", "ouro/frontends/acp/editor_session.py",
            "self._is_cancelled = not self._queue.interrupt() and self._one_prompt.locked()", "self._queue.interrupt()",
            "test_f6_editors.py"),
    Defence("F6", "ouro/frontends/acp/transport.py",
            'await self.send({"jsonrpc": "2.0", "id": None, "error": PARSE_ERROR})', "pass", "test_f6_editors.py"),
    Defence("X10", "ouro/tools/files_seen.py", "and os.path.realpath(path) == str(path)", "",
            "../tools/test_editor_buffers.py"),
    Defence("X10", "ouro/tools/files_seen.py", "and not self._has_commands()", "", "../tools/test_editor_buffers.py"),
    Defence("M1", f"{MEMORY}/trust/provenance.py", "PIPED, ATTACHED))", "PIPED))", "test_m1_words_of_others.py"),
    Defence("F2", ".github/actions/ouro/run.py", '        "--no-trust",\n', "", "../test_ci_action.py"),
    Defence("F1", "ouro/safety/trust.py", "if known.get(_name(root, path)) != _content_hash(path))",
            "if not known)", "test_f1_f2_untrusted_folder.py test_f1_f8_instructions.py"),
    Defence("F1", "ouro/utils/git_process.py", '("core.fsmonitor=false", _ALL - {_REMOTE}),', "",
            "test_f1_hostile_git.py"),
    Defence("F1", "ouro/utils/git.py", 'flags += ("-c", f"{name}=")', "pass",
            "test_f1_hostile_git.py"),
    Defence("F2", "ouro/assemble_extensions.py", "raise TrustNeeded(root, untrusted", "return True  # (",
            "../end_to_end/test_headless.py -k f2"),
    Defence("F8", "ouro/safety/trust.py", "        and resolved.is_relative_to(root)\n", "",
            "test_f1_f8_instructions.py"),
    # extension files
    Defence("E4", "ouro/extensions/discovery.py", "    if not trusted:\n", "    if False:\n",
            "test_e4_e9_extension_files.py"),
    Defence("E4", "ouro/safety/trust.py", "(*instructions, *extensions, *settings, *acting)", "(*instructions, *settings, *acting)",
            "test_e4_e9_extension_files.py"),
    Defence("E4", "ouro/safety/trust.py", "(item.path for item in with_imports(found, root)[0])", "found",
            "test_e4_e9_extension_files.py"),
    Defence("E4", "ouro/agent/project_instructions.py",
            "return rule.is_users or self._trusts(rule.path)", "return True", "test_e4_e9_extension_files.py"),
    Defence("E4", "ouro/extensions/commands.py", 'is_own = file.source == "user"', "is_own = True",
            "test_e4_e9_extension_files.py"),
    Defence("E9", "ouro/extensions/discovery.py", "split_front_matter(clean(read_extension(path, _SHORTER)))", "split_front_matter(read_extension(path, _SHORTER))",
            "test_e4_e9_extension_files.py"),
    Defence("E9", "ouro/extensions/trust_summary.py", "if clean(text) != text:", "if False:",
            "test_e4_e9_extension_files.py"),
    # the rest, one for each fault
    Defence("S5", "ouro/frontends/tui/run.py",
            "for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):", "for number in ():",
            "test_s5_x7_screen.py -k s5"),
    Defence("S8", f"{SESSIONS}/yaml_text.py", "if _NOT_PRINTABLE.search(text):", "if False:",
            "test_s7_s8_s9_s10_records.py"),
    Defence("S9", "ouro/memory/transcript.py", "        transcript.answer_open_calls()\n", "",
            "test_s7_s8_s9_s10_records.py"),
    Defence("S11", "ouro/memory/index/index.py", "if path.exists() and not _is_good(path):", "if False:",
            "test_s11_search_index.py"),
    Defence("S12", f"{SESSIONS}/session_index.py",
            "return survey.mtime == found.st_mtime_ns and survey.info.size == found.st_size", "return False",
            "test_s11_s12_index.py"),
    Defence("M13", f"{MEMORY}/scope.py", "if not self.store.repository.read_record(APPROVED):", "if True:",
            "test_m13_killed_before_the_commit.py"),
    Defence("M16", f"{MEMORY}/scope.py", "if foreign and not are_read:",
            "if False:", "test_m16_edited_while_closed.py"),
    Defence("M16", f"{MEMORY}/sync.py", "names = [name for name in changed if name not in waiting]",
            "names = [*changed]", "test_m16_edited_while_closed.py"),
    Defence("M16", f"{MEMORY}/sync.py", "store.write_shared(_merge_beside(store, merged, waiting))",
            "waiting = {}", "test_m16_edited_while_closed.py"),
    Defence("M16", f"{MEMORY}/trust/effects.py", "store.demand_no_secret(heads.values())",
            "pass", "test_m16_edited_while_closed.py -k secret_that_plain_git"),
    Defence("M16", f"{MEMORY}/trust/effects.py", "        if names:\n            heads, texts", "        if False:\n            heads, texts",
            "test_m16_edited_while_closed.py"),
    Defence("M16", f"{MEMORY}/trust/effects.py", "elif head:", "elif False:",
            "test_m16_edited_while_closed.py -k killed_before"),
    Defence("M16", f"{MEMORY}/trust/approval.py", "lines.get(name, blob)", "blob",
            "test_m16_edited_while_closed.py -k question_stays"),
    Defence("M16", f"{MEMORY}/remember.py", 'entry.kind == "core" or "unconfirmed" not in entry.badges', "True",
            "test_m16_edited_while_closed.py -k note_that_waits"),
    Defence("M16", f"{MEMORY}/editor.py", "if untrusted and not accepts_notes:", "if False:",
            "test_m16_edited_while_closed.py -k editors_back"),
    Defence("M16", f"{MEMORY}/remember.py", "is_read = now == opened.text", "is_read = True",
            "test_m16_edited_while_closed.py -k editors_back"),
    Defence("M16", f"{MEMORY}/scope.py", "is_note_name(name) and name in begun for name in foreign", "True for _ in foreign",
            "test_m16_edited_while_closed.py -k memory_edit_counts"),
    Defence("M14", "ouro/memory/index/index.py",
            "                yield from (partial(remove_file, path=path) for path in gone)\n", "",
            "test_s11_search_index.py -k m14"),
    Defence("S14", "ouro/memory/yaml_backend.py", "        except OSError as error:\n",
            "        except EOFError as error:\n", "test_s13_s14_s15_s16_places.py"),
    Defence("S15", "ouro/memory/backend.py", "return max(now, not_before)", "return now",
            "test_s13_s14_s15_s16_places.py"),
    Defence("X5", "ouro/agent/loop.py", "            await self._answer_open_calls(emit)\n", "            pass\n",
            "../agent/test_laws.py"),
    Defence("E1", "ouro/mcp/definition.py", " or approved[tool.name].digest != tool.digest", "",
            "../mcp/test_servers.py -k e1"),
    Defence("E2", "ouro/mcp/servers.py", " and self.failures <= MAX_RESTARTS", "", "../mcp/test_servers.py -k e2"),
    Defence("C1", ACTION, 'text = re.sub(r"!(?=\\[)", r"!\\\\", text)', "pass", "test_c1_github_action.py -k markdown_pictures"),
    Defence("C1", ACTION, "{LOADING}", "img", "test_c1_github_action.py -k elements"),
    Defence("C1", ACTION, '"@\\u200b", text)', '"@", text)', "test_c1_github_action.py -k mentions"),
    Defence("C1", ACTION, 'r"\\1\\2\\\\/"', 'r"\\1\\2/"', "test_c1_github_action.py -k lines_that_begin"),
    Defence("C1", ACTION, "for before in range(3):", "for before in ():", "test_c1_github_action.py -k base64"),
    Defence("C1", ACTION, "if name in passed\n", "if name\n", "test_c1_github_action.py -k only_variables"),
    Defence("C1", ACTION, 'r"\\1> \\2"', 'r"\\1\\2"', "test_c1_github_action.py -k commands_no_runner"),
    Defence("E12", "ouro/mcp/connection.py", 'size_problem(item.get("inputSchema"))', 'size_problem("")', "test_e12_odd_schemas.py"),
    Defence("E12", "ouro/mcp/stdio.py", "if is_too_deep(error):", "if False:", "test_e12_odd_schemas.py -k no_parser"),
    Defence("E12", "ouro/mcp/schemas.py", "if next(steps, None) is None:", "if False:", "test_e12_odd_schemas.py -k lost_or_delayed"),
    Defence("E12", "ouro/mcp/connection.py", "self._output_schemas.get(tool)", "None", "test_e12_odd_schemas.py -k does_not_fit"),
    Defence("E16", "ouro/safety/trust.py", "acting = (path for path in programs if", "acting = (path for path in () if", "test_e16_named_programs.py -k changed_program"),
    Defence("E16", "ouro/safety/trust.py", 'or (kind == "skills" and name not in _NOT_OF_SKILLS)', "", "test_e16_named_programs.py -k hidden_files"),
    Defence("E16", "ouro/extensions/trust_summary.py", "        yield from _details(value, place)\n", "", "test_e16_named_programs.py -k every_variable"),
    Defence("E16", "ouro/mcp/configuration.py", "if name in withheld:", "if False:", "test_e16_named_programs.py -k secret_variable"),
    Defence("E16", "ouro/mcp/servers.py", "if self._is_project else ()", "if False else ()", "test_e16_named_programs.py -k started_with_it"),
    Defence("F4", "ouro/mcp/configuration.py", " if _ENVIRONMENT.fullmatch(name)", "",
            "../mcp/test_servers.py -k f4_server_gets"),
    Defence("E7", "ouro/tools/web_fetch.py", "target = target.copy_with(host=await self._resolve(host, port))",
            "await self._resolve(host, port)", "../tools/test_web_fetch.py"),
    Defence("F7", "ouro/utils/addresses.py", " and not is_special", "", "../tools/test_web_fetch.py -k private_address"),
    Defence("B1", "ouro/utils/addresses.py", "if found in _NAT64:", "if False:", "../safety/sandbox/test_proxy.py -k nat64"),
    Defence("F7", "ouro/utils/addresses.py", '"168.63.129.16/32",  #', "#", "../safety/sandbox/test_proxy.py -k local_network"),
    Defence("F7", "ouro/tools/web_fetch.py", "[address for address in addresses if _is_public(address)]", "addresses",
            "../tools/test_web_fetch.py"),
    Defence("L6", "ouro/llm/overflow.py", "is_named = status == 413 or", "is_named = False and",
            "../llm/test_overflow.py"),
    Defence("L6", "ouro/llm/overflow.py", "if is_small or _OTHER_LIMIT.search(text):", "if False:",
            "../llm/test_overflow.py"),
    Defence("U4", "ouro/frontends/tui/first_frame.py", '_CONTROL.sub("", pasted', '("" + pasted',
            "test_u3_u4_u5_u7_screen.py -k u4"),
    Defence("U5", "ouro/frontends/tui/run.py", "    os.dup2(target, 2)\n", "", "test_u3_u4_u5_u7_screen.py -k u5"),
    Defence("U6", "ouro/frontends/tui/blocks/markdown.py", "if target.startswith(_CLICKABLE):", "if True:",
            "test_u1_u2_u3_u6_transcript.py -k u6"),
    Defence("U7", "ouro/frontends/tui/first_frame.py", " and all(\n            s is not None and s.isatty() for s in streams\n        )", "",
            "test_u3_u4_u5_u7_screen.py -k u7"),
    # undo of files
    Defence("E10", f"{CHECKPOINTS}/undo.py", "if now != change.old:", "if False:",
            "../safety/test_checkpoints.py"),
    Defence("E13", f"{CHECKPOINTS}/undo.py", "if is_unsure and file_state(", "if False and file_state(",
            "test_e13_killed_turns.py"),
    Defence("E13", f"{CHECKPOINTS}/turn_journal.py", ': > "$0.died"\n', "",
            "test_e13_killed_turns.py"),
    Defence("E13", f"{CHECKPOINTS}/undo.py", "outcome = done.get((turn.number, change.path))", "outcome = None",
            "test_e13_killed_turns.py"),
    Defence("E13", f"{CHECKPOINTS}/undo.py", "self._note_question(plan, outcomes)", "pass",
            "test_e13_killed_turns.py"),
    Defence("E13", "ouro/session/rewind.py", "await found.prepare()", "pass",
            "test_e13_killed_turns.py"),
    Defence("E13", "ouro/session/rewind.py", "found.cancel()", "pass",
            "test_e13_killed_turns.py"),
    Defence("E13", f"{CHECKPOINTS}/turn_journal.py", "if self.running <= 0:", "if True:",
            "test_e13_killed_turns.py"),
    Defence("E13", f"{CHECKPOINTS}/checkpoints.py", "self._leave_unknown(changes)\n        unsure", "unsure",
            "test_e13_killed_turns.py"),
    Defence("E10", "ouro/frontends/tui/screens/diff_viewer.py", "if await self._diff.is_changed_by_others(",
            "if False and await self._diff.is_changed_by_others(",
            "../frontends/tui/screens/test_diff_viewer.py -k user_changed_since"),
    Defence("E10", "ouro/utils/files.py", "if not follow and path_of(descriptor) != str(folder):", "if False:",
            "../safety/test_checkpoints.py"),
    Defence("E10", f"{CHECKPOINTS}/checkpoint_repository.py", '"* -text -filter -ident -working-tree-encoding !merge !diff\\n",',
            '"",', "../safety/test_checkpoints.py"),
    # keys and packages
    Defence("K1", "ouro/safety/secrets.py", "for pattern in self._known:", "for pattern in ():",
            "test_k1_secrets_written.py"),
    Defence("K1", "ouro/safety/secrets.py", r"[-_](?=[\w-]{0,200}\d)", r"[-_](?=[\w-]*\d)",
            "test_k1_secrets_written.py"),
    Defence("K1", "ouro/safety/secrets.py", r"|(?:crsr|key|cursor)_[0-9a-f]{40,}", "",
            "test_k1_secrets_written.py -k agents"),
    Defence("K1", "ouro/safety/secrets.py", 'if decoded.isascii() and may_match(decoded.decode("ascii")):', "if False:",
            "../safety/test_secret_shapes.py -k encoded"),
    Defence("M18", f"{MEMORY}/capture/operations.py", "(note for note in limits.shown if note.id == name), None)",
            "iter(limits.shown), None)", "test_m18_meaning_of_statements.py"),
    Defence("M18", f"{MEMORY}/capture/operations.py", "if scope not in limits.scopes:", "if False:",
            "test_m18_meaning_of_statements.py"),
    Defence("M18", f"{MEMORY}/statement_effect.py", "else KEEP_BOTH", "else REPLACE",
            "test_m18_meaning_of_statements.py"),
    Defence("M18", f"{MEMORY}/capture/small_model.py", 'return "doubtful"', 'return "stated"',
            "test_m18_meaning_of_statements.py"),
    Defence("M19", f"{MEMORY}/line_records.py", "return {text: known[text] for text in lines}", "return known",
            "test_m19_records_of_lines.py"),
    Defence("M19", f"{MEMORY}/true_forget.py", "if path.name not in _WITHOUT_TEXT", "if False",
            "test_m19_records_of_lines.py"),
    Defence("M15", "ouro/safety/secrets.py", "return self.kind_of_secret(text) or spoken_secret(text)",
            "return self.kind_of_secret(text)", "test_m15_secrets_in_sentences.py"),
    Defence("M15", "ouro/safety/spoken_secrets.py", "is_counted = not is_quoted and not _CLAUSE_END.match(rest)",
            "is_counted = False", "test_m15_secrets_in_sentences.py"),
    Defence("K3", "ouro/llm/litellm_worker.py", 'os.environ["LITELLM_MODE"] = "PRODUCTION"', "pass",
            "test_k3_litellm_import.py"),
    Defence("K3", "ouro/llm/litellm_worker.py", 'os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"', "pass",
            "test_k3_litellm_import.py"),
    Defence("K4", "pyproject.toml", '"litellm==', '"litellm>=', "test_k4_locked_packages.py"),
    # found by the crash campaign and the destructive afternoon
    Defence("M5", f"{MEMORY}/trust/running_turns.py", "held.enter_context(self._repository.alone(timeout=PATIENCE))",
            "pass", "test_m5_side_by_side.py -k recorded_under_the_lock"),
    Defence("M5", f"{MEMORY}/trust/running_turns.py", "(*left, new))\n", "())\n",
            "test_m5_side_by_side.py -k recorded_under_the_lock"),
    Defence("M6", f"{MEMORY}/git/process.py", "at = min(max(at, 0), _LAST_SECOND)", "at = at",
            "test_m6_odd_repositories.py -k wrong_clock"),
    Defence("M6", f"{MEMORY}/git/history.py", "except (ValueError, OverflowError, OSError):  # a commit",
            "except ZeroDivisionError:  # a commit", "test_m6_odd_repositories.py -k odd_head"),
    Defence("M6", f"{MEMORY}/git/process.py", "_pause.until = time.monotonic() + _PAUSE", "pass",
            "test_m6_odd_repositories.py -k hanging_git"),
    Defence("M6", f"{MEMORY}/git/approved_files.py", "            for name in (ACCEPTED, BEFORE):\n                if",
            "            for name in (ACCEPTED,):\n                if", "test_m6_odd_repositories.py -k damaged_approval"),
    Defence("S2", "ouro/cli.py", "        _report(_deleted_folder() or plain_error(error))\n", "        pass\n",
            "test_s2_m6_full_and_read_only_disks.py -k s2"),
    Defence("S10", "ouro/session/budget.py",
            'raise LimitReached(\n            f"The limits of cost cannot be checked: {error.message}", error.hint\n'
            "        ) from error", "costs = ()", "../session/test_budget.py"),
    Defence("X2", "ouro/tools/grep.py", 'that cannot be read" if self._unreadable else ""', '" * 0',
            "../tools/test_grep.py -k cannot_be_read"),
    Defence("S5", "ouro/frontends/tui/run.py", "if app is not None and app.lends_terminal and number in",
            "if False and number in", "../end_to_end/test_ends.py -k ctrl_c_in_the_editor"),
    Defence("U4", "ouro/frontends/tui/driver.py", 'sequence = f"\\x1b[{ord(alt_key[1])};3u"', "pass",
            "../frontends/tui/test_driver.py"),
    Defence("L15", "ouro/agent/loop.py", "_explain_refusal(error, sent)", "str(error)", "test_l15_refused_messages.py"),
    Defence("L15", "ouro/llm/adaptive_model.py", "calls = find_calls_to_describe(messages, refused.answer.text)", "calls = set[str]()",
            "test_l15_refused_messages.py"),
    Defence("L16", "ouro/llm/event_stream.py", "if self._rest.tell() > MAX_LINE:", "if False:",
            "test_l16_hostile_streams.py -k never_ends"),
    Defence("L16", "ouro/llm/wire.py", "                    break\n            # Only a connection",
            "                    pass\n            # Only a connection", "test_l16_hostile_streams.py -k after_the_end"),
    Defence("L17", "ouro/llm/server_facts.py", "key: fact for key, fact in self._all().get(server, {}).items() if _is_valid(key, fact)",
            "key: fact for key, fact in self._all().get(server, {}).items()", "test_l17_learned_facts.py -k in_the_file"),
    Defence("L17", "ouro/llm/refusals.py", "optional = refused.body.keys() - ESSENTIAL", "optional = refused.body.keys()",
            "test_l17_learned_facts.py -k what_a_request_needs"),
    Defence("L17", "ouro/llm/http_client.py", 'return endpoint.base_url.startswith("https:")', "return False",
            "test_l17_learned_facts.py -k certificate"),
    Defence("L17", "ouro/llm/openai.py", 'if message.model not in ("", self._spec.name):', "if False:",
            "test_l17_learned_facts.py -k of_one_server"),
    Defence("L12", "ouro/agent/loop.py", "        if not answer.incomplete:\n", "        if True:\n",
            "test_l12_cut_answers.py"),
    Defence("L12", "ouro/agent/loop.py", "await self.memory.record(\n                RewindRecord(", "_ = (\n                (",
            "test_l12_cut_answers.py"),
    Defence("X5", "ouro/session/session_tasks.py", 'finish(Display("interrupted", CommandOutput(line, printed)), True)',
            "pass", "../end_to_end/test_afternoon.py -k escape_ends"),
    Defence("L6", "ouro/memory/compaction.py", "if sent and is_own_words(sent[-1].message):", "if False:",
            "../agent/test_compactor.py -k never_cut"),
    Defence("X11", "ouro/commands/conversation.py", "    if running:\n", "    if False:\n",
            "../end_to_end/test_afternoon.py -k leaving_asks"),
    Defence("U3", "ouro/frontends/tui/widgets/question_panel.py",
            "self.options.styles.max_height = max(1, room)", "pass",
            "../frontends/tui/widgets/test_question_panel.py -k narrow_and_low"),
    Defence("U3", "ouro/frontends/tui/widgets/question_panel.py",
            'if hint and is_low else self._amount', "if False else self._amount",
            "../frontends/tui/widgets/test_question_panel.py -k low_screen"),
    Defence("U3", "ouro/frontends/tui/driver.py",
            "            self._loop.add_signal_handler(signal.SIGWINCH, resized, signal.SIGWINCH, None)\n",
            "            pass\n", "test_u3_u4_u5_u7_screen.py -k quick_resizes"),
    Defence("U3", "ouro/frontends/tui/widgets/question_panel.py", "if not self.options.size.width:", "if False:",
            "../frontends/tui/widgets/test_question_panel.py -k question_appears"),
    Defence("X6", "ouro/assemble.py", "    demand_rules(", "    (",
            "../end_to_end/test_headless.py -k usage_errors"),
)  # fmt: skip


def stale(project: Path = PROJECT) -> Iterator[str]:
    """Why entries of the table no longer match the tree."""
    for defence in DEFENCES:
        count = (project / defence.file).read_text().count(defence.old)
        if count != 1:
            yield f"{defence.code}: {defence.old!r} is {count} times in {defence.file}"
        missing = [name for name in _files(defence) if not (project / name).is_file()]
        yield from (f"{defence.code}: {name} does not exist" for name in missing)
        chosen = re.search(r" -k (\w+)", defence.tests)
        texts = "" if missing else "".join((project / name).read_text() for name in _files(defence))
        if chosen and not missing and not re.search(rf"def test_\w*{chosen[1]}", texts):
            yield f"{defence.code}: no test fits {defence.tests}"


def _files(defence: Defence) -> list[str]:
    return [f"tests/faults/{name}" for name in re.findall(r"\S+\.py", defence.tests)]


class Copy:
    """A copy of the tree, with a Python that imports it also in the processes that tests start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tree"
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=PROJECT, capture_output=True, check=True, text=True,
        )  # fmt: skip
        for name in filter(None, listed.stdout.split("\0")):
            if (PROJECT / name).is_file():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / name).write_bytes((PROJECT / name).read_bytes())
        venv.create(self.folder / ".venv", symlinks=True)
        ripgrep = Path(sys.executable).with_name("rg")
        if ripgrep.exists():  # next to Python, where ouro looks first
            (self.folder / ".venv" / "bin" / "rg").symlink_to(ripgrep)
        (packages,) = (self.folder / ".venv").glob("lib/python*/site-packages")
        own = [path for path in sys.path if path.endswith("site-packages")]
        (packages / "tree.pth").write_text("\n".join([str(self.folder), *own]) + "\n")

    def run(self, tests: str, limit: float | None) -> str:
        """The test that fails, `hangs` after `limit` seconds, or nothing. Raises RuntimeError if
        tests cannot run.
        """
        words = [f"tests/faults/{word}" if word.endswith(".py") else word for word in tests.split()]
        python = self.folder / ".venv" / "bin" / "python"
        command = [str(python), "-m", "pytest", "-q", "-x", "-p", "no:randomly", *words]
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTEST")
        }
        environment |= {"PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(
            command, cwd=self.folder, env=environment, start_new_session=True, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return "hangs"
        if process.returncode > 1:
            raise RuntimeError(output[-2000:])
        failed = re.search(r"^(?:FAILED|ERROR) [\w./]*/(\S+)", output, re.MULTILINE)
        # A negative exit code: without the defence it used all memory.
        return (
            (failed[1][:90] if failed else f"exit code {process.returncode}")
            if process.returncode
            else ""
        )

    def run_without(self, defence: Defence, limit: float) -> str:
        """`run` without the defence."""
        path = self.folder / defence.file
        whole = path.read_text()
        path.write_text(whole.replace(defence.old, defence.new))
        try:
            return self.run(defence.tests, limit)
        finally:
            path.write_text(whole)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutate", description=(__doc__ or "").partition(":")[0]
    )
    parser.add_argument(
        "codes", nargs="*", metavar="CODE", help="only the defences of these faults, such as X10"
    )
    parser.add_argument("--list", action="store_true", help="print the table and run nothing")
    options = parser.parse_args()
    chosen = [defence for defence in DEFENCES if not options.codes or defence.code in options.codes]
    if options.list:
        print(
            "\n".join(
                f"{item.code:4} {item.file}: {item.old.partition(chr(10))[0]}" for item in chosen
            )
        )
        return 0
    failures = list(stale())
    print("\n".join(failures), end="\n" if failures else "")
    # Not in /tmp: the sandbox hides /tmp from commands, and the tests of the sandbox would fail.
    with tempfile.TemporaryDirectory(prefix="ouro-mutate-", dir=PROJECT.parent) as folder:
        copy = Copy(Path(folder).resolve())
        limits: dict[str, float] = {}
        for defence in chosen:
            began = time.monotonic()
            if defence.tests not in limits:
                try:
                    failed = copy.run(defence.tests, None)
                except RuntimeError as error:
                    failed = f"{defence.tests}: {error}"
                if failed:
                    failures.append(defence.tests)
                    print(f"red with all defences: {failed}", flush=True)
                limits[defence.tests] = max(_LIMIT, _MAX_SLOWER * (time.monotonic() - began))
                began = time.monotonic()
            noticed = defence.tests not in failures and copy.run_without(
                defence, limits[defence.tests]
            )
            result = "red" if noticed else "UNNOTICED"
            failures += [] if noticed else [defence.code]
            shown = defence.old.partition("\n")[0][:70]
            took = time.monotonic() - began
            print(
                f"{defence.code:4} {result:9} {took:5.1f} s  {defence.file}: {shown}  {noticed}",
                flush=True,
            )
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
