#!/usr/bin/env bash
# From a fresh clone to a trained scene: environment, installation, procedural scene, training,
# renders of the test views. Arguments are settings: bash scripts/quickstart.sh train.iterations=1000
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup_env.sh
if [ ! -d data/quickstart ]; then
    .venv/bin/python -m grendel_odin.data.procedural data/quickstart
fi
# Two processes share the work; one would do: python train.py -c configs/quickstart.yaml
OMP_NUM_THREADS=1 .venv/bin/python -m torch.distributed.run --standalone --nproc-per-node=2 \
    train.py -c configs/quickstart.yaml "$@" output=output/quickstart
.venv/bin/python render.py -m output/quickstart --skip_train
