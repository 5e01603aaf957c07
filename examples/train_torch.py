"""Trains a network with PyTorch, and resumes from a checkpoint with the same losses.

Run it with `python examples/train_torch.py [FOLDER]`. The network learns which image of the demo's
dataset a patch is from.
"""

import sys
from pathlib import Path
from typing import Any

import patches
import torch
from torch import nn

import bags

STEPS, SAVED = 60, 30


def network() -> nn.Module:
    """A small convolutional network: patches in, a score for each of 13 images out."""

    def layer(before: int, after: int) -> list[nn.Module]:
        return [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.GroupNorm(4, after), nn.GELU()]

    pooled = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 13)]
    return nn.Sequential(*layer(3, 16), *layer(16, 32), *layer(32, 64), *pooled)


class Run:
    """A training run: everything that a checkpoint restores."""

    def __init__(self, reader: Any) -> None:
        # Threads decode and cut patches ahead. Batches are tensors. With `epochs=None` the loader never ends.
        self.loader = bags.Loader(
            reader,
            batch_size=6,
            fields=('name', 'image'),
            epochs=None,
            last_batch='drop',
            seed=1,
            transform=patches.cutter(reader),
            to_device=bags.torch.to_torch,
        )
        torch.manual_seed(1)
        self.network = network()
        self.optimizer = torch.optim.AdamW(self.network.parameters(), 3e-3)
        self.step = 0

    def train(self, until: int, checkpoint: Path | None = None) -> list[float]:
        """Trains until a step, saves a checkpoint on the way, and returns the losses."""
        losses = []
        with iter(self.loader) as batches:
            while self.step < until:
                batch = next(batches)
                scores = self.network(batch['patch'].movedim(-1, 1))
                loss = nn.functional.cross_entropy(scores, batch['label'])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.step += 1
                losses.append(loss.item())
                if self.step % 10 == 0:
                    right = (scores.argmax(1) == batch['label']).float().mean()
                    print(f'step {self.step}: loss {loss:.3f}, {right:.0%} right')
                if self.step == SAVED and checkpoint:
                    self.save(checkpoint)
        return losses

    def save(self, path: Path) -> None:
        """Writes a checkpoint. The position in the data is a few numbers."""
        parts = {'network': self.network, 'optimizer': self.optimizer, 'loader': self.loader}
        torch.save({name: part.state_dict() for name, part in parts.items()} | {'step': self.step}, path)

    def load(self, path: Path) -> None:
        """Restores a checkpoint."""
        state = torch.load(path)
        self.network.load_state_dict(state['network'])
        self.optimizer.load_state_dict(state['optimizer'])
        self.loader.load_state_dict(state['loader'])
        self.step = state['step']


def main(folder: Path) -> None:
    """Trains, and trains again from the checkpoint."""
    checkpoint = folder.parent / 'train_torch.pt'
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
