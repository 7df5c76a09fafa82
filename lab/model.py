"""A small causal transformer, and the copies of it that an inference engine would run."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """Sizes; the default has 0.8 million parameters."""

    width: int = 128
    layers: int = 4
    heads: int = 4


SHAPE = Shape()


class KeyValueCache:
    """Keys and values of the positions seen so far, for every layer."""

    def __init__(self, model: Transformer, rows: int) -> None:
        shape, first = model.shape, model.token.weight
        size = (shape.layers, rows, shape.heads, model.length, shape.width // shape.heads)
        self.keys = torch.empty(size, dtype=first.dtype, device=first.device)
        self.values = torch.empty_like(self.keys)
        self.filled = 0

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append one layer's keys and values [B, heads, n, width], and return all of them so far."""
        end = self.filled + keys.shape[2]
        self.keys[layer, :, :, self.filled : end] = keys
        self.values[layer, :, :, self.filled : end] = values
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]


class Block(nn.Module):
    """Attention and a feed-forward layer, each after a normalisation."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, self.heads = shape.width, shape.heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, cache: KeyValueCache | None, layer: int) -> Tensor:
        """Map [B, n, width] to the same; with a cache the n positions follow the cached ones."""
        rows, n, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(rows, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if cache is not None:
            k, v = cache.extend(layer, k, v)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=n > 1)
        x = x + self.mix(seen.transpose(1, 2).reshape(rows, n, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Tokens [B, n] to logits [B, n, V] of the next token."""

    def __init__(self, vocabulary: int, length: int, shape: Shape = SHAPE) -> None:
        super().__init__()
        self.length, self.shape = length, shape
        self.token, self.position = nn.Embedding(vocabulary, shape.width), nn.Embedding(length, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm, self.head = nn.LayerNorm(shape.width), nn.Linear(shape.width, vocabulary)
        for embedding in (self.token, self.position):
            nn.init.normal_(embedding.weight, std=0.2)

    def forward(self, tokens: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """Return logits; a cache is filled as a side effect (several tokens at once only into an empty one)."""
        start = 0 if cache is None else cache.filled
        x = self.token(tokens) + self.position.weight[start : start + tokens.shape[1]]
        for layer, block in enumerate(self.blocks):
            x = block(x, cache, layer)
        if cache is not None:
            cache.filled += tokens.shape[1]
        return self.head(self.norm(x))


def engine(model: Transformer, precision: str) -> Transformer:
    """Make the copy that samples: weights and arithmetic in bfloat16, or weights rounded to int8 besides.

    Parameters
    ----------
    precision : "float32", "bfloat16" or "int8"
        int8: each matrix is rounded row by row to 255 levels; arithmetic stays in bfloat16.
    """
    if precision not in ("float32", "bfloat16", "int8"):
        raise ValueError(f"precision must be float32, bfloat16 or int8, got {precision=}")
    twin = copy.deepcopy(model).requires_grad_(False).eval()
    if precision == "int8":
        for layer in twin.modules():
            if isinstance(layer, nn.Linear):
                scale = layer.weight.abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / 127
                layer.weight.copy_((layer.weight / scale).round() * scale)
    return twin if precision == "float32" else twin.to(torch.bfloat16)
