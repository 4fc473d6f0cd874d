"""Patient histories from a database -> small GRU (the GRU is a sleep here)."""
import dataclasses
import os
import sqlite3
import time

import torch
from torch.utils.data import DataLoader, Dataset


@dataclasses.dataclass
class Settings:
    database: str = os.path.join(os.environ.get("DATA_DIR", "data"), "visits_indexed.sqlite")
    batch_size: int = 24
    num_workers: int = 1
    prefetch: int = 4
    seconds: float = 50.0
    step: float = 0.06


class Visits(Dataset):
    SQL = "SELECT day, a, b FROM visit WHERE patient = ? ORDER BY day"

    def __init__(self, database):
        self.database = database
        self._db = None
        con = sqlite3.connect(database)
        self.patients = [r[0] for r in con.execute("SELECT DISTINCT patient FROM visit")]
        con.close()

    @property
    def db(self):
        if self._db is None:
            self._db = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)
        return self._db

    def __len__(self):
        return len(self.patients)

    def __getitem__(self, index):
        rows = self.db.execute(self.SQL, (self.patients[index],)).fetchall()
        return torch.tensor(rows, dtype=torch.float32)


def run(s: Settings):
    loader = DataLoader(
        Visits(s.database),
        batch_size=s.batch_size,
        shuffle=True,
        num_workers=s.num_workers,
        prefetch_factor=s.prefetch,
        persistent_workers=True,
    )
    begin = time.time()
    total = steps = 0
    while True:
        for batch in loader:
            time.sleep(s.step)
            total += batch.shape[0]
            steps += 1
            if steps % 20 == 0:
                print(f"step {steps:5d}  samples {total}  time {time.time():.3f}")
            if time.time() - begin > s.seconds:
                print(f"done: {total / (time.time() - begin):.1f} patients/s")
                return


if __name__ == "__main__":
    run(Settings())
