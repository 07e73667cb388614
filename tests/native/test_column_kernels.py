"""The kernels on columns, against a few lines of Python: every small input, and random ones."""

from __future__ import annotations

import random
from bisect import bisect_left
from itertools import pairwise, permutations, product
from typing import Any

import numpy as np
import pytest

from xlamem import _allocations, _rules
from xlamem._column import Names, distinct, first_rows, hashes, in_order, positions, recode, rows_of, take
from xlamem.parse.arrays import NULL, codes, ints

TOP = (1 << 63) - 1


def long(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


def short(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int32)


def bits(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.uint8)


# -- cross-checks


def test_beyond() -> None:
    rooms = (0, 5, 6, -1, NULL, TOP)
    numbers = (NULL, -1, 0, 1, 5, 6, TOP)
    rows = list(product((-1, 0, 1, 2, 3, 4, 5, 6), numbers, numbers))

    def outside(owner: int, offset: int, size: int) -> bool:
        offset, size = (0 if n == NULL else n for n in (offset, size))
        return 0 <= owner < len(rooms) and (min(offset, size) < 0 or offset + size > rooms[owner])

    owner, offset, size = (long(*c) for c in zip(*rows, strict=True))
    found = ints(_rules.beyond(long(*rooms), owner, offset, size)).tolist()
    assert found == [i for i, row in enumerate(rows) if outside(*row)]
    for k in range(3):
        columns = [owner, offset, size]
        columns[k] = columns[k][1:]
        with pytest.raises(ValueError, match="one length"):
            _rules.beyond(long(*rooms), *columns)


def agreed(order: list[int], values: list[Any], records: list[Any], first: int) -> bool:
    rows = list(zip(*values, strict=True))
    wanted = order[first : first + len(records[0])] if first >= 0 else []
    found = [rows[k] if 0 <= k < len(rows) else None for k in wanted]
    return found == list(zip(*records, strict=True))


def test_agree() -> None:
    """Records of any ids, each with one number changed."""
    for n in (1, 2, 3, 40):
        order = [(7 * i + 3) % n if n % 7 else i for i in range(n)]
        records: list[Any] = [
            [3 * i for i in range(n)], [i % 5 - 1 for i in range(n)], [1] * n, [-i for i in range(n)],
            [7 + 2 * i for i in range(n)],
        ]  # fmt: skip
        values: list[Any] = [[c[order.index(k)] for k in range(n)] for c in records]

        def check(records: list[Any], first: int = 0, order: list[int] = order, values: Any = values) -> bool:
            types = (np.int32, np.int32, np.uint8, np.int64, np.int64)
            columns, given = (tuple(np.array(c, t) for c, t in zip(r, types, strict=True)) for r in (records, values))
            found = _rules.agree(short(*order), given, columns, first)
            assert found == agreed(order, values, records, first)
            return bool(found)

        assert check(records)
        for first in range(n + 1):
            assert check([c[first:] for c in records], first)
            assert check([c[first : first + 2] for c in records], first)
        assert not check(records, 1)
        assert not check(records, -1)
        assert not check(records, values=[c[: n - 1] for c in values])
        assert not check(records, order=[-1, *order[1:]])
        assert not check(records, order=[*order[:-1], n])
        for column in range(5):
            for row in {0, n // 2, n - 1}:
                for other in (-1, 1, 2):
                    wrong = [list(c) for c in records]
                    wrong[column][row] = wrong[column][row] + other if column != 2 else 0
                    assert not check(wrong), (column, row, other)
        check([c[: n // 2] + c[n // 2 + 1 :] for c in records])
        check([c[:1] * 2 for c in records])
        for key in (6, 7 + 2 * n - 1, 7 + 2 * n, 7 + (1 << 32), -TOP, TOP, NULL):
            check([c[:1] for c in records[:4]] + [[key]])
    for k in range(4):
        values, records = ([short(1), short(1), bits(1), long(1), long(1)] for _ in range(2))
        assert _rules.agree(short(0), tuple(values), tuple(records), 0)
        for columns in (values, records):
            kept, columns[k] = columns[k], columns[k][:0]
            with pytest.raises(ValueError, match="one length"):
                _rules.agree(short(0), tuple(values), tuple(records), 0)
            columns[k] = kept


def test_live_at() -> None:
    rows = list(product((-2, -1, 0, 1, 2), (3, 4, 5, 6), (3, 4, 5, 6)))
    owner, start, end = (np.array(c, t) for c, t in zip(zip(*rows, strict=True), ("i4", "i8", "i8"), strict=True))
    for full in product((0, 1, 2), repeat=2):
        for step in (2, 3, 4, 5, 6, 7):
            seen = bits(0, 0)
            expected = sum(1 for o, s, e in rows if 0 <= o < 2 and full[o] and s <= step <= e)
            assert _rules.live_at(step, owner, start, end, bits(*full), seen) == expected
            assert seen.tolist() == [1, 1]
    seen = bits(0, 0, 0)
    assert _rules.live_at(4, short(1, 1, -1, 3), long(4, 9, 4, 4), long(4, 9, 4, 4), bits(1, 1, 1), seen) == 1
    assert seen.tolist() == [0, 1, 0]
    one, flag = long(1), bits(1)
    for bad in ((one[:0], one, flag, flag), (one, one[:0], flag, flag), (one, one, flag[:0], flag)):
        with pytest.raises(ValueError, match="one length"):
            _rules.live_at(1, short(0), *bad)


def test_unseen() -> None:
    for wanted in product((0, 1, 3), repeat=2):
        rows = list(product((-TOP, -1, 0, 1, 2), (0, 1, 2)))
        owner, seen = long(*(o for o, _ in rows)), bits(*(s for _, s in rows))
        expected = [i for i, (o, s) in enumerate(rows) if not s and 0 <= o < 2 and wanted[o]]
        assert ints(_rules.unseen(bits(*wanted), owner, seen)).tolist() == expected
    for seen in (bits(), bits(0, 0)):
        with pytest.raises(ValueError, match="one length"):
            _rules.unseen(bits(1), long(0), seen)


def test_first_gap() -> None:
    for n in range(4):
        for values in product((2, 3, 4, 5), repeat=n):
            expected = next((i for i, v in enumerate(values) if v != 3 + i), -1)
            assert _rules.first_gap(long(*values), 3) == expected


# -- rows by key


def test_distinct() -> None:
    rng = random.Random(0)
    for n in (0, 1, 2, 15, 16, 17, 18):
        for _ in range(20):
            few = rng.sample(range(-40, 40), n)
            values = few + rng.choices(few or [0], k=rng.randrange(30) if few else 0)
            rng.shuffle(values)
            assert distinct(long(*values)) == (sorted(few) if n <= 16 else None)


@pytest.mark.parametrize("low", [-5, 0, NULL, TOP - 1300])
def test_first_rows(low: int) -> None:
    """Few keys are dense if the highest is at most 64 n + 1024 above the lowest."""
    for n, span, dense in ((1, 0, True), (2, 1152, True), (2, 1153, False), (3, 1216, True), (3, 1217, False)):
        keys = [low + min(span, TOP - low), *[low + i for i in range(n - 1)]][:n]
        found, rows = first_rows(long(*keys))
        assert found == min(keys)
        assert (rows is not None) == (dense or max(keys) - min(keys) <= 64 * n + 1024)
        if rows is not None:
            wanted = [keys[0] - 1, *keys, keys[0] + 1, low - 1, low + 500, NULL, TOP]
            wanted = [w for w in wanted if NULL <= w <= TOP]
            expected = [keys.index(w) if w in keys else -1 for w in wanted]
            assert ints(rows_of(codes(rows), found, long(*wanted))).tolist() == expected
    assert first_rows(long()) == (0, None)


@pytest.mark.parametrize(("n", "span"), [(70_000, 1 << 22), (600_000, 8 * 600_000)])
def test_tables_of_many_rows_are_small(n: int, span: int) -> None:
    """With many keys, the highest may be 2^22 or 8 n, whichever is more, and 1024 above the lowest."""
    keys = np.arange(n)
    for more, dense in ((1024, True), (1025, False)):
        keys[-1] = span + more
        assert (first_rows(keys)[1] is not None) == dense


def test_first_rows_of_repeated_keys() -> None:
    for keys in product((4, 5, 6), repeat=4):
        low, rows = first_rows(long(*keys))
        table = [keys.index(low + k) + 1 if low + k in keys else 0 for k in range(max(keys) - low + 1)]
        assert (low, codes(rows).tolist()) == (min(keys), table)


def test_positions() -> None:
    """As many keys as are below each wanted one, in whatever order these are."""
    rng = random.Random(1)
    for n in (*range(8), 100, 1000):
        keys = sorted(rng.randrange(-n, 2 * n) for _ in range(n))
        all_wanted = [*range(-n - 1, 2 * n + 1)]
        for wanted in (all_wanted, all_wanted[::-1], rng.choices(all_wanted, k=99), [NULL, TOP, NULL]):
            expected = [bisect_left(keys, key) for key in wanted]
            for type_ in (np.int32, np.int64):
                assert ints(positions(np.array(keys, type_), long(*wanted))).tolist() == expected
    ends = long(NULL, NULL, -1, TOP, TOP)
    assert ints(positions(ends, ends)).tolist() == [0, 0, 2, 3, 3]
    assert ints(positions(ends, long())).tolist() == []


def test_in_order() -> None:
    for some in ((-3, -2, 0, 1030, 1), (-3, -2, 0, 4, 1), (NULL, TOP, 0, 5, -TOP)):
        for n in range(5):
            for ids in permutations(some, n):
                assert codes(in_order(long(*ids))).tolist() == sorted(range(n), key=lambda i: ids[i])
    for ids in ((1, 1), (1, 2, 1), (2, 1, 1), (1, 2, 3, 3), (1, TOP, 1), (NULL, 5, TOP, TOP)):
        assert in_order(long(*ids)) is None


@pytest.mark.parametrize("step", [1, 7, 8, 9, 1000, 1 << 40])
@pytest.mark.parametrize("n", [31, 33, 5000])
def test_many_rows_in_order(n: int, step: int) -> None:
    """By a table, by insertion or by digits, depending on how many ids there are and how far apart."""
    ids = np.random.default_rng(n).permutation(n) * step - 17
    assert codes(in_order(ids)).tolist() == np.argsort(ids).tolist()
    ids[n // 2] = ids[n // 3]
    assert in_order(ids) is None


def test_take() -> None:
    for items in (long(5, -6, TOP), short(5, -6, 7)):
        for n in range(4):
            for rows in product((-1, 0, 1, 2, 3), repeat=n):
                if all(0 <= r < 3 for r in rows):
                    column = take(items, short(*rows))
                    assert (codes if items.dtype == np.int32 else ints)(column).tolist() == [items[r] for r in rows]
                else:
                    with pytest.raises(IndexError):
                        take(items, short(*rows))


def murmur(text: bytes) -> int:
    """MurmurHash64A with seed 0."""
    m, mask = 0xC6A4A7935BD1E995, (1 << 64) - 1
    h = len(text) * m & mask
    for i in range(0, len(text), 8):
        part = text[i : i + 8]
        k = int.from_bytes(part, "little")
        if len(part) == 8:
            k = k * m & mask
            k = (k ^ k >> 47) * m & mask
        h = (h ^ k) * m & mask
    h = (h ^ h >> 47) * m & mask
    return h ^ h >> 47


def test_hashes() -> None:
    rng = random.Random(0)
    texts = [rng.randbytes(n) for n in range(41)] + [b"", b"\0", b"\0" * 9, b"\xff" * 16]
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    out = np.empty(len(texts), np.int64)
    hashes(b"".join(texts), offsets, out)
    assert [h & (1 << 64) - 1 for h in out.tolist()] == [murmur(t) for t in texts]


def test_recode() -> None:
    """Codes from `first` on are replaced; the others, and nulls, are not."""
    line = b"allocation %d: size 8, output shape is |%c|, maybe-live-out:\n"
    text = b"".join(line % (i, c) for i, c in enumerate(b"abcab")) + b"allocation 5: size 8:\n"
    for first in range(5):
        for n in range(5):
            column = _allocations.scan(text, 0, len(text), Names(), Names(), Names())[0]["allocations"]["output_shape"]
            before = codes(column).tolist()
            assert before == [0, 1, 2, 0, 1, -1]
            given = short(*range(70, 70 + n))
            if first + n >= 3:
                recode(column, given, first)
                assert codes(column).tolist() == [c if c < first else 70 + c - first for c in before]
            else:
                with pytest.raises(IndexError):
                    recode(column, given, first)


# -- names


def text_of(names: Names) -> list[bytes]:
    data, ends = names.export()
    text = bytes(data)
    return [text[a:b] for a, b in pairwise([0, *ints(ends).tolist()])]


@pytest.mark.parametrize("seed", range(6))
def test_codes_of_a_column_of_texts(seed: int) -> None:
    """Added or looked up, in any order, beyond the first size of the table."""
    rng = random.Random(seed)
    names, known = Names(), dict[bytes, int]()
    if seed % 2:
        names.expect(rng.choice((0, 1, 170, 171, 172, 300, 5000)))
    for _ in range(12):
        texts = [b"n.%d" % rng.randrange(700) + b"x" * rng.choice((0, 0, 30)) for _ in range(rng.randrange(120))]
        texts += rng.choices([b"", b"a", b"b" * 32, b"b" * 33], k=rng.randrange(3))
        offsets, out = np.cumsum([0, *map(len, texts)]).astype(np.int32), np.empty(len(texts), np.int32)
        add = rng.random() < 0.7
        names.codes(b"".join(texts), offsets, out, add)
        for text in texts if add else ():
            known.setdefault(text, len(known))
        assert out.tolist() == [known.get(t, -1) for t in texts]
        assert len(names) == len(known)
    assert text_of(names) == list(known)
    assert 1 <= names.longest_probe() < 60
    assert Names().longest_probe() == 0


def test_texts_must_lie_in_the_data() -> None:
    names, out = Names(), np.empty(1, np.int32)
    for offsets in ((0, 3), (-1, 1), (0,), (0, 1, 1)):
        with pytest.raises(IndexError):
            names.codes(b"ab", short(*offsets), out, True)
    names.codes(b"ab", short(0, 2), out, True)
    names.codes(b"ab", short(1, 0), out, True)
    assert text_of(names) == [b"ab", b""]


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 64, 65, 500])
def test_names_of_others(n: int) -> None:
    """Looked up by parts, and added in their order."""
    for have in (0, 1, n // 2, n):
        ours, theirs = Names(), Names()
        for i in range(have):
            ours.code(b"t%d" % (3 * i))
        for i in range(n):
            theirs.code(b"t%d" % i)
        known = {text: i for i, text in enumerate(text_of(ours))}
        found = np.full(n, -7, np.int32)
        for begin, end in ((0, n // 3), (n // 3, n // 3), (n // 3, n)):
            ours.look_up(theirs, found, begin, end)
        assert found.tolist() == [known.get(text, -1) for text in text_of(theirs)]
        same = ours.add(theirs, found)
        for text in text_of(theirs):
            known.setdefault(text, len(known))
        assert found.tolist() == [known[text] for text in text_of(theirs)]
        assert same == (found.tolist() == list(range(n)))
        assert text_of(ours) == list(known)
        for text, code in known.items():
            assert ours.code(text) == code
    for begin, end in ((-1, n), (0, n + 1), (n, n - 1)):
        with pytest.raises(IndexError):
            ours.look_up(theirs, np.empty(n + 1, np.int32), begin, end)
    with pytest.raises(IndexError):
        ours.look_up(theirs, np.empty(n, np.int32), 0, n + 1)
    for wrong in (n + 1, n - 1) if n else (1,):
        with pytest.raises(IndexError):
            ours.add(theirs, np.full(wrong, -1, np.int32))


@pytest.mark.parametrize("n", [0, 1, 170, 171, 172, 400, 60_000])
def test_what_a_base_holds(n: int) -> None:
    """Names on a snapshot find its texts, and give the next codes to others; what follows in the base is not seen."""
    base = Names()
    for i in range(n):
        base.code(b"b%d" % i)
    if n == 400:
        base.expect(4000)
    known = base.snapshot()
    base.code(b"later")
    names = Names(known)
    assert (len(names), names.n_base) == (n, n)
    for i in (0, n // 2, n - 1) if n else ():
        assert names.code(b"b%d" % i) == i
    assert names.code(b"later") == n
    assert [names.code(b"own%d" % i) for i in range(300)] == list(range(n + 1, n + 301))
    assert names.code(b"later") == n
    assert base.code(b"later") == n
    for call in (lambda: names.longest_probe(), lambda: len(names)):
        call()
    if n:
        for refused in (names.export, names.snapshot):
            with pytest.raises(ValueError, match="have a base"):
                refused()
        for pair in ((names, base), (base, names)):
            assert not pair[0].adopt(pair[1])


def test_long_texts() -> None:
    """Of more bytes than are copied when a block grows."""
    names = Names()
    texts = [b"n%d." % i * (1 + i % 7) * 5 for i in range(12_000)]
    assert [names.code(t) for t in texts] == list(range(len(texts)))
    assert text_of(names) == texts
