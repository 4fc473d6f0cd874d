"""Makes the goldens of package decode: small files of every kind and mode, and what Pillow reads in them.

    .venv/bin/python internal/stage/decode/testdata/make.py

For each files/NAME there is a pixels/NAME.ppm: Image.open(NAME).convert("RGB"). The script checks that convert("L") is
the luma of it, so one picture stands for both. Where stoker differs from Pillow on purpose, the file is made by
`ours`, with the pixels that are right and the reason. Made with Pillow 13.0.0; another version must give the same.
"""

import io
import pathlib
import struct
import warnings
import zlib

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).parent
FILES, PIXELS = HERE / "files", HERE / "pixels"
PHOTO = HERE.parents[3] / "testdata" / "photos" / "chelsea.jpg"
W, H = 17, 11  # odd enough: no byte, tile, or interlace pass ends at the edge

warnings.simplefilter("ignore")


def write(name: str, data: bytes, rgb: np.ndarray) -> None:
    (FILES / name).write_bytes(data)
    h, w, _ = rgb.shape
    (PIXELS / (name + ".ppm")).write_bytes(b"P6\n%d %d\n255\n" % (w, h) + rgb.astype(np.uint8).tobytes())


def luma(rgb: np.ndarray) -> np.ndarray:
    r, g, b = (rgb[..., i].astype(np.uint32) for i in range(3))
    return (19595 * r + 38470 * g + 7471 * b + 32768) >> 16


def golden(name: str, data: bytes) -> None:
    """A file that stoker must read as Pillow does."""
    rgb = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    gray = np.asarray(Image.open(io.BytesIO(data)).convert("L"))
    assert (gray == luma(rgb)).all(), name
    write(name, data, rgb)


def ours(name: str, data: bytes, rgb: np.ndarray, why: str) -> None:
    """A file that Pillow reads otherwise, or not at all; why says what is right."""
    try:
        pillow = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    except Exception:  # noqa: BLE001 - whatever Pillow raises on files it refuses
        pillow = np.zeros(0)
    if rgb.ndim == 2:
        rgb = np.stack([rgb] * 3, -1)
    assert why and not np.array_equal(pillow, rgb), f"{name}: Pillow agrees, use golden()"
    write(name, data, rgb)


def save(im: Image.Image, fmt: str, **options: object) -> bytes:
    out = io.BytesIO()
    im.save(out, fmt, **options)
    return out.getvalue()


def photo(w: int = W, h: int = H) -> Image.Image:
    return Image.open(PHOTO).convert("RGB").crop((90, 30, 360, 210)).resize((w, h))


def noise(*shape: int, seed: int = 1, below: int = 256) -> np.ndarray:
    """Numbers without numpy's generators, whose streams may change."""
    n = int(np.prod(shape))
    x = (np.arange(1, n + 1, dtype=np.uint64) * np.uint64(2654435761) + np.uint64(seed * 40503)) & np.uint64(0xFFFFFFFF)
    x = (x ^ (x >> np.uint64(15))) * np.uint64(2246822519) & np.uint64(0xFFFFFFFF)
    x ^= x >> np.uint64(13)
    return (x % np.uint64(below)).astype(np.uint16 if below > 256 else np.uint8).reshape(shape)


def bits(samples: np.ndarray, depth: int) -> bytes:
    """Rows of samples, packed from the highest bit, each row from a new byte."""
    rows = []
    for row in samples.reshape(samples.shape[0], -1):
        if depth == 16:
            rows.append(row.astype(">u2").tobytes())
            continue
        unpacked = (row[:, None].astype(np.uint8) >> np.arange(depth - 1, -1, -1, dtype=np.uint8)) & 1
        rows.append(np.packbits(unpacked.reshape(-1)).tobytes())
    return b"".join(rows)


# PNG ------------------------------------------------------------------------------------------------------------


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def filtered(samples: np.ndarray, depth: int) -> bytes:
    """One pass: rows with filters 0 to 4 in turn."""
    h, n = samples.shape[0], samples[0].size
    size, back = (n * depth + 7) // 8, max(1, samples.shape[2] * depth // 8)
    rows = np.frombuffer(bits(samples, depth), np.uint8).reshape(h, size).astype(int)
    out = bytearray()
    for y in range(h):
        up = rows[y - 1] if y else np.zeros(size, int)
        left = np.concatenate([np.zeros(back, int), rows[y]])[:size]
        corner = np.concatenate([np.zeros(back, int), up])[:size]
        p = left + up - corner
        pa, pb, pc = abs(p - left), abs(p - up), abs(p - corner)
        paeth = np.where((pa <= pb) & (pa <= pc), left, np.where(pb <= pc, up, corner))
        guess = [np.zeros(size, int), left, up, (left + up) // 2, paeth][y % 5]
        out.append(y % 5)
        out += ((rows[y] - guess) % 256).astype(np.uint8).tobytes()
    return bytes(out)


def png(samples: np.ndarray, depth: int, colour: int, *extra: bytes, interlace: bool = False, pieces: int = 1) -> bytes:
    h, w, _ = samples.shape
    passes = ADAM7 if interlace else [(0, 0, 1, 1)]
    raw = b"".join(filtered(samples[y::dy, x::dx], depth) for x, y, dx, dy in passes if x < w and y < h)
    packed = zlib.compress(raw, 9)
    step = -(-len(packed) // pieces)
    idat = b"".join(chunk(b"IDAT", packed[i : i + step]) for i in range(0, len(packed), step))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, colour, 0, 0, int(interlace)))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(extra) + idat + chunk(b"IEND", b"")


def make_png() -> None:
    golden("rgb.png", save(photo(), "PNG"))
    palette = chunk(b"PLTE", noise(256, 3, seed=7).tobytes())
    for interlace in (False, True):
        tail = "-interlaced.png" if interlace else ".png"
        for depth in (1, 2, 4, 8):
            s = noise(H, W, 1, seed=depth, below=1 << depth)
            golden(f"gray{depth}{tail}", png(s, depth, 0, interlace=interlace))
            part = chunk(b"PLTE", noise(1 << depth, 3, seed=7).tobytes())
            golden(f"palette{depth}{tail}", png(s, depth, 3, part, interlace=interlace))
        wide = noise(H, W, 4, seed=16, below=65536)
        for depth, s in ((8, noise(H, W, 4)), (16, wide)):
            golden(f"rgb{depth}{tail}", png(s[..., :3], depth, 2, interlace=interlace))
            golden(f"rgba{depth}{tail}", png(s, depth, 6, interlace=interlace))
            golden(f"graya{depth}{tail}", png(s[..., :2], depth, 4, interlace=interlace))
        high = (wide[..., 0] >> 8).astype(np.uint8)
        ours(f"gray16{tail}", png(wide[..., :1], 16, 0, interlace=interlace), high, "the high byte; Pillow clips at 255")
    index = noise(H, W, 1, seed=5)
    golden("palette8-trns.png", png(index, 8, 3, palette, chunk(b"tRNS", bytes(range(200)))))
    golden("palette8-short.png", png(index, 8, 3, chunk(b"PLTE", bytes(range(1, 31)))))
    golden("gray8-trns.png", png(index, 8, 0, chunk(b"tRNS", b"\0\x30")))
    golden("rgb8-trns.png", png(noise(H, W, 3), 8, 2, chunk(b"tRNS", b"\0\x30\0\x31\0\x32")))
    golden("rgb8-pieces.png", png(noise(H, W, 3), 8, 2, chunk(b"tEXt", b"Comment\0in pieces"), pieces=7))
    golden("pixel-interlaced.png", png(noise(1, 1, 3), 8, 2, interlace=True))


# GIF ------------------------------------------------------------------------------------------------------------


def lzw(pixels: np.ndarray, depth: int) -> bytes:
    """GIF's codes, never longer than the first: a clear code in good time."""
    clear, acc, n, out = 1 << depth, 0, 0, bytearray()
    codes: list[int] = []
    for i, p in enumerate(pixels.reshape(-1)):
        if i % ((1 << depth) - 2) == 0:
            codes.append(clear)
        codes.append(int(p))
    for code in [*codes, clear + 1]:
        acc |= code << n
        n += depth + 1
        while n >= 8:
            out.append(acc & 255)
            acc, n = acc >> 8, n - 8
    out.append(acc & 255)
    blocks = (out[i : i + 100] for i in range(0, len(out), 100))
    return bytes([depth]) + b"".join(bytes([len(b)]) + bytes(b) for b in blocks) + b"\0"


def gif(
    pixels: np.ndarray,
    screen: tuple[int, int],
    at: tuple[int, int] = (0, 0),
    depth: int = 4,
    table: bytes = b"",
    local: bytes = b"",
    transparent: int | None = None,
    background: int = 0,
    interlace: bool = False,
    tail: bytes = b"",
) -> bytes:
    def flags(t: bytes) -> int:
        return 0x80 | ((len(t) // 3).bit_length() - 2) if t else 0

    h, w = pixels.shape
    b = b"GIF89a" + struct.pack("<HHBBB", *screen, flags(table), background, 0) + table
    b += b"\x21\xfe\x05hello\x00"
    if transparent is not None:
        b += b"\x21\xf9\x04" + bytes([1, 0, 0, transparent]) + b"\0"
    b += b"," + struct.pack("<HHHHB", *at, w, h, flags(local) | (0x40 if interlace else 0)) + local
    if interlace:
        rows = [*range(0, h, 8), *range(4, h, 8), *range(2, h, 4), *range(1, h, 2)]
        pixels = pixels[rows]
    return b + lzw(pixels, depth) + tail + b";"


def make_gif() -> None:
    golden("photo.gif", save(photo(41, 31).quantize(64), "GIF"))
    golden("photo-interlaced.gif", save(photo(41, 31).quantize(256), "GIF", interlace=1))
    frames = [photo(30, 20).quantize(32), photo(30, 20).rotate(180).quantize(32)]
    golden("animated.gif", save(frames[0], "GIF", save_all=True, append_images=frames[1:], loop=0))
    table, other = noise(16, 3, seed=3).tobytes(), noise(16, 3, seed=4).tobytes()
    p = noise(H, W, seed=2, below=16)
    golden("plain.gif", gif(p, (W, H), table=table))
    golden("interlaced.gif", gif(p, (W, H), table=table, interlace=True))
    golden("local-table.gif", gif(p, (W, H), table=table, local=other))
    golden("short-table.gif", gif(p, (W, H), table=table[:12]))
    golden("no-table.gif", gif(p, (W, H)))
    golden("small-frame.gif", gif(p, (W + 9, H + 5), (4, 3), table=table, background=5))
    golden("small-frame-transparent.gif", gif(p, (W + 9, H + 5), (4, 3), table=table, background=5, transparent=9))
    golden("small-frame-interlaced.gif", gif(p, (W + 9, H + 5), (4, 3), table=table, interlace=True))
    golden("large-frame.gif", gif(p, (5, 5), (4, 3), table=table))
    golden("transparent.gif", gif(p, (W, H), table=table, transparent=3))
    golden("trailing-bytes.gif", gif(p, (W, H), table=table) + b"after the end")
    ramp = np.arange(16, dtype=np.uint8).repeat(3).tobytes()
    ours("local-ramp.gif", gif(p, (W, H), table=table, local=ramp), p, "its own table; Pillow takes the screen's for RGB")


# BMP ------------------------------------------------------------------------------------------------------------


def bmp(
    w: int, h: int, depth: int, rows: bytes, table: bytes = b"", head: int = 40, packing: int = 0, masks: bytes = b"", count: int = 0
) -> bytes:
    if head == 12:
        info = struct.pack("<IHHHH", 12, w, h, 1, depth)
    else:
        info = struct.pack("<IiiHHIIiiII", head, w, h, 1, depth, packing, len(rows), 2835, 2835, count, 0)
        info = (info + (masks if head > 40 else b"")).ljust(head, b"\0")
    middle = info + (masks if head == 40 else b"") + table
    offset = 14 + len(middle)
    return b"BM" + struct.pack("<IHHI", offset + len(rows), 0, 0, offset) + middle + rows


def padded(data: bytes, h: int) -> bytes:
    n = len(data) // h
    return b"".join(data[i * n : (i + 1) * n].ljust((n + 3) & ~3, b"\xee") for i in range(h))


def rle8(p: np.ndarray) -> bytes:
    """Runs, literals, a jump and a row that ends early, all in turn."""
    out = bytearray()
    for y, row in enumerate(p):
        if y % 3 == 0:
            for v in row:
                out += bytes([1, v])
        elif y % 3 == 1:
            n = len(row) - 4
            out += bytes([0, n]) + row[:n].tobytes() + b"\0" * (n & 1) + bytes([4, row[-1]])
        else:
            out += bytes([3, row[0], 0, 2, 5, 0, 2, row[1]])
        out += b"\0\0"
    return bytes(out) + b"\0\1"


def rle4(p: np.ndarray) -> bytes:
    out = bytearray()
    for y, row in enumerate(p):
        if y % 2 == 0:
            out += bytes([len(row), int(row[0]) << 4 | int(row[1])])
        else:
            n = len(row)
            packed = bits(row[None], 4)
            out += bytes([0, n]) + packed + b"\0" * (len(packed) & 1)
        out += b"\0\0"
    return bytes(out) + b"\0\1"


def make_bmp() -> None:
    golden("rgb.bmp", save(photo(), "BMP"))
    golden("gray.bmp", save(photo().convert("L"), "BMP"))
    golden("bilevel.bmp", save(photo().convert("1"), "BMP"))
    rgbx = noise(256, 4, seed=8)
    for depth in (1, 4, 8):
        p = noise(H, W, seed=depth, below=1 << depth)
        rows, table = padded(bits(p, depth), H), rgbx[: 1 << depth].tobytes()
        golden(f"palette{depth}.bmp", bmp(W, H, depth, rows, table))
        golden(f"palette{depth}-os2.bmp", bmp(W, H, depth, rows, rgbx[: 1 << depth, :3].tobytes(), head=12))
    p8 = noise(H, W, seed=8)
    golden("palette8-short.bmp", bmp(W, H, 8, padded(bits(p8, 8), H), rgbx[:40].tobytes(), count=40))
    golden("palette8-topdown.bmp", bmp(W, -H, 8, padded(bits(p8, 8), H), rgbx.tobytes()))
    p4 = noise(H, W, seed=4, below=16)
    two = noise(H, W, seed=9, below=2)
    ours(
        "palette8-two.bmp",
        bmp(W, H, 8, padded(bits(two, 8), H), b"\0\0\0\0\xff\xff\xff\0", count=2),
        two[::-1] * 255,
        "black and white at 8 bits a pixel; Pillow reads them as 1 bit",
    )
    golden("rle8.bmp", bmp(W, H, 8, rle8(p8), rgbx.tobytes(), packing=1))
    golden("rle4.bmp", bmp(W, H, 4, rle4(p4), rgbx[:16].tobytes(), packing=2))
    wide = noise(H, W, seed=16, below=65536).astype("<u2")
    m565, m555 = struct.pack("<III", 0xF800, 0x7E0, 0x1F), struct.pack("<III", 0x7C00, 0x3E0, 0x1F)
    golden("rgb16.bmp", bmp(W, H, 16, padded(wide.tobytes(), H)))
    golden("rgb565.bmp", bmp(W, H, 16, padded(wide.tobytes(), H), packing=3, masks=m565))
    golden("rgb555.bmp", bmp(W, H, 16, padded(wide.tobytes(), H), packing=3, masks=m555))
    golden("rgb24.bmp", bmp(W, H, 24, padded(noise(H, W, 3).tobytes(), H)))
    golden("rgb24-os2.bmp", bmp(W, H, 24, padded(noise(H, W, 3).tobytes(), H), head=12))
    golden("rgb24-topdown.bmp", bmp(W, -H, 24, padded(noise(H, W, 3).tobytes(), H)))
    four = noise(H, W, 4, seed=4).tobytes()
    golden("rgb32.bmp", bmp(W, H, 32, four))
    for name, head, masks in (
        ("bgra-v3", 56, (0xFF0000, 0xFF00, 0xFF, 0xFF000000)),
        ("rgba-v4", 108, (0xFF, 0xFF00, 0xFF0000, 0xFF000000)),
        ("abgr-v5", 124, (0xFF000000, 0xFF0000, 0xFF00, 0xFF)),
        ("bgxr-v5", 124, (0xFF000000, 0xFF00, 0xFF, 0)),
        ("bgrx-v2", 52, (0xFF0000, 0xFF00, 0xFF)),
        ("bgrx-v1", 40, (0xFF0000, 0xFF00, 0xFF)),
        ("zero-v5", 124, (0, 0, 0, 0)),
    ):
        golden(f"{name}.bmp", bmp(W, H, 32, four, head=head, packing=3, masks=struct.pack(f"<{len(masks)}I", *masks)))
    ten = np.frombuffer(four, "<u4").reshape(H, W)
    right = np.stack([ten >> 22 & 255, ten >> 12 & 255, ten >> 2 & 255], -1)[::-1]
    masks = struct.pack("<III", 1023 << 20, 1023 << 10, 1023)
    ours("rgb30.bmp", bmp(W, H, 32, four, packing=3, masks=masks), right, "10 bits a sample, which Pillow refuses")


# PNM ------------------------------------------------------------------------------------------------------------


def make_pnm() -> None:
    def text(a: np.ndarray) -> bytes:
        return b"".join(b" ".join(b"%d" % v for v in row.reshape(-1)) + b"\n" for row in a)

    bit = noise(H, W, seed=1, below=2)
    golden("p1.pbm", b"P1\n# made by hand\n%d %d\n" % (W, H) + text(bit))
    golden("p1-tight.pbm", b"P1 %d %d\n" % (W, H) + text(bit).replace(b" ", b"").replace(b"\n", b" #x\n", 1))
    golden("p4.pbm", b"P4\n%d %d\n" % (W, H) + bits(bit, 1))
    for maxval in (1, 7, 100, 255):
        p = noise(H, W, seed=maxval, below=maxval + 1)
        golden(f"p2-{maxval}.pgm", b"P2\n%d %d # size\n%d\n" % (W, H, maxval) + text(p))
        golden(f"p5-{maxval}.pgm", b"P5\n%d %d\n# top\n%d\n" % (W, H, maxval) + p.tobytes())
    for maxval in (1, 100, 255, 1023, 65535):
        p = noise(H, W, 3, seed=maxval, below=maxval + 1)
        raw = p.astype(">u2").tobytes() if maxval > 255 else p.astype(np.uint8).tobytes()
        golden(f"p3-{maxval}.ppm", b"P3\n%d %d\n%d\n" % (W, H, maxval) + text(p))
        golden(f"p6-{maxval}.ppm", b"P6\n%d\t%d\r%d\n" % (W, H, maxval) + raw)
    golden("p5-above.pgm", b"P5 %d %d 100 " % (W, H) + noise(H, W).tobytes())
    for maxval in (300, 65535):
        p = noise(H, W, seed=maxval, below=maxval + 1)
        high = (np.round(p / maxval * 65535).astype(int) >> 8).astype(np.uint8)
        why = "the high byte of 16 bits; Pillow clips at 255"
        ours(f"p2-{maxval}.pgm", b"P2\n%d %d\n%d\n" % (W, H, maxval) + text(p), high, why)
        ours(f"p5-{maxval}.pgm", b"P5\n%d %d\n%d\n" % (W, H, maxval) + p.astype(">u2").tobytes(), high, why)


# WebP -----------------------------------------------------------------------------------------------------------


def make_webp() -> None:
    w, h = 37, 26
    clear = photo(w, h)
    clear.putalpha(Image.fromarray(noise(h, w)))
    golden("lossy.webp", save(photo(w, h), "WEBP", quality=80))
    golden("lossy-odd.webp", save(photo(17, 35), "WEBP", quality=40))
    golden("lossy-even-low.webp", save(photo(48, 32), "WEBP", quality=5))
    golden("lossy-pixel.webp", save(photo(1, 1), "WEBP"))
    golden("lossy-column.webp", save(photo(1, 9), "WEBP"))
    golden("lossy-row.webp", save(photo(2, 1), "WEBP"))
    golden("lossy-alpha.webp", save(clear, "WEBP", quality=60))
    golden("lossless.webp", save(photo(), "WEBP", lossless=True))
    golden("lossless-alpha.webp", save(clear.crop((0, 0, W, H)), "WEBP", lossless=True, exact=True))
    golden("lossless-noise.webp", save(Image.fromarray(noise(9, 7, 3)), "WEBP", lossless=True))
    golden("lossless-palette.webp", save(Image.fromarray(noise(H, W, below=4) * 60), "WEBP", lossless=True))
    golden("profile.webp", save(photo(), "WEBP", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0", icc_profile=b"odd"))
    for name, options in (("lossy", {}), ("lossless", {"lossless": True})):
        turned = [photo(), photo().rotate(180)]
        golden(f"animated-{name}.webp", save(turned[0], "WEBP", save_all=True, append_images=turned[1:], **options))
    # libwebp's encoder makes the first frame as large as its canvas; cut a smaller one by hand.
    for name, still in (("lossy", save(photo(), "WEBP")), ("lossless", save(photo(), "WEBP", lossless=True))):
        golden(f"small-frame-{name}.webp", animation(still[12:], W + 7, H + 5, 4, 2))


def animation(picture: bytes, w: int, h: int, x: int, y: int) -> bytes:
    def part(kind: bytes, data: bytes) -> bytes:
        return kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) & 1)

    def three(*values: int) -> bytes:
        return b"".join(struct.pack("<I", v)[:3] for v in values)

    frame = three(x // 2, y // 2, W - 1, H - 1, 100) + b"\0" + picture
    body = b"WEBP" + part(b"VP8X", b"\x12\0\0\0" + three(w - 1, h - 1))
    body += part(b"ANIM", b"\xff\xff\xff\xff\0\0") + part(b"ANMF", frame)
    return b"RIFF" + struct.pack("<I", len(body)) + body


# TIFF -----------------------------------------------------------------------------------------------------------


def tiff(
    s: np.ndarray,
    photometric: int,
    depth: int = 8,
    big: bool = False,
    block: tuple[int, int] | None = None,
    rows: int = 4,
    planar: bool = False,
    compression: int = 1,
    pack: object = lambda b: b,
    extra: dict[int, list[int]] | None = None,
) -> bytes:
    """Samples (rows, columns, samples) as tiles of `block` (width, height), or strips of `rows` rows."""
    o = ">" if big else "<"
    h, w, n = s.shape
    bw, bh = block or (w, rows)
    planes = [s[..., i : i + 1] for i in range(n)] if planar else [s]
    blocks = []
    for plane in planes:
        for y in range(0, h, bh):
            for x in range(0, w, bw):
                part = plane[y : y + bh, x : x + bw]
                if block:
                    part = np.pad(part, ((0, bh - part.shape[0]), (0, bw - part.shape[1]), (0, 0)), constant_values=7)
                blocks.append(pack(part.astype(o + "u2").tobytes() if depth == 16 else bits(part, depth)))
    tags = {256: [w], 257: [h], 258: [depth] * n, 259: [compression], 262: [photometric], 277: [n]}
    tags |= {284: [2]} if planar else {}
    tags |= extra or {}
    offsets, sizes = (324, 325) if block else (273, 279)
    tags |= {322: [bw], 323: [bh]} if block else {278: [rows]}
    at, body = 8, b""
    tags[offsets] = []
    for b in blocks:
        tags[offsets].append(at + len(body))
        body += b
    tags[sizes] = [len(b) for b in blocks]
    body += b"\0" * (len(body) & 1)
    directory = at + len(body)
    loose = directory + 2 + 12 * len(tags) + 4
    entries, far = b"", b""
    for tag, values in sorted(tags.items()):
        data = struct.pack(o + f"{len(values)}I", *values)
        kind = 4
        if tag in (258, 262, 277, 320, 338, 339):
            data, kind = struct.pack(o + f"{len(values)}H", *values), 3
        if len(data) > 4:
            data, far = struct.pack(o + "I", loose + len(far)), far + data
        entries += struct.pack(o + "HHI", tag, kind, len(values)) + data.ljust(4, b"\0")
    head = (b"MM\0*" if big else b"II*\0") + struct.pack(o + "I", directory)
    return head + body + struct.pack(o + "H", len(tags)) + entries + b"\0\0\0\0" + far


def reversed_bits(b: bytes) -> bytes:
    return bytes(int(f"{v:08b}"[::-1], 2) for v in b)


def difference(s: np.ndarray) -> np.ndarray:
    return np.concatenate([s[:, :1], s[:, 1:] - s[:, :-1]], 1)


def make_tiff() -> None:
    im = photo()
    modes = {"rgb": im, "gray": im.convert("L"), "palette": im.quantize(50), "cmyk": im.convert("CMYK")}
    for name, picture in modes.items():
        golden(f"{name}-lzw.tif", save(picture, "TIFF", compression="tiff_lzw"))
    for name in ("tiff_lzw", "tiff_deflate", "tiff_adobe_deflate", "packbits"):
        golden(f"strips-{name}.tif", save(im, "TIFF", compression=name, strip_size=W * 3 * 2))
    for name in ("tiff_lzw", "tiff_adobe_deflate"):
        golden(f"predictor-{name}.tif", save(im, "TIFF", compression=name, tiffinfo={317: 2}))
    large = Image.fromarray(noise(71, 60) // 16)
    golden("lzw-wide-codes.tif", save(large, "TIFF", compression="tiff_lzw", tiffinfo={278: 71}))
    golden("lzw-runs.tif", save(Image.new("L", (300, 12), 77), "TIFF", compression="tiff_lzw"))
    for name in ("group3", "group4"):
        golden(f"{name}.tif", save(photo(40, 30).convert("1"), "TIFF", compression=name))
        golden(f"{name}-white.tif", save(Image.new("1", (40, 7), 1), "TIFF", compression=name))
        golden(f"{name}-lsb.tif", save(photo(40, 30).convert("1"), "TIFF", compression=name, tiffinfo={266: 2}))
    golden("bigtiff.tif", save(im, "TIFF", big_tiff=True))
    pages = [im, im.rotate(180)]
    golden("pages.tif", save(pages[0], "TIFF", save_all=True, append_images=pages[1:]))
    for turn in range(1, 9):
        golden(f"orientation{turn}.tif", save(photo(7, 5), "TIFF", tiffinfo={274: turn}))
    golden("orientation6-lzw.tif", save(photo(7, 5), "TIFF", tiffinfo={274: 6}, compression="tiff_lzw"))
    zipped = {"compression": 8, "pack": zlib.compress}
    for depth in (1, 2, 4, 8):
        s = noise(H, W, 1, seed=depth, below=1 << depth)
        golden(f"white{depth}.tif", tiff(s, 0, depth))
        golden(f"black{depth}-big.tif", tiff(s, 1, depth, big=True))
        golden(f"black{depth}-lsb.tif", tiff(s, 1, depth, pack=reversed_bits, extra={266: [2]}))
        colours = [int(v) for v in noise(3 << depth, seed=3, below=65536)]
        golden(f"palette{depth}.tif", tiff(s, 3, depth, extra={320: colours}))
        golden(f"palette{depth}-tiles.tif", tiff(s, 3, depth, block=(16, 16), extra={320: colours}, **zipped))
    eight, wide = noise(H, W, 5, seed=5), noise(H, W, 5, seed=6, below=65536)
    for big in (False, True):
        end = "-big.tif" if big else ".tif"
        golden(f"rgb16{end}", tiff(wide[..., :3], 2, 16, big))
        golden(f"rgb16-zip{end}", tiff(wide[..., :3], 2, 16, big, **zipped))
        golden(f"rgb16-predictor{end}", tiff(difference(wide[..., :3]), 2, 16, big, extra={317: [2]}, **zipped))
        golden(f"rgba16-multiplied{end}", tiff(wide[..., :4], 2, 16, big, extra={338: [1]}))
        golden(f"cmyk16{end}", tiff(wide[..., :4], 5, 16, big))
        high = (wide[..., 0] >> 8).astype(np.uint8)
        ours(f"gray16{end}", tiff(wide[..., :1], 1, 16, big), high, "the high byte; Pillow clips at 255")
        ours(f"gray16-zip{end}", tiff(wide[..., :1], 1, 16, big, **zipped), high, "the high byte; Pillow clips at 255")
    golden("rgb8-tiles.tif", tiff(eight[..., :3], 2, block=(16, 16)))
    golden("rgb8-tiles-zip.tif", tiff(eight[..., :3], 2, block=(16, 16), **zipped))
    golden("rgb8-planes.tif", tiff(eight[..., :3], 2, planar=True, rows=H))
    golden("rgb8-planes-strips-zip.tif", tiff(eight[..., :3], 2, planar=True, **zipped))
    golden("rgb8-planes-tiles-zip.tif", tiff(eight[..., :3], 2, planar=True, block=(16, 16), **zipped))
    golden("rgb16-planes-zip.tif", tiff(wide[..., :3], 2, 16, planar=True, **zipped))
    golden("rgbx8.tif", tiff(eight[..., :4], 2, extra={338: [0]}))
    golden("rgba8.tif", tiff(eight[..., :4], 2, extra={338: [2]}))
    golden("rgba8-unnamed.tif", tiff(eight[..., :4], 2))
    golden("rgba8-multiplied.tif", tiff(eight[..., :4], 2, extra={338: [1]}))
    golden("rgbax8.tif", tiff(eight, 2, extra={338: [2, 0]}))
    golden("graya8.tif", tiff(eight[..., :2], 1, extra={338: [2]}))
    golden("graya8-zip.tif", tiff(eight[..., :2], 1, extra={338: [2]}, **zipped))
    golden("palettea8.tif", tiff(eight[..., :2], 3, extra={338: [2], 320: [int(v) for v in noise(768, seed=3, below=65536)]}))
    golden("cmykx8.tif", tiff(eight, 5, extra={338: [0]}))
    golden("one-strip.tif", tiff(eight[..., :3], 2, rows=2**32 - 1))


if __name__ == "__main__":
    for folder in (FILES, PIXELS):
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
    make_png()
    make_gif()
    make_bmp()
    make_pnm()
    make_webp()
    make_tiff()
    print(sum(f.stat().st_size for d in (FILES, PIXELS) for f in d.iterdir()), "bytes")
