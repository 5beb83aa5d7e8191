"""The stand-in libraries: built at first use from native/, for the ONNX Runtime that is installed."""

from __future__ import annotations

import hashlib
import mmap
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib.metadata import PackageNotFoundError, files, version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ..errors import ToolError

SOURCES = Path(__file__).parent / "native"
CORE = "libmaskport_null.so"
DRIVER, CUDNN = "libcuda.so.1", "libcudnn.so.9"
FLAGS = ("-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-shared")
HEADER_PACKAGES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12")
PROVIDER = "libonnxruntime_providers_cuda.so"


class StandIn(NamedTuple):
    """How a library is stood in for.

    Attributes
    ----------
    source
        Its file in native/; None if every call is an unknown one.
    not_supported
        The code by which it refuses a call that the source doesn't have.
    by_name
        Pattern of the functions that the provider looks up by name, so that its list of symbols misses them.
    """

    source: str | None
    not_supported: int
    by_name: bytes | None = None


# By the library's name without its version. The codes are those of the CUDA headers for "not supported".
STAND_INS = {
    "libcudart": StandIn("runtime.cpp", 801),
    "libcuda": StandIn("driver.cpp", 801, rb"\0(cu[A-Z][a-z]{2,}[A-Z]\w+)(?=\0)"),
    "libcublas": StandIn("blas.cpp", 15),
    "libcublasLt": StandIn("blaslt.cpp", 15),
    "libcurand": StandIn(None, 1),
    "libcudnn": StandIn("dnn.cpp", 3000, rb"\0(cudnn[A-Z]\w+)(?=\0)"),
    "libcufft": StandIn(None, 16),
    "libnvrtc": StandIn(None, 1),
}


@cache
def stand_ins() -> Path:
    """Return the folder of the stand-in libraries, building them if they aren't there; cuDNN is in ``cudnn`` below it.

    Raises
    ------
    ToolError
        If this machine or what is installed can't have them; the message says what to do.
    """
    provider, compiler = _provider(), _compiler()
    runtime = next((name for name in _needed(provider) if name.startswith("libcudart.so.")), "")
    headers = _headers(runtime.rpartition(".")[2])
    key = hashlib.sha256()
    for path in (Path(__file__), *sorted(SOURCES.rglob("*"))):
        key.update(path.read_bytes() if path.is_file() else b"")
    stat = provider.stat()
    facts = (compiler, _said_by(compiler, "--version"), headers, stat.st_size, stat.st_mtime_ns)
    key.update(repr(facts).encode())
    folder = _cache() / key.hexdigest()[:20]
    if not folder.is_dir():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            what = f"the stand-in libraries can't be kept in {folder.parent}: {error.strerror}; set XDG_CACHE_HOME"
            raise ToolError(what) from error
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            _build(Path(made), provider, headers, compiler)
            try:
                # Another process may have been faster.
                Path(made).rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
            Path(made).mkdir(exist_ok=True)
    return folder


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "maskport" / "dryrun"


def _provider() -> Path:
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        raise ToolError(f"the dry run needs Linux on x86-64; this is {platform.system()} on {platform.machine()}")
    found = find_spec("onnxruntime")
    if found is None or found.origin is None:
        raise ToolError("the dry run needs onnxruntime-gpu, which is not installed; pip install 'maskport[dryrun]'")
    provider = Path(found.origin).parent / "capi" / PROVIDER
    if not provider.is_file():
        raise ToolError(
            "the installed onnxruntime has no CUDA provider; "
            "pip uninstall -y onnxruntime && pip install 'maskport[dryrun]' brings onnxruntime-gpu"
        )
    return provider


def _headers(cuda: str) -> Path:
    """Return the folder of NVIDIA's headers for a major version of CUDA."""
    found = []
    for package in HEADER_PACKAGES:
        try:
            version(package)
        except PackageNotFoundError:
            continue
        for path in files(package) or ():
            if path.name == "cuda_runtime_api.h":
                header = Path(str(path.locate())).resolve()
                text = header.read_text(encoding="utf-8", errors="replace")
                defined = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", text)
                found.append(str(int(defined[1]) // 1000) if defined else "no known version")
                if found[-1] == cuda:
                    return header.parent
    package = HEADER_PACKAGES[cuda == "12"]
    if not found:
        raise ToolError(f"the dry run needs NVIDIA's headers: pip install {package}, or 'maskport[dryrun]'")
    have = " and ".join(found)
    raise ToolError(
        f"NVIDIA's headers are of CUDA {have}, ONNX Runtime is built for CUDA {cuda}; pip install {package}"
    )


def _compiler() -> str:
    for name in (os.environ.get("CXX"), "g++", "clang++"):
        if name and (path := shutil.which(name)):
            return path
    raise ToolError("the dry run needs a C++ compiler and finds no g++ or clang++; install one, or name it in CXX")


def _said_by(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = next(iter(done.stderr.strip().splitlines()), "it said nothing")
        raise ToolError(f"{Path(command[0]).name} failed while the stand-in libraries were built: {said}")
    return done.stdout


def _build(folder: Path, provider: Path, headers: Path, compiler: str) -> None:
    include = ("-I", str(SOURCES), "-I", str(headers))
    (folder / "cudnn").mkdir()
    _said_by(compiler, *FLAGS, *include, str(SOURCES / "core.cpp"), f"-Wl,-soname,{CORE}", "-o", str(folder / CORE))
    undefined = _undefined(provider)
    # The last two are opened by name, or needed as well.
    for soname in dict.fromkeys((*_needed(provider), DRIVER, CUDNN)):
        name = soname.partition(".so")[0]
        stand_in = STAND_INS.get(name)
        if stand_in is None:
            continue
        functions = set(undefined.get(soname, ()))
        if name == "libcuda":
            functions.update(symbol for symbol in undefined[""] if re.match("cu[A-Z]", symbol))
        if stand_in.by_name is not None:
            functions.update(_strings(provider, stand_in.by_name))
        rest = folder / f"{name}.cpp"
        rest.write_text(_unknown_calls(functions, stand_in.not_supported))
        # Each library's symbols carry its own name as their version.
        symbols = folder / f"{name}.map"
        symbols.write_text(f"{soname} {{ global: *; }};\n")
        sources = [str(rest), *([str(SOURCES / stand_in.source)] if stand_in.source else [])]
        out = folder / "cudnn" / soname if soname == CUDNN else folder / soname
        link = ("-L", str(folder), f"-l:{CORE}", f"-Wl,-soname,{soname}", f"-Wl,--version-script,{symbols}")
        _said_by(compiler, *FLAGS, *include, *sources, *link, "-o", str(out))


def _needed(library: Path) -> list[str]:
    return re.findall(r"\(NEEDED\).*\[(lib\S+)\]", _said_by("readelf", "-d", str(library)))


def _undefined(library: Path) -> dict[str, list[str]]:
    """Return the symbols that a library wants, by the version that they must have."""
    found: dict[str, list[str]] = {"": []}
    for line in _said_by("nm", "-D", "--undefined-only", str(library)).splitlines():
        symbol, _, wanted = line.split()[-1].partition("@")
        found.setdefault(wanted, []).append(symbol)
    return found


def _strings(library: Path, pattern: bytes) -> set[str]:
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return {match.decode() for match in re.findall(pattern, data)}


def _unknown_calls(functions: set[str], code: int) -> str:
    """Return C++ that logs and refuses every function; where a stand-in has one itself, its own goes first."""
    weak = '__attribute__((weak, visibility("default"))) int'
    lines = [f'{weak} {name}() {{ null_device::unknown("{name}"); return {code}; }}' for name in sorted(functions)]
    return '#include "core.h"\nextern "C" {\n' + "\n".join(lines) + "\n}\n"
