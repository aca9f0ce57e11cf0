"""HDF5 files of graphs, partitioned graphs, models, predictions and checkpoints.

Only this package uses h5py. docs/files.md specifies the contents.

Readers raise InputNotFoundError for a file that does not exist or cannot be opened.
They raise DataError for one that is incomplete, inconsistent or refused, naming file,
dataset and index. They raise StorageError if reading failed or a checksum does not
match. Writers raise OutputError for a file that exists, unless `overwrite` is true, or
cannot be created. They raise StorageError if the disk is full or writing failed; no
file is left.
"""
from hpgcn.runtime.atomic import (
    atomic_write,
    check_suffix,
    discard,
    refuse_existing,
    replacing_folder,
    writing,
)
from hpgcn.runtime.files import file_sha256
from hpgcn.store.graph_files import in_parts_already, load, save, write_graph, write_partitioned
from hpgcn.store.json_fields import Field, check_fields, parse_json, read_json, read_lines
from hpgcn.store.model_files import (
    SCALE,
    read_model,
    read_model_classes,
    read_predictions,
    read_state,
    write_model,
    write_predictions,
    write_state,
)
from hpgcn.store.prediction_files import prediction_writer
from hpgcn.store.stored import StoredGraph

__all__ = [
    "SCALE", "Field", "StoredGraph", "atomic_write", "check_fields", "check_suffix", "discard",
    "file_sha256", "in_parts_already", "load", "parse_json", "prediction_writer", "read_json",
    "read_lines",
    "read_model", "read_model_classes", "read_predictions", "read_state", "refuse_existing",
    "replacing_folder", "save", "write_graph", "write_model", "write_partitioned",
    "write_predictions", "write_state", "writing"]
