"""LeRobot's policy ACT, trained over its own dataset and over one of bags."""

import pytest
import torch
from lerobot.configs.types import FeatureType
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.act.modeling_act import ACTPolicy
from lerobot.policies.factory import make_pre_post_processors

from tests.lerobot.recordings import dataset_to_policy_features, open_ours, open_theirs

STEPS = 50


def train(recording, open_dataset, **options):
    """Returns the losses of the first steps, as a training script of LeRobot computes them."""
    meta = open_dataset(recording, **options).meta
    features = dataset_to_policy_features(meta.features)
    outputs = {name: each for name, each in features.items() if each.type is FeatureType.ACTION}
    config = ACTConfig(
        input_features={name: each for name, each in features.items() if name not in outputs},
        output_features=outputs, chunk_size=10, n_action_steps=10, dim_model=32, n_heads=2,
        dim_feedforward=64, latent_dim=8, n_encoder_layers=1, n_vae_encoder_layers=1,
        pretrained_backbone_weights=None, device='cpu', push_to_hub=False,
    )  # fmt: skip
    torch.manual_seed(0)
    policy = ACTPolicy(config)
    policy.train()
    preprocess, _ = make_pre_post_processors(config, dataset_stats=meta.stats)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4)
    deltas = {'action': [step / meta.fps for step in config.action_delta_indices]}
    frames = open_dataset(recording, delta_timestamps=deltas, **options)
    order = torch.Generator().manual_seed(1)
    loader = torch.utils.data.DataLoader(frames, 4, shuffle=True, drop_last=True, generator=order)
    losses = []
    while len(losses) < STEPS:
        for batch in loader:
            loss, _ = policy.forward(preprocess(batch))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses[:STEPS]


@pytest.mark.slow
@pytest.mark.parametrize(('name', 'form'), [('pusht', 'copied'), ('aloha', 'linked')])
def test_losses_are_those_over_files_of_lerobot(recordings, name, form):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # Sums in one order.
    try:
        recording = recordings[name]
        expected = train(recording, open_theirs)
        assert train(recording, open_ours, form=form) == expected
    finally:
        torch.set_num_threads(threads)
    assert expected[-1] < expected[0]
