import time

import torch


class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def add(self, value, n=1):
        self.total += value * n
        self.count += n

    @property
    def mean(self):
        return self.total / max(1, self.count)


class Trainer:
    """Fits a model to a loader."""

    def __init__(self, model, loader, lr=0.01, print_freq=4, max_time=60):
        self.model = model
        self.loader = loader
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.criterion = torch.nn.CrossEntropyLoss()
        self.print_freq = print_freq
        self.max_time = max_time
        self.loss = Meter()
        self.samples = 0
        self.steps = 0

    def train_step(self, batch):
        output = self.model(batch["image"])
        loss = self.criterion(output, batch["target"])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def fit(self, epochs):
        self.start = time.time()
        for epoch in range(epochs):
            self.model.train()
            for batch in self.loader:
                loss = self.train_step(batch)
                self.after_step(epoch, batch, loss)
                if time.time() - self.start > self.max_time:
                    return

    def after_step(self, epoch, batch, loss):
        self.steps += 1
        self.samples += len(batch["target"])
        self.loss.add(loss, len(batch["target"]))
        if self.steps % self.print_freq == 0:
            elapsed = time.time() - self.start
            print(f"epoch {epoch} | loss {float(self.loss.mean):.4f} | samples: {self.samples} | time: {elapsed:.2f}")
