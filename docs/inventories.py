"""Names of other projects that the pages link to, in inventories that Sphinx reads offline."""
import zlib
from pathlib import Path

# project: its documentation, and the page of each name
PROJECTS = {
    "numpy": ("https://numpy.org/doc/stable/", {
        "numpy.ndarray": "reference/generated/numpy.ndarray.html",
        "numpy.dtype": "reference/generated/numpy.dtype.html"}),
    "scipy": ("https://docs.scipy.org/doc/scipy/", {
        "scipy.sparse.csr_array": "reference/generated/scipy.sparse.csr_array.html"}),
    "mpi4py": ("https://mpi4py.readthedocs.io/en/stable/", {
        "mpi4py.MPI.Comm": "reference/mpi4py.MPI.Comm.html"}),
    "cupy": ("https://docs.cupy.dev/en/stable/", {
        "cupy.ndarray": "reference/generated/cupy.ndarray.html"}),
}


def write_inventories(folder):
    """Write an inventory for each project; return them as Sphinx's intersphinx_mapping."""
    mapping = {}
    for project, (address, pages) in PROJECTS.items():
        lines = "".join(f"{name} py:class 1 {page} -\n" for name, page in pages.items())
        header = (f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
                  "# The remainder of this file is compressed using zlib.\n")
        path = Path(folder) / f"{project}.inv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(header.encode() + zlib.compress(lines.encode()))
        mapping[project] = (address, str(path))
    return mapping
