"""Where a launcher says that this process stands: torchrun, srun, variables by hand, or nobody."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from grendel_odin.config import UserError

Environment = Mapping[str, str]
DEFAULT_PORT = 29500
_SLURM_PORTS = (20000, 10000)
"""First one and number; below those that Linux gives to outgoing connections."""


@dataclass(frozen=True, slots=True)
class Place:
    """One process among those of a run, and where they meet."""

    rank: int
    size: int
    address: str
    port: int
    local_rank: int | None = None
    """Among the processes of its node; None if the launcher does not say."""
    local_size: int | None = None
    job: str = ""
    """What tells this run from another one that was given the same address and port."""
    far: bool = False
    """Whether rank 0 is known to be on another node."""
    store: bool = False
    """Whether the launcher runs a key-value store at the address, as torchrun does."""


def find_place(environment: Environment) -> Place | None:
    """Of torchrun's variables, or else of Slurm's; None for a process on its own.

    Raises UserError where the variables contradict each other.
    """
    if "RANK" in environment or "WORLD_SIZE" in environment:
        return _checked(_of_variables(environment))
    if "SLURM_STEP_ID" in environment and "SLURM_PROCID" in environment:
        return _checked(_of_slurm(environment))
    if "SLURM_PROCID" in environment and (tasks := _integer(environment, "SLURM_NTASKS", 1)) > 1:
        raise UserError(
            f"SLURM_NTASKS={tasks}, but srun did not start this process, so it would be alone: "
            "write `srun python train.py ...` in the batch script, or torchrun, or ask Slurm for "
            "one task"
        )
    return None


def _of_variables(environment: Environment) -> Place:
    """As torchrun sets them, or a user by hand."""
    missing = [name for name in ("RANK", "WORLD_SIZE") if name not in environment]
    if missing:
        raise UserError(
            f"{missing[0]} is not set, but its companion is: set RANK, WORLD_SIZE, MASTER_ADDR and "
            "MASTER_PORT, or none of them for a run in one process"
        )
    size = _integer(environment, "WORLD_SIZE", 1)
    groups = _integer(environment, "GROUP_WORLD_SIZE", 0)
    nodes = _integer(environment, "SLURM_STEP_NUM_NODES", 1)
    if 0 < groups < nodes:
        raise UserError(
            f"srun started torchrun on {nodes} nodes, but it joined {groups} of them, so that each "
            f"would train for itself: give torchrun --nnodes {nodes}, --rdzv-backend c10d and "
            "--rdzv-endpoint FIRST_NODE:PORT, or leave torchrun out: srun python train.py ..."
        )
    local = "LOCAL_RANK" in environment
    rank = _integer(environment, "RANK", 0)
    return Place(
        rank=rank,
        size=size,
        address=environment.get("MASTER_ADDR", "127.0.0.1"),
        port=_integer(environment, "MASTER_PORT", DEFAULT_PORT),
        local_rank=_integer(environment, "LOCAL_RANK", 0) if local else None,
        local_size=_integer(environment, "LOCAL_WORLD_SIZE", 1) if local else None,
        job=environment.get("TORCHELASTIC_RUN_ID", ""),
        far=local and rank != _integer(environment, "LOCAL_RANK", 0),
        store=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )


def _of_slurm(environment: Environment) -> Place:
    """A task of srun; rank 0 runs on the first node of the step."""
    size = _integer(environment, "SLURM_STEP_NUM_TASKS", _integer(environment, "SLURM_NTASKS", 1))
    nodes = _integer(environment, "SLURM_STEP_NUM_NODES", _integer(environment, "SLURM_NNODES", 1))
    word = environment.get("SLURM_STEP_TASKS_PER_NODE", environment.get("SLURM_TASKS_PER_NODE", ""))
    by_node = tasks_per_node(word) if word else [-(-size // nodes)] * nodes
    node = _integer(environment, "SLURM_NODEID", 0)
    if word and (len(by_node), sum(by_node)) != (nodes, size):
        raise UserError(
            f"Slurm says {size} tasks on {nodes} nodes, but also {word} tasks per node, which is "
            f"{sum(by_node)} on {len(by_node)}: start the step with --nodes and --ntasks-per-node"
        )
    if not 0 <= node < nodes:
        raise UserError(f"SLURM_NODEID={node}, but the step has {nodes} nodes: start it with srun")
    names = environment.get("SLURM_STEP_NODELIST", environment.get("SLURM_NODELIST", ""))
    job, step = _integer(environment, "SLURM_JOB_ID", 0), environment["SLURM_STEP_ID"]
    first, count = _SLURM_PORTS
    port = first + (job + 1013 * _integer(environment, "SLURM_STEP_ID", 0)) % count
    return Place(
        rank=_integer(environment, "SLURM_PROCID", 0),
        size=size,
        address=environment.get("MASTER_ADDR") or first_host(names),
        port=_integer(environment, "MASTER_PORT", port),
        local_rank=_integer(environment, "SLURM_LOCALID", 0),
        local_size=by_node[node],
        job=f"{job}.{step}",
        far=node > 0,
    )


def _checked(place: Place) -> Place:
    """Raises UserError for what cannot be."""
    rank, size, local_rank, local_size = place.rank, place.size, place.local_rank, place.local_size
    if size < 1 or not 0 <= rank < size:
        raise UserError(f"rank {rank} of {size} processes: ranks go from 0 to {size - 1}")
    if local_rank is not None and local_size is not None:
        if not 0 <= local_rank < local_size:
            raise UserError(
                f"rank {rank}: number {local_rank} of {local_size} processes on its node; they go "
                f"from 0 to {local_size - 1}: LOCAL_RANK or LOCAL_WORLD_SIZE is wrong"
            )
        if local_size > size:
            raise UserError(
                f"{local_size} processes on this node, but only {size} in all: LOCAL_WORLD_SIZE or "
                "WORLD_SIZE is wrong"
            )
    return place


def tasks_per_node(word: str) -> list[int]:
    """Slurm's `4(x2),1` is [4, 4, 1]. Raises UserError."""
    counts: list[int] = []
    for part in word.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if match is None:
            raise UserError(f"SLURM_STEP_TASKS_PER_NODE={word!r} is not such as 4(x2),1")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def first_host(nodes: str) -> str:
    """First name of a Slurm node list such as `gpu[03-07,12]-ib,login1`. Raises UserError."""
    match = re.match(r"([^,\[]+)(?:\[(\d+)[^\]]*\]([^,\[]*))?", nodes)
    if match is None:
        raise UserError(
            f"SLURM_STEP_NODELIST={nodes!r} names no host: set MASTER_ADDR to the first node's name"
        )
    return match[1] + (match[2] or "") + (match[3] or "")


def _integer(environment: Environment, name: str, default: int) -> int:
    text = environment.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise UserError(f"{name}={text!r} is not a whole number") from None
