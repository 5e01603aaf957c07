"""A robot of two cameras and six joints without hardware, and its leader, for the record loop of LeRobot."""

import os
import struct
import time

import numpy as np
from lerobot.robots.robot import Robot
from lerobot.teleoperators.teleoperator import Teleoperator

from tests.lerobot.config_fake import FakeArmConfig, FakeLeaderConfig

JOINTS = [f'joint_{number}.pos' for number in range(6)]
CAMERAS = 'front', 'side'
BITS = 16
SCENES = 16


def picture(scene, number):
    """Returns a scene with a number in the blocks of its first column."""
    pixels = scene.copy()
    size = len(pixels) // BITS
    for bit in range(BITS):
        pixels[bit * size : (bit + 1) * size, : 2 * size] = 255 * (number >> bit & 1)
    return pixels


def number_of(pixels):
    """Returns the number in a picture (H, W, 3)."""
    size = len(pixels) // BITS
    return sum(
        int(pixels[bit * size : (bit + 1) * size, : 2 * size].mean() > 127) << bit for bit in range(BITS)
    )


class Device:
    """The part that the robot and its leader have in common."""

    is_connected = is_calibrated = True

    def connect(self, calibrate=True):
        pass

    def calibrate(self):
        pass

    def configure(self):
        pass

    def disconnect(self):
        pass

    @property
    def action_features(self):
        return dict.fromkeys(JOINTS, float)


class FakeArm(Device, Robot):
    config_class, name = FakeArmConfig, 'fake_arm'

    def __init__(self, config):
        super().__init__(config)
        self.cameras = dict.fromkeys(CAMERAS)
        self.shape = config.height, config.width, 3
        rng = np.random.default_rng(0)
        rows, columns = np.ogrid[: config.height, : config.width]
        noise = rng.integers(0, 12, self.shape)
        self.scenes = [
            np.clip(((rows * 2 + columns + 5 * step) % 200)[..., None] + noise, 0, 255).astype(np.uint8)
            for step in range(SCENES)
        ]
        self.log = os.open(config.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.number = 0

    @property
    def observation_features(self):
        return {**dict.fromkeys(JOINTS, float), **dict.fromkeys(CAMERAS, self.shape)}

    def get_observation(self):
        number, self.number = self.number, self.number + 1
        os.write(self.log, struct.pack('d', time.monotonic()))
        joints = {name: float(number + index) for index, name in enumerate(JOINTS)}
        return joints | {name: picture(self.scenes[number % SCENES], number) for name in CAMERAS}

    def send_action(self, action):
        return action


class FakeLeader(Device, Teleoperator):
    config_class, name = FakeLeaderConfig, 'fake_leader'

    @property
    def feedback_features(self):
        return {}

    def get_action(self):
        return dict.fromkeys(JOINTS, 0.5)

    def send_feedback(self, feedback):
        pass
