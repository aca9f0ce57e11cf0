"""Find the machine files of the package; read those of two devices.

A file in hpgcn/planning/machines is named without its folder and suffix. Its field
"source" gives the origin of the numbers, and the assumptions.
"""
from pathlib import Path
from types import MappingProxyType

from hpgcn.errors import DataError
from hpgcn.planning.seconds.message_seconds import Tier
from hpgcn.planning.seconds.mixed_devices import Aggregator, MixedDevices, Updater
from hpgcn.planning.seconds.step_seconds import FACTORS
from hpgcn.store import Field, check_fields

RATE = Field(float, 1e-15, 1e30)  # quotients of these are numbers
MOST_STAGES = 1 << 20
AGGREGATE = {"adders": RATE, "clock_hz": RATE, "memory_bytes_per_s": RATE,
             "cache_bytes": Field(float, 0, 1e30)}
SHARE = {"masked_share": Field(float, 0, 1)}  # may be left out
UPDATE = {"gemm_float32_flops_per_s": RATE, "gemm_float64_flops_per_s": RATE,
          "memory_bytes_per_s": RATE}
LIMITS = dict.fromkeys(
    ("memory_bytes_per_s", "gemm_float32_flops_per_s", "gemm_float64_flops_per_s"), RATE)
CORES = {"cores": Field(int, 1, 1 << 20)}
DISK = {"read_bytes_per_s": RATE, "write_bytes_per_s": RATE, "both_bytes_per_s": RATE}
GPU_COPIES = {"bytes_per_s": RATE}  # between pinned host memory and a GPU, each way
NETWORK = {"latency_s": RATE, "bytes_per_s": RATE}
# may be left out
MEASURED = {"one_way_bytes_per_s": RATE, "hidden_share": Field(float, 0, 1),
            "collective_latency_s": RATE, "collective_bytes_per_s": RATE}
FACTOR = Field(float, 0, 1e6)
RANKS_PER_NODE = {"ranks_per_node": Field(int, 1, 1 << 20)}
FOLDER = Path(__file__).parents[1] / "machines"
SHIPPED = {path.stem: path for path in sorted(FOLDER.glob("*.json"))}


def machine_path(text):
    """Return the path of a shipped machine file by its name, or `text` itself.

    To use another file with the name of a shipped machine, write ./NAME.
    """
    return SHIPPED.get(str(text), text)


def read_devices(path, found):
    """Return the MixedDevices of a machine file's object, or None.

    It is None if the file does not describe two devices. A DataError names file and
    field in these cases:

    - one of "aggregate" and "update" is missing or no object;
    - a number in them is missing, unknown or out of range;
    - "stages" is no whole number of at least 1;
    - "limits" is given as well.
    """
    if not {"aggregate", "update", "stages"} & set(found):
        return None
    if "limits" in found:
        raise DataError(f"{path}: has both 'limits' and two devices, expected one of them")
    aggregate = numbers_of(path, found, "aggregate", AGGREGATE, SHARE)
    update = numbers_of(path, found, "update", UPDATE)
    stages = {"stages": found.get("stages", 1)}
    check_fields(stages, {"stages": Field(int, 1, MOST_STAGES)}, path)
    return MixedDevices(Aggregator(**aggregate), Updater(**update), stages["stages"])


def read_tier(path, found):
    """Return the attributes of two tiers of a Machine, a dict.

    `within` and `ranks_per_node` from the object of a machine file; {} if it has one
    tier.

    A DataError if one of "within_node" and "ranks_per_node" is missing or invalid, or the
    network between nodes is missing.
    """
    if not {"within_node", "ranks_per_node"} & set(found):
        return {}
    ranks = {"ranks_per_node": found.get("ranks_per_node")}
    check_fields(ranks, RANKS_PER_NODE, path)
    if "network" not in found:
        raise DataError(f"{path}: has 'within_node', but no 'network' between nodes")
    given = numbers_of(path, found, "within_node", NETWORK, MEASURED)
    return ranks | {"within": Tier(
        given["latency_s"], given["bytes_per_s"], given.get("collective_latency_s"),
        given.get("collective_bytes_per_s"), given.get("hidden_share", 0.0))}


def read_steps(path, found):
    """Return the attribute `steps` of a Machine, a dict.

    It comes from the object of a machine file; it is {} if the object has none. A
    DataError if a strategy lacks one of FACTORS, or if one is out of range.
    """
    if "steps" not in found:
        return {}
    check_fields({"steps": found["steps"]}, {"steps": Field(dict)}, path)
    steps = {}
    for name in found["steps"]:
        check_fields({f"steps.{name}": found["steps"][name]}, {f"steps.{name}": Field(dict)}, path)
        given = numbers_of(f"{path}: steps", found["steps"], name, dict.fromkeys(FACTORS, FACTOR))
        steps[name] = tuple(given[factor] for factor in FACTORS)
    return {"steps": steps}


def numbers_of(path, found, group, required, optional=MappingProxyType({}), *, others=False):
    """Return the numbers in one object of a machine file, a dict of float.

    `required` and `optional` are Fields by name. DataError if a number is invalid or a
    required one is missing, and for unknown names unless `others` are allowed.
    """
    check_fields({group: found.get(group)}, {group: Field(dict)}, path)
    named = {f"{group}.{name}": value for name, value in found[group].items()}
    known = {f"{group}.{name}": field for name, field in (required | optional).items()}
    for name in named:
        if name not in known and not others:
            raise DataError(f"{path}: {name} is unknown, expected {' and '.join(known)}")
    check_fields(named, {f"{group}.{name}": field for name, field in required.items()}, path)
    check_fields(named, known, path, whole=False)
    return {name: float(value) for name, value in found[group].items()
            if f"{group}.{name}" in known}
