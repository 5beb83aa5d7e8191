"""What the attention operators of ONNX Runtime take, as a table, and why one doesn't take a site.

An operator appears once for each way to tell it the mask. A mask is a window (causal is one) and the rest:

| window | carried by |
|---|---|
| none | there is no window |
| causal | an attribute |
| local | an attribute: the query's own key and those just before it |

| rest | carried by |
|---|---|
| none | the window is the whole mask |
| lengths | int64 [B]: keys from there on are padding |
| key mask | int32 [B, K] |
| channel | one more element of each head: 0 for a key that may be attended, else so low that its weight is 0 |
| bool | bool [B or 1, Hq or 1, Q, K], the window in it |
| bias | float of that shape, the window and the bias in it |

Beside attributes or a channel a site's bias goes to the operator as it is: that is called its own bias.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .asked import Asked, Parts, parts
from .numbers import channel_factor
from .probes import refused_by_runtime
from .targets import Target

__all__ = ["DECOMPOSED", "KERNELS", "Kernel", "refusals"]

ATTENTION = "ai.onnx.Attention"
MULTI_HEAD = "com.microsoft.MultiHeadAttention"
GROUP_QUERY = "com.microsoft.GroupQueryAttention"
DECOMPOSED = "decomposed"

FLOATS = ("float32", "float16", "bfloat16")
HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Kernel:
    """One way to compute attention.

    Attributes
    ----------
    operator : str
        The operator's domain and name, or "decomposed": MatMul and Softmax.
    window, rest : str
        How the mask is carried; see the tables above.
    types : mapping of str to tuple of str
        Element types by provider.
    takes : frozenset of str
        Of `FEATURES`, what it knows.
    needs : tuple of str
        Of `NEEDS`, what must hold beside that.
    head_multiple : mapping of str to int
        What a head's size is padded to a multiple of, by provider: what its fast kernels take, or the only.
    one_head_size : tuple of str
        Providers where values must have the heads of keys, or are fast only so.
    opset : int
        The first version of the standard operators that has it.
    own_bias : bool
        Whether it is for sites with a bias, which is given without the mask.
    """

    operator: str
    window: str
    rest: str
    types: Mapping[str, tuple[str, ...]]
    takes: frozenset[str]
    needs: tuple[str, ...] = ()
    head_multiple: Mapping[str, int] = field(default_factory=dict)
    one_head_size: tuple[str, ...] = ()
    opset: int = 13
    own_bias: bool = False

    @property
    def name(self) -> str:
        """The operator and how it is told the mask."""
        parts_of_it = (self.window, self.rest, "own bias" if self.own_bias else "none")
        how = [part for part in parts_of_it if part not in ("none", "any")]
        return " ".join([self.operator, " & ".join(how)]).strip()

    @property
    def dense(self) -> bool:
        """Whether it takes any mask, as a tensor with an entry for each query and key."""
        return self.window == "any"


# What a site may have beside queries, keys and values.
FEATURES: dict[str, tuple[str, Callable[[Asked], bool]]] = {
    "softcap": ("has no softcap", lambda asked: asked.site.softcap != 0),
    "sink": ("has no sink", lambda asked: asked.inputs.sink is not None),
    "bias": ("has no bias of this form", lambda asked: asked.inputs.bias is not None),
    "groups": ("doesn't know groups of heads", lambda asked: asked.site.q_heads != asked.site.kv_heads),
    "past": ("takes no cache here", lambda asked: asked.inputs.past_key is not None),
    "presents": ("gives no cache here", lambda asked: asked.presents),
    "cross": ("takes keys of the queries' own sequence only", lambda asked: asked.lengths.cross),
}


def _batch_known(asked: Asked, target: Target) -> str | None:
    batch = asked.lengths.batch
    # On CUDA a row is added to an empty batch, and taken away: there it is the one kernel that skips blocks.
    if target.provider == "cuda" or (isinstance(batch, int) and batch > 0):
        return None
    return "an empty batch ends the process, and the batch is not known to have a row"


def _keys_by_eight(asked: Asked, target: Target) -> str | None:
    keys = asked.lengths.keys
    if target.provider == "cpu" or asked.dtype == "float32" or (isinstance(keys, int) and keys % 8 == 0):
        return None
    return (
        f"its fast kernels take a bias for a multiple of 8 keys in {asked.dtype}; here they are {keys or 'not known'}"
    )


def _channel_fits(asked: Asked, target: Target) -> str | None:
    if channel_factor(asked.site.scale, asked.dtype) is not None:
        return None
    return f"the scale {asked.site.scale:g} leaves no number for a masked key in {asked.dtype}"


def _positive_scale(asked: Asked, target: Target) -> str | None:
    return None if asked.site.scale > 0 else f"its scale must be above 0; here it is {asked.site.scale:g}"


def _exact_window(asked: Asked, target: Target) -> str | None:
    # The unfused kernel attends one key more than the window.
    unfused = asked.inputs.sink is not None or asked.site.softcap != 0
    if target.provider == "cuda" and target.lowest_sm < 80 and unfused:
        return f"before sm80 a sink or softcap goes to a kernel that attends one key more than the window ({target})"
    return None


def _softcap_or_sink(asked: Asked, target: Target) -> str | None:
    if asked.site.softcap == 0 or asked.inputs.sink is None:
        return None
    return "beside a sink the share of keys that a softcap leaves to masked ones can't be told"


NEEDS: dict[str, Callable[[Asked, Target], str | None]] = {
    "nonempty batch": _batch_known,
    "keys % 8": _keys_by_eight,
    "room for a masked key": _channel_fits,
    "positive scale": _positive_scale,
    "exact window": _exact_window,
    "softcap or sink": _softcap_or_sink,
}

_ATTENTION = {
    "operator": ATTENTION,
    "types": {"cpu": ("float32", "float16"), "cuda": FLOATS},
    "head_multiple": {"cuda": 8},
    "one_head_size": ("cuda",),
    "opset": 23,
}
_MULTI_HEAD = {"operator": MULTI_HEAD, "types": {"cpu": ("float32",), "cuda": FLOATS}}
_GROUP_QUERY = {
    "operator": GROUP_QUERY,
    "types": {"cpu": ("float32", "float16"), "cuda": HALVES},
    "head_multiple": {"cpu": 8, "cuda": 8},
    "one_head_size": ("cpu", "cuda"),
}


def _table() -> tuple[Kernel, ...]:
    def attention(window: str, rest: str, takes: str, needs: tuple[str, ...] = (), **more: int | bool) -> Kernel:
        features, needs = frozenset(takes.split()), ("positive scale", *needs)
        return Kernel(**{**_ATTENTION, **more}, window=window, rest=rest, takes=features, needs=needs)  # type: ignore[arg-type]

    def multi_head(window: str, rest: str, takes: str, needs: tuple[str, ...] = ()) -> Kernel:
        features, needs = frozenset(takes.split()), ("positive scale", *needs)
        return Kernel(**_MULTI_HEAD, window=window, rest=rest, takes=features, needs=needs)  # type: ignore[arg-type]

    def group_query(window: str, rest: str, takes: str, needs: tuple[str, ...] = ()) -> Kernel:
        features, needs = frozenset(takes.split()), ("nonempty batch", "positive scale", *needs)
        return Kernel(**_GROUP_QUERY, window=window, rest=rest, takes=features, needs=needs)  # type: ignore[arg-type]

    channel, local = ("room for a masked key",), ("exact window",)
    return (
        attention("none", "none", "softcap groups past presents cross"),
        attention("causal", "none", "softcap groups past presents cross"),
        # With causal these would be counted from the last key.
        attention("none", "lengths", "softcap groups cross", opset=24),
        attention("none", "channel", "softcap groups cross", channel),
        attention("causal", "channel", "softcap groups cross", channel),
        attention("none", "none", "softcap groups past presents cross bias", own_bias=True),
        attention("causal", "none", "softcap groups past presents cross bias", own_bias=True),
        # Below a softcap a bias could bring the shares of keys near 0.
        attention("none", "channel", "groups cross bias", channel, own_bias=True),
        attention("causal", "channel", "groups cross bias", channel, own_bias=True),
        multi_head("none", "none", "cross"),
        multi_head("causal", "none", ""),
        group_query("causal", "none", "softcap sink groups"),
        group_query("local", "none", "softcap sink groups", local),
        group_query("causal", "channel", "softcap sink groups", (*channel, "softcap or sink")),
        group_query("local", "channel", "softcap sink groups", (*channel, *local, "softcap or sink")),
        multi_head("none", "key mask", "cross"),
        multi_head("causal", "key mask", ""),
        attention("any", "bool", "softcap groups past presents cross"),
        attention("any", "bias", "softcap groups past presents cross bias"),
        multi_head("any", "bias", "cross bias", ("keys % 8",)),
        Kernel(DECOMPOSED, "any", "any", {"cpu": (), "cuda": ()}, frozenset(FEATURES)),
    )


KERNELS = _table()


def refusals(kernel: Kernel, asked: Asked, target: Target) -> list[str]:
    """Return all reasons why a kernel doesn't take a site on a target; none if it does."""
    reasons = []
    if kernel.types[target.provider] and asked.dtype not in kernel.types[target.provider]:
        runs = ", ".join(kernel.types[target.provider])
        reasons.append(f"runs {runs} on {target.provider.upper()}, not {asked.dtype}")
    if asked.opset < kernel.opset:
        reasons.append(f"needs opset {kernel.opset}, the model has {asked.opset}")
    reasons += [lacks for feature, (lacks, has) in FEATURES.items() if feature not in kernel.takes and has(asked)]
    if kernel.own_bias and asked.inputs.bias is None:
        reasons.append("there is no bias")
    if not kernel.dense:
        reasons += _mask_refusals(kernel, asked, parts(asked.mask))
    reasons += [why for need in kernel.needs if (why := NEEDS[need](asked, target)) is not None]
    unavailable = refused_by_runtime(kernel.operator, kernel.window, kernel.rest)
    return reasons if unavailable is None else [*reasons, unavailable]


WINDOWS: dict[str, tuple[str, Callable[[Parts], bool]]] = {
    "none": ("takes no window", lambda p: (p.left, p.right) == (-1, -1)),
    "causal": ("masks just what comes after the query", lambda p: (p.left, p.right) == (-1, 0)),
    "local": ("masks just what isn't among the keys up to the query's", lambda p: p.left >= 0 and p.right == 0),
}
KEY_MASKS = ("channel", "key mask")


def _mask_refusals(kernel: Kernel, asked: Asked, mask: Parts) -> list[str]:
    says, fits = WINDOWS[kernel.window]
    window = f"the window is ({mask.left}, {mask.right})" if (mask.left, mask.right) != (-1, -1) else "is no window"
    reasons = [] if fits(mask) else [f"{says}; here {window}"]
    empty = str(mask.rest) == "full"
    if kernel.rest == "none" and not empty:
        reasons.append(f"takes nothing beside the window; here {mask.rest}")
    if kernel.rest in KEY_MASKS and not mask.key_only:
        reasons.append(f"takes a mask of keys; {mask.rest} depends on the query")
    if kernel.rest != "none" and empty:
        reasons.append("there is nothing to mask but the window")
    if kernel.rest == "lengths" and not empty and not _is_lengths(asked, mask):
        reasons.append(f"takes the number of keys of each row; {mask.rest} is none as far as is known")
    return reasons


def _is_lengths(asked: Asked, mask: Parts) -> bool:
    if mask.rest.leaves != (mask.rest,):
        return False
    text = str(mask.rest)
    right_padded = text.startswith("padding(") and set(mask.rest.tensors) <= set(asked.right_padded)
    return text.startswith("prefix(") or right_padded
