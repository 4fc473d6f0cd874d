"""A tiny trainer in the manner of Lightning."""
import time


class Trainer:
    def __init__(self, max_seconds=55, log_every_n_steps=10):
        self.max_seconds = max_seconds
        self.log_every_n_steps = log_every_n_steps
        self.global_step = 0
        self.samples = 0

    def fit(self, module):
        self.start = time.time()
        self.epoch = 0
        while not self.should_stop():
            self.run_epoch(module)
            self.epoch += 1

    def should_stop(self):
        return time.time() - self.start > self.max_seconds

    def run_epoch(self, module):
        for batch_idx, batch in enumerate(module.train_dataloader()):
            module.training_step(batch, batch_idx)
            self.global_step += 1
            self.samples += len(batch[0])
            if self.global_step % self.log_every_n_steps == 0:
                print(f"Epoch {self.epoch} | step {self.global_step} | samples {self.samples} | time {time.time():.3f}")
            if self.should_stop():
                break
