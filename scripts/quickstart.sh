#!/usr/bin/env bash
# From a fresh clone to a trained scene: environment, installation, procedural scene, training.
# Arguments are passed on as overrides: bash scripts/quickstart.sh train.iterations=1000
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup_env.sh
if [ ! -d data/quickstart ]; then
    .venv/bin/python -m grendel_odin.data.procedural data/quickstart
fi
exec .venv/bin/python train.py -c configs/quickstart.yaml "$@"
