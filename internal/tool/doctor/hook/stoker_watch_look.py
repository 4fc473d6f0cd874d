"""What can be told of a batch and of a dataset by looking at them.

Looking runs none of the script's code: attributes are read from __dict__, sizes are asked of built-in types, tensors
and arrays only. Nothing is pickled, copied to a device or synchronised with one.
"""

import sys
from itertools import islice

DEPTH = 4
TENSORS = 32  # of a batch that are looked at
ROWS = 8  # of a tensor that are searched for padding
COLUMNS = (8, 8192)  # narrower is not a sequence, wider is not a token tensor
SAMPLED = 64  # items of a container that stand for all of it
VISITS = 4000  # objects that a look at a dataset may touch


def _tensor_type() -> type:
    return sys.modules["torch"].Tensor


def _array_type() -> "type | None":
    numpy = sys.modules.get("numpy")
    return None if numpy is None else numpy.__dict__.get("ndarray")


def leaves(data: object, depth: int = DEPTH, key: str = "") -> list:
    """(key, tensor, array, text or bytes) of a batch in its order, as a collate function nests them."""
    tensor, array = _tensor_type(), _array_type()
    if isinstance(data, (tensor, str, bytes)) or array is not None and isinstance(data, array):
        return [(key, data)]
    if depth == 0:
        return []
    if isinstance(data, dict):
        inner = list(data.items())
    elif isinstance(data, (list, tuple)):
        inner = [(key, item) for item in data[:512]]
    else:
        inner = list(getattr(data, "__dict__", {}).items())
    found = []
    for name, item in inner:
        found.extend(leaves(item, depth - 1, str(name)))
        if len(found) >= 512:
            break
    return found


def batch(data: object) -> dict:
    """Bytes, samples, shape, pinned and padding of one batch; a figure that it does not show is None."""
    tensor = _tensor_type()
    size, samples, shapes, tensors = 0, None, [], []
    for key, leaf in leaves(data):
        if isinstance(leaf, (str, bytes)):
            size += len(leaf)
            continue
        if isinstance(leaf, tensor):
            if leaf.layout is not sys.modules["torch"].strided or getattr(leaf, "is_nested", False):
                continue
            size += leaf.element_size() * leaf.numel()
            tensors.append((key, leaf))
        else:
            size += leaf.nbytes
        shape = list(leaf.shape)
        if shape and samples is None:
            samples = shape[0]
        if len(shapes) < TENSORS:
            shapes.append(f"[{shape},{str(leaf.dtype).removeprefix('torch.')}]".replace(" ", ""))
    return {
        "bytes": size,
        "samples": samples,
        "shape": ",".join(shapes),
        "pinned": _pinned([t for _, t in tensors]),
        "padding": padding(tensors[:TENSORS]),
    }


def cuda() -> bool:
    """Whether this process has begun with CUDA; asking does not begin."""
    module = sys.modules.get("torch.cuda")
    return bool(module is not None and module.is_initialized())


def _pinned(tensors: list) -> "bool | None":
    """Asked only of a process that has CUDA already: elsewhere the question itself may start it."""
    on_host = [t for t in tensors if t.device.type == "cpu" and t.numel()]
    if not on_host or not cuda():
        return None
    return all(t.is_pinned() for t in on_host[:4])


def padding(tensors: list) -> "float | None":
    """The share of a batch of sequences that is filling: by its attention mask, else by what its rows end in."""
    for key, leaf in tensors:
        if key == "attention_mask" and leaf.dim() == 2 and leaf.device.type == "cpu" and leaf.numel():
            rows = _rows(leaf)
            return 1.0 - sum(sum(1 for x in row if x) for row in rows) / sum(map(len, rows))
    shares = [share for _, leaf in tensors if (share := _filling(leaf)) is not None]
    return max(shares) if shares else None


def _rows(leaf) -> list:
    """Some rows, evenly spread, as lists. No torch operation runs: it could start a pool of threads before a fork."""
    count = leaf.shape[0]
    return [leaf[i * count // ROWS].tolist() if count > ROWS else leaf[i].tolist() for i in range(min(count, ROWS))]


def _filling(leaf) -> "float | None":
    if leaf.dim() != 2 or leaf.device.type != "cpu" or leaf.is_floating_point() or leaf.element_size() < 2:
        return None
    if not COLUMNS[0] <= leaf.shape[1] <= COLUMNS[1] or leaf.shape[0] < 2:
        return None
    rows = _rows(leaf)
    ends: dict = {}
    for row in rows:
        run = 1
        while run < len(row) and row[-run - 1] == row[-1]:
            run += 1
        if run > 1:
            ends.setdefault(row[-1], []).append(run)
    # Sequences, not one-hot rows or masks: many different numbers, and one that ends most of the rows.
    if len(set().union(*rows)) < 4:
        return None
    runs = max(ends.values(), key=len, default=[])
    if len(runs) * 2 < len(rows) and len(runs) < len(rows) - 1:
        return 0.0
    return sum(runs) / sum(map(len, rows))


def attributes(dataset: object) -> dict:
    found = getattr(dataset, "__dict__", None)
    return dict(found) if isinstance(found, dict) else {}


def fingerprint(dataset: object) -> dict:
    """A token for each attribute that changes when the dataset counts, collects or remembers.

    Objects count by their type only, and None not at all: a file opened at the first sample is not state.
    """
    tokens: dict = {}
    for name, value in attributes(dataset).items():
        kind = type(value)
        if value is None:
            continue
        if kind in (int, float, bool):
            tokens[name] = (kind, value)
        elif kind in (str, bytes):
            tokens[name] = (kind, value if len(value) <= 256 else len(value))
        elif kind in (list, dict, set, tuple, bytearray):
            tokens[name] = (kind, len(value))
        else:
            tokens[name] = (kind, None)
    return tokens


def changed(before: dict, after: dict) -> list:
    return [name for name, token in before.items() if name in after and after[name] != token]


def handles(dataset: object, depth: int = 2) -> list:
    """Names of the types of what the dataset holds open, so that its forked workers would share the place in it."""
    found: list = []
    for value in attributes(dataset).values():
        items = [value]
        if type(value) in (list, tuple):
            items = list(value[:16])
        elif type(value) is dict:
            items = list(islice(value.values(), 16))
        for item in items:
            name = _handle(item)
            if name is not None and name not in found:
                found.append(name)
            elif name is None and depth and _is_dataset(item):
                found.extend(n for n in handles(item, depth - 1) if n not in found)
    return found


def on_device(dataset: object, depth: int = 2) -> list:
    """Names of the attributes whose tensors or modules are on a CUDA device: its forked workers cannot use them."""
    found: list = []
    for name, value in attributes(dataset).items():
        if _is_dataset(value):
            found.extend(f"{name}.{inner}" for inner in (on_device(value, depth - 1) if depth else ()))
            continue
        items = [value]
        if type(value) in (list, tuple):
            items = list(value[:16])
        elif type(value) is dict:
            items = list(islice(value.values(), 16))
        if any(map(_on_device, items)):
            found.append(name)
    return found[:8]


def _on_device(item: object) -> bool:
    """Of a module, its first parameter or buffer speaks for all of it."""
    modules = sys.modules.get("torch.nn.modules.module")
    for _ in range(8):  # of modules that are inside each other
        if modules is None or not isinstance(item, modules.Module):
            break
        inside = item.__dict__
        own = [x for kind in ("_parameters", "_buffers") for x in inside.get(kind, {}).values() if x is not None]
        item = own[0] if own else next(iter(inside.get("_modules", {}).values()), None)
    return isinstance(item, _tensor_type()) and item.device.type == "cuda"


def _is_dataset(item: object) -> bool:
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(item, (data.Dataset, data.IterableDataset))


def _handle(item: object) -> "str | None":
    io = sys.modules["io"]
    for kind in type(item).__mro__:
        name = f"{kind.__module__}.{kind.__qualname__}"
        if name in ("h5py._hl.files.File", "h5py.File"):
            return "h5py.File" if item.id.valid else None
        if name == "h5py._hl.dataset.Dataset":
            return "h5py.Dataset" if item.id.valid else None
        if name in ("Environment", "builtins.Environment", "lmdb.Environment", "lmdb.cpython.Environment"):
            return "lmdb.Environment"
        if name in ("Transaction", "builtins.Transaction", "lmdb.Transaction", "lmdb.cpython.Transaction"):
            return "lmdb.Transaction"
        if name == "zipfile.ZipFile":
            return name if item.fp is not None else None
        if name == "tarfile.TarFile":
            return None if item.closed else name
        if name == "socket.socket":
            return name if item.fileno() != -1 else None
        if name == "sqlite3.Connection":
            return name
    if isinstance(item, io.IOBase) and not isinstance(item, (io.BytesIO, io.StringIO)):
        return None if item.closed else "file"
    return None


def pickled_bytes(value: object) -> "int | None":
    """About what pickling the dataset would write, by the size of some items of each container.

    Nothing is pickled: that would run __getstate__ of the script's classes, which may close files, and hold the
    script for as long as its index is large. What a class adds by a __reduce__ of its own is not seen.
    """
    try:
        return int(_size(value, _Visits()))
    except Exception:
        return None


class _Visits:
    def __init__(self) -> None:
        self.left = VISITS
        self.seen: set = set()


def _size(value: object, visits: _Visits, depth: int = 8) -> float:
    visits.left -= 1
    kind = type(value)
    if value is None or kind is bool:
        return 1
    if kind is int:
        return 2 if 0 <= value < 256 else 3 if 0 <= value < 65536 else 5 if value.bit_length() < 32 else 11
    if kind is float:
        return 9
    if kind is str:
        return 3 + len(value) if value.isascii() else 3 + 2 * len(value)
    if kind in (bytes, bytearray):
        return 4 + len(value)
    if id(value) in visits.seen or depth == 0 or visits.left <= 0:
        return 3
    visits.seen.add(id(value))
    if kind in (list, tuple):
        step = max(1, len(value) // SAMPLED)
        return 4 + _mean(value[::step][:SAMPLED], visits, depth) * len(value)
    if kind in (set, frozenset):
        return 4 + _mean(list(islice(value, SAMPLED)), visits, depth) * len(value)
    if kind is dict:
        keys, values = list(islice(value, SAMPLED)), list(islice(value.values(), SAMPLED))
        return 4 + (_mean(keys, visits, depth) + _mean(values, visits, depth)) * len(value)
    return _object(value, visits, depth)


def _object(value: object, visits: _Visits, depth: int) -> float:
    array = _array_type()
    if array is not None and isinstance(value, array):
        if value.dtype.hasobject:
            flat = value.reshape(-1)
            return 100 + _mean(flat[:: max(1, len(flat) // SAMPLED)][:SAMPLED].tolist(), visits, depth) * len(flat)
        return 150 + value.nbytes
    if isinstance(value, (_tensor_type(), type, type(sys), type(_size))):
        return 100  # by reference: a tensor goes to a worker as a handle of shared memory
    return 50 + sum(_size(x, visits, depth - 1) for x in attributes(value).values())


def _mean(items: list, visits: _Visits, depth: int) -> float:
    """Bytes an item; one that comes again among the sampled is a reference in the pickle."""
    if not items:
        return 0
    known: set = set()
    total = 0.0
    for item in items:
        total += 3 if id(item) in known and not isinstance(item, (int, float)) else _size(item, visits, depth - 1)
        known.add(id(item))
    return total / len(items)


def name_of(dataset: object, number: int, depth: int = 3) -> "str | None":
    """What a dataset calls a sample: the path or name in a list of its own that is as long as the dataset, where it
    has one; through a Subset."""
    inside = attributes(dataset)
    if depth and type(dataset).__name__ == "Subset" and isinstance(inside.get("indices"), (list, range)):
        numbers = inside["indices"]
        return name_of(inside.get("dataset"), numbers[number], depth - 1) if 0 <= number < len(numbers) else None
    longest = max((len(x) for x in inside.values() if type(x) in (list, tuple)), default=0)
    for value in inside.values():
        if type(value) in (list, tuple) and 0 <= number < len(value) == longest:
            item = value[number]
            if type(item) in (list, tuple) and item:
                item = item[0]
            if type(item).__name__ in ("PosixPath", "WindowsPath"):
                item = str(item)
            if type(item) is str:
                return item[-120:]
    return None


# Types, by module and name, and what a dataset that holds one reads from.
STORES = {
    "h5py._hl.files.File": "h5py",
    "h5py._hl.dataset.Dataset": "h5py",
    "numpy.memmap": "memmap",
    "numpy.ndarray": "array",
    "numpy.lib._npyio_impl.NpzFile": "npz",
    "numpy.lib.npyio.NpzFile": "npz",
    "sqlite3.Connection": "sqlite",
    "Environment": "lmdb",
    "builtins.Environment": "lmdb",
    "lmdb.Environment": "lmdb",
    "lmdb.cpython.Environment": "lmdb",
    "pandas.core.frame.DataFrame": "pandas",
    "pandas.DataFrame": "pandas",
    "datasets.arrow_dataset.Dataset": "datasets",
    "pyarrow.lib.Table": "arrow",
    "zipfile.ZipFile": "zip",
    "tarfile.TarFile": "tar",
    "mmap.mmap": "memmap",
    "torch.Tensor": "array",
}


def stores(dataset: object, depth: int = 3) -> list:
    """What kinds of storage the dataset holds, itself or in the datasets inside it, and what it has of libraries."""
    found: list = []
    for value in [dataset, *attributes(dataset).values()]:
        kind = type(value)
        name = STORES.get(f"{kind.__module__}.{kind.__qualname__}") or STORES.get(kind.__qualname__)
        if name is not None and name not in found:
            found.append(name)
        if value is not dataset and depth and _is_dataset(value):
            found.extend(n for n in stores(value, depth - 1) if n not in found)
    return found
