"""`ouro doctor --bundle`: a report that can be attached to an issue."""

import getpass
import socket

from ouro.cli import main
from ouro.commands.doctor_bundle import mask_report
from ouro.utils.ouro_paths import get_log_path

KEY = "sk-proj-0wnK3yOfTheTestsZ9y8X7w6V5u4T3s2"


def test_the_report_has_what_is_needed_and_no_key_name_or_address(
    home, repository, monkeypatch, capsys
):
    monkeypatch.chdir(repository)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    (home / ".ouro").mkdir(exist_ok=True)
    (home / ".ouro" / "config.yaml").write_text(
        "tui: {theme: light}\nhooks: [{event: turn-end, command: notify-ada@example.org}]\n"
        "sessions: {remote: 'git@git.example.org:ada/private.git'}\n"
    )
    log = get_log_path()
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(
        f"{home}/secret-plan.txt by {getpass.getuser()} on {socket.gethostname()}\n"
        f"POST https://ada:pw@llm.example.org/v1 {KEY}\nmail ada.l@example.org\n{repository}/a.py\n"
    )
    assert main(["doctor", "--bundle", "report.md"]) == 0
    assert "nothing was sent" in capsys.readouterr().out
    report = (repository / "report.md").read_text()
    assert (repository / "report.md").stat().st_mode & 0o077 == 0
    for wanted in (
        "# ouro doctor",
        "## Checks",
        "tui.theme: light",
        "## Packages",
        "textual",
        "PROJECT/a.py",
    ):
        assert wanted in report
    for secret in (KEY, "ada", "example.org", str(home), str(repository)):
        assert secret not in report
    assert main(["doctor", "--bundle", "report.md"]) == 2
    assert "exists already" in capsys.readouterr().err


def test_names_inside_of_words_and_short_names_stay(home, repository):
    masked = mask_report("repositorys repository xrepository", repository)
    assert masked == "repositorys PROJECT xrepository"
