"""Flags of Grendel-GS and 3DGS: what becomes of each, alone and mixed with words and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grendel_odin.config import UserError
from grendel_odin.config.flag_kinds import renamed, switch, toggle
from grendel_odin.config.flags import Fate, Flag, Values, rewrite
from grendel_odin.optim.settings import LrScaleMode, OptimizerKind
from grendel_odin.parallel.modes import Mode, Reduce
from grendel_odin.parallel.spread import Spread
from grendel_odin.parallel.timed import Balance
from grendel_odin.render.settings import Background, ConstantSet
from grendel_odin.train.call import parse
from grendel_odin.train.flag_table import FLAGS
from grendel_odin.train.flags import render_words
from grendel_odin.train.settings import Settings


def _names(text: str) -> list[str]:
    return text.split()


GRENDEL = _names(
    """
    debug_from detect_anomaly test_iterations save_iterations quiet checkpoint_iterations
    start_checkpoint auto_start_checkpoint log_folder log_interval llffhold backend
    sh_degree source_path model_path images white_background eval
    iterations position_lr_init position_lr_final position_lr_delay_mult position_lr_max_steps
    feature_lr opacity_lr scaling_lr rotation_lr lr_scale_loss lr_scale_pos_and_scale percent_dense
    lambda_dssim densification_interval opacity_reset_interval densify_from_iter densify_until_iter
    densify_grad_threshold densify_memory_limit_percentage disable_auto_densification
    opacity_reset_until_iter random_background min_opacity lr_scale_mode
    debug
    image_distribution image_distribution_mode heuristic_decay no_heuristics_update
    border_divpos_coeff adjust_strategy_warmp_iterations save_strategy_history
    gaussians_distribution
    redistribute_gaussians_mode redistribute_gaussians_frequency redistribute_gaussians_threshold
    sync_grad_mode grad_normalization_mode bsz distributed_dataset_storage distributed_save
    local_sampling preload_dataset_to_gpu preload_dataset_to_gpu_threshold
    multiprocesses_image_loading num_train_cameras num_test_cameras
    enable_timer end2end_time zhx_time check_gpu_memory check_cpu_memory log_memory_summary
    zhx_debug stop_update_param time_image_loading nsys_profile drop_initial_3dgs_p
    drop_duplicate_gaussians_coeff
    """
)
OF_3DGS = _names(
    """
    resolution data_device convert_SHs_python compute_cov3D_python ip port train_test_exp depths
    exposure_lr_init exposure_lr_final exposure_lr_delay_steps exposure_lr_delay_mult
    depth_l1_weight_init depth_l1_weight_final antialiasing optimizer_type disable_viewer
    """
)
ON_BY_DEFAULT = _names(
    """
    image_distribution gaussians_distribution distributed_dataset_storage distributed_save
    multiprocesses_image_loading end2end_time
    """
)
# Values that Grendel's own defaults or scripts give.
VALUES = {
    "backend": "gsplat",
    "images": "images_4",
    "lr_scale_mode": "accumu",
    "image_distribution_mode": "final",
    "redistribute_gaussians_mode": "random_redistribute",
    "sync_grad_mode": "dense",
    "grad_normalization_mode": "none",
    "optimizer_type": "sparse_adam",
    "drop_initial_3dgs_p": "0.0",
    "drop_duplicate_gaussians_coeff": "1.0",
    "lr_scale_loss": "1.0",
    "densify_memory_limit_percentage": "0.9",
    "ip": "127.0.0.1",
    "data_device": "cuda",
    "start_checkpoint": "runs/old/checkpoints/7000",
    "redistribute_gaussians_threshold": "1.1",
    "min_opacity": "0.005",
    "heuristic_decay": "0.5",
    "lambda_dssim": "0.2",
}
BASE = ["-s", "scene", "-m", "run"]
BY_NAME = {flag.names[-1][2:]: flag for flag in FLAGS}


def settings(*words: str) -> Settings:
    return parse([*BASE, *words]).settings


def refusal(*words: str) -> str:
    with pytest.raises(UserError) as caught:
        parse([*BASE, *words])
    return str(caught.value)


def of(tree: Any, key: str) -> Any:
    for name in key.split("."):
        tree = getattr(tree, name)
    return tree


@pytest.mark.parametrize("name", GRENDEL + OF_3DGS)
def test_every_flag_is_known_and_binds(name: str) -> None:
    flag = BY_NAME[name]
    value = {Values.NONE: [], Values.ONE: [VALUES.get(name, "2")], Values.MANY: ["7", "30"]}
    words = [f"--{name}", *value[flag.values]]
    if flag.fate is Fate.REFUSED:
        assert f"command line: {' '.join(words)}: " in refusal(*words)
        return
    call = parse([*BASE, *words])
    parsed, notes = call.settings, call.notes
    assert isinstance(parsed, Settings)
    named = [note for note in notes if note.startswith("without effect: ")]
    assert (len(named) == 1 and f"--{name} " in named[0]) == (flag.fate is Fate.DEAD)


def test_the_table_holds_nothing_else() -> None:
    assert sorted(BY_NAME) == sorted(GRENDEL + OF_3DGS)
    names = [name for flag in FLAGS for name in flag.names]
    assert len(set(names)) == len(names)
    shorts = {name for name in names if not name.startswith("--")}
    assert shorts == {"-s", "-m", "-i", "-w", "-r", "-d"}
    assert sorted(n for n, flag in BY_NAME.items() if flag.off is not None) == sorted(ON_BY_DEFAULT)


MEANINGS = [
    ("-s other", "data.path", "other"),
    ("-m other", "output", "other"),
    ("-i images_8", "data.images", "images_8"),
    ("-w", "renderer.background", Background.WHITE),
    ("--sh_degree 2", "model.sh_degree", 2),
    ("--iterations 50_000", "train.iterations", 50000),
    ("--bsz 4", "train.batch_size", 4),
    ("--bsz=4", "train.batch_size", 4),
    ("--test_iterations 7000 30000", "train.eval_iterations", (7000, 30000)),
    ("--test-iterations 7000", "train.eval_iterations", (7000,)),
    ("--test_iterations -1", "train.eval_iterations", ()),
    ("--save_iterations 1 2 3 --bsz 2", "train.save_iterations", (1, 2, 3)),
    ("--checkpoint_iterations 5 6", "train.checkpoint_iterations", (5, 6)),
    ("--start_checkpoint a/7000", "train.resume", "a/7000"),
    ("--auto_start_checkpoint", "train.resume", "auto"),
    ("--quiet", "train.quiet", True),
    ("--log_interval 50", "train.log_every", 50),
    ("--backend gsplat", "renderer.constants", ConstantSet.GSPLAT),
    ("--backend diff", "renderer.constants", ConstantSet.INRIA),
    ("--num_train_cameras 30", "data.train_views", 30),
    ("--num_train_cameras -1", "data.train_views", 0),
    ("--num_test_cameras 3", "data.test_views", 3),
    ("--position_lr_init 1e-4", "optim.means_lr", 1e-4),
    ("--position_lr_final 1e-7", "optim.means_lr_final", 1e-7),
    ("--position_lr_max_steps 9", "optim.means_lr_max_steps", 9),
    ("--feature_lr 0.005", "optim.sh0_lr", 0.005),
    ("--feature_lr 0.005", "optim.shN_lr", 0.00025),
    ("--opacity_lr 0.025", "optim.opacities_lr", 0.025),
    ("--scaling_lr 0.01", "optim.scales_lr", 0.01),
    ("--rotation_lr 0.02", "optim.quats_lr", 0.02),
    ("--lr_scale_pos_and_scale 0.8", "optim.geometry_lr_scale", 0.8),
    ("--lr_scale_mode linear", "optim.lr_scale_mode", LrScaleMode.LINEAR),
    ("--percent_dense 0.02", "densify.grow_scale3d", 0.02),
    ("--lambda_dssim 0.3", "loss.ssim_lambda", 0.3),
    ("--densification_interval 200", "densify.refine_every", 200),
    ("--opacity_reset_interval 4000", "densify.reset_every", 4000),
    ("--densify_from_iter 600", "densify.refine_start_iter", 600),
    ("--densify_until_iter 9000", "densify.refine_stop_iter", 9000),
    ("--densify_grad_threshold 1e-3", "densify.grow_grad2d", 1e-3),
    ("--opacity_reset_until_iter 8000", "densify.reset_stop_iter", 8000),
    ("--opacity_reset_until_iter -1", "densify.reset_stop_iter", 0),
    ("--min_opacity 0.01", "densify.prune_opa", 0.01),
    ("--densify_memory_limit_percentage 0.8", "model.memory_limit", 0.8),
    ("--disable_auto_densification --densify_until_iter 9", "densify.enabled", False),
    ("--gaussians_distribution", "parallel.mode", Mode.HYBRID),
    ("--no-gaussians_distribution", "parallel.mode", Mode.REPLICATED),
    ("--no_gaussians_distribution", "parallel.mode", Mode.REPLICATED),
    ("--sync_grad_mode dense", "parallel.reduce", Reduce.DENSE),
    ("--sync_grad_mode sparse", "parallel.reduce", Reduce.PACKED),
    ("--redistribute_gaussians_mode random_redistribute", "parallel.spread", Spread.RANDOM),
    ("--redistribute_gaussians_frequency 5", "parallel.reshard_every", 5),
    ("--redistribute_gaussians_threshold 1.5", "parallel.reshard_threshold", 1.5),
    (
        "--redistribute_gaussians_mode no_redistribute --redistribute_gaussians_frequency 5",
        "parallel.reshard_every",
        0,
    ),
    ("--heuristic_decay 0.3", "parallel.balance_decay", 0.3),
    ("--no_heuristics_update", "parallel.balance", Balance.EVEN),
    ("--adjust_strategy_warmp_iterations -1", "parallel.balance_warmup", -1),
    ("--no-multiprocesses_image_loading", "data.workers", 1),
    ("--stop_update_param --opacity_lr 1", "optim.opacities_lr", 0.0),
    ("-r 4", "data.downscale", 4),
    ("-r2", "data.downscale", 2),
    ("--resolution -1", "data.downscale", 1),
    ("--antialiasing", "renderer.antialiased", True),
    ("--optimizer_type sparse_adam", "optim.kind", OptimizerKind.SELECTIVE_ADAM),
]


@pytest.mark.parametrize(("line", "key", "value"), MEANINGS, ids=[line for line, _, _ in MEANINGS])
def test_meaning(line: str, key: str, value: object) -> None:
    assert of(settings(*line.split()), key) == value


def test_grendel_defaults_are_ours() -> None:
    """Spelling out what Grendel does by itself changes nothing but the renderer's constants."""
    spelt = """
        --iterations 30000 --position_lr_init 0.00016 --position_lr_final 0.0000016
        --position_lr_max_steps 30000 --feature_lr 0.0025 --opacity_lr 0.05 --scaling_lr 0.005
        --rotation_lr 0.001 --percent_dense 0.01 --lambda_dssim 0.2 --densification_interval 100
        --opacity_reset_interval 3000 --densify_from_iter 500 --densify_until_iter 15000
        --densify_grad_threshold 0.0002 --min_opacity 0.005 --lr_scale_mode sqrt --sh_degree 3
        --test_iterations 7000 30000 --save_iterations 7000 30000 --bsz 1 --images images
        --lr_scale_loss 1.0 --lr_scale_pos_and_scale 1.0 --opacity_reset_until_iter -1
        --densify_memory_limit_percentage 0.9 --redistribute_gaussians_frequency 10
        --redistribute_gaussians_threshold 1.1 --num_train_cameras -1 --num_test_cameras -1
    """
    assert settings(*spelt.split()) == settings()


SPLITS = [
    ("-s scene -m run", 0),
    ("-s scene -m run --eval", 8),
    ("-s scene -m run --eval --llffhold 5", 5),
    ("-s scene -m run --llffhold 5 --eval", 5),
    ("-s scene -m run --llffhold 5", 0),
    ("-s scene -m run data.test_every=4", 4),
    ("-s scene -m run --eval data.test_every=4", 4),
    ("data.test_every=4 -s scene -m run --eval", 8),
    ("data.path=scene -m run", 8),
    ("data.path=scene output=run --bsz 4", 8),
    ("-c FILE -s scene -m run", 6),
    ("--config=FILE -s scene -m run", 6),
    ("-c FILE -s scene -m run --eval", 8),
]


@pytest.mark.parametrize(("line", "every"), SPLITS, ids=[line for line, _ in SPLITS])
def test_split(line: str, every: int, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("data: {test_every: 6}\n")
    call = parse(line.replace("FILE", str(file)).split())
    parsed, notes = call.settings, call.notes
    assert parsed.data.test_every == every
    assert any("without --eval" in note for note in notes) == (every == 0)
    assert ("--llffhold 5 has no effect without --eval" in notes) == (
        "--llffhold" in line and "--eval" not in line
    )


def test_order_and_files(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("train: {iterations: 1, batch_size: 7}\n")
    words = f"train.iterations=5 --iterations 6 -c {file} x=1".split()[:-1]
    assert settings(*words).train.iterations == 6
    assert settings(*words, "train.iterations=8").train.iterations == 8
    assert settings(*words).train.batch_size == 7
    assert settings("--test_iterations", "3", "4", "train.batch_size=2").train.batch_size == 2
    assert settings("--model-path", "a b/c=d").output == "a b/c=d"


BAD = [
    ("--iterations abc", "command line: --iterations abc: train.iterations=abc: expected int"),
    ("--iterations", "command line: --iterations: a value must follow"),
    ("--test_iterations --eval", "--test_iterations: one or more values must follow"),
    ("--eval=yes", "--eval yes: it takes no value"),
    ("--backend cuda", "--backend cuda: expected one of gsplat, diff, default"),
    ("--feature_lr x", "--feature_lr x: expected a number"),
    ("--lr_scale_loss 2", "divide densify.grow_grad2d by it"),
    ("--drop_initial_3dgs_p 0.5", "thin out the point cloud"),
    ("--no-image_distribution", "parallel.mode=replicated"),
    ("-r 800", "data.downscale=N"),
    ("--depths d", "--depths d: this version has no depth supervision"),
    ("--iterationz 5", "unknown flag '--iterationz'. Did you mean --iterations?"),
    ("--no-eval", "unknown flag '--no-eval'"),
]


@pytest.mark.parametrize(("line", "reason"), BAD, ids=[line for line, _ in BAD])
def test_refusal(line: str, reason: str) -> None:
    assert reason in refusal(*line.split())


def test_all_problems_at_once() -> None:
    lines = refusal("--bsz", "0", "--depths", "d", "data.nothing=1").splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("command line: --depths d: ")
    assert lines[1] == "command line: --bsz 0: train.batch_size=0: must be >= 1"
    assert lines[2].startswith("command line: unknown key 'data.nothing'")


def test_render_takes_the_flags_of_training() -> None:
    line = "-m run --iteration 7000 --skip_train --bsz 4 -w --eval --debug --l 3 data.cache_gb=1"
    said = render_words(line.split())
    assert said.arguments == [
        *("-m", "run", "--iteration", "7000", "--skip_train", "train.batch_size=4"),
        *("renderer.background=white", "--l", "3", "data.cache_gb=1"),
    ]
    assert said.problems == [] and len(said.notes) == 1 and "--debug" in said.notes[0]
    assert render_words(["--llffhold", "5"]).arguments == ["data.test_every=5"]
    assert render_words(["-s", "moved"]).arguments == ["-s", "moved"]


TABLE = (
    renamed("-a --alpha", "alpha"),
    switch("--beta", "beta=1"),
    toggle("--gamma", "g=1", "g=0"),
)


PARTS = ("-a 1", "--alpha 2", "--alpha=3", "-a4", "--beta", "--gamma", "--no-gamma", "k=v", "file")


@given(st.lists(st.sampled_from(PARTS)))
def test_words_stand_where_flags_stood(parts: list[str]) -> None:
    means = {
        **{"-a 1": "alpha=1", "--alpha 2": "alpha=2", "--alpha=3": "alpha=3", "-a4": "alpha=4"},
        **{"--beta": "beta=1", "--gamma": "g=1", "--no-gamma": "g=0"},
    }
    said = rewrite(TABLE, [word for part in parts for word in part.split()])
    assert said.arguments == [means.get(part, part) for part in parts]
    assert not (said.problems or said.notes or said.dead)


def test_what_wins_and_what_waits() -> None:
    table = (
        Flag(("--off",), Values.NONE, lambda _: ["n=0"], "", last=True),
        renamed("--n", "n"),
        renamed("--detail", "d", needs="--off"),
    )
    assert rewrite(table, ["--off", "--n", "5"]).arguments == ["n=5", "n=0"]
    assert rewrite(table, ["--off", "--n", "5", "n=6"]).arguments == ["n=5", "n=0", "n=6"]
    said = rewrite(table, ["--detail", "2", "--n", "1"])
    assert said.arguments == ["n=1"] and said.notes == ["--detail 2 has no effect without --off"]
    assert rewrite(table, ["--detail", "2", "--off"]).arguments == ["d=2", "n=0"]
