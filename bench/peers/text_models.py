"""A GPT-2 and a Llama in eager PyTorch, a prompt or one token at a time, with caches that the caller has allocated; and the same two in transformers.

theirs: Mnemo's parameters by name. case: layers, dim, heads, kv_heads (0: a GPT-2), ffn, vocab, segment.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

ROTARY_BASE = 10000.0


class Gpt2Layer(nn.Module):
    def __init__(self, case):
        super().__init__()
        dim, ffn, self.heads = case["dim"], case["ffn"], case["heads"]
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc1, self.fc2 = nn.Linear(dim, ffn), nn.Linear(ffn, dim)

    def forward(self, x, k, v, position, _):
        rows = x.size(1)
        q, fresh_k, fresh_v = self.qkv(self.norm1(x)).view(x.size(0), rows, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        end = position + rows
        k[:, :, position:end], v[:, :, position:end] = fresh_k, fresh_v
        y = F.scaled_dot_product_attention(q, k[:, :, :end], v[:, :, :end], is_causal=rows > 1)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))

    @staticmethod
    def parts(theirs, name):
        return {f"{mine}.{kind}": torch.cat([theirs[f"{name}.{their}.{kind}"] for their in parts]) for kind in ("weight", "bias") for mine, parts in
                {"qkv": ["attn.q", "attn.k", "attn.v"], "o": ["attn.o"], "fc1": ["ffn.0"], "fc2": ["ffn.1"], "norm1": ["norm1"], "norm2": ["norm2"]}.items()}


class LlamaLayer(nn.Module):
    def __init__(self, case):
        super().__init__()
        dim, ffn, self.heads, self.kv_heads = case["dim"], case["ffn"], case["heads"], case["kv_heads"]
        self.width = dim // self.heads
        self.norm1, self.norm2 = nn.RMSNorm(dim, eps=1e-5), nn.RMSNorm(dim, eps=1e-5)
        self.qkv = nn.Linear(dim, (self.heads + 2 * self.kv_heads) * self.width, bias=False)
        self.o = nn.Linear(dim, dim, bias=False)
        self.gate_up, self.down = nn.Linear(dim, 2 * ffn, bias=False), nn.Linear(ffn, dim, bias=False)

    def forward(self, x, k, v, position, turn):
        rows = x.size(1)
        heads = self.qkv(self.norm1(x)).view(x.size(0), rows, -1, self.width).transpose(1, 2)
        turned, fresh_v = heads.split([self.heads + self.kv_heads, self.kv_heads], 1)
        cos, sin = turn
        left, right = turned.chunk(2, -1)
        turned = turned * cos + torch.cat([-right, left], -1) * sin
        end = position + rows
        k[:, :, position:end], v[:, :, position:end] = turned[:, self.heads:], fresh_v
        y = F.scaled_dot_product_attention(turned[:, :self.heads], k[:, :, :end], v[:, :, :end], is_causal=rows > 1, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)

    @staticmethod
    def parts(theirs, name):
        return {f"{mine}.weight": torch.cat([theirs[f"{name}.{their}.weight"] for their in parts]) for mine, parts in
                {"qkv": ["attn.q", "attn.k", "attn.v"], "o": ["attn.o"], "gate_up": ["ffn.gate", "ffn.0"], "down": ["ffn.1"], "norm1": ["norm1"],
                 "norm2": ["norm2"]}.items()}


class Decoder(nn.Module):
    """Tied embedding, the layers above, a last norm."""

    def __init__(self, case, theirs):
        super().__init__()
        dim, self.rotary = case["dim"], case["kv_heads"] > 0
        kind = LlamaLayer if self.rotary else Gpt2Layer
        self.embed = nn.Embedding(case["vocab"], dim)
        self.layers = nn.ModuleList(kind(case) for _ in range(case["layers"]))
        self.norm = nn.RMSNorm(dim, eps=1e-5) if self.rotary else nn.LayerNorm(dim)
        self.head = nn.Linear(dim, case["vocab"], bias=False)
        values = {"embed.weight": theirs["embed.weight"], "head.weight": theirs["embed.weight"]}
        values |= {name.removeprefix("backbone.final_"): tensor for name, tensor in theirs.items() if name.startswith("backbone.final_norm.")}
        if self.rotary:
            width = dim // case["heads"]
            angles = torch.outer(torch.arange(case["segment"]).double(), ROTARY_BASE ** (-torch.arange(0, width, 2).double() / width)).repeat(1, 2)
            self.register_buffer("cos", angles.cos().float(), persistent=False)
            self.register_buffer("sin", angles.sin().float(), persistent=False)
        else:
            self.positions = nn.Embedding(case["segment"], dim)
            values["positions.weight"] = theirs["backbone.positions.weight"]
        for i in range(case["layers"]):
            values |= {f"layers.{i}.{name}": tensor for name, tensor in kind.parts(theirs, f"backbone.layers.{i}").items()}
        self.load_state_dict(values)
        self.head.weight = self.embed.weight

    def step(self, token, caches, position):
        """token [B,1], or a prompt [B,T] at position 0 -> the most likely next one; caches: keys and values
        [B,kv heads,room,width] of each layer."""
        x, turn, end = self.embed(token), None, position + token.size(1)
        if self.rotary:
            turn = self.cos[position:end], self.sin[position:end]
        else:
            x = x + self.positions.weight[position:end]
        for layer, (k, v) in zip(self.layers, caches):
            x = layer(x, k, v, position, turn)
        return self.head(self.norm(x[:, -1:])).argmax(-1)


class Transformers:
    """The same models as transformers has them, with the cache that its generate() takes unasked (DynamicCache)."""

    def __init__(self, case, theirs):
        import transformers
        layers, dim, heads, ffn, kv_heads = (case[name] for name in ("layers", "dim", "heads", "ffn", "kv_heads"))
        values = {}
        if kv_heads:
            config = transformers.LlamaConfig(vocab_size=case["vocab"], hidden_size=dim, intermediate_size=ffn, num_hidden_layers=layers,
                                              num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=case["segment"],
                                              rms_norm_eps=1e-5, rope_theta=ROTARY_BASE, tie_word_embeddings=True)
            kind, start = transformers.LlamaForCausalLM, "model.layers"
            names = {"attn.q": "self_attn.q_proj", "attn.k": "self_attn.k_proj", "attn.v": "self_attn.v_proj", "attn.o": "self_attn.o_proj",
                     "ffn.gate": "mlp.gate_proj", "ffn.0": "mlp.up_proj", "ffn.1": "mlp.down_proj", "norm1": "input_layernorm",
                     "norm2": "post_attention_layernorm"}
            values |= {"model.embed_tokens.weight": theirs["embed.weight"], "model.norm.weight": theirs["backbone.final_norm.weight"]}
            for i in range(layers):
                values |= {f"{start}.{i}.{their}.weight": theirs[f"backbone.layers.{i}.{mine}.weight"] for mine, their in names.items()}
        else:
            config = transformers.GPT2Config(vocab_size=case["vocab"], n_embd=dim, n_inner=ffn, n_layer=layers, n_head=heads, n_positions=case["segment"])
            kind, start = transformers.GPT2LMHeadModel, "transformer.h"
            names = {"attn.o": "attn.c_proj", "ffn.0": "mlp.c_fc", "ffn.1": "mlp.c_proj", "norm1": "ln_1", "norm2": "ln_2"}
            values |= {"transformer.wte.weight": theirs["embed.weight"], "transformer.wpe.weight": theirs["backbone.positions.weight"],
                       "transformer.ln_f.weight": theirs["backbone.final_norm.weight"], "transformer.ln_f.bias": theirs["backbone.final_norm.bias"]}
            for i in range(layers):
                mine = f"backbone.layers.{i}"
                for part in ("weight", "bias"):
                    found = {their: theirs[f"{mine}.{ours}.{part}"] for ours, their in names.items()}
                    found["attn.c_attn"] = torch.cat([theirs[f"{mine}.attn.{one}.{part}"] for one in "qkv"])
                    values |= {f"{start}.{i}.{their}.{part}": tensor.t().contiguous() if tensor.dim() == 2 else tensor for their, tensor in found.items()}
        self.model = kind(config).eval()
        missing, unexpected = self.model.load_state_dict(values, strict=False)
        assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)

    def bfloat16(self):
        self.model.bfloat16()
        return self

    def cache(self, caches):
        from transformers import DynamicCache
        cache = DynamicCache(config=self.model.config)
        for i, (k, v) in enumerate(caches):
            cache.update(k, v, i)
        return cache

    def step(self, token, cache, _):
        return self.model(token, past_key_values=cache, use_cache=True, logits_to_keep=1).logits.argmax(-1)
