"""NVRTC compiles every .cu file as CuPy would; no GPU is needed (extra test)."""
import ctypes
import re
import sys
from ctypes.util import find_library
from pathlib import Path

import pytest
from shim import SOURCES, names_of

from hpgcn.kernels.cuda.gpu_device import OPTIONS, source_text

TYPES = {"as called": (), "wide": ("-DREAL=double", "-DINDEX=long long", "-DPOINTER=int"),
         "halved": ("-DROW=Bf16", "-DOUT=Bf16", "-DFROM=Bf16", "-DTO=float")}


@pytest.fixture(scope="module")
def nvrtc():
    """Load the NVRTC library from a wheel or from the system; skip the test if it is missing."""
    pattern = "nvidia/*/lib/libnvrtc.so.*"
    wheels = [path for folder in sys.path for path in Path(folder or ".").glob(pattern)]
    for name in [*map(str, wheels), find_library("nvrtc")]:
        if name:
            return ctypes.CDLL(name)
    pytest.skip("no NVRTC: pip install nvidia-cuda-nvrtc")


def compiled(nvrtc, text, *options):
    """Compile a source with NVRTC; return (PTX, messages). PTX is empty after an error."""
    program = ctypes.c_void_p()
    failed = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), text.encode(), b"source.cu", 0, None, None)
    assert failed == 0
    try:
        given = (ctypes.c_char_p * len(options))(*map(str.encode, options))
        failed = nvrtc.nvrtcCompileProgram(program, len(options), given)

        def output(kind):
            size = ctypes.c_size_t()
            assert getattr(nvrtc, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)) == 0
            space = ctypes.create_string_buffer(size.value)
            assert getattr(nvrtc, f"nvrtcGet{kind}")(program, space) == 0
            return space.value.decode()

        return "" if failed else output("PTX"), output("ProgramLog").strip()
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


@pytest.mark.long
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("arch, warps", [(75, False), (75, True), (80, True), (90, True)])
@pytest.mark.parametrize("source", SOURCES)
def test_sources_compile(nvrtc, source, arch, warps, types):
    options = [*OPTIONS, f"--gpu-architecture=compute_{arch}", *TYPES[types],
               *["-DHPGCN_GPU_ONLY"] * warps]
    ptx, said = compiled(nvrtc, source_text(source), *options)
    assert not said
    assert set(re.findall(r"\.entry (\w+)\(", ptx)) == set(names_of(source)[warps])
    assert bool(re.search(r"\b(shfl|vote)\.", ptx)) <= warps
    assert not re.search(r"\b(atom|red)\.", ptx)


def test_what_does_not_compile_is_seen(nvrtc):
    ptx, said = compiled(nvrtc, 'extern "C" __global__ void broken() { return 1; }')
    assert not ptx and "error" in said
