#!/usr/bin/env bash
# From a fresh clone to all checks: environment, installation, ruff, mypy, pytest.
# Arguments are passed on to pytest: bash scripts/test.sh -m unit
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup_env.sh dev
.venv/bin/python -m ruff check .
.venv/bin/python -m mypy
exec .venv/bin/python -m pytest "$@"
