"""What a file claims of its attention: written, read back, and shown as no more than a claim."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
import torch
from maskport.export import ExportError, InspectError, export, inspect
from maskport.export.certificate.digest import digest_of
from maskport.export.check.checked import CERTIFICATE_KEY
from maskport.export.sites_metadata import SITE_KEY, SITES_KEY, ClaimedSite, claim, read_sites, write_sites
from maskport.models import Causal, Encoder, EncoderLayer, KeyPadding
from maskport.tools import diff

from ..tools.attention_graphs import FAR, attention

UNPADDED = ("attendI = And (windowI, keysI)", "attendI = Identity (windowI)")
CAUSAL = "causal & padding(attention_mask)"


def claiming(proto: onnx.ModelProto, *, by: str = "Softmax", **changes: Any) -> ir.Model:
    """Return a model whose file claims the sites of `attention(FAR)`, or what `changes` say, computed by some nodes."""
    model = ir.from_proto(proto)
    claims = [claim(site) for site in inspect(attention(FAR)).sites]
    write_sites(model, [ClaimedSite(**{**vars(site), **changes}) for site in claims])
    for node in model.graph:
        if node.op_type == by:
            node.metadata_props[SITE_KEY] = claims[0].name
    return model


def certified(model: ir.Model) -> ir.Model:
    """Return a model with the certificate of the file as it is."""
    model.metadata_props[CERTIFICATE_KEY] = json.dumps({"version": 1, "digest": digest_of(model)})
    return model


def test_what_is_written_is_read_back() -> None:
    model = ir.from_proto(attention(3, FAR))
    claims = [claim(site, "com.microsoft.GroupQueryAttention") for site in inspect(model).sites]
    write_sites(model, claims)
    assert list(read_sites(model.metadata_props).values()) == claims
    assert [str(site.mask) for site in claims] == [
        "window(3, 0) & padding(attention_mask)",
        CAUSAL.replace("causal", "window(1000000, 0)"),
    ]
    assert {site.form for site in claims} == {"decomposed"}
    assert read_sites({}) == {}


ENTRY = {**vars(claim(inspect(attention(FAR)).sites[0])), "mask": CAUSAL}


@pytest.mark.parametrize(
    "written",
    [
        "no JSON",
        "[]",
        '{"version": 1}',
        json.dumps({"version": 1, "sites": [{**ENTRY, "mask": "padding("}]}),
        json.dumps({"version": 1, "sites": [{**ENTRY, "q_heads": "four"}]}),
        json.dumps({"version": 1, "sites": [{k: v for k, v in ENTRY.items() if k != "kernel"}]}),
    ],
)
def test_damaged_claims_are_refused(written: str) -> None:
    with pytest.raises(ExportError, match=r"maskport.sites is damaged: .*; make the file again"):
        read_sites({SITES_KEY: written})
    model = ir.from_proto(attention(3))
    model.metadata_props[SITES_KEY] = written
    with pytest.raises(InspectError, match=r"maskport.sites is damaged"):
        inspect(model)


def test_claims_of_another_version_are_refused() -> None:
    with pytest.raises(ExportError, match=r"has version 2, this Maskport reads version 1; update Maskport"):
        read_sites({SITES_KEY: '{"version": 2, "sites": []}'})


def test_export_writes_the_masks_of_the_file() -> None:
    encoder = Encoder(EncoderLayer(16, 2, 32, mask=Causal() & KeyPadding("attention_mask")), num_layers=2).eval()
    inputs = {"src": torch.randn(2, 5, 16), "attention_mask": torch.ones(2, 5, dtype=torch.int64)}
    axes = {0: "batch", 1: "seq"}
    exported = export(encoder, inputs, dynamic_shapes={"src": axes, "attention_mask": axes}, check=False)
    claims = read_sites(exported.model.metadata_props)
    assert list(claims) == ["layers.0.self_attn", "layers.1.self_attn"]
    assert {str(site.mask) for site in claims.values()} == {CAUSAL}
    assert {(site.kernel, site.q_heads, site.head_size) for site in claims.values()} == {("decomposed", 2, 8)}


def test_a_claim_that_the_graph_keeps_is_no_more_than_what_is_read() -> None:
    plain, claimed = inspect(attention(FAR)), inspect(claiming(attention(FAR)))
    assert claimed.sites == plain.sites
    assert claimed.sites[0].verified


@pytest.mark.parametrize("by", ["Tanh", "Softmax"])
def test_a_site_that_can_not_be_read_is_shown_as_claimed(by: str) -> None:
    hidden = ("weightsI = Softmax <axis = -1> (maskedI)", f"weightsI = {by} (maskedI)")
    proto = attention(FAR, replace=hidden if by == "Tanh" else ("Softmax <axis = -1>", "Softmax <axis = 2>"))
    model = claiming(proto, by=by, kernel="com.microsoft.PackedMultiHeadAttention")
    report = inspect(certified(model))
    (site,) = report.sites
    assert (site.name, site.form) == ("layers.0.self_attn", "com.microsoft.PackedMultiHeadAttention")
    assert (str(site.mask), site.verified, site.note) == (
        str(inspect(attention(FAR)).sites[0].mask),
        False,
        "claimed by the file",
    )
    assert report.unlifted == ()
    assert not diff(attention(FAR), report).changed


@pytest.mark.parametrize("by", ["Tanh", "Softmax"])
def test_a_claim_of_a_file_that_was_changed_since_is_not_believed(by: str) -> None:
    hidden = ("weightsI = Softmax <axis = -1> (maskedI)", f"weightsI = {by} (maskedI)")
    proto = attention(FAR, replace=hidden if by == "Tanh" else ("Softmax <axis = -1>", "Softmax <axis = 2>"))
    model = certified(claiming(proto, by=by))
    model.graph.initializers[next(iter(model.graph.initializers))].const_value = ir.tensor(np.float32(7))
    report = inspect(model)
    assert report.sites == ()
    assert next(unlifted.reason for unlifted in report.unlifted if unlifted.attention).endswith(
        "the file claims the mask `window(1000000, 0) & padding(attention_mask)` for it, and is not believed: it was "
        "changed after it had been checked"
    )
    assert diff(attention(FAR), report).changed


@pytest.mark.parametrize("certificate", ["{", "[]", "{}", '{"digest": 7}'])
def test_a_claim_without_a_certificate_is_not_believed(certificate: str) -> None:
    model = claiming(attention(FAR, replace=("Softmax <axis = -1>", "Softmax <axis = 2>")))
    model.metadata_props[CERTIFICATE_KEY] = certificate
    assert inspect(model).sites == ()


def test_a_site_of_several_nodes_is_one() -> None:
    model = claiming(attention(FAR, FAR))
    assert model.graph.metadata_props is not None
    write_sites(model, [next(iter(read_sites(claiming(attention(FAR)).metadata_props).values()))])
    (site,) = inspect(certified(model)).sites
    assert (site.name, site.verified) == ("layers.0.self_attn", False)
    # Changed since, it is what was read of each node.
    model.metadata_props[CERTIFICATE_KEY] = "{}"
    assert [one.verified for one in inspect(model).sites] == [True, True]


NESTED = """
<ir_version: 10, opset_import: ["" : 20]>
nested (float[batch, seq, 8] x, bool flag) => (float[batch, seq, 8] y)
{
    y = If (flag) <
        then_branch = a () => (float[batch, seq, 8] one) { one = Tanh (x) },
        else_branch = b () => (float[batch, seq, 8] two) { two = Softmax (x) }
    >
}
"""


def test_a_site_that_is_computed_in_a_branch_is_shown_as_claimed() -> None:
    model = claiming(onnx.parser.parse_model(NESTED), by="none")
    for node in model.graph.all_nodes():
        if node.op_type == "Softmax":
            node.metadata_props[SITE_KEY] = "layers.0.self_attn"
    (site,) = inspect(certified(model)).sites
    assert (site.name, site.verified, site.note) == ("layers.0.self_attn", False, "claimed by the file")


def test_padding_that_causality_hides_may_be_gone_and_is_said_to_be() -> None:
    report = inspect(claiming(attention(FAR, replace=UNPADDED)))
    (site,) = report.sites
    assert "padding(attention_mask)" in str(site.mask)
    assert not site.verified
    assert site.note == (
        "claimed by the file; its graph masks `window(1000000, 0)`: no valid row sees the padding that it leaves out"
    )
    assert not diff(attention(FAR), report).changed


@pytest.mark.parametrize("window", [3, FAR + 1])
def test_a_graph_that_contradicts_a_claim_is_told(window: int) -> None:
    report = inspect(claiming(attention(window)))
    assert f"window({window}, 0)" in str(report.sites[0].mask)
    assert [unlifted.reason for unlifted in report.unlifted] == [
        f"the file claims the mask `window(1000000, 0) & padding(attention_mask)` for it, and its graph masks "
        f"`window({window}, 0) & padding(attention_mask)`"
    ]
    assert diff(attention(FAR), report).changed


def test_a_window_that_is_longer_than_any_length_may_be_gone() -> None:
    model = claiming(attention(FAR + 1))
    assumes = [{"input": "attention_mask", "check": "length_le:512", "axis": 1, "source": "a test"}]
    model.metadata_props["maskport.assumes"] = json.dumps({"version": 1, "assumes": assumes})
    (site,) = inspect(model).sites
    assert (site.note or "").endswith("the same at any length up to 512")


def test_a_name_alone_is_no_claim() -> None:
    model = claiming(attention(3), by="no such node")
    (site,) = inspect(model).sites
    assert (str(site.mask), site.verified) == ("window(3, 0) & padding(attention_mask)", True)
