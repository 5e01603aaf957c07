"""Trains a network with Flax and Grain, and resumes from a checkpoint with the same losses.

Run it with `python examples/train_jax.py [FOLDER]`. The network learns which image of the demo's
dataset a patch is from.
"""

import json
import sys
from pathlib import Path
from typing import Any

import flax.linen as nn
import flax.serialization
import jax
import jax.numpy as jnp
import optax
import patches

import bags

STEPS, SAVED = 60, 30
OPTIMIZER = optax.adamw(3e-3)
Params = Any


class Network(nn.Module):
    """A small convolutional network: patches in, a score for each of 13 images out."""

    @nn.compact
    def __call__(self, patch: jax.Array) -> jax.Array:
        """Takes (B, 48, 48, 3), returns (B, 13)."""
        for width in (16, 32, 64):
            patch = nn.Conv(width, (3, 3), strides=2)(patch)
            patch = nn.gelu(nn.GroupNorm(4)(patch))
        return nn.Dense(13)(patch.mean((1, 2)))


def loss_of(params: Params, batch: dict[str, jax.Array]) -> jax.Array:
    """The loss of a batch."""
    scores = Network().apply(params, batch['patch'])
    return optax.softmax_cross_entropy_with_integer_labels(scores, batch['label']).mean()


@jax.jit
def update(state: tuple[Params, Any], batch: dict[str, jax.Array]) -> tuple[tuple[Params, Any], jax.Array]:
    """One step: returns the next parameters and optimizer state, and the loss."""
    params, moments = state
    loss, gradients = jax.value_and_grad(loss_of)(params, batch)
    updates, moments = OPTIMIZER.update(gradients, moments, params)
    return (optax.apply_updates(params, updates), moments), loss


class Run:
    """A training run: everything that a checkpoint restores."""

    def __init__(self, reader: Any) -> None:
        loader = bags.Loader(
            reader,
            batch_size=6,
            fields=('name', 'image'),
            epochs=None,
            last_batch='drop',
            seed=1,
            transform=patches.cutter(reader),
        )
        # A Grain dataset, which can be part of any Grain pipeline. `prefetch` copies the next two batches to
        # the device during a step; its state is that of the last batch it returned.
        dataset = bags.grain.iter_dataset(loader)
        self.batches = bags.jax.prefetch(dataset, 2)
        params = Network().init(jax.random.key(1), jnp.zeros((1, patches.SIZE, patches.SIZE, 3)))
        self.state = params, OPTIMIZER.init(params)
        self.step = 0

    def train(self, until: int, checkpoint: Path | None = None) -> list[float]:
        """Trains until a step, saves a checkpoint on the way, and returns the losses."""
        losses = []
        while self.step < until:
            self.state, loss = update(self.state, next(self.batches))
            self.step += 1
            losses.append(float(loss))
            if self.step % 10 == 0:
                print(f'step {self.step}: loss {loss:.3f}')
            if self.step == SAVED and checkpoint:
                self.save(checkpoint)
        return losses

    def save(self, path: Path) -> None:
        """Writes a checkpoint. The position in the data is a few numbers, as JSON."""
        position = json.dumps({'step': self.step, 'batches': self.batches.get_state()})
        path.write_bytes(flax.serialization.to_bytes({'state': self.state, 'position': position}))

    def load(self, path: Path) -> None:
        """Restores a checkpoint."""
        saved = flax.serialization.from_bytes({'state': self.state, 'position': ''}, path.read_bytes())
        self.state, position = saved['state'], json.loads(saved['position'])
        self.batches.set_state(position['batches'])
        self.step = position['step']


def main(folder: Path) -> None:
    """Trains, and trains again from the checkpoint."""
    checkpoint = folder.parent / 'train_jax.msgpack'
    with patches.dataset(folder) as reader:
        losses = Run(reader).train(STEPS, checkpoint)
        print(f'again from step {SAVED}, with {checkpoint}')
        resumed = Run(reader)
        resumed.load(checkpoint)
        again = resumed.train(STEPS)
    if again != losses[SAVED:]:
        sys.exit('the losses differ')
    print(f'the {len(again)} losses after step {SAVED} are equal')


if __name__ == '__main__':
    main(Path(*sys.argv[1:] or ['out/demo']))
