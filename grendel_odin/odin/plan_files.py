"""A plan on disk: `plan.json` for people, `plan.npz` for the numbers. Neither can hold code."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from grendel_odin.odin.partition import Partition
from grendel_odin.odin.plan import Plan
from grendel_odin.odin.rlg import Graph
from grendel_odin.odin.schedule import Couplings
from grendel_odin.odin.settings import (
    Builder,
    Mode,
    Partitioner,
    PlanSettings,
    UnitShape,
    Windows,
)
from grendel_odin.odin.windows import CostModel

VERSION = 1
JSON, NPZ = "plan.json", "plan.npz"


def plan_bytes(plan: Plan) -> dict[str, bytes]:
    """The files of a plan, by name."""
    content = {"version": VERSION, "sha256": plan.sha256, **plan.description()}
    content["seconds"] = plan.seconds
    numbers = io.BytesIO()
    np.savez_compressed(numbers, allow_pickle=False, **plan.arrays())
    return {JSON: (json.dumps(content, indent=1) + "\n").encode(), NPZ: numbers.getvalue()}


def load_plan(folder: Path) -> Plan:
    """The plan that `plan_bytes` describes.

    Raises OSError if the files cannot be read, ValueError if they are damaged or of another kind.
    """
    try:
        content = json.loads((folder / JSON).read_bytes())
        if content.get("version") != VERSION:
            raise ValueError(f"it is of version {content.get('version')}, not {VERSION}")
        with np.load(folder / NPZ, allow_pickle=False) as arrays:
            plan = _plan(content, {name: arrays[name] for name in arrays.files})
    except (KeyError, TypeError, AttributeError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{folder / JSON}: no plan, or a damaged one ({error})") from error
    if plan.sha256 != content["sha256"]:
        raise ValueError(
            f"{folder / JSON}: its numbers are not those it was saved with (sha256 differs)"
        )
    return plan


def _plan(content: dict[str, Any], arrays: dict[str, Any]) -> Plan:
    settings = {
        **content["settings"],
        "builder": Builder(content["settings"]["builder"]),
        "partitioner": Partitioner(content["settings"]["partitioner"]),
        "unit": UnitShape(content["settings"]["unit"]),
        "windows": Windows(content["settings"]["windows"]),
        "mode": Mode(content["settings"]["mode"]),
    }
    told, part = content["graph"], content["partition"]
    graph = Graph(
        names=tuple(told["names"]),
        builder=Builder(told["builder"]),
        starts=arrays["starts"],
        neighbours=arrays["neighbours"],
        weights=arrays["weights"],
        sizes=arrays["sizes"],
        unknown=arrays["unknown"],
        strength=told["strength"],
        notes=tuple(told["notes"]),
    )
    groups = Partition(groups=arrays["groups"], **{**part, "notes": tuple(part["notes"])})
    return Plan(
        settings=PlanSettings(**settings),
        cost=CostModel(**content["cost"]),
        graph=graph,
        partition=groups,
        order=arrays["order"],
        coupling=arrays["coupling"],
        conflict=arrays["conflict"],
        open=arrays["open"],
        shuffled=Couplings(**content["shuffled"]),
        seconds=content["seconds"],
    )
