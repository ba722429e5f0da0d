"""args.json and cfg_args: settings as scripts and programs of other trainers read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from grendel_odin.config import UserError, bind
from grendel_odin.train import cfg_args
from grendel_odin.train.args_json import arguments
from grendel_odin.train.settings import Settings


def settings(*words: str) -> Settings:
    return bind(Settings, None, ["data.path=scene", "output=run", *words])


def test_args_have_the_names_of_flags_and_our_keys() -> None:
    words = ("train.batch_size=4", "renderer.background=white", "train.eval_iterations=[7000]")
    rates = ("optim.means_lr=0.01", "optim.lr_scale_mode=linear", "optim.sh0_lr=0.004")
    given = arguments(settings(*words, *rates, "data.test_every=0"))
    assert given["bsz"] == given["train.batch_size"] == 4
    assert given["position_lr_init"] == given["optim.means_lr"] == 0.01
    assert given["white_background"] is True and given["eval"] is False
    assert given["test_iterations"] == [7000] and given["save_iterations"] == [7000, 30000]
    assert given["lr_scale_mode"] == "linear" and given["feature_lr"] == 0.004
    assert given["num_train_cameras"] == -1 and given["opacity_reset_until_iter"] == -1
    assert given["source_path"] == str(Path("scene").resolve())
    assert given["model_path"] == given["log_folder"] == str(Path("run").resolve())
    assert "local_sampling" not in given and "stop_update_param" in given


def test_our_cfg_args_come_back(tmp_path: Path) -> None:
    path = tmp_path / cfg_args.FILE
    words = ("renderer.background=white", "model.sh_degree=2", "data.images=images_2")
    before = settings(*words)
    path.write_text(cfg_args.write_text(before))
    after = bind(Settings, None, [*cfg_args.read_words(path), "output=run"])
    assert after.data.path == str(Path("scene").resolve())
    assert after.data.images == "images_2" and after.data.test_every == 8
    assert after.model.sh_degree == 2 and after.renderer.background.value == "white"
    assert after.renderer.constants.value == "inria"


def test_a_file_of_3dgs(tmp_path: Path) -> None:
    path = tmp_path / cfg_args.FILE
    path.write_text(
        "Namespace(data_device='cuda', depths='', eval=False, images='images', model_path='./out',"
        " resolution=2, sh_degree=3, source_path='/data/truck', train_test_exp=False,"
        " white_background=False)"
    )
    words = cfg_args.read_words(path)
    assert words == [
        *("renderer.constants=inria", "data.path=/data/truck", "data.images=images"),
        *("model.sh_degree=3", "data.test_every=0", "data.downscale=2"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Namespace(",
        "Namespace(1)",
        "[1, 2]",
        "Namespace(source_path=__import__('os').system('touch hacked'))",
        "Namespace(**{'a': 1})",
        "(" * 5000,
    ],
)
def test_text_is_never_run(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / cfg_args.FILE
    path.write_text(text)
    with pytest.raises(UserError, match="cannot be read as settings"):
        cfg_args.read_words(path)
    assert not (tmp_path / "hacked").exists()
