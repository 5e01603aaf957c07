"""Configurations of the devices in `fake`, where `lerobot_record` looks for them."""

from dataclasses import dataclass

# First: it completes torchvision for LeRobot 0.4.4.
import tests.lerobot.recordings  # noqa: F401  # isort: skip
from lerobot.robots.config import RobotConfig
from lerobot.teleoperators.config import TeleoperatorConfig


@RobotConfig.register_subclass('fake_arm')
@dataclass(kw_only=True)
class FakeArmConfig(RobotConfig):
    log: str
    """A file that gets the time of each observation."""
    height: int = 48
    width: int = 64


@TeleoperatorConfig.register_subclass('fake_leader')
@dataclass(kw_only=True)
class FakeLeaderConfig(TeleoperatorConfig):
    pass
