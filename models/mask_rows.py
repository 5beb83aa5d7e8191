"""Row arguments: affine numbers, one per batch row, that shift or bound a mask (`past + 1`, `nonpad - Q`)."""

from __future__ import annotations

import json
import keyword
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral

__all__ = ["Affine", "K", "Q", "Row", "as_affine", "format_name", "past"]

# What an argument may contain, by symbol. Within these the decision procedure of mask_logic is exact, and every
# offset that an ONNX attention operator can express fits.
_ALLOWED = {"past": (0, 1), "q_len": (0, -1), "k_len": (0, 1)}


def format_name(name: str) -> str:
    """Write a tensor name as mask text does: bare if it is an identifier, else as a JSON string."""
    bare = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    return name if bare and name not in ("past", "Q", "K") else json.dumps(name, ensure_ascii=False)


@dataclass(frozen=True)
class Affine:
    """A sum of a number, `past`, the lengths `Q` and `K`, and values of int tensors of shape [B].

    Built from `past`, `Q`, `K` and `Row(name)` with `+` and `-`; immutable and hashable.

    Examples
    --------
    >>> str(Row("nonpad") - Q)
    'nonpad - Q'
    >>> str(past + 1)
    'past + 1'
    """

    const: int = 0
    past: int = 0
    q_len: int = 0
    k_len: int = 0
    rows: tuple[tuple[str, int], ...] = ()

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, bool) or not isinstance(other, (Affine, int)):
            return NotImplemented
        other = _number(other)
        rows = dict(self.rows)
        for name, coefficient in other.rows:
            rows[name] = rows.get(name, 0) + coefficient
        return Affine(
            self.const + other.const,
            self.past + other.past,
            self.q_len + other.q_len,
            self.k_len + other.k_len,
            tuple(sorted((name, c) for name, c in rows.items() if c)),
        )

    __radd__ = __add__

    def __neg__(self) -> Affine:
        rows = tuple((name, -c) for name, c in self.rows)
        return Affine(-self.const, -self.past, -self.q_len, -self.k_len, rows)

    def __sub__(self, other: Affine | int) -> Affine:
        return NotImplemented if not isinstance(other, (Affine, int)) else self + -_number(other)

    def __rsub__(self, other: int) -> Affine:
        return -self + other

    @property
    def symbolic(self) -> Affine:
        """The same sum without its number."""
        return self - self.const

    @property
    def row(self) -> str | None:
        """The name of the int [B] tensor in it, if there is one."""
        return self.rows[0][0] if self.rows else None

    def __str__(self) -> str:
        return self._written(format_name)

    def __repr__(self) -> str:
        return self._written(lambda name: f"Row({name!r})")

    def _written(self, name_text: Callable[[str], str]) -> str:
        terms = [(name_text(name), c) for name, c in self.rows]
        terms += [("past", self.past), ("K", self.k_len), ("Q", self.q_len)]
        parts = [(symbol if abs(c) == 1 else f"{abs(c)}*{symbol}", c) for symbol, c in terms if c]
        if self.const or not parts:
            parts.append((str(abs(self.const)), self.const))
        parts.sort(key=lambda part: part[1] < 0)
        text = ("-" if parts[0][1] < 0 else "") + parts[0][0]
        return text + "".join(f" {'-' if c < 0 else '+'} {symbol}" for symbol, c in parts[1:])


past = Affine(past=1)
Q = Affine(q_len=1)
K = Affine(k_len=1)


def Row(name: str) -> Affine:
    """Return the value of the int tensor `name` of shape [B], for use in a row argument.

    Raises
    ------
    TypeError, ValueError
        If `name` is not a non-empty string.
    """
    if not isinstance(name, str):
        raise TypeError(f"a tensor name is a string; got {name!r}")
    if not name:
        raise ValueError("a tensor name is a non-empty string; got ''")
    return Affine(rows=((name, 1),))


def _number(value: Affine | int) -> Affine:
    return value if isinstance(value, Affine) else Affine(int(value))


def as_affine(value: Affine | int, what: str) -> Affine:
    """Return `value` as a row argument, or raise with what an argument may be.

    Raises
    ------
    TypeError
        If it is no integer and no `Affine`.
    ValueError
        If it has a term that a row argument may not have.
    """
    if isinstance(value, bool) or not isinstance(value, (Affine, Integral)):
        raise TypeError(
            f"{what} is an integer, `past`, or a sum such as `Row('nonpad') - Q`; "
            f"got {value!r} ({type(value).__name__})"
        )
    value = _number(value)
    fits = all(getattr(value, symbol) in allowed for symbol, allowed in _ALLOWED.items())
    if not fits or len(value.rows) > 1 or any(c != 1 for _, c in value.rows):
        raise ValueError(
            f"{what} may add a number, `past`, `K`, one row value, and subtract `Q`, each once; got {value}. "
            "Compute the sum into one int [B] tensor and name that instead."
        )
    return value
