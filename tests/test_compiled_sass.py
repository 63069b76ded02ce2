"""Loops and counts are read from the disassembly, and occupancy from the limits of a device."""

import pytest

from workbench.compiled import occupancy, sass, targets
from workbench.compiled.kernel import Kernel, report


def code(*lines: str) -> sass.Code:
    """The code of a kernel; a line that ends in a colon is a label."""
    text = ["//-- .text._k --", '\t.section\t.text._k,"ax",@progbits', "_k:", ".text._k:"]
    for i, line in enumerate(lines):
        text.append(line if line.endswith(":") else f"        /*{16 * i:04x}*/  {line} ;")
    return sass.read("\n".join(text))


TRAP = (".L_end:", "BRA `(.L_end)", "NOP", "NOP")


def test_a_loop_is_what_its_head_repeats():
    found = code("LDC R1, c[0x0][0x28]", ".L_0:", "LDL R2, [R1]",
                 "HMMA.16816.F32.BF16 R4, R4, R8, R4", "@!P0 BRA `(.L_0)",
                 "STL [R1], R4", "EXIT", *TRAP)  # fmt: skip
    (loop,) = found.loops
    assert loop.opcodes == ("LDL", "HMMA.16816.F32.BF16", "BRA") and loop.innermost
    assert found.hot == loop and sass.histogram(found.looped) == {"BRA": 1, "HMMA": 1, "LDL": 1}
    assert sass.histogram(found.opcodes)["STL"] == 1 and "NOP" not in sass.histogram(found.opcodes)
    assert sass.products(found.opcodes) == {"HMMA.16816": 1}


def test_the_trap_behind_the_end_is_no_loop():
    assert code("MOV R1, R2", "EXIT", *TRAP).loops == ()


def test_the_hot_loop_is_the_inner_one_with_the_tensor_core():
    product = "QMMA.16832.F32.E4M3.E4M3"
    found = code(".L_0:", "LDL R9, [R1]", ".L_1:", f"{product} R4, R4, R8, R4", "@P0 BRA `(.L_1)",
                 ".L_2:", "LDS R2, [R3]", "LDS R2, [R3]", "LDS R2, [R3]", "@P1 BRA `(.L_2)",
                 "@P2 BRA `(.L_0)", "EXIT", *TRAP)  # fmt: skip
    assert sorted((len(x.opcodes), x.innermost) for x in found.loops) == [
        (2, True), (4, True), (8, False)]  # fmt: skip
    assert found.hot.opcodes == (product, "BRA")
    assert sass.histogram(found.looped)["LDL"] == 1


def test_a_cold_block_that_jumps_back_makes_no_loop():
    # in the order of addresses the whole epilogue stands between the target and the jump
    found = code("@P0 BRA `(.L_cold)", ".L_back:", "STL [R1], R2", "EXIT", ".L_cold:", "MOV R2, R3",
                 "BRA `(.L_back)", *TRAP)  # fmt: skip
    assert found.loops == ()


def test_a_return_is_no_jump_to_the_begin():
    assert code("FADD R1, R1, R2", "@P0 EXIT", "RET.REL.NODEC R2 `(_k)", *TRAP).loops == ()


def test_a_loop_whose_cold_part_stands_behind_the_end_keeps_it():
    found = code(".L_0:", "@P0 BRA `(.L_cold)", ".L_back:", "FADD R1, R2, R3", "@P1 BRA `(.L_0)",
                 "EXIT", ".L_cold:", "LDL R2, [R1]", "BRA `(.L_back)", *TRAP)  # fmt: skip
    (loop,) = found.loops
    assert loop.count(("LDL",)) == 1 and loop.count(("EXIT",)) == 0


def test_marks_of_convergence_and_uniform_branches():
    found = code(".L_0:", "BSSY B0, `(.L_1)", "@P0 BRA `(.L_1)", "FADD R1, R1, R2", ".L_1:",
                 "BSYNC B0", "BRA.U UP0, `(.L_0)", "EXIT", *TRAP)  # fmt: skip
    (loop,) = found.loops
    assert len(loop.opcodes) == 5


def test_a_subroutine_has_its_own_loops():
    found = code("CALL.REL.NOINC `($step)", "EXIT", "$step:", ".L_0:", "LDL R1, [R2]",
                 "@P0 BRA `(.L_0)", "RET.REL.NODEC R2 `(_k)", *TRAP)  # fmt: skip
    (loop,) = found.loops
    assert loop.count(("LDL",)) == 1


@pytest.mark.parametrize("text", ["", "nvdisasm fatal: not a cubin", "\t.section\t.text._k\n"])
def test_no_instruction_is_no_kernel(text):
    with pytest.raises(ValueError, match="no instruction"):
        sass.read(text)


@pytest.mark.parametrize(
    ("arch", "registers", "warps", "shared", "blocks", "limit"),
    [
        (90, 255, 4, 0, 2, "registers"),  # 8,192 registers a warp, two of them in each part
        (90, 128, 4, 0, 4, "registers"),
        (90, 73, 4, 0, 6, "registers"),  # 2,336 registers a warp are handed out as 2,560
        (90, 168, 8, 0, 1, "registers"),
        (90, 32, 4, 0, 16, "warps"),
        (120, 32, 4, 0, 12, "warps"),
        (90, 16, 1, 0, 32, "blocks"),
        (120, 16, 1, 0, 24, "blocks"),
        (90, 64, 4, 94464, 2, "shared"),
        (120, 64, 4, 94464, 1, "shared"),
        (120, 64, 4, 101376, 1, "shared"),  # with the reserved KB it is all there is
        (90, 64, 4, 232448, 1, "shared"),
        (120, 64, 4, 101377, 0, "shared"),
        (90, 64, 4, 101377, 2, "shared"),
    ],
)
def test_occupancy_is_that_of_the_toolkits_arithmetic(
    arch, registers, warps, shared, blocks, limit
):  # fmt: skip
    found = occupancy(arch, registers, warps, shared)
    assert found == (blocks, blocks * warps, limit)


def test_architectures_are_named():
    assert targets.arch_numbers("sm_90, sm_120a,sm_90") == [90, 120]
    with pytest.raises(ValueError, match=r"unknown arch 'sm_42' \(known: sm_80, "):
        targets.arch_numbers("sm_90,sm_42")


SAID = """ptxas info    : Function properties for _k
    104 bytes stack frame, 148 bytes spill stores, 132 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 104 bytes cumulative stack size
"""


@pytest.mark.parametrize(("tool", "said"), [(None, "no nvdisasm beside"), ("false", "nvdisasm: ")])
def test_without_a_disassembler_the_rest_is_reported(tool, said):
    row = report(Kernel("_k", 4, 4096, "", b"", SAID), 90, tool)
    assert row["sass"].startswith(said) and "\n" not in row["sass"]
    assert row["instructions"] is row["looped"] is row["hot_loop"] is row["mma"] is None
    assert (row["registers"], row["stack_bytes"]) == (40, 104)
    assert (row["spill_store_bytes"], row["spill_load_bytes"]) == (148, 132)
    assert (row["blocks_per_sm"], row["occupancy_limit"]) == (12, "registers")


def test_an_assembler_that_says_nothing_is_told():
    with pytest.raises(RuntimeError, match="did not say what _k uses"):
        report(Kernel("_k", 4, 4096, "", b"", ""), 90, None)
