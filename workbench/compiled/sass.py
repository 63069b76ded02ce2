"""Instructions and loops of a compiled kernel, read from what nvdisasm prints of it.

Loops are found in the graph of blocks: a branch back to a block that every way to the branch passes
through closes one. A branch backwards alone is none: compilers move cold blocks to the end, and
those jump back into the middle.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_LABEL = re.compile(r"([.$\w]+):$")
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
_TARGET = re.compile(r"`\(([^)]+)\)")
_ENDS = ("EXIT", "RET", "BRX", "BRXU", "JMX", "JMXU")  # what follows is not known
_MARKS = ("BSSY", "CALL")  # name a place without going there, or come back


class Instruction(NamedTuple):
    """One instruction; padding and what follows the end of a kernel are left out."""

    opcode: str  # with its modifiers: HMMA.16816.F32.BF16
    conditional: bool
    target: str | None  # label of a branch

    @property
    def base(self) -> str:
        return self.opcode.split(".")[0]


@dataclass(frozen=True)
class Loop:
    """The instructions that one head repeats."""

    opcodes: tuple[str, ...]
    innermost: bool

    def count(self, bases: tuple[str, ...]) -> int:
        return sum(opcode.split(".")[0] in bases for opcode in self.opcodes)

    @property
    def products(self) -> int:
        return sum(map(is_product, self.opcodes))


class Code(NamedTuple):
    """What the instructions of a kernel are."""

    opcodes: tuple[str, ...]
    loops: tuple[Loop, ...]
    looped: tuple[str, ...]  # opcodes of instructions that stand in some loop

    @property
    def hot(self) -> Loop | None:
        """The innermost loop with most tensor-core instructions, then with most instructions."""
        inner = [loop for loop in self.loops if loop.innermost]
        return max(inner, key=lambda loop: (loop.products, len(loop.opcodes)), default=None)


def is_product(opcode: str) -> bool:
    """Whether the tensor core does it: HMMA, QMMA, HGMMA, UTCHMMA, ..."""
    return opcode.split(".")[0].endswith("MMA")


def histogram(opcodes: tuple[str, ...]) -> dict[str, int]:
    """How often each instruction stands there, without its modifiers, by name."""
    return dict(sorted(Counter(opcode.split(".")[0] for opcode in opcodes).items()))


def products(opcodes: tuple[str, ...]) -> dict[str, int]:
    """Tensor-core instructions by name and first modifier: {"HMMA.16816": 136}."""
    short = (".".join(opcode.split(".")[:2]) for opcode in opcodes if is_product(opcode))
    return dict(sorted(Counter(short).items()))


def read(text: str) -> Code:
    """What `nvdisasm -c` printed of a cubin. Raises ValueError where that holds no instruction."""
    opcodes, loops, looped = [], [], []
    for lines in _sections(text):
        blocks = _blocks(lines)
        # the trap behind the end of a kernel jumps to itself
        found = [body for body in _loops(blocks) if len(_spelled(blocks, body)) > 1]
        for body in found:
            innermost = not any(other < body for other in found)
            loops.append(Loop(_spelled(blocks, body), innermost))
        opcodes += _spelled(blocks, range(len(blocks)))
        looped += _spelled(blocks, sorted(set().union(*found)))
    if not opcodes:
        raise ValueError("no instruction in the output of the disassembler")
    return Code(tuple(opcodes), tuple(loops), tuple(looped))


class _Block(NamedTuple):
    instructions: list[Instruction]
    next: list[int]  # blocks that may follow


def _sections(text: str) -> Iterator[list[str | Instruction]]:
    """Labels and instructions of each section of code, in order."""
    for section in re.split(r"^\s*\.section\s+\.text\.", text, flags=re.M)[1:]:
        found: list[str | Instruction] = []
        for line in section.splitlines():
            if label := _LABEL.match(line):
                found.append(label[1])
            elif match := _INSTRUCTION.search(line):
                _, predicate, opcode, operands = match.groups()
                target = _TARGET.search(operands)
                condition = predicate or re.match(r"!?U?P\w|UR\d", operands)
                if opcode != "NOP":
                    found.append(Instruction(opcode, bool(condition), target and target[1]))
        yield found


def _blocks(lines: list[str | Instruction]) -> list[_Block]:
    """Straight pieces of code, each with the pieces that control may reach from its end."""
    pieces: list[list[Instruction]] = [[]]
    place: dict[str, int] = {}
    for line in lines:
        if isinstance(line, str):
            if pieces[-1]:
                pieces.append([])
            place[line] = len(pieces) - 1
        else:
            pieces[-1].append(line)
            if (line.target and line.base not in _MARKS) or line.base in _ENDS:
                pieces.append([])
    blocks = []
    for i, piece in enumerate(pieces):
        last, after = (piece[-1] if piece else None), []
        if last and last.target in place and last.base not in (*_MARKS, *_ENDS):
            after.append(place[last.target])
        jumps = last is not None and last.base in ("BRA", "JMP", *_ENDS) and not last.conditional
        if not jumps and i + 1 < len(pieces):
            after.append(i + 1)
        blocks.append(_Block(piece, after))
    return blocks


def _loops(blocks: list[_Block]) -> list[frozenset[int]]:
    """The natural loops, those of one head as one."""
    before: list[list[int]] = [[] for _ in blocks]
    for i, block in enumerate(blocks):
        for j in block.next:
            before[j].append(i)
    reached, starts = _reached(blocks)
    # bit d of dominators[b]: every way to block b passes through d
    dominators = [-1 if i in reached else 0 for i in range(len(blocks))]
    for i in starts:
        dominators[i] = 1 << i
    changed = True
    while changed:
        changed = False
        for i in range(len(blocks)):
            if i in starts:
                continue
            common = -1
            for j in before[i]:
                common &= dominators[j]
            if (new := common | 1 << i) != dominators[i]:
                dominators[i], changed = new, True
    bodies: dict[int, set[int]] = {}
    for i, block in enumerate(blocks):
        for head in block.next:
            if dominators[i] >> head & 1:
                body, todo = bodies.setdefault(head, {head}), [i]
                while todo:
                    if (j := todo.pop()) not in body:
                        body.add(j)
                        todo += before[j]
    return [frozenset(body) for body in bodies.values()]


def _reached(blocks: list[_Block]) -> tuple[set[int], set[int]]:
    """(all blocks, those at which control enters): the first, and whatever no other one leads to.

    Subroutines and the targets of indirect branches are entered from places that are not known.
    """
    reached: set[int] = set()
    starts: set[int] = set()
    for i in range(len(blocks)):
        if i not in reached:
            starts.add(i)
            todo = [i]
            while todo:
                if (j := todo.pop()) not in reached:
                    reached.add(j)
                    todo += blocks[j].next
    return reached, starts


def _spelled(blocks: list[_Block], body) -> tuple[str, ...]:
    return tuple(i.opcode for b in sorted(body) for i in blocks[b].instructions)
