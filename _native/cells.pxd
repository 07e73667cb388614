# Unions of address ranges: segment trees over the cells between neighbouring boundaries of a group.

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

cdef struct Node:
    int64_t length
    int64_t once                                  # bytes that ranges of this subtree cover at least once
    int64_t twice                                 # at least twice
    int64_t count                                 # ranges that cover the entire node

cdef struct Tree:
    Node* nodes
    int64_t leaves                                # a power of two
    int64_t capacity

cdef struct Key:
    int64_t key
    int32_t item


cdef enum:
    INSERTION_MAX = 32                            # keys; more are sorted by radix
    WIDE_DIGIT_MIN = 4096                         # keys; fewer have digits of 8 bits instead of 11
    MAX_ITEMS = 1 << 30                           # per group: 32-bit numbers, two per item


cdef inline void sort_keys(Key* keys, Key* other, int64_t n) noexcept nogil:
    # Stable radix sort by key (not negative). Bits that are equal in all keys are skipped.
    cdef int64_t[2048] count
    cdef int64_t i, total, c
    cdef uint64_t differ, mask, some = 0, every = <uint64_t> -1
    cdef int shift = 0, width = 11 if n >= WIDE_DIGIT_MIN else 8
    cdef Key* a = keys
    cdef Key* b = other
    cdef Key* t
    if n <= INSERTION_MAX:
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


cdef inline bint is_valid_range(int64_t offset, int64_t size) noexcept nogil:
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


cdef inline void update_node(Tree* tree, int64_t i) noexcept nogil:
    # Recompute a node from its count and its children.
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


cdef inline void add_range(Tree* tree, int64_t left, int64_t right, int64_t by) noexcept nogil:
    # Add (by = 1) or remove (-1) a range over the cells [left, right).
    cdef int64_t a = left + tree.leaves, b = right + tree.leaves
    cdef int64_t first, last
    if left >= right:
        return
    first = a
    last = b - 1
    while a < b:
        if a & 1:
            tree.nodes[a].count += by
            update_node(tree, a)
            a += 1
        if b & 1:
            b -= 1
            tree.nodes[b].count += by
            update_node(tree, b)
        a >>= 1
        b >>= 1
    first >>= 1
    last >>= 1
    while first:
        update_node(tree, first)
        if last != first:
            update_node(tree, last)
        first >>= 1
        last >>= 1


cdef inline int64_t exclusive_bytes(
    Tree* tree, int64_t i, int64_t lo, int64_t hi, int64_t left, int64_t right, int64_t above
) noexcept nogil:
    # Bytes of the cells [left, right) that exactly one range covers; `above` ranges are counted in ancestors.
    cdef Node* node = &tree.nodes[i]
    cdef int64_t middle
    if right <= lo or hi <= left or above >= 2:
        return 0
    if left <= lo and hi <= right:
        return node.once - node.twice if above == 0 else node.length - node.once
    middle = (lo + hi) // 2
    above += node.count
    return (
        exclusive_bytes(tree, 2 * i, lo, middle, left, right, above)
        + exclusive_bytes(tree, 2 * i + 1, middle, hi, left, right, above)
    )


cdef inline bint init_tree(Tree* tree, const int64_t* bounds, int64_t cells) noexcept nogil:
    # An empty tree over the cells between neighbouring bounds. Memory is reused from group to group.
    cdef int64_t leaves = 1, i
    cdef Node* nodes
    while leaves < cells:
        leaves *= 2
    if 2 * leaves > tree.capacity:
        nodes = <Node*> realloc(tree.nodes, 2 * leaves * sizeof(Node))
        if nodes == NULL:
            return False
        tree.nodes = nodes
        tree.capacity = 2 * leaves
    tree.leaves = leaves
    memset(tree.nodes, 0, 2 * leaves * sizeof(Node))
    for i in range(cells):
        tree.nodes[leaves + i].length = bounds[i + 1] - bounds[i]
    for i in range(leaves - 1, 0, -1):
        tree.nodes[i].length = tree.nodes[2 * i].length + tree.nodes[2 * i + 1].length
    return True


cdef struct UnionNode:                            # node of a tree that only tracks the union
    int64_t once
    int64_t count

cdef struct Union:
    UnionNode* nodes
    int64_t leaves                                # a power of two
    int64_t capacity
    const int64_t* bounds


cdef inline int64_t add_whole_node(Union* u, int64_t i, int height, int64_t by) noexcept nogil:
    # Add or remove a range that covers the whole node. Returns the growth of the node's union.
    cdef UnionNode* node = &u.nodes[i]
    cdef int64_t before = node.once, first
    node.count += by
    if node.count == 0:
        node.once = 0 if i >= u.leaves else u.nodes[2 * i].once + u.nodes[2 * i + 1].once
    elif node.count == 1 and by > 0:
        first = (i << height) - u.leaves
        node.once = u.bounds[first + (<int64_t> 1 << height)] - u.bounds[first]
    return node.once - before


cdef inline int64_t propagate(Union* u, int64_t i, int64_t change) noexcept nogil:
    # Propagate the growth of a child's union unless a range covers the entire node. Returns the node's growth.
    if u.nodes[i].count:
        return 0
    u.nodes[i].once += change
    return change


cdef inline void add_union_range(Union* u, int64_t left, int64_t right, int64_t by) noexcept nogil:
    # Add or remove a range over the cells [left, right). Only the paths from its first and last cell to the root
    # change.
    cdef int64_t a = left + u.leaves, b = right + u.leaves
    cdef int64_t first = a, last = b - 1
    cdef int64_t change = 0, other = 0
    cdef int height = 0
    if left >= right:
        return
    while True:
        if a < b:
            if a & 1:
                change += add_whole_node(u, a, height, by)
                a += 1
            if b & 1:
                b -= 1
                other += add_whole_node(u, b, height, by)
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
            change = propagate(u, first, change + other)
            other = 0
        else:
            change = propagate(u, first, change)
            other = propagate(u, last, other)


cdef inline bint init_union(Union* u, const int64_t* bounds, int64_t cells) noexcept nogil:
    # An empty union over the cells between neighbouring bounds. Memory is reused from group to group.
    cdef int64_t leaves = 1
    cdef UnionNode* nodes
    while leaves < cells:
        leaves *= 2
    if 2 * leaves > u.capacity:
        nodes = <UnionNode*> realloc(u.nodes, 2 * leaves * sizeof(UnionNode))
        if nodes == NULL:
            return False
        u.nodes = nodes
        u.capacity = 2 * leaves
    u.leaves = leaves
    u.bounds = bounds
    memset(u.nodes, 0, 2 * leaves * sizeof(UnionNode))
    return True


cdef struct Scratch:
    # Scratch memory, sized for the largest group.
    Key* keys
    Key* other
    int64_t* bounds
    int64_t* left                                 # first cell of each item of the group, and the one after its last
    int64_t* right
    Tree tree
    Union union_


cdef inline bint init_scratch(Scratch* w, int64_t most) noexcept nogil:
    memset(w, 0, sizeof(Scratch))
    w.keys = <Key*> malloc((2 * most + 1) * sizeof(Key))
    w.other = <Key*> malloc((2 * most + 1) * sizeof(Key))
    w.bounds = <int64_t*> malloc((2 * most + 1) * sizeof(int64_t))
    w.left = <int64_t*> malloc((most + 1) * sizeof(int64_t))
    w.right = <int64_t*> malloc((most + 1) * sizeof(int64_t))
    return w.keys != NULL and w.other != NULL and w.bounds != NULL and w.left != NULL and w.right != NULL


cdef inline void free_scratch(Scratch* w) noexcept nogil:
    free(w.keys)
    free(w.other)
    free(w.bounds)
    free(w.left)
    free(w.right)
    free(w.tree.nodes)
    free(w.union_.nodes)


cdef inline bint build_tree(Scratch* w, const int64_t* offset, const int64_t* size, int64_t n) noexcept nogil:
    # Build the cells of a group and the tree over them.
    return init_tree(&w.tree, w.bounds, build_cells(w, NULL, offset, size, n))


cdef inline int64_t build_cells(
    Scratch* w, const int32_t* rows, const int64_t* offset, const int64_t* size, int64_t n
) noexcept nogil:
    # Fill bounds, left and right from the rows of the columns (NULL: the first n). Returns the number of cells.
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


cdef inline int64_t largest_group(const int64_t* group, int64_t n) noexcept nogil:
    cdef int64_t i, run = 0, most = 0
    for i in range(n):
        run = run + 1 if i and group[i] == group[i - 1] else 1
        if run > most:
            most = run
    return most
