"""The command line. Exit codes: 0 clean; 1 it ran and found something wrong; 2 it could not run."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from .child import TIMEOUT
from .commands import Command, Commands, Verbose
from .screen import Screen

app = typer.Typer(
    name="maskport",
    help="PyTorch attention to ONNX Runtime without losing what its masks mean.",
    epilog="Exit codes: 0 done and clean; 1 it ran and found something wrong; 2 it could not run.",
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
)

SPEC = "A built-in name (see `maskport models`), package.module:callable, path.py:callable or hf:FOLDER."
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else.")]
Inputs = Annotated[
    Path | None, typer.Option(help="A .npz, .json or .npy file of inputs.", show_default="they are drawn")
]
Sizes = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="NAME:DIMxDIM", help="Shape of a drawn input; may be repeated."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]


def main() -> None:
    """Run the command line."""
    app()


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"maskport {version('maskport')}")
        raise typer.Exit


@app.callback()
def common(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, metavar="", help="Show the version and exit."),
    ] = False,
) -> None:
    """Take the options that stand before a command."""


# Each command imports what it needs when it is called: the help must not wait for torch or ONNX Runtime.
# It returns its exit code and prints through its screen alone; what the libraries print is collected meanwhile.


@app.command(cls=Command)
def models(context: typer.Context, as_json: Json = False, verbose: Verbose = False) -> int:
    """List the built-in models."""
    from .builtin import BUILTINS
    from .tables import plain_table

    screen: Screen = context.obj
    if as_json:
        rows = [{"name": name, "mask": str(model.mask), "what": model.what} for name, model in BUILTINS.items()]
        screen.json({"format": 1, "models": rows})
        return 0
    table = plain_table("name", "what, and the mask of its self-attention")
    for name, model in BUILTINS.items():
        table.add_row(name, f"{model.what}\n[cyan]{model.mask}[/]")
    screen.out.print(table)
    return 0


@app.command(cls=Command)
def export(
    context: typer.Context,
    spec: Annotated[str, typer.Argument(metavar="SPEC", help=SPEC, show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.", show_default=False)],
    opset: Annotated[int | None, typer.Option(help="ONNX operator set.", show_default="the exporter's")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="float32, float16, bfloat16 or float64.", show_default="the module's")
    ] = None,
    strip_traces: Annotated[
        bool, typer.Option("--strip-traces", help="Drop the lines of source that each node came from.")
    ] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Export a module to ONNX, and check the file against the module before it is written."""
    from ..export import export
    from .export_report import report_json, report_table
    from .files import check_output
    from .spec import load

    screen: Screen = context.obj
    check_output(output)
    with screen.progress(f"Export and check {spec}"):
        source = load(spec)
        exported = export(
            source.module,
            source.example_inputs,
            output,
            dynamic_shapes=source.dynamic_shapes,
            opset_version=opset,
            dtype=dtype,
            strip_traces=strip_traces,
        )
    screen.messages.extend(exported.warnings)
    if as_json:
        screen.json(report_json(exported, output))
    else:
        screen.out.print(report_table(exported, output))
    return 0


@app.command(cls=Command)
def inspect(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(metavar="IN.onnx", help="The model.", show_default=False)],
    page: Annotated[Path | None, typer.Option("--html", help="A page to write.", show_default=False)] = None,
    no_check: Annotated[bool, typer.Option("--no-check", help="Read masks without running their graphs.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Find every attention of a model, and read its mask back; exit code 1 if one is not understood."""
    from .inspect_command import inspect_command

    return inspect_command(context.obj, model, page, not no_check, as_json)


@app.command(cls=Command)
def diff(
    context: typer.Context,
    old: Annotated[Path, typer.Argument(metavar="OLD.onnx", help="A model.", show_default=False)],
    new: Annotated[
        Path | None, typer.Argument(metavar="NEW.onnx", help="Another; none with --git.", show_default=False)
    ] = None,
    revision: Annotated[
        str | None,
        typer.Option(
            "--git",
            metavar="REV",
            help="Compare OLD.onnx of this revision with the file as it is now.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Compare what the masks of two models mean; exit code 1 if any attention is not the same."""
    from .diff_command import diff_command, diff_committed
    from .errors import ToolError

    if (new is None) == (revision is None):
        raise ToolError("give two models to compare, or one and --git REV, a revision that has it")
    if new is None:
        return diff_committed(context.obj, old, str(revision), as_json)
    return diff_command(context.obj, old, new, as_json)


@app.command(cls=Command)
def optimize(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(metavar="IN.onnx", help="The model.", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.", show_default=False)],
    target: Annotated[str, typer.Option(help="cpu, cuda, or cuda:smNN for one kind of GPU.")] = "cpu",
    dtype: Annotated[
        str | None, typer.Option(help="float32, float16 or bfloat16 (cuda).", show_default="the model's own")
    ] = None,
    padding_rows: Annotated[
        str, typer.Option(help="What rows of padding become: any (finite), zero, or keep (as in the source).")
    ] = "any",
    assume: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FACT", help="right-padding, left-padding or length_le:N; may be repeated.", show_default="nothing"
        ),
    ] = None,
    repair: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A repair to apply; may be repeated.", show_default="none")
    ] = None,
    packing: Annotated[
        str, typer.Option(help="How padding is left out: auto, graph, host (indices are inputs) or none.")
    ] = "auto",
    autotune: Annotated[
        bool, typer.Option("--autotune", help="Measure on this machine which form is fastest (target cpu).")
    ] = False,
    shapes: Annotated[
        list[str] | None,
        typer.Option("--shape", metavar="BxS", help="A size to measure at; may be repeated.", show_default="8x256"),
    ] = None,
    fill: Annotated[
        float | None, typer.Option(help="Share of tokens that is real, to measure at.", show_default="0.36")
    ] = None,
    no_check: Annotated[bool, typer.Option("--no-check", help="Write the result without running it.")] = False,
    html: Annotated[Path | None, typer.Option("--html", help="A page to write.", show_default=False)] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Make a model fast by what its masks mean; exit code 1 if the result is not the source: nothing is written."""
    from .errors import ToolError
    from .optimize_command import optimize_command

    if not autotune and (shapes or fill is not None):
        raise ToolError("--shape and --fill are sizes to measure at; give --autotune, too")

    return optimize_command(
        context.obj,
        model,
        output,
        target,
        dtype,
        padding_rows,
        assume or (),
        repair or (),
        packing,
        (shapes or (), fill) if autotune else None,
        not no_check,
        as_json,
        html,
    )


@app.command(cls=Command)
def validate(
    context: typer.Context,
    candidate: Annotated[Path, typer.Argument(metavar="CANDIDATE", help="An .onnx file.", show_default=False)],
    against: Annotated[
        str | None,
        typer.Option(metavar="REFERENCE", help="An .onnx file, or a SPEC as of `maskport export`.", show_default=False),
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option(help="A .npz, .json or .npy file of example inputs.", show_default="REFERENCE's own")
    ] = None,
    expect: Annotated[
        str | None,
        typer.Option(
            metavar="MASK",
            help='What its self-attention must mean, such as "causal & padding(attention_mask)".',
            show_default="the masks that are read from its graph",
        ),
    ] = None,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Plant mask faults in the file, and tell what catches them.")
    ] = False,
    repeat: Annotated[
        bool, typer.Option("--replay", help="Do again what the file's certificate says was done, and compare.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Try one size instead of all.")] = False,
    seed: Annotated[int, typer.Option(help="Of all that is drawn.")] = 0,
    tolerances: Annotated[
        list[str] | None,
        typer.Option(
            "--tolerance",
            metavar="NAME=NUMBER",
            help="What an output, or an element type, may differ by; may be repeated.",
            show_default="what rounding does",
        ),
    ] = None,
    repro: Annotated[
        Path | None,
        typer.Option(help="A folder for the smallest case that fails, with a script.", show_default=False),
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="The longest that one run of a file may take.")
    ] = TIMEOUT,
    junit: Annotated[Path | None, typer.Option(help="A JUnit report to write.", show_default=False)] = None,
    html: Annotated[Path | None, typer.Option("--html", help="A page to write.", show_default=False)] = None,
    form: Annotated[str, typer.Option("--format", help="text, json or github (text, and annotations).")] = "text",
    device: Device = "cpu",
    as_json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Hold a file to what its masks mean, and compare it with a module or another file at many sizes and paddings."""
    from .errors import ToolError
    from .files import check_output
    from .formats import known_format
    from .validate_command import self_test_command, validate_command
    from .validation_asked import Asked

    form = known_format(form, ("text", "json", "github"), as_json)
    for written in (junit, html):
        if written is not None:
            check_output(written)
    screen: Screen = context.obj
    if repeat:
        from .replay_command import replay_command, show

        unfit = {"--expect": expect is not None, "--repro": repro is not None, "--html": html is not None}
        unfit |= {"--self-test": self_test, "--quick": quick, "--seed": seed != 0, "--tolerance": bool(tolerances)}
        replayed = replay_command(screen, candidate, against, inputs, device, timeout, unfit)
        if junit is not None:
            junit.parent.mkdir(parents=True, exist_ok=True)
            junit.write_text(replayed.verdict.to_junit(), encoding="utf-8")
        show(screen, replayed, candidate, form)
        return int(not replayed.ok)
    if self_test:
        if html is not None:
            raise ToolError("--self-test writes no page: leave out --html")
        tested = self_test_command(screen, candidate, timeout)
        if form == "json":
            screen.json(tested.to_json())
        else:
            from .mutants.table import self_test_table

            screen.out.print(self_test_table(tested))
        return int(not tested.ok)
    asked = Asked(against, inputs, expect, quick, device, seed, tolerances or (), repro, timeout, html, form != "json")
    verdict = validate_command(screen, candidate, asked)
    if junit is not None:
        junit.parent.mkdir(parents=True, exist_ok=True)
        junit.write_text(verdict.to_junit(), encoding="utf-8")
    if form == "json":
        screen.json(verdict.to_json())
    else:
        from .verdict_table import conclusion, findings_table, verdict_table

        if verdict.cases:
            screen.out.print(verdict_table(verdict))
            screen.out.print()
        screen.out.print(findings_table(verdict))
        screen.out.print(conclusion(verdict, str(candidate), against), soft_wrap=True)
    if form == "github":
        from .annotations import verdict_annotations

        screen.lines(verdict_annotations(verdict, candidate))
    return int(not verdict.ok)


@app.command(cls=Command)
def lint(
    context: typer.Context,
    model: Annotated[Path | None, typer.Argument(metavar="IN.onnx", help="The model.", show_default=False)] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(metavar="CODE", help="Rules to run, by the beginning of their codes; may be repeated."),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="CODE", help="Rules to leave out; may be repeated.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="text, json, github or sarif.")] = "text",
    known: Annotated[
        bool, typer.Option("--known", help="Instead, try known faults of the installed packages.")
    ] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Look for known faults of masks in a model; exit code 1 if there are errors or warnings."""
    from .errors import ToolError
    from .formats import known_format
    from .lint_command import FORMATS, known_command, lint_command

    form = known_format(form, FORMATS, as_json)
    if known:
        return known_command(context.obj, form == "json")
    if model is None:
        raise ToolError("there is no model to lint; give the path of an ONNX file, or --known")
    return lint_command(context.obj, model, select or (), ignore or (), form)


@app.command(cls=Command)
def explain(
    context: typer.Context,
    code: Annotated[str, typer.Argument(metavar="CODE", help="For example MP101.", show_default=False)],
    as_json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Explain a rule of `maskport lint`: what it finds, why it matters, and what to do."""
    from .lint_command import explain_command

    return explain_command(context.obj, code, as_json)


@app.command(cls=Command)
def dryrun(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(metavar="IN.onnx", help="The model.", show_default=False)],
    sm: Annotated[int, typer.Option(help="Compute capability: 75, 80, 86, 89, 90 or 120.")] = 90,
    inputs: Inputs = None,
    sizes: Sizes = None,
    cudnn: Annotated[
        str, typer.Option(help="How cuDNN answers: accept, refuse, old (before 9.3) or absent.")
    ] = "accept",
    options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Of the CUDA provider; may be repeated."),
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(metavar="OTHER.onnx", help="A model to set beside it.", show_default=False)
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="For example launches=40,d2h=1,attention=flash+cudnn; exit code 1 if over.", show_default=False
        ),
    ] = None,
    page: Annotated[Path | None, typer.Option("--html", help="A page to write.", show_default=False)] = None,
    no_graph: Annotated[bool, typer.Option("--no-graph", help="Don't try to capture a CUDA graph.")] = False,
    seconds: Annotated[float, typer.Option("--timeout", help="Seconds that each run may take.")] = 120,
    memory: Annotated[float, typer.Option(help="GB of the host's memory that each run may take.")] = 4,
    as_json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Show the CUDA kernels that a model launches, without a GPU."""
    from .dryrun_command import Asked, dryrun_command

    asked = Asked(sm, cudnn, inputs, sizes or (), options or (), compare, budget, page, not no_graph, seconds, memory)
    return dryrun_command(context.obj, model, asked, as_json)


@app.command(cls=Command)
def run(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(metavar="IN.onnx", help="The model.", show_default=False)],
    inputs: Inputs = None,
    sizes: Sizes = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A .npz file for the outputs.", show_default=False)
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Run a model once and print its outputs in figures; exit code 1 if NaN comes out where none went in."""
    from ..runtime import Session
    from .errors import ToolError
    from .files import check_output, save_arrays
    from .inputs import draw_inputs, parse_sizes, read_inputs
    from .run import summarise, summary_table

    screen: Screen = context.obj
    if output is not None:
        check_output(output)
    if inputs is not None and sizes:
        raise ToolError("--inputs and --input were both given; --input is for inputs that are drawn")
    drawn = parse_sizes(sizes or ())
    with screen.progress(f"Run {model.name}"):
        session = Session(model, device=device)
        given = draw_inputs(session, drawn) if inputs is None else read_inputs(inputs, session)
        results = session.run(given)
    if output is not None:
        save_arrays(output, results)
    before, after = summarise(given), summarise(results)
    wrong = any(summary.nans for summary in after) and not any(summary.nans for summary in before)
    if as_json:
        screen.json(
            {
                "format": 1,
                "model": str(model),
                "device": session.device,
                "ok": not wrong,
                "inputs": [summary.to_json() for summary in before],
                "outputs": [summary.to_json() for summary in after],
            }
        )
    else:
        screen.out.print(f"{model} on {session.device}, inputs {'drawn' if inputs is None else f'of {inputs}'}\n")
        screen.out.print(summary_table("input", before))
        screen.out.print()
        screen.out.print(summary_table("output", after))
        if wrong:
            screen.out.print("\n[bold red]NaN[/] came out, though none went in.")
    return int(wrong)


@app.command(cls=Command)
def bench(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="An .onnx file, a SPEC, a built-in subject (minilm, encoder, decoder, ...), or a .json of `--json`.",
            show_default=False,
        ),
    ],
    against: Annotated[
        list[Path] | None, typer.Option(metavar="F.onnx", help="Another file with the same inputs; may be repeated.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A candidate; may be repeated.", show_default="all but torch.compile"),
    ] = None,
    sweep: Annotated[
        list[str] | None, typer.Option(metavar="AXIS", help="fill, batch or length; may be repeated.")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Rows of the first point.", show_default="16")] = None,
    length: Annotated[int | None, typer.Option(help="Tokens of its longest row.", show_default="128")] = None,
    fill: Annotated[float | None, typer.Option(help="Share of its tokens that is real.", show_default="0.36")] = None,
    inputs: Inputs = None,
    quick: Annotated[bool, typer.Option("--quick", help="Three rounds of each point.")] = False,
    budget: Annotated[float, typer.Option(help="Seconds for the rounds of all points together.")] = 600.0,
    plot: Annotated[Path | None, typer.Option(help="A .svg or .png to draw.", show_default=False)] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Measure a model beside what others make of it, side by side; exit code 1 if our own file is wrong."""
    from .bench_command import bench_command

    sizes = (batch, length, fill)
    return bench_command(
        context.obj, model, against or (), only or (), sweep or (), sizes, inputs, quick, budget, plot, as_json
    )


@app.command(cls=Command)
def demo(
    context: typer.Context,
    folder: Annotated[Path, typer.Option(help="Where the exported files stay.")] = Path("build/demo"),
    verbose: Verbose = False,
) -> int:
    """Export a reference encoder and all-MiniLM-L6-v2, and compare both with PyTorch."""
    from .demo import run

    return 0 if run(folder, context.obj) else 1
