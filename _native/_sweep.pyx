"""Bytes in unions of address ranges over time: what NumPy cannot do in O(n log n).

All functions take values ordered by group; a group is an allocation (an address space of its own). Live
ranges are closed. A value must end below 2^62, so that no sum of two addresses overflows.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from buffer cimport Buf, drop, push, reserve
from xlamem._column cimport own, own_two

cdef struct Node:
    # A node of a segment tree over the cells between neighbouring boundaries of a group.
    int64_t length
    int64_t once               # bytes covered at least once by ranges of this subtree
    int64_t twice              # at least twice
    int64_t count              # ranges that cover the whole node and were added here

cdef struct Tree:
    Node* nodes
    int64_t leaves             # a power of two
    int64_t room

cdef struct Key:
    int64_t key
    int32_t item


cdef enum:
    FEW = 32                   # keys that are sorted by insertion
    MOST_ITEMS = 1 << 30       # keys of one sort have numbers of 32 bits, two for each item
    MANY = 4096                # keys from which on a wider digit is worth its counts


cdef void sort_keys(Key* keys, Key* other, int64_t n) noexcept nogil:
    # Radix sort by key (not negative), stable; bits that are equal in all keys are skipped.
    cdef int64_t[2048] count
    cdef int64_t i, total, c
    cdef uint64_t differ, mask, some = 0, every = <uint64_t> -1
    cdef int shift = 0, width = 11 if n >= MANY else 8
    cdef Key* a = keys
    cdef Key* b = other
    cdef Key* t
    if n <= FEW:
        insert_keys(keys, n)
        return
    for i in range(n):
        some |= <uint64_t> keys[i].key
        every &= <uint64_t> keys[i].key
    differ = some ^ every
    mask = (1 << width) - 1
    while shift < 64 and differ >> shift:
        if (differ >> shift) & 1 == 0:
            shift += 1
            continue
        memset(count, 0, (mask + 1) * sizeof(int64_t))
        for i in range(n):
            count[(<uint64_t> a[i].key >> shift) & mask] += 1
        total = 0
        for i in range(<int64_t> mask + 1):
            c = count[i]
            count[i] = total
            total += c
        for i in range(n):
            c = (<uint64_t> a[i].key >> shift) & mask
            b[count[c]] = a[i]
            count[c] += 1
        t = a
        a = b
        b = t
        shift += width
    if a != keys:
        memcpy(keys, a, n * sizeof(Key))


cdef inline bint placed(int64_t offset, int64_t size) noexcept nogil:
    # Whether [offset, offset + size) is a range of addresses below 2^62.
    return 0 <= offset <= <int64_t> 1 << 62 and 0 <= size <= (<int64_t> 1 << 62) - offset


cdef inline void insert_keys(Key* keys, int64_t n) noexcept nogil:
    cdef int64_t i, k
    cdef Key key
    for i in range(1, n):
        key = keys[i]
        k = i
        while k > 0 and <uint64_t> keys[k - 1].key > <uint64_t> key.key:
            keys[k] = keys[k - 1]
            k -= 1
        keys[k] = key


cdef inline void settle(Tree* tree, int64_t i) noexcept nogil:
    # Recompute what a node covers from its own count and its children.
    cdef Node* node = &tree.nodes[i]
    cdef Node* left
    cdef bint leaf = i >= tree.leaves
    if node.count >= 2:
        node.once = node.twice = node.length
        return
    if leaf:
        node.once = node.length if node.count else 0
        node.twice = 0
        return
    left = &tree.nodes[2 * i]
    if node.count == 1:
        node.once = node.length
        node.twice = left.once + left[1].once
    else:
        node.once = left.once + left[1].once
        node.twice = left.twice + left[1].twice


cdef void cover(Tree* tree, int64_t left, int64_t right, int64_t by) noexcept nogil:
    # Adds a range over the cells [left, right), or takes it away.
    cdef int64_t a = left + tree.leaves, b = right + tree.leaves
    cdef int64_t first, last
    if left >= right:
        return
    first = a
    last = b - 1
    while a < b:
        if a & 1:
            tree.nodes[a].count += by
            settle(tree, a)
            a += 1
        if b & 1:
            b -= 1
            tree.nodes[b].count += by
            settle(tree, b)
        a >>= 1
        b >>= 1
    first >>= 1
    last >>= 1
    while first:
        settle(tree, first)
        if last != first:
            settle(tree, last)
        first >>= 1
        last >>= 1


cdef int64_t alone(Tree* tree, int64_t i, int64_t lo, int64_t hi, int64_t left, int64_t right, int64_t above) noexcept nogil:
    # Bytes of the cells [left, right) that exactly one range covers; `above`: ranges counted in ancestors.
    cdef Node* node = &tree.nodes[i]
    cdef int64_t middle
    if right <= lo or hi <= left or above >= 2:
        return 0
    if left <= lo and hi <= right:
        return node.once - node.twice if above == 0 else node.length - node.once
    middle = (lo + hi) // 2
    above += node.count
    return alone(tree, 2 * i, lo, middle, left, right, above) + alone(tree, 2 * i + 1, middle, hi, left, right, above)


cdef bint tree_init(Tree* tree, const int64_t* bounds, int64_t cells) noexcept nogil:
    # A tree over the cells between neighbouring bounds; memory is kept from group to group.
    cdef int64_t leaves = 1, i
    cdef Node* nodes
    while leaves < cells:
        leaves *= 2
    if 2 * leaves > tree.room:
        nodes = <Node*> realloc(tree.nodes, 2 * leaves * sizeof(Node))
        if nodes == NULL:
            return False
        tree.nodes = nodes
        tree.room = 2 * leaves
    tree.leaves = leaves
    memset(tree.nodes, 0, 2 * leaves * sizeof(Node))
    for i in range(cells):
        tree.nodes[leaves + i].length = bounds[i + 1] - bounds[i]
    for i in range(leaves - 1, 0, -1):
        tree.nodes[i].length = tree.nodes[2 * i].length + tree.nodes[2 * i + 1].length
    return True


cdef struct Spot:
    # A node of a lean tree, which knows no more than its union.
    int64_t once
    int64_t count

cdef struct Union:
    Spot* nodes
    int64_t leaves             # a power of two
    int64_t room
    const int64_t* bounds


cdef inline int64_t put(Union* u, int64_t i, int height, int64_t by) noexcept nogil:
    # Adds a range that covers the whole node, or takes it away; by how much the node's union grew.
    cdef Spot* node = &u.nodes[i]
    cdef int64_t before = node.once, first
    node.count += by
    if node.count == 0:
        node.once = 0 if i >= u.leaves else u.nodes[2 * i].once + u.nodes[2 * i + 1].once
    elif node.count == 1 and by > 0:
        first = (i << height) - u.leaves
        node.once = u.bounds[first + (<int64_t> 1 << height)] - u.bounds[first]
    return node.once - before


cdef inline int64_t passed(Union* u, int64_t i, int64_t change) noexcept nogil:
    # The change of a child's union is that of the node, unless a range covers it whole.
    if u.nodes[i].count:
        return 0
    u.nodes[i].once += change
    return change


cdef void spread(Union* u, int64_t left, int64_t right, int64_t by) noexcept nogil:
    # Adds a range over the cells [left, right), or takes it away. Nodes that it covers whole hang on the paths from
    # its first and its last cell to the root; only those paths are touched.
    cdef int64_t a = left + u.leaves, b = right + u.leaves
    cdef int64_t first = a, last = b - 1
    cdef int64_t change = 0, other = 0
    cdef int height = 0
    if left >= right:
        return
    while True:
        if a < b:
            if a & 1:
                change += put(u, a, height, by)
                a += 1
            if b & 1:
                b -= 1
                other += put(u, b, height, by)
            a >>= 1
            b >>= 1
        elif change == 0 and other == 0:
            return
        if first == 1:
            return
        first >>= 1
        last >>= 1
        height += 1
        if first == last:
            change = passed(u, first, change + other)
            other = 0
        else:
            change = passed(u, first, change)
            other = passed(u, last, other)


cdef bint union_init(Union* u, const int64_t* bounds, int64_t cells) noexcept nogil:
    # An empty union over the cells between neighbouring bounds; memory is kept from group to group.
    cdef int64_t leaves = 1
    cdef Spot* nodes
    while leaves < cells:
        leaves *= 2
    if 2 * leaves > u.room:
        nodes = <Spot*> realloc(u.nodes, 2 * leaves * sizeof(Spot))
        if nodes == NULL:
            return False
        u.nodes = nodes
        u.room = 2 * leaves
    u.leaves = leaves
    u.bounds = bounds
    memset(u.nodes, 0, 2 * leaves * sizeof(Spot))
    return True


cdef struct Work:
    # Scratch memory, sized for the largest group.
    Key* keys
    Key* other
    int64_t* bounds
    int64_t* left              # cell at which each item of the group begins, and the one behind its end
    int64_t* right
    Tree tree
    Union cover


cdef bint work_init(Work* w, int64_t most) noexcept nogil:
    memset(w, 0, sizeof(Work))
    w.keys = <Key*> malloc((2 * most + 1) * sizeof(Key))
    w.other = <Key*> malloc((2 * most + 1) * sizeof(Key))
    w.bounds = <int64_t*> malloc((2 * most + 1) * sizeof(int64_t))
    w.left = <int64_t*> malloc((most + 1) * sizeof(int64_t))
    w.right = <int64_t*> malloc((most + 1) * sizeof(int64_t))
    return w.keys != NULL and w.other != NULL and w.bounds != NULL and w.left != NULL and w.right != NULL


cdef void work_free(Work* w) noexcept nogil:
    free(w.keys)
    free(w.other)
    free(w.bounds)
    free(w.left)
    free(w.right)
    free(w.tree.nodes)
    free(w.cover.nodes)


cdef bint compress(Work* w, const int64_t* offset, const int64_t* size, int64_t n) noexcept nogil:
    # Boundaries to cells, and the tree over the cells.
    return tree_init(&w.tree, w.bounds, cells_of(w, NULL, offset, size, n))


cdef int64_t cells_of(Work* w, const int32_t* rows, const int64_t* offset, const int64_t* size, int64_t n) noexcept nogil:
    # Boundaries to cells: fills bounds, left and right; the number of cells. `rows` of the columns, NULL for the first.
    cdef int64_t i, row, cells = 0
    cdef int32_t item
    for i in range(n):
        row = i if rows == NULL else rows[i]
        w.keys[2 * i].key = offset[row]
        w.keys[2 * i].item = <int32_t> (2 * i)
        w.keys[2 * i + 1].key = offset[row] + size[row]
        w.keys[2 * i + 1].item = <int32_t> (2 * i + 1)
    sort_keys(w.keys, w.other, 2 * n)
    for i in range(2 * n):
        if i == 0 or w.keys[i].key != w.bounds[cells]:
            cells += i > 0
            w.bounds[cells] = w.keys[i].key
        item = w.keys[i].item
        if item & 1:
            w.right[item >> 1] = cells
        else:
            w.left[item >> 1] = cells
    return cells


cdef int64_t largest_group(const int64_t* group, int64_t n) noexcept nogil:
    cdef int64_t i, run = 0, most = 0
    for i in range(n):
        run = run + 1 if i and group[i] == group[i - 1] else 1
        if run > most:
            most = run
    return most


ctypedef fused Step:
    int32_t
    int64_t


def covered(const int32_t[::1] rows not None, const int32_t[::1] group not None,
            const Step[::1] start not None, const Step[::1] end not None,
            const int64_t[::1] offset not None, const int64_t[::1] size not None,
            const int64_t[::1] space not None, int64_t[:, ::1] changes not None):
    """Add to `changes[s, t]` by how much the bytes that live values cover in space s grow at step t.

    Values are those of the `rows` of the columns, in the order of their groups; `space[g]` is the space of group g.
    Returns the most of each group at any step: int64 of len(space).
    """
    cdef Buf peaks
    cdef Py_ssize_t n = rows.shape[0], every = group.shape[0], steps = changes.shape[1], i, j, k = 0, m, row
    cdef int64_t* out
    cdef int64_t* most
    cdef int64_t t, before, now, largest = 0
    cdef int32_t g = -1
    cdef Work w
    cdef bint good = True
    if start.shape[0] != every or end.shape[0] != every or offset.shape[0] != every or size.shape[0] != every:
        raise ValueError("columns of one table must have one length")
    for i in range(space.shape[0]):
        if not 0 <= space[i] < changes.shape[0]:
            raise ValueError("a group must be of a space")
    for i in range(n):
        row = rows[i]
        if not 0 <= row < every:
            raise ValueError("rows must be of the table")
        if not (0 <= group[row] < space.shape[0] and 0 <= start[row] <= end[row] < steps and placed(offset[row], size[row])):
            raise ValueError("a live range must lie in the schedule and a value in its group")
        if group[row] < g:
            raise ValueError("values must be ordered by group")
        if group[row] != g:
            k = i
            g = group[row]
        largest = max(largest, i + 1 - k)
    if largest >= MOST_ITEMS:
        raise ValueError("too many values in one group")
    memset(&peaks, 0, sizeof(Buf))
    with nogil:
        zeros(&peaks, space.shape[0], 0)
        most = <int64_t*> peaks.data
        good = work_init(&w, largest) and not peaks.failed
        i = 0
        while i < n and good:
            g = group[rows[i]]
            out = &changes[space[g], 0]
            j = i + 1
            while j < n and group[rows[j]] == g:
                j += 1
            m = j - i
            if m == 1:
                row = rows[i]
                add(out, steps, start[row], size[row])
                add(out, steps, <int64_t> end[row] + 1, -size[row])
                most[g] = size[row]
            else:
                good = union_init(&w.cover, w.bounds, cells_of(&w, &rows[i], &offset[0], &size[0], m))
                for k in range(m):
                    w.keys[2 * k].key = start[rows[i + k]]
                    w.keys[2 * k].item = <int32_t> (2 * k)
                    w.keys[2 * k + 1].key = <int64_t> end[rows[i + k]] + 1
                    w.keys[2 * k + 1].item = <int32_t> (2 * k + 1)
                if good:
                    sort_keys(w.keys, w.other, 2 * m)
                    before = 0
                    k = 0
                    while k < 2 * m:
                        t = w.keys[k].key
                        while k < 2 * m and w.keys[k].key == t:
                            spread(&w.cover, w.left[w.keys[k].item >> 1], w.right[w.keys[k].item >> 1],
                                   -1 if w.keys[k].item & 1 else 1)
                            k += 1
                        now = w.cover.nodes[1].once
                        add(out, steps, t, now - before)
                        before = now
                        if now > most[g]:
                            most[g] = now
            i = j
        work_free(&w)
    if not good:
        drop(&peaks)
        raise MemoryError("no memory for a sweep")
    return own(&peaks)


cdef inline void zeros(Buf* b, Py_ssize_t n, int64_t value) noexcept nogil:
    # n numbers, all the same.
    cdef Py_ssize_t left = n
    reserve(b, n * 8)
    while left > 0:
        push(b, value)
        left -= 1


cdef inline void add(int64_t* out, int64_t steps, int64_t t, int64_t by) noexcept nogil:
    if t < steps:
        out[t] += by


def charge(const int64_t[::1] group not None, const int64_t[::1] ids not None,
           const int64_t[::1] offset not None, const int64_t[::1] size not None):
    """Of values live together: the bytes charged to each (shared ones to the lowest id), and its bytes alone.

    Values must be ordered by group and id. Returns two int64 columns.
    """
    cdef Buf charged, single
    cdef Py_ssize_t n = group.shape[0], i, j, k
    cdef int64_t before
    cdef Work w
    cdef bint good = True
    if ids.shape[0] != n or offset.shape[0] != n or size.shape[0] != n:
        raise ValueError("columns of one table must have one length")
    if n >= MOST_ITEMS:
        raise ValueError("too many values in one group")
    for i in range(n):
        if not placed(offset[i], size[i]):
            raise ValueError("a value must lie in its group")
        if i and (group[i] < group[i - 1] or (group[i] == group[i - 1] and ids[i] < ids[i - 1])):
            raise ValueError("values must be ordered by group and id")
    memset(&charged, 0, sizeof(Buf))
    memset(&single, 0, sizeof(Buf))
    with nogil:
        good = work_init(&w, largest_group(&group[0], n) if n else 0)
        i = 0
        while i < n and good:
            j = i + 1
            while j < n and group[j] == group[i]:
                j += 1
            good = compress(&w, &offset[i], &size[i], j - i)
            for k in range(j - i if good else 0):
                before = w.tree.nodes[1].once
                cover(&w.tree, w.left[k], w.right[k], 1)
                push(&charged, w.tree.nodes[1].once - before)
            for k in range(j - i if good else 0):
                push(&single, alone(&w.tree, 1, 0, w.tree.leaves, w.left[k], w.right[k], 0))
            i = j
        work_free(&w)
    charged.failed |= not good
    return own_two(&charged, &single)


cdef struct Best:
    # A segment tree of maxima over the steps.
    int64_t* most
    int64_t leaves


cdef int64_t most_in(Best* best, int64_t a, int64_t b) noexcept nogil:
    # Largest of the steps [a, b].
    cdef int64_t found = -1
    a += best.leaves
    b += best.leaves + 1
    while a < b:
        if a & 1:
            if best.most[a] > found:
                found = best.most[a]
            a += 1
        if b & 1:
            b -= 1
            if best.most[b] > found:
                found = best.most[b]
        a >>= 1
        b >>= 1
    return found


cdef struct Live:
    # Candidates that are live, by rank of their offset: the largest end of any live one below each node.
    int64_t* far
    int64_t leaves
    int32_t* item              # candidate (item of the group) of each rank
    int64_t* at                # its offset
    int64_t n


cdef void live_set(Live* live, int64_t rank, int64_t end) noexcept nogil:
    cdef int64_t i = rank + live.leaves
    live.far[i] = end
    i >>= 1
    while i:
        live.far[i] = live.far[2 * i] if live.far[2 * i] > live.far[2 * i + 1] else live.far[2 * i + 1]
        i >>= 1


cdef void touch(Live* live, int64_t i, int64_t lo, int64_t hi, int64_t below, int64_t offset, Buf* dirty) noexcept nogil:
    # Notes each live candidate of a rank below `below` that ends behind `offset`.
    cdef int64_t middle
    if lo >= below or live.far[i] <= offset:
        return
    if hi - lo == 1:
        push(dirty, live.item[lo])
        return
    middle = (lo + hi) // 2
    touch(live, 2 * i, lo, middle, below, offset, dirty)
    touch(live, 2 * i + 1, middle, hi, below, offset, dirty)


def inside(const int64_t[::1] start not None, const int64_t[::1] end not None, const int64_t[::1] offset not None,
           const int64_t[::1] size not None, const unsigned char[::1] candidate not None,
           const int64_t[::1] occupied not None):
    """For each candidate of one group: the most over its live range of occupied(t) - bytes that it alone covers.

    `occupied` is that of the whole space, a number a step. Returns int64; -1 for values that are no
    candidates. Steps at which nothing that overlaps a candidate comes or goes are taken together.
    """
    cdef Buf result, dirty
    cdef Py_ssize_t n = start.shape[0], steps = occupied.shape[0], i, k
    cdef int64_t t, item, c, below
    cdef int64_t* out
    cdef int64_t* since = NULL      # step from which a candidate's bytes alone are `own_bytes`
    cdef int64_t* own_bytes = NULL
    cdef int64_t* rank = NULL
    cdef Key* order = NULL
    cdef Work w
    cdef Best best
    cdef Live live
    cdef bint good
    if end.shape[0] != n or offset.shape[0] != n or size.shape[0] != n or candidate.shape[0] != n:
        raise ValueError("columns of one table must have one length")
    if n >= MOST_ITEMS:
        raise ValueError("too many values in one group")
    for i in range(n):
        if not (0 <= start[i] <= end[i] < steps and placed(offset[i], size[i])):
            raise ValueError("a live range must lie in the schedule and a value in its group")
    memset(&result, 0, sizeof(Buf))
    memset(&dirty, 0, sizeof(Buf))
    memset(&best, 0, sizeof(Best))
    memset(&live, 0, sizeof(Live))
    with nogil:
        zeros(&result, n, -1)
        out = <int64_t*> result.data
        good = work_init(&w, n) and not result.failed
        best.leaves = 1
        while best.leaves < steps:
            best.leaves *= 2
        live.leaves = 1
        for i in range(n):
            live.n += candidate[i]
        while live.leaves < live.n:
            live.leaves *= 2
        best.most = <int64_t*> malloc(2 * best.leaves * 8)
        live.far = <int64_t*> malloc(2 * live.leaves * 8)
        live.item = <int32_t*> malloc((live.n + 1) * 4)
        live.at = <int64_t*> malloc((live.n + 1) * 8)
        since = <int64_t*> malloc((n + 1) * 8)
        own_bytes = <int64_t*> malloc((n + 1) * 8)
        rank = <int64_t*> malloc((n + 1) * 8)
        order = <Key*> malloc((live.n + 1) * sizeof(Key))
        good = (good and best.most != NULL and live.far != NULL and live.item != NULL and live.at != NULL
                and since != NULL and own_bytes != NULL and rank != NULL and order != NULL)
        if good and n:
            for i in range(best.leaves):
                best.most[best.leaves + i] = occupied[i] if i < steps else -1
            for i in range(best.leaves - 1, 0, -1):
                best.most[i] = best.most[2 * i] if best.most[2 * i] > best.most[2 * i + 1] else best.most[2 * i + 1]
            memset(live.far, 255, 2 * live.leaves * 8)
            k = 0
            for i in range(n):
                rank[i] = -1
                since[i] = -1
                if candidate[i]:
                    order[k].key = offset[i]
                    order[k].item = <int32_t> i
                    k += 1
            sort_keys(order, w.other, live.n)
            for i in range(live.n):
                live.item[i] = order[i].item
                live.at[i] = order[i].key
                rank[order[i].item] = i
            good = compress(&w, &offset[0], &size[0], n)
            for i in range(n):
                w.keys[2 * i].key = start[i]
                w.keys[2 * i].item = <int32_t> (2 * i)
                w.keys[2 * i + 1].key = end[i] + 1
                w.keys[2 * i + 1].item = <int32_t> (2 * i + 1)
            sort_keys(w.keys, w.other, 2 * n)
            k = 0
            while k < 2 * n and good:
                t = w.keys[k].key
                dirty.size = 0
                i = k
                while i < 2 * n and w.keys[i].key == t:
                    item = w.keys[i].item >> 1
                    cover(&w.tree, w.left[item], w.right[item], -1 if w.keys[i].item & 1 else 1)
                    if rank[item] >= 0 and w.keys[i].item & 1:
                        # It ends: its last stretch is over.
                        if since[item] >= 0 and since[item] < t:
                            c = most_in(&best, since[item], t - 1) - own_bytes[item]
                            if c > out[item]:
                                out[item] = c
                        since[item] = -2
                        live_set(&live, rank[item], -1)
                    elif rank[item] >= 0:
                        live_set(&live, rank[item], offset[item] + size[item])
                        push(&dirty, item)
                    if size[item]:
                        below = ranks_below(&live, offset[item] + size[item])
                        touch(&live, 1, 0, live.leaves, below, offset[item], &dirty)
                    i += 1
                for i in range(<Py_ssize_t> (dirty.size // 8)):
                    item = (<int64_t*> dirty.data)[i]
                    if since[item] == t or since[item] == -2:
                        continue
                    if since[item] >= 0:
                        c = most_in(&best, since[item], t - 1) - own_bytes[item]
                        if c > out[item]:
                            out[item] = c
                    since[item] = t
                    own_bytes[item] = alone(&w.tree, 1, 0, w.tree.leaves, w.left[item], w.right[item], 0)
                while k < 2 * n and w.keys[k].key == t:
                    k += 1
        work_free(&w)
        free(best.most)
        free(live.far)
        free(live.item)
        free(live.at)
        free(since)
        free(own_bytes)
        free(rank)
        free(order)
        good = good and not dirty.failed
        drop(&dirty)
    if not good:
        drop(&result)
        raise MemoryError("no memory for a sweep")
    return own(&result)


cdef int64_t ranks_below(Live* live, int64_t end) noexcept nogil:
    # Number of candidates whose offset lies below `end`.
    cdef int64_t lo = 0, hi = live.n, middle
    while lo < hi:
        middle = (lo + hi) // 2
        if live.at[middle] < end:
            lo = middle + 1
        else:
            hi = middle
    return lo
