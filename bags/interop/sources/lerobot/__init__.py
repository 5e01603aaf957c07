"""LeRobot datasets, versions 2 and 3."""
