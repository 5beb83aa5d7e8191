"""Masks as text and as pictures: `window(5, 0) & padding(attention_mask)`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .mask_leaves import LEAVES, Expr
from .mask_rows import Affine, K, Q, Row, past

__all__ = ["draw", "parse", "python", "text"]

_BINDING = {"or": 0, "and": 1, "not": 2}
_JOIN = {"or": " | ", "and": " & "}


def _write(expr: Expr, leaf: Callable[[Expr], str], outer: int = 0) -> str:
    head = expr[0]
    if head not in _BINDING:
        return leaf(expr)
    binding = _BINDING[head]
    parts = [_write(part, leaf, binding + (head != "not")) for part in expr[1:]]
    written = "~" + parts[0] if head == "not" else _JOIN[head].join(parts)
    return f"({written})" if binding < outer else written


def text(expr: Expr) -> str:
    """Write an expression as mask text."""
    return _write(expr, lambda leaf: LEAVES[leaf[0]].text(*leaf[1:]))


def python(expr: Expr) -> str:
    """Write an expression as the Python that builds it."""
    return _write(expr, lambda leaf: f"{LEAVES[leaf[0]].constructor}({', '.join(map(repr, leaf[1:]))})")


def parse(source: str, constructors: Mapping[str, Callable[..., Any]]) -> Any:
    """Read mask text with a constructor for each leaf; see `Mask.parse`."""
    try:
        tree = ast.parse(source.strip(), mode="eval").body
        return _Reader(source, constructors).mask(tree)
    except SyntaxError as error:
        raise ValueError(f"cannot read the mask {source!r}: {error.msg}. {_HELP}") from None
    except (RecursionError, MemoryError):
        raise ValueError(f"cannot read a mask text of {len(source)} characters: it is nested too deeply") from None


_HELP = (
    "Write leaves joined by &, | and ~, such as `causal & padding(attention_mask)`; "
    'quote names that are no identifiers: `dense("/enc/Where_0")`'
)
_SYMBOLS = {"past": past, "Q": Q, "K": K}


class _Reader:
    """Mask text has the grammar of Python expressions, so Python's parser reads it; nothing is evaluated."""

    def __init__(self, source: str, constructors: Mapping[str, Callable[..., Any]]) -> None:
        self.source, self.constructors = source, constructors

    def fail(self, node: ast.AST) -> ValueError:
        piece = ast.unparse(node)
        return ValueError(f"cannot read {piece!r} in the mask {self.source!r}. {_HELP}")

    def mask(self, node: ast.expr) -> Any:
        match node:
            case ast.BinOp(left, ast.BitAnd(), right):
                return self.mask(left) & self.mask(right)
            case ast.BinOp(left, ast.BitOr(), right):
                return self.mask(left) | self.mask(right)
            case ast.UnaryOp(ast.Invert(), operand):
                return ~self.mask(operand)
            case ast.Name(name) if name in self.constructors:
                return self.leaf(node, name, [])
            case ast.Call(ast.Name(name), arguments, []) if name in self.constructors:
                return self.leaf(node, name, arguments)
        raise self.fail(node)

    def leaf(self, node: ast.expr, name: str, nodes: list[ast.expr]) -> Any:
        read = self.row if name in ("causal", "window", "chunked", "prefix") else self.name
        arguments: list[Any] = []
        for argument in nodes:
            match argument:
                case ast.Compare(left, [ast.NotEq()], [pad]) if name in ("padding", "query_padding"):
                    arguments += [self.name(left), self.number(pad)]
                case _:
                    arguments.append(read(argument))
        try:
            return self.constructors[name](*arguments)
        except TypeError as error:
            raise ValueError(f"cannot read {ast.unparse(node)!r} in the mask {self.source!r}: {error}") from None

    def name(self, node: ast.expr) -> str:
        match node:
            case ast.Name(name) | ast.Constant(str(name)):
                return name
        raise self.fail(node)

    def number(self, node: ast.expr) -> int:
        value = self.row(node)
        if not isinstance(value, int):
            raise self.fail(node)
        return value

    def row(self, node: ast.expr) -> Affine | int:
        match node:
            case ast.Constant(int(value)) if not isinstance(value, bool):
                return value
            case ast.Constant(str(name)):
                return Row(name)
            case ast.Name(name):
                return _SYMBOLS.get(name) or Row(name)
            case ast.UnaryOp(ast.USub(), operand):
                return -self.row(operand)
            case ast.BinOp(left, ast.Add(), right):
                return self.row(left) + self.row(right)
            case ast.BinOp(left, ast.Sub(), right):
                return self.row(left) - self.row(right)
        raise self.fail(node)


def _panel(attend: np.ndarray, title: str) -> list[str]:
    q_len, k_len = attend.shape
    margin = len(str(max(q_len - 1, 0)))
    lines = [title] if title else []
    lines.append(" " * (margin + 1) + " ".join(str(k % 10) for k in range(k_len)))
    lines += [f"{q:>{margin}} " + " ".join("■" if value else "·" for value in attend[q]) for q in range(q_len)]
    width = max(map(len, lines), default=0)
    return [line.ljust(width) for line in lines]


def draw(attend: np.ndarray, width: int = 80) -> str:
    """Draw a boolean array [B, H, Q, K]: a row per query, a column per key, a panel per batch row and head."""
    batch, heads = attend.shape[:2]
    panels = []
    for b in range(batch):
        for h in range(heads):
            title = ", ".join(f"{axis}={i}" for axis, i, n in (("b", b, batch), ("h", h, heads)) if n > 1)
            panels.append(_panel(attend[b, h], title))
    across = max(1, (width + 3) // (len(panels[0][0]) + 3)) if panels else 1
    blocks = []
    for first in range(0, len(panels), across):
        rows = zip(*panels[first : first + across], strict=True)
        blocks.append("\n".join("   ".join(row).rstrip() for row in rows))
    return "\n\n".join(blocks)
