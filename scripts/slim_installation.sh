#!/bin/sh
# Make an installation smaller and its first start fast: PYTHON=/path/to/python sh scripts/slim_installation.sh
# Removed is what ouro never loads. Bytecode is written only for what it does load.
set -eu
cd "$(dirname "$0")/.."
packages=$("$PYTHON" -c "import sysconfig; print(sysconfig.get_paths()['purelib'])")
# The rules of the secret scanner: without this, the first message of a new user waits until they are compiled.
"$PYTHON" -c "from ouro.safety.secrets import compile_for_installation as c; c()" ||
  echo "The rules of the secret scanner could not be compiled now: the first session does it." >&2
"$PYTHON" scripts/remove_unused.py "$packages"
env -u PYTHONDONTWRITEBYTECODE "$PYTHON" scripts/compile_used.py
"$PYTHON" -m pip uninstall -q -y setuptools pip 2>/dev/null || true
