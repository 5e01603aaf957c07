"""A small GPT trains on packed, masked documents, and resumes with other workers and ranks."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import bags
import bags.torch
from bags.samplers import Mixture, Packed

torch = pytest.importorskip('torch')
nn, functional = torch.nn, torch.nn.functional

VOCABULARY, LENGTH, BINS, STEPS, SAVED = 64, 96, 4, 50, 25
NEW_WEIGHTS = {10: [1, 2], 35: [3, 1]}
"""The weights of both sources that the run changes, by step."""


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Any, mask: Any) -> Any:
        queries, keys, values = self.attend(self.before(x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        queries, keys, values = (part.transpose(1, 2) for part in (queries, keys, values))
        attended = functional.scaled_dot_product_attention(queries, keys, values, mask[:, None])
        x = x + self.project(attended.transpose(1, 2).flatten(2))
        return x + self.think(self.after(x))


class GPT(nn.Module):
    """A decoder of three layers, whose tokens attend to earlier tokens of their own segment only."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList([Block(width, 4) for _ in range(3)])
        self.logits = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Any, positions: Any, segments: Any) -> Any:
        is_earlier = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
        mask = (segments[:, :, None] == segments[:, None, :]) & is_earlier
        x = self.tokens(tokens) + self.positions(positions)
        for block in self.blocks:
            x = block(x, mask)
        return self.logits(x)


def loss_of(model: GPT, batch: dict[str, Any]) -> tuple[Any, int]:
    """Returns the sum of the losses of tokens that have an earlier one in their segment, and their number."""
    tokens, segments = batch['tokens'].long(), batch['segment_ids']
    logits = model(tokens, batch['position_ids'].long(), segments)
    is_predicted = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    losses = functional.cross_entropy(
        logits[:, :-1][is_predicted], tokens[:, 1:][is_predicted], reduction='sum'
    )
    return losses, int(is_predicted.sum())


@pytest.fixture(scope='module')
def sources(tmp_path_factory):
    """Two sources of documents that count up by a step of the source, some longer than a bin.

    The second one is linked to a `.bin` of Megatron-LM.
    """
    folder, rng = tmp_path_factory.mktemp('documents'), np.random.default_rng(0)
    found = []
    for number, name in enumerate(('prose', 'code')):
        with bags.DatasetWriter(folder / name, {'tokens': 'array(uint16,?)'}) as writer:
            for length in rng.lognormal(2.7, 1, 300).astype(int) + 2:
                first = rng.integers(VOCABULARY)
                tokens = (first + (2 * number + 1) * np.arange(length)) % VOCABULARY
                writer.append({'tokens': tokens.astype(np.uint16)})
        found.append(bags.open(folder / name))
    bags.export(found[1], folder / 'megatron', format='megatron')
    linked = bags.convert(folder / 'megatron/tokens.bin', folder / 'linked', link=True)
    found[1] = bags.open(folder / 'linked', trust_links=linked.parents)
    assert all(source.lengths('tokens', of='elements').max() > LENGTH for source in found)
    return found


def loader_of(sources: list[Any], rank: int = 0, world_size: int = 1, **options: Any) -> bags.Loader:
    packed = [
        Packed(LENGTH, source.lengths('tokens', of='elements'), seed, longer='cut', overlap=1)
        for seed, source in enumerate(sources)
    ]
    return bags.Loader(
        bags.concat(sources), BINS // world_size, fields='tokens', rank=rank, world_size=world_size,
        sampler=Mixture(packed, weights=[1, 1], weigh='tokens', samples=BINS * 40), epochs=2,
        collate=bags.bins(LENGTH), to_device=bags.torch.to_torch, **options,
    )  # fmt: skip


@dataclasses.dataclass
class Run:
    """The training of one model by the loaders of all ranks, whose gradients are summed."""

    loaders: list[bags.Loader]
    step: int = 0

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.model = GPT()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 5e-3)
        self.losses: list[float] = []
        self.seen: list[list[tuple[int, int]]] = []
        """The datapoint and the start of each piece of a step."""

    def train(self, stop: int, path: Any = None) -> None:
        """Trains up to a step; writes a checkpoint after the step `SAVED`."""
        iterators = [iter(loader) for loader in self.loaders]
        while self.step < stop:
            if self.step in NEW_WEIGHTS:
                for loader in self.loaders:
                    loader.set_weights(NEW_WEIGHTS[self.step])
            self.optimizer.zero_grad()
            total, count, pieces = 0.0, 0, []
            for iterator in iterators:
                batch = next(iterator)
                losses, predicted = loss_of(self.model, batch)
                losses.backward()
                total, count = total + losses.item(), count + predicted
                pieces += zip(batch['_datapoint'].tolist(), batch['_start'].tolist(), strict=True)
            for parameter in self.model.parameters():
                parameter.grad /= count
            self.optimizer.step()
            self.losses.append(total / count)
            self.seen.append(pieces)
            self.step += 1
            if path is not None and self.step == SAVED:
                self.checkpoint(path)
        for iterator in iterators:
            iterator.close()

    def checkpoint(self, path: Any) -> None:
        self.loaders[0].save_weights(f'{path}.weights')
        model, optimizer = self.model.state_dict(), self.optimizer.state_dict()
        state = {'model': model, 'optimizer': optimizer, 'loader': self.loaders[0].state_dict()}
        torch.save({**state, 'step': self.step}, path)

    def resume(self, path: Any) -> None:
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state['model'])
        self.optimizer.load_state_dict(state['optimizer'])
        for loader in self.loaders:
            loader.load_state_dict(state['loader'], weights=f'{path}.weights')
        self.step = state['step']


@pytest.fixture(scope='module')
def whole(sources, tmp_path_factory):
    """A run of 50 steps that is not interrupted, and the path of its checkpoint in the middle."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # Sums in one order.
    run, path = Run([loader_of(sources, workers=2)]), tmp_path_factory.mktemp('run') / 'checkpoint'
    run.train(STEPS, path)
    yield run, path
    torch.set_num_threads(threads)


def test_it_learns(whole):
    run, _ = whole
    assert len(run.losses) == STEPS
    assert run.losses[0] > 0.9 * np.log(VOCABULARY)
    assert run.losses[-1] < 0.5 * run.losses[0]


@pytest.mark.parametrize('workers', [0, 3])
def test_a_resume_with_other_workers_is_bit_equal(sources, whole, workers):
    run, path = whole
    resumed = Run([loader_of(sources, workers=workers)])
    resumed.resume(path)
    resumed.train(STEPS)
    assert resumed.seen == run.seen[SAVED:]
    assert resumed.losses == run.losses[SAVED:]
    for name, parameter in resumed.model.state_dict().items():
        assert torch.equal(parameter, run.model.state_dict()[name]), name


def test_other_ranks_take_the_same_tokens(sources, whole):
    run, path = whole
    resumed = Run([loader_of(sources, rank, 2, workers=1) for rank in range(2)])
    resumed.resume(path)
    resumed.train(STEPS)
    assert resumed.seen == run.seen[SAVED:]
    np.testing.assert_allclose(resumed.losses, run.losses[SAVED:], atol=1e-4, rtol=0)


def test_attention_across_documents_is_zero(sources, whole):
    model = whole[0].model.eval()
    batch = next(iter(loader_of(sources, workers=0)))
    tokens, positions, segments = (batch[name].long() for name in ('tokens', 'position_ids', 'segment_ids'))
    assert (segments.max(1).values > 2).any()
    # The gradient of a prediction by the embeddings of all tokens of its bin: its own segment alone.
    embedded = model.tokens(tokens).detach().requires_grad_()
    handle = model.tokens.register_forward_hook(lambda *_: embedded)
    logits = model(tokens, positions, segments)
    handle.remove()
    for bin_, place in enumerate((20, 40, 60, 80)):
        (gradient,) = torch.autograd.grad(logits[bin_, place].square().sum(), embedded, retain_graph=True)
        reached = gradient.abs().sum(-1)
        is_own = (segments[bin_] == segments[bin_, place]) & (torch.arange(LENGTH) <= place)
        assert (reached[bin_][is_own] > 0).all()
        assert (reached[bin_][~is_own] == 0).all()
        assert (reached[torch.arange(BINS) != bin_] == 0).all()
    # So each piece has the predictions that it has alone, in a bin of its own.
    with torch.no_grad():
        for bin_ in range(BINS):
            for segment in range(1, int(segments[bin_].max()) + 1):
                mine = segments[bin_] == segment
                alone = tokens[bin_][mine][None]
                expected = model(alone, torch.arange(alone.shape[1])[None], torch.ones_like(alone))[0]
                torch.testing.assert_close(logits[bin_][mine].detach(), expected, atol=1e-5, rtol=1e-4)


def test_each_token_is_predicted_once_in_an_epoch(sources):
    (source, _) = sources
    lengths = source.lengths('tokens', of='elements')
    packed = Packed(LENGTH, lengths, 0, longer='cut', overlap=1)
    predicted = [np.zeros(length, int) for length in lengths]
    loader = bags.Loader(source, 3, fields='tokens', sampler=packed, collate=bags.bins(LENGTH), workers=0)
    for batch in loader:
        segments = batch['segment_ids']
        pieces = iter(zip(batch['_datapoint'].tolist(), batch['_start'].tolist(), strict=True))
        for row, tokens in zip(segments, batch['tokens'], strict=True):
            for segment in range(1, row.max() + 1):
                datapoint, start = next(pieces)
                count = int((row == segment).sum())
                assert np.array_equal(tokens[row == segment], source[datapoint]['tokens'][start:][:count])
                predicted[datapoint][start + 1 : start + count] += 1
    assert all((times[1:] == 1).all() for times in predicted)
