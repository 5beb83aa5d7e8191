"""What is known of a model's attention from its graph: names and masks, by node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import onnx


class Site(NamedTuple):
    """An attention of the graph.

    Attributes
    ----------
    name
        The module's, where the graph tells it.
    mask
        The mask that was read back, as text; None if it was not understood.
    """

    name: str | None
    mask: str | None


def sites_of(model: onnx.ModelProto, path: Path, renamed: bool) -> dict[str, Site]:
    """Return the attention of a model by the name of its node: the operator, or the Softmax of what is decomposed.

    Parameters
    ----------
    model, path
        The model, whose nodes all have names, and its file.
    renamed
        Whether the file's nodes have other names.
    """
    from ...export.errors import InspectError
    from ...export.inspector import inspect
    from ...export.tracing.quiet import collected

    # The file, where it can be: a mask's constants may lie in its external data.
    apart = any(tensor.external_data for tensor in model.graph.initializer)
    try:
        with collected():
            report = inspect(model if renamed and not apart else path, check=False)
    except InspectError:
        return {}
    unread = {unlifted.node: Site(None, None) for unlifted in report.unlifted if unlifted.attention}
    return unread | {site.node: Site(site.name, str(site.mask)) for site in report.sites}
