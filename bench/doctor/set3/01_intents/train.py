"""Intent classification, after the text classification tutorial."""

import json
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

torch.set_num_threads(1)
torch.manual_seed(0)

DATA = os.path.join(os.environ.get("DATA_DIR", "data"), "intents")
BATCH_SIZE = 32
MAX_LEN = 256
PAD = 0


class IntentDataset(Dataset):
    def __init__(self, path):
        self.path = path
        with open(os.path.join(path, "meta.json")) as f:
            self.meta = json.load(f)
        self.rows = None

    def __len__(self):
        return self.meta["rows"]

    def __getitem__(self, idx):
        if self.rows is None:  # only where it is needed
            with open(os.path.join(self.path, "intents.jsonl")) as f:
                self.rows = [json.loads(line) for line in f]
        row = self.rows[idx]
        return row["ids"], row["intent"]


def collate_batch(batch):
    longest = min(max(len(ids) for ids, _ in batch), MAX_LEN)
    tokens = torch.full((len(batch), longest), PAD, dtype=torch.long)
    mask = torch.zeros(len(batch), longest, dtype=torch.bool)
    labels = []
    for i, (ids, intent) in enumerate(batch):
        for j, token in enumerate(ids[:MAX_LEN]):
            tokens[i, j] = token
            mask[i, j] = True
        labels.append(intent)
    return tokens, mask, torch.tensor(labels)


class TextClassificationModel(nn.Module):
    def __init__(self, vocab_size, embed_dim, hidden, num_class):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim, padding_idx=PAD)
        self.conv = nn.Conv1d(embed_dim, hidden, 5, padding=2)
        self.conv2 = nn.Conv1d(hidden, hidden, 5, padding=2)
        self.fc = nn.Linear(hidden, num_class)

    def forward(self, tokens, mask):
        x = self.embedding(tokens).transpose(1, 2)
        x = torch.relu(self.conv2(torch.relu(self.conv(x))))
        x = x * mask.unsqueeze(1)
        return self.fc(x.sum(2) / mask.sum(1, keepdim=True))


dataset = IntentDataset(DATA)
dataloader = DataLoader(
    dataset,
    batch_size=BATCH_SIZE,
    sampler=RandomSampler(dataset, num_samples=20 * BATCH_SIZE),
    num_workers=2,
    collate_fn=collate_batch,
)
model = TextClassificationModel(dataset.meta["vocab"], 32, 32, dataset.meta["classes"])
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(dataloader):
    total = 0
    for tokens, mask, labels in dataloader:
        optimizer.zero_grad()
        loss = criterion(model(tokens, mask), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        total += len(labels)
    return total, loss.item()


start_time = time.time()
seen = 0
for epoch in range(1, 1000):
    count, loss = train(dataloader)
    seen += count
    print(f"| epoch {epoch:3d} | loss {loss:.3f} | samples {seen} | time {time.time() - start_time:.2f}s")
    if time.time() - start_time > 60:
        break
