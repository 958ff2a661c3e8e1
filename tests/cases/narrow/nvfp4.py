"""Gradients of three layers with NVFP4 products, for tests/it/training/fours.rs: `python3 nvfp4.py > nvfp4.json`.

Written from the definition of the recipe (NVIDIA, arXiv 2509.25149, section 4 and appendix B), not from the Rust
code; the chances and which of them each value has are those of a Shardloom step.
"""

import json

import numpy as np

F32, GRID = np.float32, np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
E4M3 = sorted({m / 8 * 2.0**-6 for m in range(8)} | {(1 + m / 8) * 2.0 ** (e - 7) for e in range(1, 16) for m in range(8)})
E4M3 = np.array([it for it in E4M3 if it <= 448], np.float64)
SIGNS = np.array([1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1])
HADAMARD = np.array([[(-1) ** bin(i & j).count("1") for j in range(16)] for i in range(16)]) / 4
MASK = (1 << 64) - 1


def bf16(x):
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
    return bits.astype(np.uint32).view(np.float32)


def numbers(shape, salt):
    at = np.arange(shape[0] * shape[1], dtype=np.uint64)
    mixed = (at * np.uint64(2654435761) + np.uint64(salt * 40503)) >> np.uint64(7)
    small = (mixed % np.uint64(127)).astype(np.float64) - 63
    return (small / 64 * 2.0 ** ((mixed // np.uint64(127) % np.uint64(4)).astype(np.float64) - 2)).reshape(shape).astype(F32)


def mixed(n):
    n = (n + 0x9E3779B97F4A7C15) & MASK
    n = ((n ^ n >> 30) * 0xBF58476D1CE4E5B9) & MASK
    n = ((n ^ n >> 27) * 0x94D049BB133111EB) & MASK
    return n ^ n >> 31


def chances(seed, number, shape):
    """A number from 0 to below 1 for each element, row by row."""
    start = (mixed(seed) + number) & MASK
    bits = [mixed((mixed(start) + it) & MASK) >> 40 for it in range(shape[0] * shape[1])]
    return (np.array(bits) / 2.0**24).reshape(shape)


def nearest(values, grid):
    """The nearest of a grid; of two, the one with the even place."""
    above = np.clip(np.searchsorted(grid, values), 1, len(grid) - 1)
    low, high = grid[above - 1], grid[above]
    up = (values - low > high - values) | ((values - low == high - values) & (above % 2 == 0))
    return np.where(up, high, low)


def quantised(x, across=None, chance=None):
    """Blocks along the last dimension, of so many rows."""
    rows, columns = across or 1, 16
    x = x.astype(np.float64)
    encode = 448 * 6 / np.abs(x).max()
    blocks = np.abs(x).reshape(x.shape[0] // rows, rows, x.shape[1] // columns, columns).max((1, 3))
    scale = nearest(np.minimum(blocks / 6 * encode, 448), E4M3) / encode
    scale = np.repeat(np.repeat(scale, rows, 0), columns, 1)
    over = np.clip(np.abs(x) / scale, 0, 6)
    if chance is None:
        size = nearest(over, GRID.astype(np.float64))
    else:
        above = np.clip(np.searchsorted(GRID, over), 1, 7)
        low, high = GRID[above - 1].astype(np.float64), GRID[above].astype(np.float64)
        size = np.where(chance < (over - low) / (high - low), high, low)
    return np.sign(x) * size * scale


def turned(x):
    """A random Hadamard transform of each 16 along the last dimension."""
    blocks = (x.astype(np.float64) * np.tile(SIGNS, x.shape[1] // 16)).reshape(x.shape[0], -1, 16)
    return (blocks @ HADAMARD).reshape(x.shape).astype(F32)


def weight_gradient(x, dy, seed, number):
    """Both along rows, which are summed over; chances go with the places of dy as it lies."""
    a = quantised(turned(x.T))
    b = quantised(turned(dy.T), chance=chances(seed, number, dy.shape).T)
    return bf16(a @ b.T)


SEED, FIRST = 7, 1 << 32
x, t = numbers((32, 32), 1), numbers((32, 16), 2)
w0, w1, w2 = numbers((32, 32), 3), numbers((32, 32), 4), numbers((32, 16), 5)

y0 = bf16(quantised(x) @ quantised(w0.T, across=16).T)
r0 = np.maximum(y0, 0)
y1 = bf16(quantised(r0) @ quantised(w1.T, across=16).T)
r1 = np.maximum(y1, 0)

dy2 = bf16(t)
dw2 = bf16(r1.astype(np.float64).T @ dy2)
dy1 = bf16(dy2.astype(np.float64) @ w2.T) * (y1 > 0)
NUMBERS = {"dy1 to x": (0, 1), "dy1 to w": (1, 1), "dy0 to w": (2, 1)}
seed, number = NUMBERS["dy1 to x"]
dx1 = bf16(quantised(dy1, chance=chances(FIRST + seed, SEED + number, dy1.shape)) @ quantised(w1.T, across=16))
seed, number = NUMBERS["dy1 to w"]
dw1 = weight_gradient(r0, dy1, FIRST + seed, SEED + number)
dy0 = dx1 * (y0 > 0)
seed, number = NUMBERS["dy0 to w"]
dw0 = weight_gradient(x, dy0, FIRST + seed, SEED + number)

print(json.dumps({name: [float(f"{it:.6g}") for it in g.ravel()] for name, g in [("w0", dw0), ("w1", dw1), ("w2", dw2)]}))
