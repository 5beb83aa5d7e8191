"""Write a mask into a graph in the form that a kernel takes: once for all sites that share it."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence

import onnx_ir as ir

from ...models.masks import Full, Mask
from .asked import Asked, dim, parts
from .build import SiteBuilder
from .numbers import channel_factor, fill

__all__ = ["MaskWriter"]

BOOL, INT32, INT64 = ir.DataType.BOOL, ir.DataType.INT32, ir.DataType.INT64
# What the graph of a mask is written for; its operators are the same in all later ones.
MASK_OPSET = 13
# A prefix whose length is a tensor and a number.
PREFIX = re.compile(r"""prefix\((?:[A-Za-z_]\w*|"[^"]*")( [+-] \d+)?\)""")
INTEGERS = (ir.DataType.INT8, ir.DataType.INT16, INT32, INT64, ir.DataType.UINT8)


class MaskWriter:
    """Masks of the sites of one graph.

    Shapes: B batch, H query heads, G key heads, Q queries, K keys (those of a cache with them), C elements added to
    each head. Every value is made once for one mask of the same tensors and sizes, before the first site that uses it.
    """

    def __init__(self, builder: SiteBuilder) -> None:
        self.b = builder
        self._made: dict[tuple[object, ...], ir.Value] = {}

    def bool_mask(self, asked: Asked) -> ir.Value:
        """Return bool [B or 1, H or 1, Q, K]: True attends."""
        return self._once("bool", asked, asked.mask, self._bool_mask)

    def bias(self, asked: Asked) -> ir.Value:
        """Return the mask and the bias in one, [B or 1, H or 1, Q, K] in the type of the queries."""
        return self._once("bias", asked, asked.mask, self._bias, asked.inputs.bias, asked.dtype)

    def own_bias(self, asked: Asked) -> ir.Value:
        """Return the bias alone, in the same shape."""
        return self._once("bias", asked, Full(), self._bias, asked.inputs.bias, asked.dtype)

    def key_mask(self, asked: Asked) -> ir.Value:
        """Return int32 [B, K]: 1 attends."""
        return self._once("key mask", asked, parts(asked.mask).rest, self._key_mask)

    def lengths(self, asked: Asked, provider: str) -> ir.Value:
        """Return int64 [B]: how many keys each row has, from the first on.

        Kernels of the CPU give zero for a row of none. No one says what others do: they are told of one key.
        """
        least = 0 if provider == "cpu" else 1
        return self._once("lengths", asked, parts(asked.mask).rest, self._lengths, least)

    def key_channels(self, asked: Asked, count: int) -> ir.Value:
        """Return [B, K, G, C]: 0 for a key that may be attended, else the factor that hides it."""
        rest = parts(asked.mask).rest
        return self._once("key channels", asked, rest, self._key_channels, count, asked.dtype, asked.site.scale)

    def shares(self, asked: Asked) -> ir.Value:
        """Return [B, K, G, 1]: 1 for a key that may be attended, else 0."""
        return self._once("shares", asked, parts(asked.mask).rest, self._shares)

    def attend(self, asked: Asked, mask: Mask) -> ir.Value:
        """Return a mask as bool of rank 4, broadcastable to [B, H, Q, K]."""
        return self._once("attend", asked, mask, self._attend)

    def sizes(self, asked: Asked) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Return the numbers of queries, of keys and of keys of the cache, int64 [1] each."""
        inputs = asked.inputs
        past = self.b.ints(0) if inputs.past_key is None else self.b.size(inputs.past_key, 2)
        keys = self.b.size(inputs.key, 1)
        if inputs.past_key is not None:
            keys = self.b.op("Add", past, keys, dtype=INT64, shape=[1])
        return self.b.size(inputs.query, 1), keys, past

    def shared(self, key: Hashable, like: ir.Value, axes: Sequence[int], make: Callable[[], ir.Value]) -> ir.Value:
        """Return what is made of a key and some sizes of a value alone: once for all values of these sizes."""
        sizes = [dim(like, axis) for axis in axes]
        whole = (key, *sizes, like if None in sizes else None)
        if whole not in self._made:
            self._made[whole] = make()
        return self._made[whole]

    def _once(self, form: str, asked: Asked, mask: Mask, make: Callable[..., ir.Value], *arguments: object) -> ir.Value:
        lengths = asked.lengths
        sizes: list[object] = [lengths.batch, lengths.queries, lengths.keys, lengths.past]
        if None in sizes or asked.inputs.past_key is not None:
            # Names of sizes tell nothing here: only what has the same queries, keys and cache shares it.
            sizes += [asked.inputs.query, asked.inputs.key, asked.inputs.past_key]
        tensors = tuple(asked.inputs.tensors[name] for name in mask.tensors)
        key = (form, str(mask), tensors, *sizes, asked.site.q_heads, asked.site.kv_heads, *arguments)
        if key not in self._made:
            self._made[key] = make(asked, mask, *arguments)
        return self._made[key]

    def _attend(self, asked: Asked, mask: Mask) -> ir.Value:
        tensors = {
            name: self._readable(mask, name, value)
            for name, value in asked.inputs.tensors.items()
            if name in mask.tensors
        }
        dtypes = {name: value.dtype.numpy() for name, value in tensors.items() if value.dtype is not None}
        graph = ir.from_proto(mask.to_onnx(opset_version=MASK_OPSET, dtypes=dtypes)).graph
        used = {str(value.name) for value in graph.inputs if value.uses()}
        scalars = {
            name: self.b.op("Squeeze", size, dtype=INT64, shape=[]) if name in used else size
            for name, size in zip(("q_len", "k_len", "past"), self.sizes(asked), strict=True)
        }
        value = self.b.copy(graph, {**scalars, **tensors})
        value.dtype = BOOL
        return value

    def _readable(self, mask: Mask, name: str, value: ir.Value) -> ir.Value:
        """Return a tensor of a mask in a type that the mask reads."""
        kinds = mask.tensors[name].kinds
        if value.dtype == BOOL and "b" in kinds:
            return value
        if value.dtype in INTEGERS and "i" in kinds:
            return value
        return self.b.cast(value, BOOL if kinds == "b" or (value.dtype not in INTEGERS and "b" in kinds) else INT64)

    def _shape(self, asked: Asked) -> ir.Value:
        queries, keys, _ = self.sizes(asked)
        return self.b.join(self.b.ints(1, 1), queries, keys)

    def _bool_mask(self, asked: Asked, mask: Mask) -> ir.Value:
        lengths = asked.lengths
        attend = self.attend(asked, mask)
        return self.b.op(
            "Expand", attend, self._shape(asked), dtype=BOOL, shape=[None, None, lengths.queries, lengths.keys]
        )

    def _bias(self, asked: Asked, mask: Mask, bias: ir.Value | None, element: str) -> ir.Value:
        b, lengths, dtype = self.b, asked.lengths, asked.inputs.query.dtype
        assert dtype is not None
        shape = [None, None, lengths.queries, lengths.keys]
        value = b.array(0, dtype) if bias is None else b.cast(bias, dtype)
        if str(mask) != "full":
            value = b.op("Where", self.attend(asked, mask), value, b.array(fill(element), dtype), dtype=dtype)
        return b.op("Expand", value, self._shape(asked), dtype=dtype, shape=shape)

    def _by_key(self, asked: Asked, mask: Mask) -> ir.Value:
        """Return a mask of keys as bool [B, K]."""
        b, lengths = self.b, asked.lengths
        _, keys, _ = self.sizes(asked)
        shape = b.join(b.size(asked.inputs.query, 0), b.ints(1, 1), keys)
        attend = b.op("Expand", self.attend(asked, mask), shape, dtype=BOOL, shape=[lengths.batch, 1, 1, lengths.keys])
        return b.op("Squeeze", attend, b.ints(1, 2), dtype=BOOL, shape=[lengths.batch, lengths.keys])

    def _key_mask(self, asked: Asked, mask: Mask) -> ir.Value:
        return self.b.cast(self._by_key(asked, mask), INT32)

    def _lengths(self, asked: Asked, mask: Mask, least: int) -> ir.Value:
        b, batch = self.b, asked.lengths.batch
        match = PREFIX.fullmatch(str(mask))
        if match is None:
            counted = b.cast(self._by_key(asked, mask), INT64)
            counted = b.op("ReduceSum", counted, b.ints(1), keepdims=0, dtype=INT64, shape=[batch])
            return b.op("Max", counted, b.ints(least), dtype=INT64, shape=[batch]) if least else counted
        given = b.cast(asked.inputs.tensors[next(iter(mask.tensors))], INT64)
        if match[1]:
            given = b.op("Add", given, b.ints(int(match[1].replace(" ", ""))), dtype=INT64, shape=[batch])
        at_least = b.op("Max", given, b.ints(least), dtype=INT64, shape=[batch])
        return b.op("Min", at_least, self.sizes(asked)[1], dtype=INT64, shape=[batch])

    def _shares(self, asked: Asked, mask: Mask) -> ir.Value:
        b, lengths, dtype, heads = self.b, asked.lengths, asked.inputs.query.dtype, asked.site.kv_heads
        assert dtype is not None
        kept = b.op("Unsqueeze", b.cast(self._by_key(asked, mask), dtype), b.ints(2, 3))
        return b.op("Expand", kept, b.ints(1, 1, heads, 1), shape=[lengths.batch, lengths.keys, heads, 1])

    def _key_channels(self, asked: Asked, mask: Mask, count: int, element: str, scale: float) -> ir.Value:
        b, lengths, dtype = self.b, asked.lengths, asked.inputs.query.dtype
        factor = channel_factor(scale, element)
        assert dtype is not None
        assert factor is not None
        batch, keys, heads = lengths.batch, lengths.keys, asked.site.kv_heads
        hidden = [b.array(0, dtype), b.array(-factor, dtype)]
        low = b.op("Where", self._by_key(asked, mask), *hidden, dtype=dtype, shape=[batch, keys])
        low = b.op("Unsqueeze", low, b.ints(2, 3), dtype=dtype, shape=[batch, keys, 1, 1])
        return b.op("Expand", low, b.ints(1, 1, heads, count), dtype=dtype, shape=[batch, keys, heads, count])
