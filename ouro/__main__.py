"""`python -m ouro`: the same program as the command `ouro`."""

from ouro.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
