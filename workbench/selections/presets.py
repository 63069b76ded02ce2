"""Laws fitted to the unions that were published of captured selections; a name stands for one.

GLM-5.1, topk 2048, captured by the authors of sgl-project/sglang#32779 (seed 004): rows of the
union of 2 and of 4 tokens over one token's. `workbench selections fit` finds such parameters. The
drift is no one's measurement: two ratios at a distance of up to 3 tokens do not determine it.
"""

from typing import NamedTuple


class Preset(NamedTuple):
    law: str
    tokens: int  # of the batch that the ratios are of: all its requests together
    requests: int
    published: dict[int, float]  # union ratio by tokens of a group
    reached: dict[int, float]  # with seed 0, at this shape
    topk: int = 2048


# While a token sees no more than topk rows it takes them all, whatever the law: all of the 2,048
# tokens of a capture, half of 4,096 and a quarter of 8,192. So the ratios at 2,048 are no choice:
# 1.0005 and 1.0015 by the sum over groups that is used here, 1.002 and 1.006 by the mean of the
# groups' own ratios, which may be what the published 1.00 and 1.01 are.
_SHORT = "boundary:core=0.8474:pool=2.0488"
_LONG = "boundary:core=0.7529:pool=2.4201"
_ALL = {2: 1.0005, 4: 1.0015}

PRESETS = {
    "capture_bs1_2048": Preset(_SHORT, 2048, 1, {2: 1.00, 4: 1.01}, _ALL),
    "capture_bs1_4096": Preset(_SHORT, 4096, 1, {2: 1.05, 4: 1.09}, {2: 1.0496, 4: 1.0878}),
    "capture_bs1_8192": Preset(_LONG, 8192, 1, {2: 1.12, 4: 1.23}, {2: 1.1199, 4: 1.2300}),
    "capture_bs2_4096": Preset(_SHORT, 8192, 2, {2: 1.05, 4: 1.09}, {2: 1.0496, 4: 1.0878}),
    "capture_bs4_2048": Preset(_SHORT, 8192, 4, {2: 1.00, 4: 1.01}, _ALL),
}
