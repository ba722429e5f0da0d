"""Settings of the data set."""

from __future__ import annotations

from dataclasses import dataclass

from grendel_odin.config import setting


@dataclass(frozen=True, slots=True)
class DataSettings:
    """Which scene is read, and how its images are held."""

    path: str = setting(
        "", "Folder of the scene: a COLMAP model and its images, or transforms.json."
    )
    model: str = setting(
        "",
        "Folder of the COLMAP model inside data.path, such as sparse/1; empty: of all models "
        "there, the one with most images.",
    )
    images: str = setting(
        "images", "Image folder inside data.path; transforms.json names its images itself."
    )
    skip_missing: bool = setting(
        False, "Train without the images of the model that have no file, instead of stopping."
    )
    masks: str = setting(
        "masks",
        "Folder of masks inside data.path, white where an image is used: a/b.jpg.png or a/b.png "
        "for a/b.jpg. Images without one are used whole.",
    )
    downscale: int = setting(
        1,
        "Train on images N times smaller: taken from images_N where that folder exists, "
        "else reduced as they are decoded.",
        min=1,
    )
    test_every: int = setting(
        8, "Every n-th view by sorted name, from the first, is a test view; 0 trains on all.", min=0
    )
    train_views: int = setting(
        0, "Most training views, the first by name; 0 takes all. The others are left out.", min=0
    )
    test_views: int = setting(0, "Most test views, the first by name; 0 takes all.", min=0)
    random_points: int = setting(
        20_000, "Points to start from, drawn where the cameras look, if the scene has none.", min=1
    )
    cache_gb: float = setting(
        4.0,
        "Memory of a node for decoded images, which its ranks share, in GB (10^9 bytes).",
        min=0.0,
    )
    workers: int = setting(2, "Threads of each rank that decode images ahead of their use.", min=1)

    @property
    def cache_bytes(self) -> int:
        """The limit of the image cache in bytes."""
        return int(self.cache_gb * 1e9)

    def problems(self) -> list[str]:
        """Faults that concern several fields at once."""
        if self.test_every == 1:
            return [
                "data.test_every=1 makes every view a test view and leaves none to train on; "
                "use 0 (train on all) or 2 and more"
            ]
        return []
