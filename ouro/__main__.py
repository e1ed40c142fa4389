"""`python -m ouro`: the same program as the command `ouro`."""

from ouro.cli import run

if __name__ == "__main__":
    raise SystemExit(run())
