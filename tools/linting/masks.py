"""MP1xx: what masks mean."""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx_ir as ir

from ...export.repairs import REPAIRS
from ...export.symbolic import terms as t
from ...export.symbolic.sites import Site
from ...models.mask_leaves import leaves_of
from ...models.masks import KeyPadding, Mask
from .rule import Found, Rule
from .subject import MASK_NAME, Subject, producers

__all__ = ["MASKS"]

# The value that hides a key, by the end of a mask's name. Other names are used both ways.
HIDES = {"key_padding_mask": 1, "attention_mask": 0, "input_mask": 0, "valid_mask": 0}
# The input that holds the number of keys of each row, by operator.
LENGTHS = {
    ("", "Attention"): 6,
    ("com.microsoft", "Attention"): 3,
    ("com.microsoft", "MultiHeadAttention"): 4,
    ("com.microsoft", "GroupQueryAttention"): 5,
}
# How the first axis is called where it is the batch.
BATCH = re.compile(r"b|n|\w*batch\w*", re.IGNORECASE)
EMBEDDED_MASK = 7
# What may stand between a mask and the number of its ones.
COUNTED = ("Add", "Cast", "Clip", "Concat", "Identity", "Max", "Min", "Reshape", "Squeeze", "Sub", "Unsqueeze")


def _multiplied(x: Subject) -> Iterator[Found]:
    products = REPAIRS["multiplied-mask"].make().find(x.model)
    for product, (mask, softmax) in products.items():
        yield Found(
            f"scores are multiplied by {mask.name}: a score of 0 keeps a weight, more than any negative one",
            product,
            x.attention.names.get(softmax),
        )
    mended = {softmax for _, softmax in products.values()}
    for node, reason in x.attention.reasons.items():
        if reason.fault == "multiplied" and node not in mended:
            yield Found(reason.reason, node, mends=False)


def _without_effect(x: Subject) -> Iterator[Found]:
    for name, value in x.masks.items():
        if value not in x.effective and name not in x.assumed:
            yield Found(f"nothing of the mask {name} but its size reaches an output")


def _not_in_attention(x: Subject) -> Iterator[Found]:
    masking = {value for site, _ in x.sites for value in (*site.mask_values, *site.added)}
    masking |= {value for node in x.attention.reasons for value in node.inputs if value is not None}
    masking |= {value for site, _ in x.sites if site.form != "decomposed" for value in site.node.inputs[3:] if value}
    read = producers(masking)
    claimed = {name for report in x.attention.reports.values() for name in report.mask.tensors}
    for name, value in x.masks.items():
        used = value in x.effective and MASK_NAME.search(name) and name not in x.assumed
        if x.sites and used and value not in read and name not in claimed:
            yield Found(f"the mask {name} reaches an output, and the mask of no attention")


def _inverted(x: Subject) -> Iterator[Found]:
    told: set[str] = set()
    for node, report in x.attention.reports.items():
        for kind, *arguments in {leaf for mask in report.mask.leaves for leaf in leaves_of(mask._expr)}:
            name = str(arguments[0]) if kind == "padding" else ""
            expected = x.described.get(name, {}).get("pad")
            if expected is None:
                expected = next((pad for end, pad in HIDES.items() if name.endswith(end)), None)
            if name in told or expected not in (0, 1) or _hidden_by(report.mask, name) != {1 - expected}:
                continue
            told.add(name)
            shown = "a 1 is padding" if expected else "a 0 is padding"
            yield Found(
                f"by its name {shown} in {name}, and the mask `{report.mask}` attends just those keys",
                node,
                report.name,
            )


def _hidden_by(mask: Mask, name: str) -> set[int]:
    """Return which of 0 and 1 hides a key."""
    try:
        return {
            pad for pad in (0, 1) if any(mask.implies(m) for m in (KeyPadding(name, pad), ~KeyPadding(name, 1 - pad)))
        }
    except ValueError:
        return set()


def _one_sided(x: Subject) -> Iterator[Found]:
    for node in x.graph.all_nodes():
        place = LENGTHS.get((node.domain, node.op_type))
        lengths = node.inputs[place] if place is not None and place < len(node.inputs) else None
        if lengths is None or x.is_claimed(node):
            continue
        shape = x.shape(lengths)
        if shape is not None and len(shape) > 1 and not (len(shape) == 2 and t.fixed(shape[1]) == 1):
            continue
        for mask in _counted(lengths):
            names = [name for name, value in x.inputs.items() if value in producers([mask])]
            known = {check for name in names for check in x.assumed.get(name, ())}
            if names and not known & {"right_padded", "left_padded"}:
                yield Found(
                    f"the ones of {', '.join(names)} are counted, and that many keys at the start are taken: "
                    "padding on the left, or between, attends the wrong keys",
                    node,
                    x.attention.names.get(node),
                )
                break


def _counted(value: ir.Value) -> Iterator[ir.Value]:
    """Yield the masks whose sum along the keys a value holds."""
    waiting, seen = [value], set()
    while waiting:
        current = waiting.pop()
        node = current.producer()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.op_type == "EmbedLayerNormalization" and current is not node.outputs[0]:
            # ONNX Runtime's fusion of BERT counts there.
            yield from (mask for mask in node.inputs[EMBEDDED_MASK : EMBEDDED_MASK + 1] if mask is not None)
        if node.domain != "":
            continue
        operands = [operand for operand in node.inputs if operand is not None]
        if node.op_type == "ReduceSum":
            yield operands[0]
        elif node.op_type in COUNTED:
            waiting += operands


def _dense(x: Subject) -> Iterator[Found]:
    for site, report in x.sites:
        named = {kind for mask in report.mask.leaves for kind, *_ in leaves_of(mask._expr)}
        if site.form == "decomposed" or named & {"dense", "adjacency"} or x.is_claimed(site.node):
            continue
        if any(_has_a_row_per_query(x, site, value) for value in site.mask_values):
            yield Found(
                f"`{report.mask}` is given as a tensor with an entry for each query and key", site.node, report.name
            )


def _over_the_batch(x: Subject) -> Iterator[Found]:
    batches = {
        size.value
        for value in x.inputs.values()
        for size in (value.shape or ())[:1]
        if isinstance(size, ir.SymbolicDim) and size.value and BATCH.fullmatch(size.value)
    }
    for site, report in x.sites:
        length = site.axes.q_len
        if length.op == "symbol" and length.args[0] in batches:
            yield Found(
                f"its queries and keys are the {length.args[0]} of the inputs: each row attends to other rows",
                site.node,
                report.name,
            )


def _has_a_row_per_query(x: Subject, site: Site, value: ir.Value) -> bool:
    shape = x.shape(value)
    return (
        shape is not None
        and len(shape) >= 2
        and site.node.op_type != "GroupQueryAttention"
        and t.fixed(shape[-2]) != 1
        and shape[-1] is site.axes.k_len
    )


MASKS = (
    Rule(
        "MP101",
        "multiplied-mask",
        "error",
        "Scores are multiplied by a mask before the Softmax.",
        "A score of 0 isn't hidden: exp(0) is 1, more than the weight of any negative score. Masked keys are attended.",
        "Fill the scores where the mask is 0 (`masked_fill(mask == 0, -inf)`), or let `maskport optimize --repair "
        "multiplied-mask` do it. A model that was trained with the fault may be right only with it: validate.",
        _multiplied,
        "multiplied-mask",
    ),
    Rule(
        "MP102",
        "mask-without-effect",
        "error",
        "A mask is an input, and nothing but its size reaches an output.",
        "The caller gives a mask and gets what the model gives without one: padding is attended. An example mask of "
        "ones, or a branch such as `if mask.all()`, makes exporters drop masks.",
        "Export again with an example mask that has zeros, and without a branch on its values; `maskport export` "
        "refuses such a file.",
        _without_effect,
    ),
    Rule(
        "MP103",
        "mask-not-in-attention",
        "warning",
        "A mask reaches an output, and the mask of no attention.",
        "It is used for pooling, say, while the attention of real tokens takes padding in.",
        "Pass the mask to the attention as well. If that is meant, leave the rule out with --ignore.",
        _not_in_attention,
    ),
    Rule(
        "MP104",
        "inverted-mask",
        "error",
        "A mask hides the keys that by its name, or by what the file says, are real.",
        "Libraries disagree: 1 is a real token in `attention_mask`, and padding in PyTorch's `key_padding_mask`. Read "
        "the other way round, a mask attends padding alone.",
        "Invert the mask where it is read, or give the input the name of what it holds.",
        _inverted,
    ),
    Rule(
        "MP105",
        "one-sided-padding",
        "warning",
        "The lengths of rows are counted from a mask, so padding must be on the right.",
        "With padding on the left as many keys are attended, but the wrong ones. Nothing in the file says so.",
        "Give the operator the mask itself. Where all padding is on the right, optimize with `--assume right-padding`: "
        "that is written into the file, and checked at every run.",
        _one_sided,
    ),
    Rule(
        "MP106",
        "dense-mask",
        "note",
        "A mask that is a window or padding is given to an attention operator as a tensor.",
        "It takes batch x queries x keys of memory, and on CUDA no Flash kernel takes it.",
        "`maskport optimize` tells the operator the structure: an attribute, lengths, or packed tokens.",
        _dense,
    ),
    Rule(
        "MP107",
        "attention-over-batch",
        "error",
        "Attention runs over the batch, not over the sequence.",
        "`nn.MultiheadAttention` without `batch_first=True` takes the first axis for the sequence: given [batch, seq, "
        "width] it runs without an error, and what a row gives depends on the rows beside it.",
        "Give it `batch_first=True`. If the first axis is the sequence, don't call it the batch in `dynamic_shapes`.",
        _over_the_batch,
    ),
)
