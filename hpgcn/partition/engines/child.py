"""Run one engine in a child process: `python -m hpgcn.partition.engines.child FOLDER PARENT`.

The process reads settings.json and the .npy arrays of FOLDER, and writes part.npy and
volume.json, or failure.json, there. An engine that crashes, exits or never returns ends
only this process.
"""
import contextlib
import json
import os
import resource
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import numpy as np

from hpgcn.partition.engines.engine_registry import ENGINES
from hpgcn.runtime.machine import die_with_parent


def main(folder, parent):
    """Run the engine that FOLDER names; return the exit code."""
    # the memory limit of the parent is meant for the engine
    die_with_parent(parent)
    tempfile.tempdir = str(folder)  # files that an engine leaves are removed with the folder
    settings = json.loads((folder / "settings.json").read_text())
    engine = ENGINES[settings["engine"]]
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    try:
        # import before the memory limit, which could make an import fail
        import_module(engine.module)
        size = settings["memory"]
        soft = size if hard == resource.RLIM_INFINITY else min(size, hard)
        with contextlib.suppress(OSError, ValueError):  # a system without address-space limits
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

        # run the engine, and write its parts
        arrays = {path.stem: np.load(path) for path in folder.glob("*.npy")}
        part, volume = engine.run(arrays, settings)
        (folder / "volume.json").write_text(json.dumps(volume))
        np.save(folder / "part.npy", part)
    except BaseException as error:  # the parent reports any exception
        failure = {"kind": type(error).__name__, "message": str(error)}
        with contextlib.suppress(OSError, ValueError):  # there may be no memory left for the report
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        (folder / "failure.part").write_text(json.dumps(failure))
        (folder / "failure.part").rename(folder / "failure.json")  # the file is complete or absent
        return 1
    return 0


if __name__ == "__main__":
    # os._exit does not wait for threads and destructors of the engine
    code = main(Path(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.flush()
    os._exit(code)
