"""What people run into, made anew by small models, and what Maskport says of it: the promises of docs/faults.md."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import onnx.parser
import onnxruntime as ort
import torch
from maskport.export import ExportError, export
from maskport.runtime import DeviceUnavailable, Session
from maskport.runtime.device import CPU_PROVIDER, CUDA_PROVIDER
from maskport.tools import cli, lint, validate
from maskport.tools.verdict import Contract, Verdict
from torch import nn
from typer.testing import CliRunner

from ..tools.tiny_models import tiny
from .models import (
    AXES,
    CachedCausal,
    CausalPadded,
    SelfAttention,
    SkipsFullMask,
    Textbook,
    Windowed,
    by_torch,
    example,
)


@dataclass(frozen=True)
class Said:
    """One thing that finds a fault.

    Attributes
    ----------
    number
        Of the fault in :data:`TITLES`.
    model
        What is wrong with the model that is made.
    how
        What is called, as a user would.
    says
        Makes the model in a folder, calls it, and returns what is said.
    dryrun
        Whether it needs what the dry run needs.
    """

    number: int
    model: str
    how: str
    says: Callable[[Path], str]
    dryrun: bool = False


ROOT = Path(__file__).resolve().parents[2]
# As they are numbered where they were collected; the others are no faults of a file.
TITLES = {
    1: "The mask is dropped or baked at export",
    2: "A length or the batch is baked",
    3: "A fused graph reads the mask wrongly",
    4: "Rows with no key",
    6: "Silent fall back to the CPU",
    8: "Masks in half precision",
    11: "Validation that misleads",
    13: "A window is lost",
    16: "Attention over the wrong axis",
}
FAULTS: list[Said] = []
Says = Callable[[Path], str]


def fault(number: int, model: str, how: str, *, dryrun: bool = False) -> Callable[[Says], Says]:
    """Add a function to the faults."""

    def added(says: Says) -> Says:
        FAULTS.append(Said(number, model, how, says, dryrun))
        return says

    return added


def told(verdict: Verdict) -> str:
    """Return the first case and the contracts that failed, as `maskport validate` prints them."""
    assert not verdict.ok
    cases = [str(case) for case in verdict.cases if not case.ok]
    return "\n".join([*cases[:1], *(line(contract) for contract in verdict.failures if isinstance(contract, Contract))])


def line(contract: Contract) -> str:
    return f"{contract.name}: {contract.why}"


def linted(file: bytes, code: str) -> str:
    """Return the findings of a rule, each once."""
    found = lint(file, select=[code]).findings
    return "\n".join(dict.fromkeys(f"{entry.rule.code} {entry.rule.name}: {entry.message}" for entry in found))


def command(*arguments: str, code: int) -> str:
    """Return what a command prints; `code` is its exit code."""
    done = CliRunner().invoke(cli.app, list(arguments), prog_name="maskport")
    assert done.exit_code == code, done.output
    return done.output.strip()


def refused(module: nn.Module, **options: Any) -> str:
    """Return why a module isn't exported."""
    inputs = example(module)
    try:
        export(module, inputs, dynamic_shapes=dict.fromkeys(inputs, AXES), **options)
    except ExportError as error:
        # What PyTorch says itself, and where all of it is, are no words of ours.
        lines = str(error).replace(f"{ROOT}/", "").splitlines()
        return "\n".join(line for line in lines if not line.startswith(("  PyTorch says", "  All of it")))
    raise AssertionError("it was exported")


def seeded(module: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return module().eval()


DROPPED = "`if mask.all(): mask = None`, traced with a mask of ones: the file has no mask"
CACHED = "A causal mask that is kept from an earlier call: the file has it as a constant"


@fault(1, DROPPED, "maskport validate m.onnx --against model.py:make")
def dropped_against_the_module(folder: Path) -> str:
    module = SkipsFullMask()
    return told(validate(by_torch(module, example(module), tracer=True), module, example(module)))


@fault(1, DROPPED, 'maskport validate m.onnx --expect "padding(attention_mask)"')
def dropped_against_what_is_expected(folder: Path) -> str:
    module = SkipsFullMask()
    (folder / "m.onnx").write_bytes(by_torch(module, example(module), tracer=True))
    return command("validate", str(folder / "m.onnx"), "--expect", "padding(attention_mask)", code=2)


@fault(1, DROPPED, "maskport export model.py:make -o m.onnx")
def dropped_is_refused(folder: Path) -> str:
    return refused(SkipsFullMask())


@fault(1, CACHED, "maskport validate m.onnx")
def cached_breaks_a_contract(folder: Path) -> str:
    return told(validate(cached()))


@fault(1, CACHED, "maskport lint m.onnx")
def cached_is_linted(folder: Path) -> str:
    return linted(cached(), "MP201")


def cached() -> bytes:
    module = CachedCausal()
    module(**example(module))
    return by_torch(module, example(module), tracer=True)


BAKED = "`nn.MultiheadAttention` by the old tracer: a Reshape to the length of the example"


@fault(2, BAKED, "maskport validate m.onnx --against model.py:make")
def baked_against_the_module(folder: Path) -> str:
    module = seeded(lambda: SelfAttention(batch_first=True))
    return told(validate(by_torch(module, example(module), tracer=True), module, example(module)))


@fault(2, BAKED, "maskport validate m.onnx")
def baked_breaks_a_contract(folder: Path) -> str:
    module = seeded(lambda: SelfAttention(batch_first=True))
    return told(validate(by_torch(module, example(module), tracer=True)))


@fault(2, BAKED, "maskport lint m.onnx")
def baked_is_linted(folder: Path) -> str:
    module = seeded(lambda: SelfAttention(batch_first=True))
    return linted(by_torch(module, example(module), tracer=True), "MP201")


RIGHT = "An optimizer counts the tokens of each row, and takes them to stand on the left"


FUSED = """
<ir_version: 10, opset_import: ["" : 18, "com.microsoft" : 1]>
fused (float[batch, seq, 16] x, int32[batch, seq] attention_mask) => (float[batch, seq, 16] y) <int64[1] last = {1}>
{
    lengths = ReduceSum <keepdims = 0> (attention_mask, last)
    [attention] y = com.microsoft.MultiHeadAttention <num_heads = 2> (x, x, x, , MASK)
}
"""


def files(folder: Path) -> tuple[Path, Path]:
    """Write a file that is given the mask, and one that is given how many tokens are real."""
    for name, mask in (("m.onnx", "attention_mask"), ("fused.onnx", "lengths")):
        model = onnx.parser.parse_model(FUSED.replace("MASK", mask))
        (folder / name).write_bytes(model.SerializeToString())
    return folder / "m.onnx", folder / "fused.onnx"


@fault(3, RIGHT, "maskport validate fused.onnx --against m.onnx")
def right_padding_against_the_file(folder: Path) -> str:
    right, fused = files(folder)
    return told(validate(fused, right))


@fault(3, RIGHT, "maskport validate fused.onnx --expect 'padding(attention_mask)'")
def right_padding_against_what_is_expected(folder: Path) -> str:
    _, fused = files(folder)
    return told(validate(fused, expect="padding(attention_mask)"))


@fault(3, RIGHT, "maskport diff m.onnx fused.onnx")
def right_padding_in_the_diff(folder: Path) -> str:
    # The pictures behind it are left out here.
    return command("diff", *map(str, files(folder)), code=1).split("\n\n")[0]


@fault(3, RIGHT, "maskport lint fused.onnx")
def right_padding_is_linted(folder: Path) -> str:
    _, fused = files(folder)
    return linted(fused.read_bytes(), "MP105")


INFINITE = "Causal and padding as a float mask of -inf, by torch.onnx.export at opset 18: 0 in PyTorch, NaN in the file"
BOOL = "The same as a bool mask: 0 in PyTorch, the mean of all values in the file"


@fault(4, INFINITE, "maskport validate m.onnx --against model.py:make")
def empty_rows_against_the_module(folder: Path) -> str:
    module = CausalPadded(-torch.inf)
    return told(validate(by_torch(module, example(module)), module, example(module)))


@fault(4, INFINITE, "maskport validate m.onnx")
def empty_rows_break_a_contract(folder: Path) -> str:
    module = CausalPadded(-torch.inf)
    return told(validate(by_torch(module, example(module))))


@fault(4, INFINITE, "maskport lint m.onnx")
def empty_rows_are_linted(folder: Path) -> str:
    module = CausalPadded(-torch.inf)
    return linted(by_torch(module, example(module)), "MP303")


@fault(4, INFINITE, "maskport export model.py:make -o m.onnx --opset 18")
def empty_rows_are_refused(folder: Path) -> str:
    return refused(CausalPadded(-torch.inf), opset_version=18)


@fault(4, BOOL, "maskport validate m.onnx")
def empty_rows_are_told(folder: Path) -> str:
    module = CausalPadded(None)
    verdict = validate(by_torch(module, example(module)))
    return next(f"ok: {line(contract)}" for contract in verdict.contracts if contract.name == "empty-rows")


LIBRARY = "A CUDA library that isn't there: ONNX Runtime logs a warning, and runs on the CPU"
ON_THE_CPU = "An operator without a CUDA kernel, between two that have one"


@contextmanager
def machine_without(library: str) -> Iterator[None]:
    """Stand for a machine with a driver, on which the loader doesn't find a library."""

    def load(name: str, mode: int = 0) -> Any:
        if "providers_cuda" in name:
            raise OSError(f"{library}: cannot open shared object file: No such file or directory")
        return mock.MagicMock()

    with (
        mock.patch.object(ctypes, "CDLL", load),
        mock.patch.object(ort, "preload_dlls"),
        mock.patch.object(ort, "get_available_providers", return_value=[CUDA_PROVIDER, CPU_PROVIDER]),
    ):
        yield


@fault(6, LIBRARY, 'Session("m.onnx", device="cuda")')
def a_missing_library_is_named(folder: Path) -> str:
    with machine_without("libcublasLt.so.13"):
        try:
            Session(tiny(), device="cuda")
        except DeviceUnavailable as error:
            return f"DeviceUnavailable: {error}"
    raise AssertionError("it runs")


@fault(6, LIBRARY, "maskport run m.onnx --device cuda")
def a_missing_library_is_an_error(folder: Path) -> str:
    (folder / "m.onnx").write_bytes(tiny())
    with machine_without("libcudnn.so.9"):
        return command("run", str(folder / "m.onnx"), "--device", "cuda", code=2)


@fault(6, ON_THE_CPU, "maskport dryrun m.onnx --budget cpu_nodes=0", dryrun=True)
def a_node_on_the_cpu_is_over_the_budget(folder: Path) -> str:
    text = (
        '<ir_version: 10, opset_import: ["" : 18]> g (float[2, 3, 3] x) => (float[2] y) '
        "{ [relu] a = Relu (x) [det] b = Det (a) [neg] y = Neg (b) }"
    )
    (folder / "m.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    said = command("dryrun", str(folder / "m.onnx"), "--budget", "cpu_nodes=0", "--no-graph", code=1)
    return said[said.index("cpu_nodes") :]


@fault(6, "GroupQueryAttention in float32, for which CUDA has no kernel", "maskport lint m.onnx")
def attention_on_the_cpu_is_linted(folder: Path) -> str:
    text = (
        '<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]> '
        "g (float[B,S,16] q, float[B,S,16] k, float[B,S,16] v, int32[B] lengths, int32 total) => (float[B,S,16] y) "
        "{ y = com.microsoft.GroupQueryAttention <num_heads=2, kv_num_heads=2> (q, k, v, , , lengths, total) }"
    )
    return linted(onnx.parser.parse_model(text).SerializeToString(), "MP407")


HALF = "`scores + mask * -1e9` in float16: right in PyTorch, and the file gives NaN alone"


@fault(8, HALF, "maskport validate m.onnx --against model.py:make")
def half_against_the_module(folder: Path) -> str:
    module = Textbook().half()
    inputs = example(module, torch.float16)
    return told(validate(by_torch(module, inputs), module, inputs))


@fault(8, HALF, "maskport lint m.onnx")
def half_is_linted(folder: Path) -> str:
    module = Textbook().half()
    return linted(by_torch(module, example(module, torch.float16)), "MP301")


@fault(8, HALF, "maskport export model.py:make -o m.onnx --dtype float16")
def half_is_refused(folder: Path) -> str:
    return refused(Textbook(), dtype="float16")


@fault(
    11,
    "A file that gives NaN alone, compared with itself: NaN is not equal to NaN",
    "maskport validate m.onnx --against m.onnx",
)
def nan_is_no_agreement(folder: Path) -> str:
    return told(validate(tiny("always nan"), tiny("always nan")))


@fault(
    11,
    "A file that does something else with padding: told, and no fault",
    "maskport validate m.onnx --against right.onnx",
)
def padding_rows_are_told_apart(folder: Path) -> str:
    for name, fault_name in (("m.onnx", "other padding"), ("right.onnx", None)):
        (folder / name).write_bytes(tiny(fault_name))
    return against(folder, code=0)


@fault(
    11,
    "A file that loses its mask, which one batch without padding does not show: exit code 1",
    "maskport validate m.onnx --against right.onnx",
)
def one_batch_is_not_enough(folder: Path) -> str:
    for name, fault_name in (("m.onnx", "dropped"), ("right.onnx", None)):
        (folder / name).write_bytes(tiny(fault_name))
    return against(folder, code=1)


def against(folder: Path, code: int) -> str:
    """Return what a command says: the table of padding patterns, the first failure and the verdict."""
    said = command("validate", str(folder / "m.onnx"), "--against", str(folder / "right.onnx"), code=code)
    lines = said.replace(f"{folder}/", "").splitlines()
    start, stop = (next(i for i, text in enumerate(lines) if text.startswith(word)) for word in ("padding ", "Largest"))
    failed = [text for text in lines if text.startswith("failed   batch=")]
    return "\n".join([*lines[start:stop], *failed[:1], lines[-1]])


LOST = "A window of 8 that the file hasn't: prompts shorter than it show nothing"


@fault(13, LOST, "maskport validate m.onnx --against model.py:make")
def a_lost_window_against_the_module(folder: Path) -> str:
    lost, module = Windowed(None), Windowed(8)
    return told(validate(by_torch(lost, example(lost)), module, example(module)))


@fault(13, LOST, 'maskport validate m.onnx --expect "window(8, 8)"')
def a_lost_window_against_what_is_expected(folder: Path) -> str:
    lost = Windowed(None)
    return told(validate(by_torch(lost, example(lost)), expect="window(8, 8)"))


@fault(13, LOST, "maskport diff m.onnx new.onnx")
def a_lost_window_in_the_diff(folder: Path) -> str:
    for name, module in (("m.onnx", Windowed(8)), ("new.onnx", Windowed(None))):
        (folder / name).write_bytes(by_torch(module, example(module)))
    return command("diff", str(folder / "m.onnx"), str(folder / "new.onnx"), code=1).split("\n\n")[0]


BATCH = "`nn.MultiheadAttention` without `batch_first`, given [batch, seq, width]: the file agrees with its module"


@fault(16, BATCH, "maskport validate m.onnx")
def over_the_batch_breaks_a_contract(folder: Path) -> str:
    module = seeded(lambda: SelfAttention(batch_first=False))
    return told(validate(by_torch(module, example(module))))


@fault(16, BATCH, "maskport lint m.onnx")
def over_the_batch_is_linted(folder: Path) -> str:
    module = seeded(lambda: SelfAttention(batch_first=False))
    return linted(by_torch(module, example(module)), "MP107")


@fault(16, BATCH, "maskport export model.py:make -o m.onnx")
def over_the_batch_is_refused(folder: Path) -> str:
    return refused(seeded(lambda: SelfAttention(batch_first=False)))
