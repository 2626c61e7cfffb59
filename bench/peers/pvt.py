"""PVT in eager PyTorch, written for speed: fused attention and fused projections; with the names in its authors' checkpoints. timm has no PVT."""
import torch
import torch.nn as nn
import torch.nn.functional as F

NORM_EPS = 1e-6


class FeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class Attention(nn.Module):
    def __init__(self, dim, heads, bias, ratio):
        super().__init__()
        self.heads, self.ratio = heads, ratio
        self.q, self.kv, self.proj = nn.Linear(dim, dim, bias=bias), nn.Linear(dim, 2 * dim, bias=bias), nn.Linear(dim, dim)
        if ratio > 1:
            self.sr, self.norm = nn.Conv2d(dim, dim, ratio, ratio), nn.LayerNorm(dim)

    def forward(self, x, grid):
        B, T, D = x.shape
        q = self.q(x).view(B, T, self.heads, -1).transpose(1, 2)
        if self.ratio > 1:
            x = self.norm(self.sr(x.transpose(1, 2).reshape(B, D, *grid)).flatten(2).transpose(1, 2))
        k, v = self.kv(x).view(B, -1, 2, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, dim, heads, hidden, bias, ratio):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, NORM_EPS), nn.LayerNorm(dim, NORM_EPS)
        self.attn, self.mlp = Attention(dim, heads, bias, ratio), FeedForward(dim, hidden)

    def forward(self, x, grid):
        x = x + self.attn(self.norm1(x), grid)
        return x + self.mlp(self.norm2(x))


class PatchEmbedding(nn.Module):
    def __init__(self, channels, dim, size):
        super().__init__()
        self.proj, self.norm = nn.Conv2d(channels, dim, size, size), nn.LayerNorm(dim)

    def forward(self, image):
        image = self.proj(image)
        return self.norm(image.flatten(2).transpose(1, 2)), image.shape[2:]


def as_map(rows, grid):
    """[B,N,D] -> [B,D,h,w]"""
    return rows.transpose(1, 2).reshape(rows.size(0), -1, *grid)


class Pvt(nn.Module):
    """Only at its own image size: positions are not resampled."""

    def __init__(self, img_size, patch_size, in_chans, num_classes, embed_dims, num_heads, mlp_ratios, depths, sr_ratios, qkv_bias, **_):
        super().__init__()
        channels, side = in_chans, [n // patch_size for n in img_size]
        for s, dim in enumerate(embed_dims):
            name, last = s + 1, s + 1 == len(embed_dims)
            setattr(self, f"patch_embed{name}", PatchEmbedding(channels, dim, patch_size if s == 0 else 2))
            setattr(self, f"pos_embed{name}", nn.Parameter(torch.zeros(1, side[0] * side[1] + last, dim)))
            blocks = (Block(dim, num_heads[s], int(dim * mlp_ratios[s]), qkv_bias, sr_ratios[s]) for _ in range(depths[s]))
            setattr(self, f"block{name}", nn.ModuleList(blocks))
            channels, side = dim, [n // 2 for n in side]
        self.stages = len(embed_dims)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, channels))
        self.norm, self.head = nn.LayerNorm(channels, NORM_EPS), nn.Linear(channels, num_classes)

    def run_stages(self, x):
        """The map of each stage but the last; then the last one's rows, normed, the class token first, with their grid."""
        for s in range(1, self.stages + 1):
            x, grid = getattr(self, f"patch_embed{s}")(x)
            if s == self.stages:
                x = torch.cat([self.cls_token.expand(x.size(0), -1, -1), x], 1)
            x = x + getattr(self, f"pos_embed{s}")
            for block in getattr(self, f"block{s}"):
                x = block(x, grid)
            if s < self.stages:
                x = as_map(x, grid)
                yield x
        yield self.norm(x), grid

    def forward(self, x):
        *_, (rows, _) = self.run_stages(x)
        return self.head(rows[:, 0])
