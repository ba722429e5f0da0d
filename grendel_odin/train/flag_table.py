"""The flags of Grendel-GS and of 3DGS, and what each of them means here.

docs/coming-from-grendel.md is made from this table: `python scripts/document_keys.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from grendel_odin.config.errors import UserError
from grendel_odin.config.flag_kinds import (
    choice,
    dead,
    dead_toggle,
    derived,
    marks,
    only,
    refused,
    renamed,
    switch,
    toggle,
)
from grendel_odin.config.flags import Flag, Values

_TIMES = "stage times, speed and peak memory are always in summary.json and logs/"
_TIMED = "with parallel.balance=timed; work is counted otherwise, which needs neither"
_NODE = "a node decodes an image once, and a rank holds the rows that it needs; see data.cache_gb"
_NOT_READ = "Grendel-GS does not read it either"
_DEPTHS = "this version has no depth supervision; leave it out"


def _feature_rates(values: Sequence[str]) -> list[str]:
    """The colour's higher coefficients learn at a twentieth of the rate."""
    try:
        higher = float(values[0]) / 20
    except ValueError:
        raise UserError("expected a number") from None
    return [f"optim.sh0_lr={values[0]}", f"optim.shN_lr={higher!r}"]


def _downscale(values: Sequence[str]) -> list[str]:
    """3DGS takes a factor, -1, or else a width."""
    if values[0] == "-1":
        return []
    if values[0] not in ("1", "2", "4", "8"):
        raise UserError(
            "3DGS takes this as the width of images; here they are reduced by whole factors: "
            "data.downscale=N"
        )
    return [f"data.downscale={values[0]}"]


def _no_strips(_: Sequence[str]) -> list[str]:
    raise UserError(
        "pixels are always spread over ranks; parallel.mode=replicated gives each rank whole views"
    )


FILES: tuple[Flag, ...] = (
    renamed(
        "-s --source_path", "data.path", "without -c FILE it also decides the split: see above"
    ),
    renamed(
        "-m --model_path",
        "output",
        "must be given; a folder that holds a run is refused, unless train.overwrite=true",
    ),
    renamed("-i --images", "data.images"),
    switch("-w --white_background", "renderer.background=white"),
    switch("--eval", "data.test_every=8"),
    renamed("--llffhold", "data.test_every", needs="--eval"),
    renamed("--sh_degree", "model.sh_degree"),
    marks(
        "--test_iterations",
        "train.eval_iterations",
        "all test views, not a multiple of the "
        "batch; the last iteration always is evaluated; -1 stands for none",
    ),
    marks(
        "--save_iterations",
        "train.save_iterations",
        "folders have the nominal numbers: iteration_7000 at any batch size",
    ),
    marks(
        "--checkpoint_iterations",
        "train.checkpoint_iterations",
        "a checkpoint is a folder; it can be continued with any number of ranks",
    ),
    renamed("--start_checkpoint", "train.resume", "a folder, as in Grendel-GS"),
    switch("--auto_start_checkpoint", "train.resume=auto", "the newest checkpoint that is whole"),
    switch("--quiet", "train.quiet=true", "logs/ has it all; errors are still printed"),
    renamed("--log_interval", "train.log_every", "lines of metrics.jsonl; timers need no flag"),
    renamed("--num_train_cameras", "data.train_views", "-1 and 0: all", minus_one="0"),
    renamed("--num_test_cameras", "data.test_views", "-1 and 0: all", minus_one="0"),
    choice(
        "--backend",
        {
            "gsplat": "renderer.constants=gsplat",
            "diff": "renderer.constants=inria",
            "default": "renderer.constants=inria",
        },
        "one renderer with the constants of either; without the flag, gsplat's",
    ),
    dead("--log_folder", "Grendel-GS overwrites it with the model path", Values.ONE),
    dead("--debug_from", _NOT_READ, Values.ONE),
    dead("--detect_anomaly", "every step checks its numbers and names the view and the field"),
    dead("--debug", "every step checks its numbers"),
)

TRAINING: tuple[Flag, ...] = (
    renamed(
        "--iterations",
        "train.iterations",
        "counts images, whatever the batch size; the last step is applied",
    ),
    renamed("--bsz", "train.batch_size"),
    renamed(
        "--lr_scale_mode", "optim.lr_scale_mode", "sqrt, linear or accumu, with the same formulas"
    ),
    renamed("--lambda_dssim", "loss.ssim_lambda"),
    only(
        "--lr_scale_loss",
        "1",
        "Adam's steps do not depend on the scale of the loss; what does "
        "is the threshold of densification: divide densify.grow_grad2d by it",
    ),
    renamed("--position_lr_init", "optim.means_lr"),
    renamed("--position_lr_final", "optim.means_lr_final"),
    renamed("--position_lr_max_steps", "optim.means_lr_max_steps"),
    dead(
        "--position_lr_delay_mult",
        "without delay steps, which no flag sets, it has no effect in Grendel-GS either",
        Values.ONE,
    ),
    derived("--feature_lr", "optim.sh0_lr; optim.shN_lr (a twentieth)", _feature_rates),
    renamed("--opacity_lr", "optim.opacities_lr"),
    renamed("--scaling_lr", "optim.scales_lr"),
    renamed("--rotation_lr", "optim.quats_lr"),
    renamed("--lr_scale_pos_and_scale", "optim.geometry_lr_scale"),
    renamed("--percent_dense", "densify.grow_scale3d"),
    renamed(
        "--densification_interval",
        "densify.refine_every",
        "every event takes place; those of one batch are done together, and counted",
    ),
    renamed("--densify_from_iter", "densify.refine_start_iter"),
    renamed(
        "--densify_until_iter",
        "densify.refine_stop_iter",
        "stops before it, as 3DGS does; Grendel-GS still densifies and resets opacity at it",
    ),
    renamed(
        "--densify_grad_threshold",
        "densify.grow_grad2d",
        "norms of each view, as there: not scaled with the batch",
    ),
    renamed("--opacity_reset_interval", "densify.reset_every"),
    renamed(
        "--opacity_reset_until_iter",
        "densify.reset_stop_iter",
        "-1 and 0: densify.refine_stop_iter",
        minus_one="0",
    ),
    renamed(
        "--min_opacity",
        "densify.prune_opa",
        "a reset limits opacity to twice this: 0.01 at the default",
    ),
    renamed(
        "--densify_memory_limit_percentage",
        "model.memory_limit",
        "of memory in use now, not of its peak; growth resumes when there is room again",
    ),
    switch(
        "--disable_auto_densification", "densify.enabled=false", "opacity resets go, too, as there"
    ),
    dead(
        "--random_background",
        "no effect in Grendel-GS either; images with alpha are composited on renderer.background",
    ),
)

DISTRIBUTION: tuple[Flag, ...] = (
    toggle("--gaussians_distribution", "parallel.mode=hybrid", "parallel.mode=replicated"),
    Flag(
        ("--image_distribution",),
        Values.NONE,
        lambda _: [],
        "as it is",
        "--no-: refused; parallel.mode=replicated gives each rank whole views",
        off=_no_strips,
    ),
    choice(
        "--redistribute_gaussians_mode",
        {
            "random_redistribute": "parallel.spread=random",
            "no_redistribute": "parallel.reshard_every=0",
        },
        "parallel.spread has spreads by locality, too",
        last=True,
    ),
    renamed("--redistribute_gaussians_frequency", "parallel.reshard_every"),
    renamed("--redistribute_gaussians_threshold", "parallel.reshard_threshold"),
    choice(
        "--sync_grad_mode",
        {
            "dense": "parallel.reduce=dense",
            "sparse": "parallel.reduce=packed",
            "fused_dense": "parallel.reduce=dense",
            "fused_sparse": "parallel.reduce=packed",
        },
        "of parallel.mode=replicated alone",
    ),
    renamed("--heuristic_decay", "parallel.balance_decay", _TIMED),
    renamed("--adjust_strategy_warmp_iterations", "parallel.balance_warmup", _TIMED),
    switch(
        "--no_heuristics_update",
        "parallel.balance=even",
        "strips by pixels; no cut is ever too thin",
    ),
    dead(
        "--border_divpos_coeff",
        "views stay whole where a halo would cost more, and no cut ends the run",
        Values.ONE,
    ),
    dead("--image_distribution_mode", _NOT_READ, Values.ONE),
    dead("--grad_normalization_mode", _NOT_READ, Values.ONE),
    dead("--save_strategy_history", "strips follow from the plan and the counted cost alone"),
    dead("--local_sampling", "whole views go to a rank where the batch has one for each"),
    dead_toggle("--distributed_dataset_storage", _NODE),
    dead_toggle(
        "--distributed_save",
        "the PLY is one file, whatever the number of ranks; "
        "scripts/merge_ply.py merges files of Grendel-GS",
    ),
    dead("--preload_dataset_to_gpu", _NODE),
    dead("--preload_dataset_to_gpu_threshold", _NODE, Values.ONE),
    toggle("--multiprocesses_image_loading", "", "data.workers=1"),
)

MEASURING: tuple[Flag, ...] = (
    *(
        dead(name, _TIMES)
        for name in (
            "--enable_timer",
            "--zhx_time",
            "--check_gpu_memory",
            "--check_cpu_memory",
            "--log_memory_summary",
            "--zhx_debug",
            "--time_image_loading",
            "--nsys_profile",
        )
    ),
    dead_toggle("--end2end_time", "always measured"),
    switch(
        "--stop_update_param",
        "optim.means_lr=0 optim.means_lr_final=0 optim.scales_lr=0 optim.quats_lr=0 "
        "optim.opacities_lr=0 optim.sh0_lr=0 optim.shN_lr=0 densify.enabled=false",
        "parameters keep their bits",
        last=True,
    ),
    only("--drop_initial_3dgs_p", "0", "thin out the point cloud of the scene itself"),
    only(
        "--drop_duplicate_gaussians_coeff",
        "1",
        "a resumed run continues exactly; model.max_primitives limits growth",
    ),
)

OF_3DGS: tuple[Flag, ...] = (
    derived(
        "-r --resolution",
        "data.downscale",
        _downscale,
        "1, 2, 4 or 8; images wider than 1600 pixels are not reduced unless asked",
    ),
    switch("--antialiasing", "renderer.antialiased=true"),
    choice(
        "--optimizer_type",
        {"default": "optim.kind=adam", "sparse_adam": "optim.kind=selective_adam"},
    ),
    dead("--data_device", _NODE, Values.ONE),
    dead("--convert_SHs_python", "the same result"),
    dead("--compute_cov3D_python", "the same result"),
    *(dead(name, "this version has no viewer", Values.ONE) for name in ("--ip", "--port")),
    dead("--disable_viewer", "this version has no viewer"),
    refused(
        "--train_test_exp", "this version has no exposure compensation; leave it out", Values.NONE
    ),
    *(
        dead(f"--exposure_lr_{name}", "no effect without --train_test_exp in 3DGS", Values.ONE)
        for name in ("init", "final", "delay_steps", "delay_mult")
    ),
    refused("-d --depths", _DEPTHS),
    *(
        dead(f"--depth_l1_weight_{name}", "no effect without --depths in 3DGS", Values.ONE)
        for name in ("init", "final")
    ),
)

TABLE: dict[str, tuple[Flag, ...]] = {
    "Scene, files and log": FILES,
    "Training and densification": TRAINING,
    "Ranks": DISTRIBUTION,
    "Measuring and debugging": MEASURING,
    "Flags of 3DGS that Grendel-GS lacks": OF_3DGS,
}
FLAGS: tuple[Flag, ...] = tuple(flag for flags in TABLE.values() for flag in flags)
