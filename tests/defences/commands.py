"""Defences of ouro/commands."""

from tests.defences.defence import Defence

DEFENCES = (
    Defence("C3", "ouro/commands/batch.py", "if kind and state.result(task.id) is None:", "if False:",
            "test_c3_tasks.py -k a_task_with_a"),
    Defence("X18", "ouro/commands/goal.py", "session.permissions.find_danger, command)", "str, '')", "test_x18_checks_of_goals.py"),
    Defence("M17", "ouro/commands/import_offer.py", "offers.was_made, root)", "bool)", "test_m17_offered_imports.py"),
    Defence("R2", "ouro/commands/current_folder.py", "            confine=confine,\n", "",
            "../commands/test_mcp.py -k r2"),
    Defence("S25", "ouro/commands/sessions.py", "report = sync_sessions(", "report = await asyncio.to_thread(sync_sessions,",
            "test_s25_remotes_that_hang.py"),
    Defence("X11", "ouro/commands/conversation.py", "    if running:\n", "    if False:\n",
            "../end_to_end/test_afternoon.py -k leaving_asks"),
)  # fmt: skip
