"""Check a lifted mask by running the graph that it was lifted from.

Of scores, the product of queries and keys is replaced by small random numbers, and every bias by zeros: what else is
in them must be the mask, and the weights must be the softmax of the attended scores alone. An operator gets queries and
keys of zero, so that it weighs the attended keys alike, and values that are the identity, so that its output is the
weights. They are run by onnx's reference evaluator, and ONNX Runtime's own operators by ONNX Runtime, at small co-prime
lengths on masks of every pattern, and compared with the lifted mask's `dense`, entry by entry.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from . import terms as t
from .contrib import ContribCut
from .cut import Cut, OperatorCut
from .interpreter import Interpreter, deep_stack
from .sites import Site
from .values import NotFollowed

__all__ = ["verify"]

# Lengths of the first, second, ... symbol other than the batch; the second choice is longer than most windows of tests.
LENGTHS = ((5, 7, 3, 2, 11, 13), (19, 23, 11, 2, 5, 7))
BATCHES = (2, 3)
LONGEST = 200
# Tensors of more elements are not made, and of many they are made for the telling patterns alone.
MOST_ELEMENTS, MANY_ELEMENTS = 1 << 24, 1 << 20
LARGE_PATTERNS = ("left", "holes")


def verify(x: Interpreter, site: Site) -> str | None:
    """Compare a site's mask with what its graph computes.

    Returns
    -------
    str or None
        None if every entry agrees, else why it does not or could not be run.
    """
    try:
        with deep_stack():
            return _verify(x, site)
    except NotFollowed as error:
        return f"not run: {error}"
    except Exception as error:
        # Of the libraries that cut the graph and run it.
        return f"not run: {type(error).__name__} {error}"[:200]


def _verify(x: Interpreter, site: Site) -> str | None:
    if site.scores is not None:
        cut = Cut(x, site)
    else:
        cut = ContribCut(x, site) if site.node.domain == "com.microsoft" else OperatorCut(x, site)
    for lengths in _lengths(x, site, cut):
        largest = cut.largest(lengths)
        if largest > MOST_ELEMENTS:
            return f"not run: it takes a tensor of {largest} elements"
        for pattern in cut.patterns:
            if largest >= MANY_ELEMENTS and pattern not in LARGE_PATTERNS:
                continue
            problem = cut.compare(lengths, pattern)
            if problem is not None:
                return problem
    return None


def _lengths(x: Interpreter, site: Site, cut: Cut) -> Iterator[dict[str, int]]:
    symbols = cut.symbols
    batch = {a.args[0] for a in t.atoms_of(t.length(site.axes.b)) if a.op == "symbol"}
    window = max((abs(n) for n in site.mask.window if n > 0), default=0)
    for batch_size, sizes in zip(BATCHES, LENGTHS, strict=True):
        longer = 0 if batch_size == BATCHES[0] or window > LONGEST else window
        rest = itertools.cycle([n + longer for n in sizes])
        yield {name: batch_size if name in batch else next(rest) for name in symbols}
        if not symbols:
            return
