"""Encoders and decoders of text: BERT-base and GPT-2; the block of a ViT."""

from __future__ import annotations

from typing import Any

import torch as installed

torch: Any = installed
nn: Any = torch.nn
functional: Any = torch.nn.functional


class Attention(nn.Module):
    """Of a sequence to itself, or to another one."""

    def __init__(self, width: int, heads: int, other: int = 0, is_causal: bool = False) -> None:
        super().__init__()
        self.heads, self.is_causal, self.is_own = heads, is_causal, not other
        if self.is_own:
            self.of = nn.Linear(width, 3 * width)
        else:
            self.query, self.pair = nn.Linear(width, width), nn.Linear(other, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Any, other: Any = None) -> Any:
        batch, length, width = x.shape

        def split(y: Any, count: int) -> Any:
            shape = (batch, y.shape[1], count, self.heads, width // self.heads)
            return y.view(shape).permute(2, 0, 3, 1, 4)

        if self.is_own:
            q, k, v = split(self.of(x), 3)
        else:
            (q,), (k, v) = split(self.query(x), 1), split(self.pair(other), 2)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Norms first, as in ViT and GPT-2."""

    def __init__(
        self, width: int, heads: int, eps: float = 1e-5, is_causal: bool = False,
        approximate: str = "none",
    ) -> None:  # fmt: skip
        super().__init__()
        self.before, self.between = nn.LayerNorm(width, eps=eps), nn.LayerNorm(width, eps=eps)
        self.attention = Attention(width, heads, is_causal=is_causal)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.approximate = approximate

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.before(x))
        inner = functional.gelu(self.wide(self.between(x)), approximate=self.approximate)
        return x + self.narrow(inner)


class Behind(nn.Module):
    """Norms behind, as in BERT; queries, keys and values by a product each."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-12) for _ in range(2))

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape

        def split(y: Any) -> Any:
            return y.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        q, k, v = (split(f(x)) for f in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = self.norms[0](x + self.out(mixed.transpose(1, 2).reshape(batch, length, width)))
        return self.norms[1](x + self.narrow(functional.gelu(self.wide(x))))


class Bert(nn.Module):
    """BERT-base, of sequences without padding, with its pooled first place."""

    def __init__(self, width: int = 768, heads: int = 12, count: int = 12) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(30522, width), nn.Embedding(512, width)
        self.kinds, self.norm = nn.Embedding(2, width), nn.LayerNorm(width, eps=1e-12)
        self.blocks = nn.Sequential(*(Behind(width, heads) for _ in range(count)))
        self.pooled = nn.Linear(width, width)

    def forward(self, words: Any) -> Any:
        places = torch.arange(words.shape[1], device=words.device)
        kinds = torch.zeros_like(words)
        x = self.words(words) + self.places(places) + self.kinds(kinds)
        x = self.blocks(self.norm(x))
        return x, torch.tanh(self.pooled(x[:, 0]))


class Gpt(nn.Module):
    """GPT-2 (124 M), a prompt's logits; the table of words is its head as well."""

    def __init__(self, width: int = 768, heads: int = 12, count: int = 12) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50257, width), nn.Embedding(1024, width)
        blocks = (Block(width, heads, is_causal=True, approximate="tanh") for _ in range(count))
        self.blocks, self.norm = nn.Sequential(*blocks), nn.LayerNorm(width)

    def forward(self, words: Any) -> Any:
        places = torch.arange(words.shape[1], device=words.device)
        x = self.norm(self.blocks(self.words(words) + self.places(places)))
        return functional.linear(x, self.words.weight)
