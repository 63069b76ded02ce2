"""Models with random weights that select: three architectures, small, or as wide as the real ones.

An indexer with random weights is no trained one: near rows score no higher than far ones, and what
overlaps does so because hidden states resemble one another. Captures of it say `random-weights`.
Weights are drawn by the model's own initialisation, on the CPU, so that a seed gives the same ones
everywhere.

"real" keeps what the selection depends on: hidden width, heads, latent and indexer widths, topk, of
GLM-5, DeepSeek-V3.2 and DeepSeek-V4-Flash. Experts are 8 narrow ones, the vocabulary is bytes, and
layers are few: 8 of them are 1.2 to 2.0 billion parameters, 2 to 4 GB in bf16.
"""

from collections.abc import Callable
from pathlib import Path
from platform import python_version

import torch

from ..fields import choose

VOCABULARY = 256  # a token is a byte
CHUNK = 512  # tokens of a prefill that run at once
EXPERTS = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
GROUPS = {"n_group": 1, "topk_group": 1, "intermediate_size": 2048}
NARROW = {"hidden_size": 64, "num_attention_heads": 4, "q_lora_rank": 32, "index_n_heads": 8,
          "index_head_dim": 16, "index_topk": 64, "moe_intermediate_size": 32}  # fmt: skip
NARROW_MLA = {"num_key_value_heads": 4, "kv_lora_rank": 32, "qk_rope_head_dim": 8,
              "qk_nope_head_dim": 16, "v_head_dim": 16, "intermediate_size": 64}  # fmt: skip
NARROW_V4 = {"head_dim": 32, "qk_rope_head_dim": 8, "o_groups": 2, "o_lora_rank": 16,
             "sliding_window": 16}  # fmt: skip
ARCHITECTURES = {  # its classes in transformers, what is cut at any width, what is narrow
    "glm_moe_dsa": ("GlmMoeDsa", EXPERTS | GROUPS, NARROW | NARROW_MLA),
    "deepseek_v32": ("DeepseekV32", EXPERTS | GROUPS, NARROW | NARROW_MLA),
    "deepseek_v4": ("DeepseekV4", EXPERTS, NARROW | NARROW_V4),
}
WIDTHS = ("small", "real")


def random_model(
    architecture: str, widths: str = "small", layers: int = 4, seed: int = 0, dtype=torch.bfloat16,
    **changes,
):  # fmt: skip
    """A model without a head, in evaluation mode, on the CPU. `changes` are fields of its config.

    Raises ValueError on an unknown architecture or width, below one layer, and where transformers
    is not installed.
    """
    try:
        import transformers
    except ImportError:
        raise ValueError("transformers is not here: pip install "
                         "'sparse-mla-workbench[capture]'") from None  # fmt: skip
    choose("architecture", architecture, ARCHITECTURES)
    choose("width", widths, WIDTHS)
    if layers < 1:
        raise ValueError(f"layers={layers} is below 1")
    name, cut, narrow = ARCHITECTURES[architecture]
    told = {"vocab_size": VOCABULARY, "num_hidden_layers": layers} | cut
    if architecture == "deepseek_v4":
        told["layer_types"] = _layer_types(layers)
    told |= (narrow if widths == "small" else {}) | changes
    config = getattr(transformers, f"{name}Config")(**told)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = getattr(transformers, f"{name}Model")._from_config(
            config, dtype=dtype, experts_implementation="eager"  # runs on any device and torch
        )
    return model.eval()


def _layer_types(layers: int) -> list[str]:
    """Of DeepSeek-V4-Flash: two layers with a window alone, then C4 and C128 in turns."""
    turns = ("compressed_sparse_attention", "heavily_compressed_attention")
    return [turns[i % 2] if i > 1 else "sliding_attention" for i in range(layers)]


@torch.no_grad()
def prefill(model, tokens: torch.Tensor, chunk: int = CHUNK,
            advance: Callable[[], None] = lambda: None):  # fmt: skip
    """Run tokens [batch, length] through `model` in chunks with a cache; return the cache.

    `advance` is called behind each chunk. Scores of the indexer take chunk * heads * length
    float32, and attention without a fused kernel as much again: the chunk bounds them.
    """
    cache = None
    for part in tokens.split(chunk, dim=1):
        cache = model(part, past_key_values=cache, use_cache=True).past_key_values
        advance()
    return cache


def bytes_of(text: Path | None, length: int) -> tuple[torch.Tensor, str]:
    """(token ids [1, length] int64 of a file's first bytes, what they are, in words).

    None: the help topics that come with Python, 0.7 MB of English. Raises ValueError on a shorter
    file and below one token; OSError where it is absent.
    """
    if length < 1:
        raise ValueError(f"tokens={length} is below 1")
    if text is None:
        from pydoc_data import topics

        path, name = Path(topics.__file__), f"pydoc_data/topics.py of Python {python_version()}"
    else:
        path, name = Path(text), Path(text).name
    held = path.read_bytes()[:length]
    if len(held) < length:
        raise ValueError(f"{path} has {len(held)} bytes, a token each: {length} are asked for")
    said = f"the first {length} bytes of {name}, a token each"
    return torch.tensor(list(held), dtype=torch.int64)[None], said
