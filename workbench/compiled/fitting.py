"""A tile that asks for too much shared memory is stepped down to one that fits."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace

from ..op import Config

MIN_BLOCK_K = 16


class DoesNotFit(ValueError):
    """No config of a variant fits the shared memory of a device."""


def smaller(config: Config) -> Iterator[Config]:
    """Configs to try in turn where `config` asks for too much shared memory, largest first.

    Fewer stages before fewer rows: 2 stages, then half of block_k with the asked stages, ... Never
    1 stage: without a pipeline the compiler moves the tile through shared memory once more.
    """
    if config is None or not {"block_k", "num_stages"} <= {f.name for f in fields(config)}:
        return
    block, stages, seen = config.block_k, config.num_stages, [config]
    while block >= MIN_BLOCK_K:
        for count in (stages, 2):
            candidate = replace(config, block_k=block, num_stages=min(count, stages))
            if candidate not in seen:
                seen.append(candidate)
                yield candidate
        block //= 2


def fit(
    config: Config, shared_bytes: Callable[[Config], int], limit: int
) -> tuple[Config, str | None]:
    """Return (the largest config at or below `config` that fits `limit` bytes, what was done).

    Raises DoesNotFit where none does, naming the last that was tried.
    """
    needed = shared_bytes(config)
    if needed <= limit:
        return config, None
    least, tried = needed, config
    for candidate in smaller(config):
        least, tried = shared_bytes(candidate), candidate
        if least <= limit:
            return candidate, f"stepped down: {needed} bytes of shared memory exceed {limit}"
    raise DoesNotFit(f"{asdict(tried) if tried else 'no config'} still needs {least} bytes of "
                     f"shared memory, the device has {limit}")  # fmt: skip
