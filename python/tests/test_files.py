"""Files, tables and lines of text as datasets."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from conftest import jpeg, make_folder, stored
from forms import mostly
from reads import PHOTOS, SMALL, reviews, rows, table

import stoker
from stoker import Field


def test_files_are_those_of_a_folder(tmp_path: Path) -> None:
    root = make_folder(tmp_path / "train", 9)
    found = stoker.files(str(root / "*" / "*.jpg"))
    folder = stoker.ImageFolder(root)
    assert found.classes == folder.classes
    for i in range(9):
        assert (found[i][0] == folder[i][0]).all()
        assert found[i][1] == folder[i][1]
    alone = stoker.files([root / "class1" / "0001.jpg", root / "class0" / "*.jpg"], labels=None)
    assert len(alone) == 4
    assert len(alone[0]) == 1
    assert (alone[0][0] == folder[3][0]).all()
    assert found.select("__key__", "label")[8]["__key__"].endswith("class2/0008.jpg")
    with pytest.raises(stoker.ConfigError, match=r"stoker\.Table"):
        stoker.files(PHOTOS, labels="table.csv")
    with pytest.raises(stoker.ConfigError):
        stoker.files(str(root / "*" / "*.gif"))


@pytest.mark.parametrize("kind", mostly(["csv", "tsv", "jsonl", "parquet"], "csv", "parquet"))
def test_tables(kind: str, tmp_path: Path) -> None:
    table = [{"file": f"{i}.jpg", "class": "dog cat eel".split()[i % 3], "score": i / 4} for i in range(6)]
    path = tmp_path / f"train.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table))
    elif kind == "parquet":
        path = tmp_path / "train.parquet"
        path.write_bytes((stored("files") / "manifest.parquet").read_bytes())
        table = [{"file": f"{c}/{i}.jpg", "class": c, "score": i / 4} for i, c in enumerate("dog cat dog eel".split())]
    else:
        mark = "," if kind == "csv" else "\t"
        lines = [mark.join(table[0]), *(mark.join(map(str, row.values())) for row in table)]
        path.write_text("\n".join(lines) + "\n")
    for i, row in enumerate(table):
        (tmp_path / str(row["file"])).parent.mkdir(exist_ok=True)
        (tmp_path / str(row["file"])).write_bytes(jpeg(i))
    names = {"path": "path", "label": "label"} if kind == "parquet" else {"path": "file", "label": "class"}
    found = stoker.Table(path, names["path"], names["label"])
    assert found.classes == ["cat", "dog", "eel"]
    pictures = stoker.files([tmp_path / str(row["file"]) for row in table], labels=None)
    for i, row in enumerate(table):
        assert (found[i][0] == pictures[i][0]).all()
        assert found.classes[found[i][1]] == row["class"]
    more = found.select("label", "__key__", names["path"], *(["score"] if kind != "parquet" else []))
    assert more[1]["__key__"] == more[1][names["path"]] == table[1]["file"]
    if kind != "parquet":
        assert more[3]["score"] == 0.75
    assert len(stoker.Table(path, names["path"])[0]) == 1


def test_tables_without_files(tmp_path: Path) -> None:
    path = table(tmp_path)
    found = stoker.Table(path)
    assert found[1] == (PHOTOS[1].name, 1, 1.5, "note")
    assert stoker.Table(path, label="none")[1] == (PHOTOS[1].name, "b", 1.5, "note")
    assert stoker.Table(path, label="file").classes == [photo.name for photo in PHOTOS]
    with pytest.raises(stoker.DataError, match="line 4 has no label"):
        stoker.Table(path, label="note")
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"text": "a", "n": 1, "note": null}\n{"text": "b", "n": 2, "note": "here"}\n')
    lacking = stoker.Table(lines)
    assert lacking.fields == ["text", "n"]  # a column that some rows lack is left out
    assert lacking.select("note", "n")[1] == {"note": "here", "n": 2}
    assert stoker.Table(stored("parquet") / "lists.parquet").fields == ["id", "x"]


def test_tables_that_make_no_sense_teach(tmp_path: Path) -> None:
    path = table(tmp_path)
    for wrong, word in (
        ({"path": "fil"}, 'did you mean "file"'),
        ({"path": "file", "label": "clas", "root": PHOTOS[0].parent}, 'did you mean "class"'),
        ({"root": PHOTOS[0].parent}, "path="),
        ({"transform": SMALL}, "path="),
        ({"path": "file"}, PHOTOS[0].name),
    ):
        with pytest.raises(stoker.StokerError) as caught:
            stoker.Table(path, **wrong)
        assert word in str(caught.value), wrong
    with pytest.raises(stoker.ConfigError, match="one table"):
        stoker.Table([path, path], "file")


def test_lines(tmp_path: Path) -> None:
    dataset = stoker.LinesDataset(reviews(tmp_path))
    objects = [
        json.loads(line) for name in ("a.jsonl", "b.ndjson") for line in (tmp_path / name).open() if line.strip()
    ]
    assert len(dataset) == len(objects) == 11
    assert dataset.fields == ["json"]
    assert [dataset[i]["json"] for i in range(11)] == objects
    chosen = stoker.LinesDataset(
        [tmp_path / "a.jsonl"],
        ["text", "of", stoker.Field("label", decode="int"), stoker.Field("inner", source="of", decode="json"), "json"],
    )
    for i in range(7):
        text, of, label, inner, whole = (chosen[i][name] for name in ("text", "of", "label", "inner", "json"))
        assert (text, label, inner, whole) == (objects[i]["text"], i, {"i": [i]}, objects[i])
        assert json.loads(of) == inner


def test_texts_are_samples_whole(tmp_path: Path) -> None:
    for name, text in (("b.txt", "two\nlines"), ("a.md", "# one"), ("c.pdf", "left out")):
        (tmp_path / name).write_text(text)
    dataset = stoker.LinesDataset(tmp_path)
    assert [dataset[i] for i in range(len(dataset))] == [{"text": "# one"}, {"text": "two\nlines"}]


@pytest.mark.parametrize(
    ("line", "stored", "said"),
    [
        (b'{"text": "caf\xe9"}', b"caf\xe9", "not UTF-8: byte 3 of 4 is 0xe9"),
        (b'{"text": "a\\n\xff"}', b"a\n\xff", "not UTF-8: byte 2 of 3 is 0xff"),
        (
            b'{"text": "a\\ud800"}',
            "a\ud800".encode("utf-8", "surrogatepass"),
            r"an unpaired surrogate, \\ud800, at byte 1 of 4",
        ),
    ],
)
def test_texts_that_are_not_unicode_are_not_replaced(line: bytes, stored: bytes, said: str, tmp_path: Path) -> None:
    (path := tmp_path / "a.jsonl").write_bytes(b'{"text": "fine"}\n' + line + b"\n")
    dataset = stoker.LinesDataset(path, [Field("text", decode="bytes")])
    got = [one for batch in stoker.DataLoader(dataset, batch_size=2) for one in batch["text"]]
    assert got == [b"fine", stored]
    with pytest.raises(stoker.DataError, match=said) as error:
        list(stoker.DataLoader(stoker.LinesDataset(path, ["text"]), batch_size=2))
    assert (error.value.where["shard"], error.value.where["sample"]) == (str(path), 1)


def test_names_of_files_may_have_any_bytes(tmp_path: Path) -> None:
    for root, classes in ((b"d\xff", [b"x\xfe", b"x\xff"]), (b"d\xfe", [b"y"])):
        folder = os.path.join(os.fsencode(tmp_path), root)
        for name in classes:
            try:
                os.makedirs(os.path.join(folder, name))
            except OSError:
                pytest.skip("this file system takes UTF-8 only")
            with open(os.path.join(folder, name, b"1\xfd.jpg"), "wb") as file:
                file.write(jpeg(0))
        dataset = stoker.ImageFolder(os.fsdecode(folder))
        assert dataset.classes == [os.fsdecode(name) for name in classes]
        assert all(os.path.exists(path) for path, _ in dataset.samples)
        assert len(list(stoker.DataLoader(dataset, batch_size=1))) == len(classes)
        path = os.path.join(folder, classes[0], b"1\xfd.jpg")
        with open(path, "wb") as file:
            file.write(b"\xff" * len(jpeg(0)))
        with pytest.raises(stoker.DataError) as caught:
            list(stoker.DataLoader(dataset, batch_size=1))
        assert os.fsencode(caught.value.where["file"]) == path


def test_lines_that_are_damaged_have_a_place(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "a"}\n{"text": "b"\n{"other": 1}\n')
    dataset = stoker.LinesDataset(path, ["text"])
    assert dataset[0] == {"text": "a"}
    for sample, words in ((1, "JSON"), (2, "other")):
        with pytest.raises(stoker.DataError, match=words) as caught:
            dataset[sample]
        assert (caught.value.where["shard"], caught.value.where["sample"]) == (str(path), sample)
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    (pictures / "x.jpg").write_bytes(jpeg(0))
    with pytest.raises(stoker.StokerError, match="text"):
        stoker.LinesDataset(pictures)


def test_a_pipe_in_the_place_of_an_index(tmp_path: Path) -> None:
    """Nobody waits for what may be written into it: the index is built again."""
    folder = make_folder(tmp_path / "data", 6)
    kept = Path(os.environ["STOKER_CACHE"]) / "index"
    before = set(kept.glob("*.idx"))

    def read() -> list[list[bytes]]:
        with stoker.DataLoader(stoker.ImageFolder(folder, SMALL), 3, output="numpy", timeout=20) as loader:
            return [rows(images) for images, _ in loader]

    expected = read()
    (index,) = set(kept.glob("*.idx")) - before
    index.unlink()
    os.mkfifo(index)
    assert read() == expected
    assert index.is_file()
