"""Sizes that depend on each other: with a cache, the keys are those of the past and those of the queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..cases.draw import Size, sizes_of
from ..cases.layout import Layout, Sum
from .eager import RefusedError
from .subject import Subject

# Unlike in every axis, so that an accidental equality doesn't pass for a rule.
UNLIKE = Size(2, 7, 11)


def related(subject: Subject) -> Subject:
    """Return the subject with the sum of sizes that the module insists on, read off the example.

    Only a module that refuses sizes that are drawn apart is asked; if no sum helps either, nothing is changed.
    """
    for layout in [subject.layout, *_candidates(subject)]:
        tried = replace(subject, layout=layout)
        try:
            tried.eager(tried.draw(sizes_of(layout, UNLIKE)).inputs)
        except RefusedError:
            continue
        return tried
    return subject


def _candidates(subject: Subject) -> Iterator[Layout]:
    layout, sizes = subject.layout, subject.example_sizes
    lengths = [axis for axis in layout.free if axis != layout.batch]
    for total in lengths:
        for past in lengths:
            for new in layout.tokens:
                if len({total, past, new}) == 3 and sizes[total] == sizes[past] + sizes[new]:
                    yield replace(layout, sums=(Sum(total, past, new),))
