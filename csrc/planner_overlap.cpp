// How much any two views share: Jaccard weights of their sets of items (tracks, points, rows).
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "planner.h"

namespace grendel {
namespace {

// Items are visited in the order of a view, which is random in memory: the next ones are fetched
// while one is counted. (Four times faster where points are in no order.)
constexpr int64_t kAhead = 8;
// Tracks are short and of many lengths, which no processor can predict. So this many views are copied
// at once, whatever the length, and counted from the copy in one long loop. (A third faster.)
constexpr int64_t kWide = 16;
// Entries below which another thread costs more than it saves.
constexpr int64_t kEntriesPerThread = 1 << 20;

struct Items {
    const int64_t* offsets;  // [items + 1]
    const int32_t* views;    // of each item, ascending
    int64_t count;
};

// Memory that is not written first, in large pages where the system has them: a scatter touches
// many pages at once, and four out of five page faults go.
struct Free {
    void operator()(void* p) const { std::free(p); }
};
template <typename T> using Raw = std::unique_ptr<T[], Free>;

template <typename T> Raw<T> raw(int64_t count) {
    constexpr size_t kPage = 2 << 20;
    const size_t bytes = (size_t(count) * sizeof(T) + kPage) / kPage * kPage;
    void* p = std::aligned_alloc(kPage, bytes);
    if (!p) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    madvise(p, bytes, MADV_HUGEPAGE);
#endif
    return Raw<T>(static_cast<T*>(p));
}

// For each view its items, in ascending order: a counting sort by view, cut into ranges of items.
struct Inverse {
    std::vector<int64_t> starts;
    Raw<uint32_t> items;
    int64_t faults = 0;  // entries that name no view, or one not above the item's previous one

    Inverse(const Items& from, int64_t views, int threads) : starts(size_t(views) + 1) {
        std::vector<int64_t> next(size_t(threads) * size_t(views), 0);
        auto bound = [&](int t) { return from.count * t / threads; };
        int64_t found = 0;
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(+ : found)
        for (int t = 0; t < threads; t++) {
            int64_t* count = &next[t * views];
            for (int64_t p = bound(t); p < bound(t + 1); p++) {
                int32_t previous = -1;
                for (int64_t i = from.offsets[p]; i < from.offsets[p + 1]; i++) {
                    const int32_t view = from.views[i];
                    if (view > previous && view < views) count[view]++;
                    else found++;
                    previous = view;
                }
            }
        }
        faults = found;
        if (faults) return;
        int64_t sum = 0;
        for (int64_t v = 0; v < views; v++) {
            starts[v] = sum;
            for (int t = 0; t < threads; t++) {
                const int64_t count = next[t * views + v];
                next[t * views + v] = sum;
                sum += count;
            }
        }
        starts[views] = sum;
        items = raw<uint32_t>(sum);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
        for (int t = 0; t < threads; t++) {
            int64_t* place = &next[t * views];
            for (int64_t p = bound(t); p < bound(t + 1); p++)
                for (int64_t i = from.offsets[p]; i < from.offsets[p + 1]; i++)
                    items[place[from.views[i]]++] = uint32_t(p);
        }
    }

    int32_t size(int64_t view) const {
        return int32_t(starts[view + 1] - starts[view]);
    }
};

struct Edge {
    float weight;  // positive
    int32_t to;
    // Strong edges come first. Of equal ones the one to the lower view does, so that a choice never
    // depends on how edges were found. (The bits of positive floats are in their order.)
    bool operator<(const Edge& other) const { return rank() < other.rank(); }
    uint64_t rank() const {
        uint32_t bits;
        std::memcpy(&bits, &weight, sizeof bits);
        return uint64_t(~bits) << 32 | uint32_t(to);
    }
};

// The strongest `keep` edges of each view, by ascending view.
class Rows {
public:
    Rows(int64_t views, int64_t keep)
        : keep_(keep), counts_(size_t(views), 0), edges_(new Edge[views * keep]) {}

    void set(int64_t view, std::vector<Edge>& found) {
        size_t count = std::min(found.size(), size_t(keep_));
        if (found.size() > count)
            std::nth_element(found.begin(), found.begin() + int64_t(count), found.end());
        auto by_view = [](const Edge& a, const Edge& b) { return a.to < b.to; };
        std::sort(found.begin(), found.begin() + int64_t(count), by_view);
        std::copy_n(found.begin(), count, edges_.get() + view * keep_);
        counts_[view] = int32_t(count);
    }

    // An edge stays if either end keeps it.
    nb::tuple symmetric() const {
        const int64_t views = int64_t(counts_.size());
        std::vector<int64_t> place(size_t(views) + 1, 0);
        for_all([&](int64_t, const Edge& edge) { place[edge.to + 1]++; });
        for (int64_t v = 0; v < views; v++) place[v + 1] += place[v];
        std::vector<Edge> back(place.back());  // the same edges, seen from `to`
        std::vector<int64_t> next(place.begin(), place.end() - 1);
        for_all([&](int64_t from, const Edge& edge) {
            back[next[edge.to]++] = {edge.weight, int32_t(from)};
        });
        std::vector<int64_t> starts(size_t(views) + 1, 0);
        std::vector<int32_t> neighbours;
        std::vector<float> weights;
        neighbours.reserve(back.size() + back.size() / 8);
        weights.reserve(back.size() + back.size() / 8);
        for (int64_t v = 0; v < views; v++) {
            const Edge *a = edges_.get() + v * keep_, *a_end = a + counts_[v];
            const Edge *b = back.data() + place[v], *b_end = back.data() + place[v + 1];
            while (a != a_end || b != b_end) {
                const Edge& edge = b == b_end || (a != a_end && a->to <= b->to) ? *a : *b;
                neighbours.push_back(edge.to);
                weights.push_back(edge.weight);
                const int32_t to = edge.to;
                if (a != a_end && a->to == to) a++;
                if (b != b_end && b->to == to) b++;
            }
            starts[v + 1] = int64_t(neighbours.size());
        }
        return nb::make_tuple(to_numpy(std::move(starts)), to_numpy(std::move(neighbours)),
                              to_numpy(std::move(weights)));
    }

private:
    template <typename Visit> void for_all(Visit visit) const {
        for (int64_t v = 0; v < int64_t(counts_.size()); v++)
            for (int32_t i = 0; i < counts_[v]; i++) visit(v, edges_[v * keep_ + i]);
    }

    int64_t keep_;
    std::vector<int32_t> counts_;
    std::unique_ptr<Edge[]> edges_;
};

Items checked(Array1<const int64_t> offsets, Array1<const int32_t> views) {
    const int64_t items = int64_t(offsets.shape(0)) - 1, entries = int64_t(views.shape(0));
    const int64_t* offset = offsets.data();
    bool sound = items >= 0 && items < INT64_C(1) << 32 && offset[0] == 0 && offset[items] == entries;
    for (int64_t p = 0; p < items; p++) sound &= offset[p] <= offset[p + 1];
    if (!sound) throw nb::value_error("offsets must rise from 0 to the number of entries");
    return {offset, views.data(), items};
}

// How many items one view shares with every other; one for each thread.
class Counter {
public:
    Counter(const Items& items, int64_t views) : items_(items), shared_(views, 0), copied_(kRoom + kWide) {}

    // Counts the items of a list of them; afterwards `seen` are the views found, in the order in
    // which they came.
    void count(const uint32_t* list, int64_t length) {
        seen.clear();
        const int64_t *offsets = items_.offsets, entries = offsets[items_.count];
        const int32_t* views = items_.views;
        int32_t* copied = copied_.data();
        int64_t filled = 0;
        for (int64_t i = 0; i < length; i++) {
            if (i + 2 * kAhead < length) {
                __builtin_prefetch(offsets + list[i + 2 * kAhead]);
                __builtin_prefetch(views + offsets[list[i + kAhead]]);
            }
            const int64_t first = offsets[list[i]], count = offsets[list[i] + 1] - first;
            if (count <= kWide && first + kWide <= entries) {
                std::memcpy(copied + filled, views + first, kWide * sizeof(int32_t));
                filled += count;
                if (filled > kRoom) filled = flush(copied, filled);
            } else {
                flush(views + first, count);
            }
        }
        flush(copied, filled);
    }

    // The count of a view, which is forgotten.
    int32_t take(int32_t view) { return std::exchange(shared_[view], 0); }

    std::vector<int32_t> seen;

private:
    static constexpr int64_t kRoom = 1024;

    int64_t flush(const int32_t* views, int64_t count) {
        int32_t* shared = shared_.data();
        for (int64_t i = 0; i < count; i++)
            if (shared[views[i]]++ == 0) seen.push_back(views[i]);
        return 0;
    }

    const Items& items_;
    std::vector<int32_t> shared_, copied_;
};

// Counts, for each view, how many items it shares with every other. `place` maps the views of the
// entries to vertices (-1: none). A pair is counted from both ends: that is twice the work of
// counting once, but each row is complete at once and only its strongest edges are ever stored.
// If entries are faulty, their number is returned, and nothing else is done.
nb::tuple overlaps(Array1<const int64_t> offsets, Array1<const int32_t> views,
                   Array1<const int32_t> place, int32_t vertices, int32_t keep, int threads) {
    const Items items = checked(offsets, views);
    const int64_t all = int64_t(place.shape(0));
    const int32_t* vertex = place.data();
    bool sound = keep >= 1 && threads >= 1 && vertices >= 1;
    for (int64_t v = 0; v < all; v++) sound &= vertex[v] < vertices;
    if (!sound) throw nb::value_error("overlaps: a vertex is out of range");

    threads = int(std::min(int64_t(threads), 1 + int64_t(views.shape(0)) / kEntriesPerThread));
    const Inverse inverse(items, all, threads);
    std::vector<int32_t> sizes(vertices, 0);
    std::vector<double> strengths(vertices, 0.0);
    Rows rows(vertices, std::min(keep, vertices));
    if (!inverse.faults) {
#pragma omp parallel num_threads(threads)
        {
            Counter counter(items, all);
            std::vector<Edge> edges;
#pragma omp for schedule(dynamic, 64)
            for (int64_t v = 0; v < all; v++) {
                if (vertex[v] < 0) continue;
                const int64_t size = inverse.size(v);
                counter.count(inverse.items.get() + inverse.starts[v], size);
                edges.clear();
                double strength = 0;
                for (int32_t u : counter.seen) {
                    const int64_t common = counter.take(u), either = size + inverse.size(u) - common;
                    if (u == v || vertex[u] < 0) continue;
                    edges.push_back({float(common) / float(either), vertex[u]});
                    strength += double(edges.back().weight);
                }
                sizes[vertex[v]] = int32_t(size);
                strengths[vertex[v]] = strength;
                rows.set(vertex[v], edges);
            }
        }
    }
    const nb::tuple graph = rows.symmetric();
    return nb::make_tuple(inverse.faults, graph[0], graph[1], graph[2], to_numpy(std::move(sizes)),
                          to_numpy(std::move(strengths)));
}

// The strongest edges of a symmetric graph that is there already.
nb::tuple strongest(Array1<const int64_t> starts, Array1<const int32_t> neighbours,
                    Array1<const float> weights, int32_t keep) {
    const Items rows_in = checked(starts, neighbours);
    if (weights.shape(0) != neighbours.shape(0) || keep < 1)
        throw nb::value_error("strongest: shapes differ");
    Rows rows(rows_in.count, std::min(int64_t(keep), std::max(rows_in.count, int64_t(1))));
    std::vector<Edge> edges;
    for (int64_t v = 0; v < rows_in.count; v++) {
        edges.clear();
        for (int64_t i = rows_in.offsets[v]; i < rows_in.offsets[v + 1]; i++) {
            if (rows_in.views[i] < 0 || rows_in.views[i] >= rows_in.count)
                throw nb::value_error("strongest: a neighbour is out of range");
            edges.push_back({weights.data()[i], rows_in.views[i]});
        }
        rows.set(v, edges);
    }
    return rows.symmetric();
}

}  // namespace

void register_overlap(nb::module_& m) {
    m.def("overlaps", &overlaps, nb::arg("offsets").noconvert(), nb::arg("views").noconvert(),
          nb::arg("place").noconvert(), nb::arg("vertices"), nb::arg("keep"), nb::arg("threads"));
    m.def("strongest", &strongest, nb::arg("starts").noconvert(),
          nb::arg("neighbours").noconvert(), nb::arg("weights").noconvert(), nb::arg("keep"));
}

}  // namespace grendel
