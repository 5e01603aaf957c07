"""The images of the demo: histograms, spectrograms and the contact sheet."""

import textwrap
import unicodedata

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

import bags

Draw = ImageDraw.ImageDraw

WIDTH, TALL, TEXT = 300, 210, 100  # of a card: the image, and the text below it
GAP, MARGIN, HEAD = 24, 48, 136
FULL = 4 * WIDTH + 3 * GAP
PAPER, CARD, EDGE, INK, FAINT, ACCENT = '#f3f0e9', '#ffffff', '#ddd7ca', '#26231f', '#8c8579', '#c2542d'
CHANNELS = ('#d9534a', '#4b9a57', '#4577cf')
# From dark to bright, for spectrograms.
HEAT = np.array([[14, 12, 36], [76, 24, 102], [168, 46, 96], [236, 104, 40], [251, 186, 44], [252, 252, 192]])


def histogram(pixels: np.ndarray) -> np.ndarray:
    """Histogram of the colours of an image: float32, shape (3, 16), each channel summing to 1."""
    channels = pixels.reshape(-1, pixels.shape[2] if pixels.ndim == 3 else 1).T
    counts = np.stack([np.bincount(channel >> 4, minlength=16) for channel in channels])
    return np.broadcast_to(counts / channels.shape[1], (3, 16)).astype(np.float32)


def spectrogram(samples: np.ndarray, rate: int) -> np.ndarray:
    """Draws a spectrogram: uint8 RGB, time to the right, frequency up to 4 kHz, loudness as brightness."""
    slices = np.lib.stride_tricks.sliding_window_view(samples.mean(axis=1), 512)[:: len(samples) // 640]
    power = np.abs(np.fft.rfft(slices * np.hanning(512)))[:, : 4000 * 512 // rate]
    level = (np.log10(power.T[::-1] + 1) - 2.8).clip(0, 2.4) / 2.4 * (len(HEAT) - 1)
    image = np.stack([np.interp(level, range(len(HEAT)), channel) for channel in HEAT.T], axis=-1)
    return np.asarray(Image.fromarray(image.astype(np.uint8)).resize((600, 420), Image.Resampling.BICUBIC))


def contact_sheet(dataset: bags.Dataset) -> Image.Image:
    """Draws the datapoints of the demo as cards, four in a row, and each video in a row of its own."""
    # Neither `lengths` nor the batch reads a clip.
    clips = dataset.lengths('clips')
    videos, others = np.flatnonzero(clips), np.flatnonzero(clips == 0)
    batch = dataset.batch(others, ('caption', 'image', 'colours', 'audio', 'credits'))

    rows = -(-len(others) // 4) + len(videos)
    height = HEAD + rows * (TALL + TEXT + GAP) - GAP + MARGIN
    sheet = Image.new('RGB', (FULL + 2 * MARGIN, height), PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((MARGIN, 38), 'Everything here was read from one bags dataset', INK, font(32))
    types = '     '.join(f'{field}  {type}' for field, type in dataset.spec.items())
    draw.text((MARGIN, 90), types, FAINT, font(14))

    for place, (caption, image, colours, audio, credits) in enumerate(zip(*batch.values(), strict=True)):
        left, top = corner(place)
        card(draw, left, top, WIDTH, caption, credits)
        fitted = ImageOps.fit(Image.fromarray(image), (WIDTH, TALL), centering=(0.5, 0.3))
        sheet.paste(fitted.convert('RGB'), (left, top))
        bars(draw, colours, left + WIDTH - 110, top + TALL + TEXT - 14)
        if audio:
            draw.rectangle((left, top + TALL - 64, left + WIDTH - 1, top + TALL - 1), '#191714')
            wave(draw, audio[0], left + 8, top + TALL - 60, WIDTH - 16, 56, '#fbba2c')

    for row, index in enumerate(videos, start=-(-len(others) // 4)):
        video = dataset[index, ('caption', 'clips', 'colours', 'audio', 'credits')]
        left, top = corner(4 * row)
        card(draw, left, top, FULL, video['caption'], video['credits'])
        strip(sheet, np.concatenate(video['clips']), left, top)
        bars(draw, video['colours'], left + WIDTH - 110, top + TALL + TEXT - 14)
        right = left + WIDTH + GAP
        wave(draw, video['audio'][0], right, top + TALL + 16, FULL - WIDTH - GAP - 20, 70, ACCENT)
    return sheet


def corner(place: int) -> tuple[int, int]:
    """Left and top of a card."""
    return MARGIN + place % 4 * (WIDTH + GAP), HEAD + place // 4 * (TALL + TEXT + GAP)


def card(draw: Draw, left: int, top: int, width: int, caption: str, credits: dict[str, str]) -> None:
    """Draws a card without its image."""
    draw.rectangle((left - 1, top - 1, left + width, top + TALL + TEXT), CARD, EDGE)
    lines = textwrap.wrap(caption, 38, max_lines=2, placeholder=' …')
    draw.text((left + 14, top + TALL + 12), '\n'.join(lines), INK, font(15), spacing=5)
    draw.text((left + 14, top + TALL + TEXT - 28), plain(credits['author']), FAINT, font(12))


def bars(draw: Draw, colours: np.ndarray, left: int, bottom: int) -> None:
    """Draws a histogram: 16 bins of a red, a green and a blue bar."""
    for (channel, level), height in np.ndenumerate(26 * np.sqrt(colours / colours.max())):
        x = left + 6 * level + 2 * channel
        draw.line((x, bottom, x, bottom - height), CHANNELS[channel], 2)


def wave(draw: Draw, samples: np.ndarray, left: int, top: int, width: int, height: int, ink: str) -> None:
    """Draws a waveform."""
    columns = np.array_split(np.abs(samples).max(axis=1) / np.abs(samples).max(), width // 3)
    for index, column in enumerate(columns):
        extent = max(1, column.max() * height / 2)
        x, middle = left + 3 * index, top + height / 2
        draw.line((x, middle - extent, x, middle + extent), ink, 2)


def strip(sheet: Image.Image, frames: np.ndarray, left: int, top: int) -> None:
    """Draws seven evenly spaced frames of a video as a film strip."""
    draw = ImageDraw.Draw(sheet)
    draw.rectangle((left, top, left + FULL - 1, top + TALL - 1), '#191714')
    for x in range(left + 6, left + FULL - 12, 24):
        for y in (top + 9, top + TALL - 21):
            draw.rounded_rectangle((x, y, x + 11, y + 11), 3, PAPER)
    width = (FULL - 8) // 7 - 8
    for index, frame in enumerate(frames[np.linspace(0, len(frames) - 1, 7, dtype=int)]):
        fitted = ImageOps.fit(Image.fromarray(frame), (width, TALL - 60), centering=(0.3, 0.5))
        sheet.paste(fitted, (left + 10 + index * (width + 8), top + 30))


def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """The font that comes with Pillow."""
    return ImageFont.load_default(size)


def plain(text: str) -> str:
    """Removes accents, which the font does not have."""
    return unicodedata.normalize('NFKD', text).encode('ascii', 'ignore').decode()
