"""Checks of decoded media: pixels of images and frames, and samples of sound."""
