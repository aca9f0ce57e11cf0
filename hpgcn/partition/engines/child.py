"""The child process that runs one engine: `python -m hpgcn.partition.engines.child FOLDER PARENT`.

It reads settings.json and the .npy arrays of FOLDER, and leaves part.npy and
volume.json, or failure.json, there. An engine that crashes, exits or never returns
takes only this process along.
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
    tempfile.tempdir = str(folder)  # whatever an engine leaves goes with the folder
    settings = json.loads((folder / "settings.json").read_text())
    engine = ENGINES[settings["engine"]]
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    try:
        # before the memory limit, under which an import that fails means something else
        import_module(engine.module)
        size = settings["memory"]
        soft = size if hard == resource.RLIM_INFINITY else min(size, hard)
        with contextlib.suppress(OSError, ValueError):  # a system without address-space limits
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

        # run the engine, and write what it found
        arrays = {path.stem: np.load(path) for path in folder.glob("*.npy")}
        part, volume = engine.run(arrays, settings)
        (folder / "volume.json").write_text(json.dumps(volume))
        np.save(folder / "part.npy", part)
    except BaseException as error:  # whatever it is, the parent reports it
        failure = {"kind": type(error).__name__, "message": str(error)}
        with contextlib.suppress(OSError, ValueError):  # there may be no memory left to report it
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        (folder / "failure.part").write_text(json.dumps(failure))
        (folder / "failure.part").rename(folder / "failure.json")  # whole, or not there
        return 1
    return 0


if __name__ == "__main__":
    # os._exit: an engine's own threads and destructors have nothing left to say
    code = main(Path(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.flush()
    os._exit(code)
