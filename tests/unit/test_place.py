"""What launchers say, without processes."""

from __future__ import annotations

import pytest

from grendel_odin.config import UserError
from grendel_odin.parallel.launch import share_of_cores
from grendel_odin.parallel.place import find_place, first_host, tasks_per_node

TORCHRUN = {
    **{"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
    **{"GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "1234"},
    **{"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_USE_AGENT_STORE": "True"},
}
SRUN = {
    **{"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "7", "SLURM_STEP_NUM_NODES": "2"},
    **{"SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_STEP_TASKS_PER_NODE": "4,3"},
    **{"SLURM_STEP_NODELIST": "gpu[03-04]", "SLURM_JOB_ID": "123456", "SLURM_STEP_ID": "0"},
}


def test_no_launcher_is_one_process() -> None:
    assert find_place({}) is None
    # An interactive allocation; a batch script of one task.
    assert find_place({"SLURM_NTASKS": "4", "SLURM_JOB_ID": "1"}) is None
    assert find_place({"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_NODELIST": "a"}) is None


def test_torchrun_comes_first() -> None:
    place = find_place(SRUN | {"SLURM_STEP_NUM_NODES": "2"} | TORCHRUN)
    assert place is not None
    assert (place.rank, place.size, place.local_rank, place.local_size) == (3, 4, 1, 2)
    assert (place.address, place.port, place.job, place.store) == ("node1", 1234, "x", True)


def test_variables_by_hand_need_no_more_than_two() -> None:
    place = find_place({"RANK": "1", "WORLD_SIZE": "3"})
    assert place is not None
    assert (place.rank, place.size, place.local_rank, place.local_size) == (1, 3, None, None)
    assert (place.address, place.port, place.store) == ("127.0.0.1", 29500, False)


def test_srun_without_torchrun() -> None:
    place = find_place(SRUN)
    assert place is not None
    assert (place.rank, place.size, place.local_rank, place.local_size) == (5, 7, 1, 3)
    assert (place.address, place.port, place.job) == ("gpu03", 23456, "123456.0")


def test_steps_of_a_job_get_other_ports_and_a_user_may_choose() -> None:
    second, chosen = (
        find_place(SRUN | {"SLURM_STEP_ID": "1"}),
        find_place(SRUN | {"MASTER_ADDR": "ib03", "MASTER_PORT": "7000"}),
    )
    assert second is not None and chosen is not None
    assert second.port not in (23456, chosen.port) and 20000 <= second.port < 30000
    assert (chosen.address, chosen.port) == ("ib03", 7000)


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"RANK": "1"}, "WORLD_SIZE is not set"),
        ({"WORLD_SIZE": "2"}, "RANK is not set"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "ranks go from 0 to 1"),
        ({"RANK": "a", "WORLD_SIZE": "2"}, "RANK='a' is not a whole number"),
        (TORCHRUN | {"LOCAL_RANK": "2"}, "they go from 0 to 1"),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "5"}, "only 4 in all"),
        (
            TORCHRUN | {"GROUP_WORLD_SIZE": "1", "SLURM_STEP_NUM_NODES": "2"},
            "torchrun on 2 nodes, but it joined 1",
        ),
        (SRUN | {"SLURM_STEP_TASKS_PER_NODE": "4(x2)"}, "7 tasks on 2 nodes, but also"),
        (SRUN | {"SLURM_STEP_TASKS_PER_NODE": "7"}, "7 on 1"),
        (SRUN | {"SLURM_STEP_TASKS_PER_NODE": "4;3"}, "is not such as"),
        (SRUN | {"SLURM_NODEID": "2"}, "the step has 2 nodes"),
        (SRUN | {"SLURM_STEP_NODELIST": ""}, "names no host"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, "srun python train.py"),
    ],
)
def test_what_cannot_be_is_one_line(environment: dict[str, str], text: str) -> None:
    with pytest.raises(UserError, match=r"\A[^\n]*\Z") as caught:
        find_place(environment)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        *[("a1", "a1"), ("gpu[03-07,12],x", "gpu03"), ("b,c", "b"), ("n-[1,3]", "n-1")],
        ("r[2-3]-ib,z", "r2-ib"),
    ],
)
def test_first_host(nodes: str, host: str) -> None:
    assert first_host(nodes) == host


def test_tasks_per_node() -> None:
    assert tasks_per_node("4(x2),1") == [4, 4, 1]
    assert tasks_per_node("3") == [3]


def test_a_core_is_shared_by_those_who_may_use_it() -> None:
    everything = list(range(8))
    assert share_of_cores(everything, [everything] * 3) == 2  # torchrun
    assert share_of_cores([0, 1, 2, 3], [[0, 1, 2, 3], [4, 5, 6, 7]]) == 4  # srun
    assert share_of_cores([0], [[0]] * 5) == 1
    assert share_of_cores([], [[], []]) == 0
