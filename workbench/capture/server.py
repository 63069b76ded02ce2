"""A recorder for servers: preallocated buffers that a forward writes, also inside a CUDA graph.

In a server's model file, with one recorder a process (a rank records its own tokens; the top-k is
the same on every tensor-parallel rank, so one of them is enough):

    recorder = Recorder(layers=(3, 30), tokens=64, topk=2048, steps=128, device="cuda")
    ...
    recorder.begin(None, positions)               # first thing in the model's forward
    recorder.record(layer_id, None, topk_indices) # right behind the indexer's top-k
    ...
    header = Header(model="glm_moe_dsa", scope="request-local", provenance="live",
                    weights="trained", source="32 chats, decoding")
    recorder.write("mine.safetensors", header, starts=range(batch), tokens=batch)  # after the run

vLLM: `topk_indices_buffer[:num_tokens]` behind `sparse_attn_indexer` is request-local, -1 where a
row is missing. SGLang: `topk_transform`'s result is request-local where the fused top-k is off
(SGLANG_NSA_FUSE_TOPK=0, in later versions SGLANG_DSA_FUSE_TOPK=0); fused, PAGED is scope "flat"
(give `rows`, the slots of the pool), and RAGGED is request-local once `topk_indices_offset` is
taken off. Positions are those of the tokens in their requests (`forward_batch.positions`).

Warm-up and graph capture run the forward on dummies: make the recorder, or call its `reset`, behind
them; `validity.accepted` refuses what they leave.
"""

from collections.abc import Sequence

import torch

from ..selections import capture_files, captures


class Recorder:
    """Indices of some layers over some steps. What lies in `indices` is theirs, uninterpreted."""

    def __init__(self, layers: Sequence[int], tokens: int, topk: int, device, steps: int = 1):
        def empty(*shape: int, dtype=torch.int32) -> torch.Tensor:
            return torch.full(shape, -1, dtype=dtype, device=device)

        self.layers = tuple(layers)
        with torch.inference_mode(False):  # what is made in that mode is not written outside of it
            self.positions = empty(steps, tokens)  # -1: no token
            self.indices = empty(len(self.layers), steps, tokens, topk)
            self.at = empty(1, dtype=torch.int64)  # the step that is written

    def reset(self) -> None:
        """Forget all steps; the buffers stay where a captured graph knows them."""
        for buffer in (self.positions, self.indices, self.at):
            buffer.fill_(-1)

    def begin(self, step: int | None, positions: torch.Tensor) -> None:
        """Begin a step, None: the next; positions [tokens]. Past the last step, that is rewritten.

        Like `record` it launches fills and copies alone: the device counts, so that a graph that is
        replayed writes another step each time. Raises ValueError on more tokens than have room.
        """
        if len(positions) > self.positions.shape[1]:
            raise ValueError(f"{len(positions)} positions for a recorder of "
                             f"{self.positions.shape[1]} tokens")  # fmt: skip
        if step is None:
            self.at.add_(1).clamp_(max=len(self.positions) - 1)
        else:
            self.at.fill_(step)
        self.positions.index_fill_(0, self.at, -1)
        self.positions[:, : len(positions)].index_copy_(0, self.at, positions[None].int())

    def record(self, layer: int, step: int | None, indices: torch.Tensor) -> None:
        """Copy indices [tokens, topk or less] of a layer; None: to the step that has begun.

        Layers that are not recorded are passed by. Raises ValueError on more than has room.
        """
        if layer not in self.layers:
            return
        (tokens, topk), held = indices.shape, self.indices[self.layers.index(layer)]
        if tokens > held.shape[1] or topk > held.shape[2]:
            raise ValueError(f"indices of shape {[tokens, topk]} for a recorder of "
                             f"{list(held.shape[1:])}")  # fmt: skip
        if step is not None:
            self.at.fill_(step)
        held.index_fill_(0, self.at, -1)
        held[:, :tokens, :topk].index_copy_(0, self.at, indices[None].int())

    def write(
        self,
        path,
        header: captures.Header,
        starts: Sequence[int],
        tokens: int | None = None,
        rows: Sequence[int] | int | None = None,
    ) -> None:
        """Write the steps that were begun, as `capture_files.write` does.

        `starts`: the first token of each request, in every step: range(batch) of a decode batch.
        `tokens`: the real ones of a step; a graph's padding stands behind them. `rows` as in
        `captures.capture`. Raises ValueError where nothing was recorded.
        """
        found = []
        for step, positions in enumerate(self.positions[:, :tokens].cpu()):
            count = int((positions >= 0).sum())
            first = [t for t in starts if t < count]
            for i, layer in enumerate(self.layers):
                lanes = self.indices[i, step, :count]
                if count:
                    found.append(captures.capture(header, layer, step, lanes, positions[:count],
                                                  first, rows))  # fmt: skip
        capture_files.write(path, header, found)
