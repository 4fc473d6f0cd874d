"""Writes the token files beside it, and golden.json with what their tools read back.

Run by hand: python make.py (numpy 2, torch, megatron-core 0.16). Flat files are
written as nanoGPT's prepare.py writes them and cut as its get_batch cuts them, the
pairs by Megatron's own builder and read by its own dataset.
"""

import json
import os

import numpy as np
import torch
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

here = os.path.dirname(os.path.abspath(__file__))
os.chdir(here)
rng = np.random.default_rng(11)
golden = []


def case(paths, samples, stored, **options):
    golden.append({"paths": paths, "dtype": str(np.dtype(stored)), "options": options, "samples": [np.asarray(s).astype(int).tolist() for s in samples]})


def windows(data, length, stride, extra):
    return [data[i : i + length + extra] for i in range(0, len(data) - length - extra + 1, stride)]


def cuts(name, data, **how):
    case([name], windows(data, 16, 16, 0), data.dtype, window=16, **how)
    case([name], windows(data, 16, 16, 1), data.dtype, window=16, next=True, **how)
    case([name], windows(data, 50, 23, 1), data.dtype, window=50, stride=23, next=True, **how)
    case([name], windows(data, len(data), 1, 0), data.dtype, window=len(data), **how)


def documents(data, eos):
    ends = np.flatnonzero(data == eos) + 1
    return [d for d in np.split(data, ends) if len(d)]


eot = 50256
gpt2 = rng.integers(0, eot, 300).astype(np.uint16)
gpt2[[7, 40, 41, 200, 299]] = eot
arr = np.memmap("train.bin", dtype=np.uint16, mode="w+", shape=gpt2.shape)
arr[:] = gpt2
arr.flush()
cuts("train.bin", np.memmap("train.bin", dtype=np.uint16, mode="r"))
case(["train.bin"], documents(gpt2, eot), "uint16", documents=True, eos=eot)

llama = rng.integers(0, 128000, 250).astype(np.uint32)
llama[[0, 99, 100, 180]] = 128000
llama.tofile("llama.bin")
cuts("llama.bin", np.memmap("llama.bin", dtype=np.uint32, mode="r"), dtype="uint32")
case(["llama.bin"], [d for d in np.split(llama, [0, 99, 100, 180]) if len(d)], "uint32", documents=True, bos=128000, dtype="uint32")

np.save("tokens.npy", gpt2[:120].astype(np.int64))
cuts("tokens.npy", np.load("tokens.npy"))

header = np.zeros(256, dtype=np.int32)  # llm.c, dev/data/data_common.py
header[:3] = 20240520, 1, 150
with open("llmc.bin", "wb") as f:
    f.write(header.tobytes())
    f.write(gpt2[:150].tobytes())
cuts("llmc.bin", gpt2[:150])
case(["train.bin", "llmc.bin"], windows(gpt2, 16, 16, 1) + windows(gpt2[:150], 16, 16, 1), "uint16", window=16, next=True)


def megatron(prefix, dtype, docs, multimodal=False, **how):
    builder = IndexedDatasetBuilder(prefix + ".bin", dtype=dtype, multimodal=multimodal)
    for doc in docs:
        for sequence in doc:
            builder.add_item(torch.from_numpy(sequence.astype(np.int64)), *([1] if multimodal else []))
        builder.end_document()
    builder.finalize(prefix + ".idx")
    back = IndexedDataset(prefix, multimodal=multimodal, mmap=True)
    index = back.document_indices
    texts = []
    for i, j in zip(index[:-1], index[1:], strict=True):
        sequences = [back[k][0] if multimodal else back[k] for k in range(i, j)]
        texts.append(np.concatenate(sequences) if sequences else np.zeros(0, dtype))
    case([prefix + ".bin"], [t for t in texts if len(t)], dtype, documents=True, **how)
    flat = np.concatenate(texts)
    cuts(prefix + ".idx", flat)


def some(*lengths, high=50000):
    return [rng.integers(0, high, n) for n in lengths]


megatron("text_document", np.uint16, [some(20), some(5, 1, 9), some(33)])
megatron("text_int32_document", np.int32, [some(20, high=10**9), [], some(5, 1, 0, 9, high=10**9), some(33), []])
megatron("multimodal", np.int64, [some(4, 5), some(70)], multimodal=True)
megatron("bytes_document", np.uint8, [some(60, high=256), some(3, high=256)])

with open("golden.json", "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(c) for c in golden) + "\n]\n")
