"""How ranks work together."""

from __future__ import annotations

from dataclasses import dataclass

from grendel_odin.config import setting
from grendel_odin.parallel.modes import Mode, Reduce
from grendel_odin.parallel.spread import Spread
from grendel_odin.parallel.timed import Balance
from grendel_odin.parallel.wire import Transport


@dataclass(frozen=True, slots=True)
class ParallelSettings:
    """Several processes: rows are spread over them, pixels are cut into strips."""

    mode: Mode = setting(
        Mode.HYBRID,
        "hybrid spreads rows and pixels over ranks (one model, any size); replicated gives every "
        "rank all rows and whole views, and needs batches of as many views as ranks.",
    )
    reduce: Reduce = setting(
        Reduce.PACKED,
        "In replicated mode, gradients travel of the rows that a view sees, or of all rows (dense, "
        "as in plain data parallelism).",
    )
    timeout_s: float = setting(
        300.0,
        "Seconds after which a rank that waits for another gives up and ends the run: at the "
        "start, in the first step, in evaluations, densifications and while files are written.",
        min_exclusive=0.0,
    )
    step_timeout_s: float = setting(
        60.0,
        "The same for steps after the first one; at least what the slowest step takes.",
        min_exclusive=0.0,
    )
    transport: Transport = setting(
        Transport.AUTO,
        "How ranks on one machine talk: through shared memory where it can be had, or by gloo; "
        "between machines it is always gloo.",
    )
    spread: Spread = setting(
        Spread.RANDOM,
        "Which rank owns which row: equal pieces of the order of rows, random, pieces of a Morton "
        "curve, or METIS parts of cells that views see together, so that few splats travel.",
    )
    reshard_every: int = setting(
        10, "Rows may move to other ranks at every so manyth densification; 0: never.", min=0
    )
    reshard_threshold: float = setting(
        1.1,
        "They do so where the largest share exceeds the smallest by more than this factor.",
        min=1.0,
    )
    balance: Balance = setting(
        Balance.COUNTED,
        "What strips of pixels are cut by: counted work, the time that strips took, or pixels "
        "alone (even). Results are the same.",
    )
    balance_decay: float = setting(
        0.5,
        "With balance=timed, the weight of what was known of a view against what is measured.",
        min=0.0,
        max=0.99,
    )
    balance_warmup: int = setting(
        -1, "With balance=timed, images that teach nothing; -1: as many as there are views.", min=-1
    )
    balance_small: bool = setting(
        False,
        "With balance=timed, whether images of up to 600 rows or 1000 columns count, and up to "
        "1080 or 1920 where a rank gets whole views; Grendel-GS cuts them by pixels.",
    )
