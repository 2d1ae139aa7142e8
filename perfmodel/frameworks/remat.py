"""Which share of a forward pass MaxText's policies of rematerialisation compute again.

A policy names the products whose outputs it keeps; what the backward pass needs of the others is computed again. Of a gated
layer of width h, with feed-forward width f and k key-value heads of n, the forward FLOP per token and factor 2 are

.. math:: q = h^2,\\quad kv = 2 h^2 k/n,\\quad o = h^2,\\quad wi = 2 h f,\\quad wo = h f                        (1)

The backward pass needs no output of wo. Where the context is not kept, attention is repeated too: `selective` alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfmodel.frameworks.draft import Draft
from perfmodel.frameworks.models import in_zoo
from perfmodel.specs.catalog import Catalog

# Outputs that a policy does not keep and that the backward pass needs.
AGAIN: Mapping[str, tuple[str, ...]] = {
    "minimal_with_context": (),
    "minimal_with_context_and_quantization": (),
    "minimal_flash": (),  # the older name of minimal_with_context
    "minimal": ("context",),
    "minimal_offloaded": ("context",),
    "save_dot_with_context_except_mlp": ("wi",),
    "save_dot_except_mlp": ("wi", "context"),
    "save_dot_except_mlpwi": ("wi", "context"),
    "save_qkv_proj": ("o", "wi", "context"),
    "qkv_proj_offloaded": ("o", "wi", "context"),
    "save_out_proj": ("q", "kv", "wi", "context"),
}


def repeated(draft: Draft, policy: str) -> str | float | None:
    """`none`, `selective`, or the share of the products of a layer; None where the model's dimensions are not known.

    >>> repeated(Draft(), "minimal_flash"), repeated(Draft(), "minimal")
    ('none', 'selective')
    """
    again = AGAIN[policy]
    if set(again) <= {"context"}:
        return "selective" if again else "none"
    flop = _flop(draft)
    if flop is None:
        return None
    return round(sum(flop[name] for name in again if name != "context") / sum(flop.values()), 2)


def _flop(draft: Draft) -> dict[str, float] | None:
    """Equation (1), of the dimensions that are stated or of the model that is named."""
    names = ("hidden", "ffn", "heads", "kv_heads")
    said = {name: draft.get(f"model.{name}") for name in names}
    zoo = in_zoo(str(draft.get("model.name"))) if draft.get("model.name") else None
    if zoo is not None:
        entry = Catalog.default().get("workloads", zoo)
        said = {name: said[name] or getattr(entry, name) for name in names}
    if not all(said[name] for name in ("hidden", "ffn", "heads")) or draft.get("model.experts"):
        return None
    width, ffn = float(said["hidden"]), float(said["ffn"])
    shared = float(said["kv_heads"] or said["heads"]) / float(said["heads"])
    return {
        "q": width**2,
        "kv": 2.0 * width**2 * shared,
        "o": width**2,
        "wi": 2.0 * width * ffn,
        "wo": width * ffn,
    }
