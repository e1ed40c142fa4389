"""Relative dates become dates, and what holds for a time has a last day."""

from datetime import date

import pytest

from ouro.utils.relative_dates import find_end, write_dates

SATURDAY = date(2026, 11, 28)


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("We switched to uv yesterday", "We switched to uv on 2026-11-27"),
        ("The API is frozen since Monday", "The API is frozen since 2026-11-23"),
        ("The last release was last Tuesday", "The last release was on 2026-11-24"),
        ("Gestern kam Postgres 16", "Am 2026-11-27 kam Postgres 16"),
        ("Nous avons migré hier", "Nous avons migré le 2026-11-27"),
        ("Migramos ayer a Vite", "Migramos el 2026-11-27 a Vite"),
        ("昨天我们改用了 pnpm", "2026-11-27我们改用了 pnpm"),
        ("来週の月曜日に移行する", "2026-11-30に移行する"),
        ("We deploy on Fridays", "We deploy on Fridays"),
        ("Jeden Morgen läuft der Job", "Jeden Morgen läuft der Job"),
        ("Por la mañana corre el backup", "Por la mañana corre el backup"),
        ("Wir rücken hier mit Tabs ein", "Wir rücken hier mit Tabs ein"),
        ("Die Tests laufen hier mit tox", "Die Tests laufen hier mit tox"),
        ("La base a changé hier", "La base a changé le 2026-11-27"),
        ("The report is made by jobs/today.sh", "The report is made by jobs/today.sh"),
        ("The column is called `tomorrow`", "The column is called `tomorrow`"),
    ],
)
def test_relative_dates_are_written_as_dates_in_six_languages(said, written):
    assert write_dates(said, SATURDAY) == written


@pytest.mark.parametrize(
    ("said", "end"),
    [
        ("Don't deploy today, the certificates expire", "2026-11-28"),
        ("The staging server is off until Monday", "2026-11-30"),
        ("Do not merge until the outage is over", "2026-12-05"),
        ("Die Datenbank ist bis Freitag gesperrt", "2026-12-04"),
        ("Ne déploie rien jusqu'à vendredi", "2026-12-04"),
        ("No despliegues hasta el lunes", "2026-11-30"),
        ("今天不要部署", "2026-11-28"),
        ("明日までにリリースする", "2026-11-29"),
        ("From today on we use uv", None),
        ("Ab heute nutzen wir Tabs", None),
        ("今日からタブを使う", None),
        ("Use British spelling", None),
    ],
)
def test_statement_that_holds_for_a_time_has_a_last_day(said, end):
    found = find_end(said, SATURDAY, is_change=False)
    assert (found and found.isoformat()) == end


def test_change_that_happened_today_lasts():
    assert find_end("Today we switched to uv", SATURDAY, is_change=True) is None
