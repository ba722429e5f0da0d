"""Word vectors whose updates are published while the next batch already runs.

    python examples/toy_embedding.py

The state is a table of vectors; a batch reads and writes the rows of its words. Any model with
such sparse state can be trained so: say what a batch may read, stage its updates, publish them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grendel_odin.odin.admit import Admission, Policy
from grendel_odin.odin.session import Counts, Session

WORDS, WIDTH, PAIRS, RATE = 2000, 8, 256, 40.0


def draw_pairs(truth: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Pairs [P, 2] of words of one topic, or common ones, and the products of their vectors."""
    topic = int(torch.randint(WORDS, (1,), generator=draw))
    near = (topic + torch.randint(100, (PAIRS, 2), generator=draw)) % WORDS
    common = torch.randint(50, (PAIRS, 2), generator=draw)
    pairs = torch.where(torch.rand(PAIRS, 2, generator=draw) < 0.1, common, near)
    return pairs, truth[pairs].prod(1).sum(1)


def train(policy: Policy, batches: int = 1000) -> tuple[Tensor, float, Counts]:
    """The table, the mean loss of the last tenth, and what happened on the way."""
    draw = torch.Generator().manual_seed(0)
    truth, table = torch.randn(2, WORDS, WIDTH, generator=draw) * WIDTH**-0.5

    def apply(rows: Tensor, updates: Tensor) -> None:
        table[rows] -= updates

    session, losses = Session([table], table, apply, Admission(policy)), []
    for _ in range(batches):
        pairs, products = draw_pairs(truth, draw)
        rows, place = torch.unique(pairs, return_inverse=True)
        reading = session.begin(rows)  # hook 1: what the batch may read
        last, vectors = reading.unit - 1, torch.empty(len(rows), WIDTH)
        # The updates of the last batch are still under way; most rows need not wait for them.
        vectors[torch.isin(rows, reading.now)] = session.read(reading.unit, reading.now)[0]
        session.publish(last, reading.wait)  # hook 3: those that are waited for come first
        vectors[torch.isin(rows, reading.wait)] = session.read(reading.unit, reading.wait)[0]
        vectors.requires_grad_()
        loss = (vectors[place].prod(1).sum(1) - products).square().mean()
        (gradients,) = torch.autograd.grad(loss, vectors)
        session.publish(last)  # the rest came while the batch was computing
        session.finish(reading.unit, rows, RATE * gradients)  # hook 2: what the batch changes
        losses.append(loss.item())
    session.publish(batches)
    tail = losses[-max(batches // 10, 1) :]
    return table, sum(tail) / len(tail), session.counts


if __name__ == "__main__":
    for choice in Policy:
        _, final, counts = train(choice)
        print(f"{choice.value:10} loss {final:.5f}, {counts}")
