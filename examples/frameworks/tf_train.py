"""Trains a small network in TensorFlow on a folder of pictures, on any number of processes, and continues.

    python tf_train.py data/train
    torchrun --nproc-per-node 2 tf_train.py data/train         # or RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
    python tf_train.py data/train --resume                     # from the last checkpoint, also in mid-epoch

stoker.to_tf() makes the tf.data.Dataset. Each process loads its own share of the pictures, and tf.distribute adds up
gradients. A program that is killed continues with the batch after its last checkpoint.
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
    return parser.parse_args()


def start(rank, world):
    """TensorFlow and its strategy, with the processes that torchrun or a job manager started."""
    if world > 1:
        # Ports after torchrun's own, on one machine. On several, list the address of each.
        first = int(os.environ["MASTER_PORT"]) + 1
        workers = [f"{os.environ['MASTER_ADDR']}:{first + i}" for i in range(world)]
        task = {"type": "worker", "index": rank}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
    import tensorflow as tf

    return tf, tf.distribute.MultiWorkerMirroredStrategy() if world > 1 else tf.distribute.get_strategy()


def main():
    args = arguments()
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    tf, strategy = start(rank, world)
    import numpy as np

    import stoker
    from stoker import transforms as T

    # Data: pictures as TensorFlow has them. The last batch is filled up; the weight of such rows is 0.
    crops = T.Compose([T.RandomResizedCrop(args.size), T.RandomHorizontalFlip()])
    photos = stoker.ImageFolder(args.data, crops)
    loader = stoker.DataLoader(
        photos,
        global_batch_size=args.batch_size,
        shuffle=True,
        seed=0,
        tail="fill",
        output="numpy",
        layout="nhwc",
        rank=rank,
        world_size=world,
    )

    # A network of two convolutions. Every process begins with the same weights.
    rng = np.random.default_rng(0)
    with strategy.scope():

        def weights(*shape):
            return tf.Variable((rng.standard_normal(shape) * (2 / np.prod(shape[:-1])) ** 0.5).astype(np.float32))

        first, second, last = weights(5, 5, 3, 16), weights(3, 3, 16, 32), weights(32, len(photos.classes))
    params = [first, second, last]

    def replica(images, labels, weight):
        with tf.GradientTape() as tape:
            x = tf.cast(images, tf.float32) / 127.5 - 1
            x = tf.nn.relu(tf.nn.conv2d(x, first, 4, "SAME"))
            x = tf.nn.relu(tf.nn.conv2d(x, second, 2, "SAME"))
            scores = tf.reduce_mean(x, (1, 2)) @ last
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores) * weight
            loss = tf.reduce_sum(each) / args.batch_size
        gradients = tape.gradient(loss, params)
        context = tf.distribute.get_replica_context()
        *gradients, loss = context.all_reduce("sum", [*gradients, loss])
        for param, gradient in zip(params, gradients, strict=True):
            param.assign_sub(args.lr * gradient)
        return loss

    @tf.function
    def step(*batch):
        return strategy.run(replica, batch)

    checkpoint = args.out / "checkpoint.npz"
    if args.resume:
        with np.load(checkpoint) as saved:
            for number, param in enumerate(params):
                param.assign(saved[f"param{number}"])
            loader.load_state_dict(json.loads(str(saved["loader"])))

    def save():
        state = json.dumps(loader.state_dict())  # the same on every process: the first one saves it
        if rank == 0:
            args.out.mkdir(parents=True, exist_ok=True)
            partial = args.out / "partial.npz"
            np.savez(partial, loader=state, **{f"param{i}": param.numpy() for i, param in enumerate(params)})
            os.replace(partial, checkpoint)  # complete, or the one before

    steps, loss = 0, float("nan")
    for epoch in range(loader.state_dict()["epoch"], args.epochs):
        loader.set_epoch(epoch)  # which keeps the position of a state of this epoch
        # Made for each epoch, so that its cardinality is right when it begins in mid-epoch.
        for batch in stoker.to_tf(loader, sample_weight=True):
            loss = step(*batch)
            steps += 1
            if steps % args.save_every == 0:
                save()
        save()
        if rank == 0:
            print(f"epoch {epoch}: loss {float(loss):.4f}", flush=True)


if __name__ == "__main__":
    main()
