"""Modules traced on the meta device against the zoo: FLOP and parameters within 2 %."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from perfmodel.errors import UsageError
from perfmodel.physics.constants import MASKED_SHARE
from perfmodel.physics.counting import operations
from perfmodel.specs.catalog import Catalog
from perfmodel.workloads.from_torch import TorchWorkload, read_module
from perfmodel.workloads.torch_trace import Gemm, trace


class Bottleneck(nn.Module):
    """Residual block of ResNet v1.5: the stride sits in the 3x3 convolution (He et al. 2016)."""

    def __init__(self, inner: int, width: int, stride: int) -> None:
        super().__init__()
        outer = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inner, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outer, 1, bias=False),
            nn.BatchNorm2d(outer),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inner != outer:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
            )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.relu_(self.body(image) + self.shortcut(image))


def resnet50() -> tuple[nn.Module, torch.Tensor]:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    inner = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(inner, width, stride if block == 0 else 1))
            inner = 4 * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000)]
    return nn.Sequential(*layers), torch.randn(2, 3, 224, 224)


class Bert(nn.Module):
    """BERT with its masked-language head (Devlin et al. 2019)."""

    def __init__(self, layers: int, hidden: int, heads: int, vocab: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(512, hidden)
        self.kinds = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden)
        layer = nn.TransformerEncoderLayer(hidden, heads, 4 * hidden, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.pooler = nn.Linear(hidden, hidden)
        self.transform = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.LayerNorm(hidden))
        self.bias = nn.Parameter(torch.zeros(vocab))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        states = self.words(tokens) + self.positions(places) + self.kinds(torch.zeros_like(tokens))
        states = self.encoder(self.norm(states))
        return self.transform(states) @ self.words.weight.T + self.bias


def bert_base() -> tuple[nn.Module, torch.Tensor]:
    return Bert(12, 768, 12, 30522), torch.zeros(2, 128, dtype=torch.long)


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + 1e-5)
        return states * scale * self.weight


class LlamaBlock(nn.Module):
    """One layer of Llama 3 8B: grouped queries, gated MLP, causal flash attention."""

    def __init__(self, hidden: int = 4096, heads: int = 32, kv_heads: int = 8, ffn: int = 14336) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = heads, kv_heads, hidden // heads
        self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * self.width, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.up = nn.Linear(hidden, 2 * ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)
        self.first, self.second = RmsNorm(hidden), RmsNorm(hidden)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        batch, tokens, hidden = states.shape
        heads = self.qkv(self.first(states)).view(batch, tokens, -1, self.width).transpose(1, 2)
        query, key, value = heads.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        repeats = self.heads // self.kv_heads
        key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        states = states + self.out(mixed.transpose(1, 2).reshape(batch, tokens, hidden))
        gate, up = self.up(self.second(states)).chunk(2, dim=-1)
        return states + self.down(nn.functional.silu(gate) * up)


def llama_block() -> tuple[nn.Module, torch.Tensor]:
    return LlamaBlock(), torch.randn(1, 8192, 4096, requires_grad=True)


def only_a_module() -> nn.Module:
    return nn.Linear(4, 4)


class LooksAtValues(nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values if values.sum().item() > 0 else -values


def nothing_to_train() -> tuple[nn.Module, torch.Tensor]:
    return nn.ReLU(), torch.randn(2, 3)


def looks_at_values() -> tuple[nn.Module, torch.Tensor]:
    return LooksAtValues(), torch.randn(2, 3)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.default()


def read(function: str, **options: Any) -> TorchWorkload:
    return read_module(f"{__file__}:{function}", **options)


def test_resnet50_is_the_zoo_s(catalog: Catalog) -> None:
    found, zoo = read("resnet50"), catalog.get("workloads", "resnet50")
    assert found.trace.params == zoo.params
    assert found.trace.forward_flop / 2 == pytest.approx(zoo.flop_per_sample_forward, rel=0.02)
    assert found.trace.backward_flop / found.trace.forward_flop == pytest.approx(2, rel=0.02)
    assert found.fields["kind"] == "convnet"
    assert found.fields["activation_elements_per_sample"] == pytest.approx(
        zoo.activation_elements_per_sample, rel=0.02
    )
    assert found.fields["conv3x3_share"] == pytest.approx(zoo.conv3x3_share, abs=1e-3)
    # Residual additions and pooling are traced beside the zoo's rule of 14 accesses per convolution output.
    traced = (found.trace.forward_bytes + found.trace.backward_bytes) / 2
    assert 1.0 < traced / zoo.bytes_per_sample_activations < 1.5


def test_bert_is_the_zoo_s(catalog: Catalog) -> None:
    found, zoo = read("bert_base"), catalog.get("workloads", "bert-base")
    assert found.trace.flop_by_operator["attention"] == 2 * 12 * 4 * 128**2 * 768
    assert found.trace.params == pytest.approx(zoo.params, rel=0.02)
    # The module scores every token against the vocabulary; the zoo counts those that a masked model trains on.
    unmasked = (1.0 - MASKED_SHARE) * 2 * 128 * zoo.hidden * zoo.vocab
    counted = float(operations(zoo, 128).forward_flop()) + unmasked
    assert found.trace.forward_flop / 2 == pytest.approx(counted, rel=0.02)


def test_llama_block_is_a_layer_of_the_zoo_s(catalog: Catalog) -> None:
    found, zoo = read("llama_block").trace, catalog.get("workloads", "llama3-8b")
    whole = operations(zoo, 8192)
    logits = 2 * 8192 * zoo.hidden * zoo.vocab
    layer = (float(whole.forward_flop()) - logits) / zoo.layers
    assert found.forward_flop == pytest.approx(layer, rel=0.02)
    training = (float(whole.training_flop()) - 3 * logits) / zoo.layers
    assert found.forward_flop + found.backward_flop == pytest.approx(training, rel=0.02)
    assert found.params == pytest.approx((zoo.params - 2 * zoo.vocab * zoo.hidden) / zoo.layers, rel=0.02)
    assert found.gemms[Gemm(8192, 28672, 4096)] == 1


def test_attention_costs_half_when_causal() -> None:
    class Attend(nn.Module):
        def __init__(self, causal: bool) -> None:
            super().__init__()
            self.causal = causal

        def forward(self, heads: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=self.causal)

    heads = torch.randn(1, 4, 256, 64, requires_grad=True)
    full, half = (trace(Attend(causal), (heads,), {}, 1) for causal in (False, True))
    assert full.forward_flop == 4 * 256 * 256 * 4 * 64
    assert half.forward_flop == full.forward_flop / 2
    assert full.backward_flop == 2.5 * full.forward_flop


def test_the_attention_function_is_given_back() -> None:
    before = nn.functional.scaled_dot_product_attention
    read("llama_block")
    with pytest.raises(UsageError):
        read("looks_at_values")
    assert nn.functional.scaled_dot_product_attention is before


def test_convolution_as_a_product_counts_groups() -> None:
    layer = nn.Conv2d(8, 16, 3, padding=1, groups=4, bias=False)
    found = trace(layer, (torch.randn(2, 8, 10, 10),), {}, 2)
    assert found.gemms == {Gemm(200, 4, 18): 4}
    assert found.forward_flop == sum(gemm.flop * often for gemm, often in found.gemms.items())


def test_frozen_weights_are_told_apart() -> None:
    layers = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 4, bias=False))
    layers[0].weight.requires_grad_(False)
    found = trace(layers, (torch.randn(3, 8),), {}, 3)
    assert (found.params, found.trainable_params) == (96, 32)


def test_traffic_is_a_sample_s_alone() -> None:
    """A linear layer reads its input, writes its output; weights and their gradients do not scale with it."""
    layer = nn.Linear(512, 512, bias=False)
    found = trace(layer, (torch.randn(4, 512),), {}, 4)
    assert found.forward_bytes == 2 * 4 * (512 + 512)
    assert found.backward_bytes == 2 * 4 * (512 + 512)  # the weight gradient alone: the input needs none


def test_saved_activations_exclude_weights() -> None:
    found = trace(nn.Linear(16, 32, bias=False), (torch.randn(4, 16),), {}, 4)
    assert found.saved_elements == 4 * 16


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("only_a_module", "returned a Linear"),
        ("nothing_to_train", "no weights to train"),
        ("looks_at_values", "cannot be traced without values"),
        ("nothing_here", "has no function nothing_here"),
    ],
)
def test_what_cannot_be_traced_is_refused(function: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(function)


def test_missing_module_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be imported"):
        read_module("no_such_package.models:build")


def test_workload_file_is_accepted(tmp_path: Path) -> None:
    from perfmodel.cli.main import main

    target = tmp_path / "resnet.yaml"
    assert main(["workload", "from-torch", f"{__file__}:resnet50", "-o", str(target)]) == 0
    assert "kind: convnet" in target.read_text(encoding="utf-8")
    assert main(["catalog", "lint", str(target)]) == 0
