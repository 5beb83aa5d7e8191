"""SPEC: each form names a module, and every way to be wrong is one clear error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from maskport.models import Mask
from maskport.tools.builtin import BUILTINS
from maskport.tools.errors import ToolError
from maskport.tools.spec import load
from torch import nn

# The file that the tests name by path and as a module.
FILE = """
import torch
from torch import nn
from neighbour import WIDTH

INPUTS = {"input": torch.zeros(2, 3, WIDTH)}
SHAPES = {"input": {0: "batch", 1: "seq"}}

class Plain(nn.Linear):
    def __init__(self):
        super().__init__(WIDTH, WIDTH)

class Told(Plain):
    def example_inputs(self):
        return INPUTS

class Shaped(Told):
    def dynamic_shapes(self):
        return SHAPES

class Broken(Plain):
    def example_inputs(self):
        raise KeyError("no inputs")

class Holder:
    @staticmethod
    def make():
        return make()

def make():
    return Plain(), INPUTS, SHAPES

def fails():
    raise ValueError("no such checkpoint\\nand more")

def leaves():
    raise SystemExit(3)

def needs_argument(size):
    return make()

instance = Shaped()
number = 7
nothing = lambda: None
pair = lambda: (Plain(), INPUTS)
no_module = lambda: ("encoder", INPUTS, SHAPES)
no_inputs = lambda: (Plain(), {}, SHAPES)
odd_inputs = lambda: (Plain(), 5, SHAPES)
odd_shapes = lambda: (Plain(), INPUTS, {"input": 1})
"""


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the file, the current one; what it imports is forgotten afterwards."""
    path = tmp_path_factory.mktemp("specs")
    (path / "specs.py").write_text(FILE)
    (path / "neighbour.py").write_text("WIDTH = 4\n")
    (path / "broken.py").write_text("def make(:\n")
    (path / "raises.py").write_text("import no_such_package\n")
    (path / "exits.py").write_text("import sys\nsys.exit('bye')\n")
    before, modules = list(sys.path), set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        yield path
    sys.path[:] = before
    for name in set(sys.modules) - modules:
        if name in ("specs", "neighbour") or name.startswith("maskport_spec_"):
            del sys.modules[name]


@pytest.mark.parametrize(
    "spec", ["specs.py:make", "specs:make", "specs.py:Shaped", "specs.py:instance", "specs.py:Holder.make"]
)
def test_each_form_names_the_module(spec: str) -> None:
    source = load(spec)
    assert isinstance(source.module, nn.Linear)
    assert list(source.example_inputs) == ["input"]
    assert source.dynamic_shapes == {"input": {0: "batch", 1: "seq"}}


def test_a_path_may_be_absolute_and_a_file_is_read_anew(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    for width in (4, 6):
        path.write_text(f"import torch\nmake = lambda: (torch.nn.Linear({width}, 1), (torch.zeros(2, {width}),), None)")
        assert load(f"{path}:make").module.in_features == width
    assert load(f"{folder / 'specs.py'}:make").dynamic_shapes


def test_a_module_that_names_no_axes_has_none() -> None:
    assert load("specs.py:Told").dynamic_shapes is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "names no model: give a name that `maskport models` lists, package.module:callable"),
        ("encodr", "did you mean 'encoder'[?] give a name"),
        (":", "names no model"),
        ("specs.py:", "names no model"),
        (":make", "names no model"),
        ("no_such.py:make", "there is no file no_such.py"),
        ("no_such_module:make", "can't be imported: ModuleNotFoundError: No module named 'no_such_module'"),
        ("not a module:make", "neither a .py file nor the name of a module"),
        ("../up:make", "neither a .py file nor the name of a module"),
        ("broken.py:make", "can't be imported: SyntaxError: invalid syntax"),
        ("raises.py:make", "can't be imported: ModuleNotFoundError: No module named 'no_such_package'"),
        ("exits.py:make", "can't be imported: SystemExit: bye"),
        ("specs.py:mak", "the module has no 'mak'; did you mean 'make'[?]"),
        ("specs.py:zzz", "the module has no 'zzz'; name a callable of that file"),
        ("specs.py:Holder.mak", "the module has no 'Holder.mak'"),
        ("specs.py:number", "is of type int and can't be called; it must return [(]module"),
        ("specs.py:fails", "raised: ValueError: no such checkpoint$"),
        ("specs.py:leaves", "raised: SystemExit: 3"),
        ("specs.py:needs_argument", "raised: TypeError: needs_argument[(][)] missing 1 required"),
        ("specs.py:nothing", "returned None; it must return [(]module, example_inputs, dynamic_shapes[)]"),
        ("specs.py:pair", "returned a tuple of 2; it must return"),
        ("specs.py:Plain", "returned a value of type Plain; .* has example_inputs"),
        ("specs.py:Broken", "has example_inputs[(][)], which raised: KeyError: 'no inputs'"),
        ("specs.py:no_module", "returned a value of type str as the module"),
        ("specs.py:no_inputs", "returned an empty dict as example_inputs"),
        ("specs.py:odd_inputs", "returned a value of type int as example_inputs; give a dict of tensors"),
        ("specs.py:odd_shapes", "as dynamic_shapes; give {input: {axis: name}} or None"),
    ],
)
def test_a_wrong_spec_is_one_clear_error(spec: str, message: str) -> None:
    with pytest.raises(ToolError, match=message) as caught:
        load(spec)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", BUILTINS)
def test_a_builtin_model_runs_on_its_example(name: str) -> None:
    source = load(name)
    assert isinstance(source.example_inputs, dict)
    assert source.dynamic_shapes is not None
    assert source.example_inputs.keys() == source.dynamic_shapes.keys()
    assert not source.module.training
    assert isinstance(BUILTINS[name].mask, Mask)
    with torch.no_grad():
        output = source.module(**source.example_inputs)
    assert torch.isfinite(output).all()
    again = load(name).module
    assert all(torch.equal(a, b) for a, b in zip(source.module.parameters(), again.parameters(), strict=True))
