#!/usr/bin/env python3
"""write_nvfp4: a copy of a checkpoint whose matrices of layers are NVFP4, as NVIDIA's ModelOpt writes it: rounded to the nearest, nothing calibrated.

    python3 tools/write_nvfp4.py FOLDER OUT

FOLDER has one model.safetensors in bfloat16, float16 or float32. Needs numpy. tools/eval_ppl.py measures with it what the format costs.
"""
import json
import os
import re
import shutil
import sys

import numpy as np

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
GROUP = 16
MATRIX = re.compile(r"\.layers\.\d+\..*_proj\.weight$")


def e4m3_values():
    """The numbers of the codes 0 to 126; 127 is NaN."""
    code = np.arange(127)
    exponent, fraction = code >> 3, code & 7
    return np.where(exponent == 0, fraction / 8 * 2.0**-6, (1 + fraction / 8) * 2.0 ** (exponent - 7.0)).astype(np.float32)


E4M3 = e4m3_values()


def nearest(values, x):
    """Per number of x the index of the nearest of values, which rise; of two as near the one with the even index, as hardware rounds."""
    above = np.clip(np.searchsorted(values, x), 1, len(values) - 1)
    below = above - 1
    low, high = x - values[below], values[above] - x
    return np.where((low < high) | ((low == high) & (below % 2 == 0)), below, above)


def quantize(w):
    """w: float32 [outputs, inputs]. Codes of 4 bits, two a byte, the first low; a code of E4M3 for each 16 inputs; the matrix's float."""
    groups = w.reshape(w.shape[0], -1, GROUP)
    largest = np.abs(groups).max(-1)
    factor = np.float32(max(largest.max(), 1e-30) / (6 * 448))
    scale = nearest(E4M3, np.minimum(largest / 6 / factor, 448))
    by = E4M3[scale][..., None] * factor
    code = nearest(E2M1, np.minimum(np.divide(np.abs(groups), by, out=np.zeros_like(groups), where=by > 0), 6))
    code = (code | (groups < 0) << 3).astype(np.uint8).reshape(w.shape)
    return code[:, ::2] | code[:, 1::2] << 4, scale.astype(np.uint8), factor


def floats(raw, dtype, shape):
    if dtype == "BF16":
        return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return np.frombuffer(raw, {"F16": np.float16, "F32": np.float32}[dtype]).astype(np.float32).reshape(shape)


def write_nvfp4(folder, out):
    """Makes the folder out. Other files than the weights are copied."""
    os.makedirs(out)
    for name in os.listdir(folder):
        if name != "model.safetensors":
            shutil.copy(os.path.join(folder, name), out)
    with open(os.path.join(folder, "model.safetensors"), "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    header.pop("__metadata__", None)
    tensors = []  # name, type, shape, bytes
    for name, t in sorted(header.items()):
        raw = data[t["data_offsets"][0] : t["data_offsets"][1]]
        if not MATRIX.search(name) or t["shape"][1] % GROUP:
            tensors.append((name, t["dtype"], t["shape"], raw))
            continue
        code, scale, factor = quantize(floats(raw, t["dtype"], t["shape"]))
        tensors += [(name, "U8", list(code.shape), code.tobytes()), (name + "_scale", "F8_E4M3", list(scale.shape), scale.tobytes()),
                    (name + "_scale_2", "F32", [], factor.tobytes())]
    at, new = 0, {}
    for name, dtype, shape, raw in tensors:
        new[name] = dict(dtype=dtype, shape=shape, data_offsets=[at, at + len(raw)])
        at += len(raw)
    text = json.dumps(new).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(out, "model.safetensors"), "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.writelines(raw for _, _, _, raw in tensors)
    with open(os.path.join(out, "hf_quant_config.json"), "w") as f:
        json.dump({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": GROUP, "exclude_modules": ["lm_head"]}}, f)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    write_nvfp4(sys.argv[1], sys.argv[2])
