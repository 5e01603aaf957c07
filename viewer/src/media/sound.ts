// Samples as a waveform and a spectrogram.

import {viridis} from './colors';

const WINDOW = 1024;

/** Draws the range of samples in each column of a canvas. */
export function drawWaveform(canvas: HTMLCanvasElement, samples: Float32Array, color: string): void {
  const context = canvas.getContext('2d')!;
  const {width, height} = canvas;
  context.clearRect(0, 0, width, height);
  context.fillStyle = color;
  for (let x = 0; x < width; x++) {
    let low = 1, high = -1;
    const stop = Math.max(Math.floor(samples.length * (x + 1) / width), Math.floor(samples.length * x / width) + 1);
    for (let i = Math.floor(samples.length * x / width); i < Math.min(stop, samples.length); i++) {
      if (samples[i] < low) low = samples[i];
      if (samples[i] > high) high = samples[i];
    }
    if (high >= low) context.fillRect(x, (1 - high) * height / 2, 1, Math.max(1, (high - low) * height / 2));
  }
}

/** Draws decibels from -90 to 0 over time and frequency (0 at the bottom, half the rate at the top). */
export function drawSpectrogram(canvas: HTMLCanvasElement, samples: Float32Array): void {
  const {width, height} = canvas;
  const context = canvas.getContext('2d')!;
  const image = context.createImageData(width, height);
  const window = Float32Array.from({length: WINDOW}, (_, i) => 0.5 - 0.5 * Math.cos(2 * Math.PI * i / WINDOW));
  const real = new Float32Array(WINDOW), imaginary = new Float32Array(WINDOW);
  for (let x = 0; x < width; x++) {
    const start = Math.floor(x / Math.max(1, width - 1) * Math.max(0, samples.length - WINDOW));
    for (let i = 0; i < WINDOW; i++) real[i] = (samples[start + i] ?? 0) * window[i];
    imaginary.fill(0);
    transform(real, imaginary);
    for (let y = 0; y < height; y++) {
      const bin = Math.floor((height - 1 - y) / height * WINDOW / 2);
      const decibels = 20 * Math.log10(Math.hypot(real[bin], imaginary[bin]) / (WINDOW / 4) + 1e-9);
      image.data.set([...viridis((decibels + 90) / 90), 255], 4 * (y * width + x));
    }
  }
  context.putImageData(image, 0, 0);
}

/** The discrete Fourier transform in place; lengths are powers of two. */
export function transform(real: Float32Array, imaginary: Float32Array): void {
  const count = real.length;
  for (let i = 1, j = 0; i < count; i++) {
    let bit = count >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) {
      [real[i], real[j]] = [real[j], real[i]];
      [imaginary[i], imaginary[j]] = [imaginary[j], imaginary[i]];
    }
  }
  for (let size = 2; size <= count; size *= 2) {
    const angle = -2 * Math.PI / size;
    for (let first = 0; first < count; first += size) {
      for (let k = 0; k < size / 2; k++) {
        const cos = Math.cos(angle * k), sin = Math.sin(angle * k);
        const a = first + k, b = a + size / 2;
        const re = real[b] * cos - imaginary[b] * sin, im = real[b] * sin + imaginary[b] * cos;
        real[b] = real[a] - re;
        imaginary[b] = imaginary[a] - im;
        real[a] += re;
        imaginary[a] += im;
      }
    }
  }
}
