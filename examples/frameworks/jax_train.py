"""Trains a small network in JAX on a folder of pictures, on any number of processes and devices, and continues.

    python jax_train.py data/train --devices 8                 # one process that plays eight devices
    torchrun --nproc-per-node 2 jax_train.py data/train --devices 4
    python jax_train.py data/train --resume                    # from the last checkpoint, also in mid-epoch

Each process loads its own rows. Batches are global arrays, split over all devices; weights are on every device. A
program that is killed continues with the batch after its last checkpoint.
"""

import argparse
import json
import os
from pathlib import Path


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", help="a folder with one folder of pictures for each class")
    parser.add_argument("--out", type=Path, default=Path("checkpoints"), help="folder of the checkpoint")
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="pictures in a batch of all processes")
    parser.add_argument("--size", type=int, default=64, help="height and width of the crops")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--save-every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--devices", type=int, default=0, help="simulate so many CPU devices in each process")
    return parser.parse_args()


def start(devices):
    """JAX, with the processes that torchrun or a job manager started; before any device is used."""
    if devices:
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
        os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1:
        if devices:
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
        # The port after torchrun's own.
        coordinator = f"{os.environ['MASTER_ADDR']}:{int(os.environ['MASTER_PORT']) + 1}"
        jax.distributed.initialize(coordinator, world, int(os.environ["RANK"]))
    return jax


def main():
    args = arguments()
    jax = start(args.devices)
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import stoker
    from stoker import transforms as T

    # Data: the batch axis is split over all devices. stoker asks the sharding which rows this process has.
    mesh = Mesh(np.array(jax.devices()), ("data",))
    split, everywhere = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    crops = T.Compose([T.RandomResizedCrop(args.size), T.RandomHorizontalFlip()])
    photos = stoker.ImageFolder(args.data, crops)
    loader = stoker.DataLoader(
        photos, global_batch_size=args.batch_size, shuffle=True, seed=0, output="jax", layout="nhwc", sharding=split
    )

    # A network of two convolutions.
    def weights(key, *shape):
        return jax.random.normal(key, shape) * (2 / np.prod(shape[:-1])) ** 0.5

    keys = jax.random.split(jax.random.key(0), 3)
    params = {
        "first": weights(keys[0], 5, 5, 3, 16),
        "second": weights(keys[1], 3, 3, 16, 32),
        "last": weights(keys[2], 32, len(photos.classes)),
    }

    def loss(params, images, labels, valid):
        x = images.astype(jnp.float32) / 127.5 - 1
        for name, stride in (("first", 4), ("second", 2)):
            x = jax.nn.relu(
                jax.lax.conv_general_dilated(
                    x, params[name], (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
                )
            )
        scores = jax.nn.log_softmax(x.mean((1, 2)) @ params["last"])
        each = -jnp.take_along_axis(scores, labels[:, None], 1)[:, 0]
        return jnp.where(valid, each, 0).sum() / jnp.maximum(valid.sum(), 1)

    # Weights are donated: each step writes the new ones over the old. JAX sums gradients over the devices by itself.
    def step(params, images, labels, valid):
        value, gradients = jax.value_and_grad(loss)(params, images, labels, valid)
        return jax.tree.map(lambda p, g: p - args.lr * g, params, gradients), value

    step = jax.jit(step, donate_argnums=0, out_shardings=(everywhere, everywhere))

    checkpoint = args.out / "checkpoint.npz"
    if args.resume:
        with np.load(checkpoint) as saved:
            params = {name: saved[name] for name in params}
            loader.load_state_dict(json.loads(str(saved["loader"])))
    params = jax.device_put(params, everywhere)

    def save(params):
        state = json.dumps(loader.state_dict())  # the same on every process: the first one saves it
        if jax.process_index() == 0:
            args.out.mkdir(parents=True, exist_ok=True)
            partial = args.out / "partial.npz"
            np.savez(partial, loader=state, **{name: np.asarray(value) for name, value in params.items()})
            os.replace(partial, checkpoint)  # complete, or the one before

    value = float("nan")  # until there is a batch: a checkpoint may be from the end of an epoch
    for epoch in range(loader.state_dict()["epoch"], args.epochs):
        loader.set_epoch(epoch)  # which keeps the position of a state of this epoch
        for batch in loader:
            images, labels = batch
            valid = jax.make_array_from_process_local_data(split, batch.valid)
            params, value = step(params, images, labels, valid)
            if (batch.step + 1) % args.save_every == 0:
                save(params)
        save(params)
        if jax.process_index() == 0:
            print(f"epoch {epoch}: loss {float(value):.4f}", flush=True)
    if jax.process_count() > 1:
        jax.distributed.shutdown()


if __name__ == "__main__":
    main()
