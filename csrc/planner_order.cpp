// The static data schedule: orders of views in which consecutive units share little.
#include <array>
#include <numeric>

#include "planner.h"

namespace grendel {
namespace {

class Random {  // splitmix64: the same numbers on every machine
public:
    Random(uint64_t seed, uint64_t epoch) : state_(mix(seed) ^ mix(~epoch)) {}

    size_t below(size_t limit) {  // limits are far below 2^32, so the bias is below 2^-32
        state_ += 0x9e3779b97f4a7c15ull;
        return size_t(((mix(state_) >> 32) * uint64_t(limit)) >> 32);
    }

private:
    static uint64_t mix(uint64_t x) {
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
        return x ^ (x >> 31);
    }
    uint64_t state_;
};

struct Views {  // of one unit
    const int32_t* data;
    int64_t count;
};

double coupling(const LocalityGraph& graph, int32_t view, Views unit) {
    double sum = 0;
    for (int64_t i = 0; i < unit.count; i++) sum += graph.weight(view, unit.data[i]);
    return sum;
}

double coupling(const LocalityGraph& graph, Views a, Views b) {
    double sum = 0;
    for (int64_t i = 0; i < a.count; i++) sum += coupling(graph, a.data[i], b);
    return sum;
}

constexpr double kNothing = 1e-9;      // less is rounding
constexpr double kWorthwhile = 0.01;  // of the sum of squares, for another round of exchanges

// What the drawing of an epoch goes by.
struct Draw {
    const int32_t* groups;  // of each view
    int32_t group_count, batch, candidates;
    bool compact;  // all views of a unit from one group
};

// Couplings of every view with one unit, kept by adding and taking away that unit's edges.
class Scores {
public:
    explicit Scores(const LocalityGraph& graph) : graph_(graph), score_(size_t(graph.views()), 0.0) {}

    void add(Views unit, double sign) {
        for (int64_t i = 0; i < unit.count; i++) {
            const int32_t u = unit.data[i];
            score_[u] += sign;
            if (graph_.unknown(u)) unknown_ += sign;
            for (int64_t e = graph_.start(u); e < graph_.start(u + 1); e++)
                score_[graph_.neighbour(e)] += sign * graph_.edge_weight(e);
        }
        size_ += sign * double(unit.count);
    }

    double of(int32_t view) const {
        const double unseen = graph_.unknown(view) ? size_ : unknown_;
        return score_[view] + unseen * graph_.unknown_weight();
    }

private:
    const LocalityGraph& graph_;
    std::vector<double> score_;
    double size_ = 0, unknown_ = 0;
};

// The groups' views that are still to be drawn, and the rotation over groups.
class Pools {
public:
    Pools(const Draw& draw, int64_t views) : pools_(size_t(draw.group_count)), credit_(pools_.size(), 0) {
        for (int64_t v = 0; v < views; v++) pools_[draw.groups[v]].push_back(int32_t(v));
        for (auto& pool : pools_) share_.push_back(int64_t(pool.size()));
    }

    // Takes turns in proportion to size, so that groups of unequal size run out together.
    size_t rotate() {
        int64_t sum = 0;
        for (size_t g = 0; g < pools_.size(); g++)
            if (!pools_[g].empty()) credit_[g] += share_[g], sum += share_[g];
        size_t best = pools_.size();
        for (size_t g = 0; g < pools_.size(); g++)
            if (!pools_[g].empty() && (best == pools_.size() || credit_[g] > credit_[best])) best = g;
        credit_[best] -= sum;
        return best;
    }

    std::vector<int32_t>& operator[](size_t g) { return pools_[g]; }
    size_t count() const { return pools_.size(); }

private:
    std::vector<std::vector<int32_t>> pools_;
    std::vector<int64_t> credit_, share_;
};

// Of a few views of the pool, drawn at random, the one least coupled to the previous unit; it
// leaves the pool. -1 if all of the pool are held by the unit already.
int32_t draw_view(std::vector<int32_t>& pool, const Draw& draw, const Scores& scores,
                  const std::vector<bool>& held, Random& random) {
    size_t best = pool.size(), tried = 0;
    double least = 0;
    for (size_t i = 0; i < pool.size() && tried < size_t(draw.candidates); i++) {
        std::swap(pool[i], pool[i + random.below(pool.size() - i)]);
        if (held[pool[i]]) continue;
        tried++;
        const double score = scores.of(pool[i]);
        if (best == pool.size() || score < least) best = i, least = score;
        if (least <= kNothing) break;
    }
    if (best == pool.size()) return -1;
    const int32_t view = pool[best];
    pool[best] = pool.back();
    pool.pop_back();
    return view;
}

// Appends an epoch to `order`, which begins with the views of a unit that is still open.
void draw_epoch(const LocalityGraph& graph, const Draw& draw, Views previous, Random& random,
                std::vector<int32_t>& order) {
    Pools pools(draw, graph.views());
    std::vector<bool> held(size_t(graph.views()), false);
    for (int32_t view : order) held[view] = true;
    Scores scores(graph);
    scores.add(previous, 1);
    const size_t end = order.size() + size_t(graph.views());
    size_t group = pools.count();
    while (order.size() < end) {
        const size_t filled = order.size() % size_t(draw.batch);
        if (order.size() && filled == 0) {
            scores.add(previous, -1);
            previous = {order.data() + order.size() - draw.batch, draw.batch};
            scores.add(previous, 1);
            if (order.size() == size_t(draw.batch)) held.assign(held.size(), false);
        }
        const bool stay = draw.compact && filled && group < pools.count() && !pools[group].empty();
        if (!stay) group = pools.rotate();
        int32_t view = draw_view(pools[group], draw, scores, held, random);
        for (size_t g = 0; view < 0 && g < pools.count(); g++)
            view = draw_view(pools[g], draw, scores, held, random);
        if (view < 0) throw nb::value_error("an open unit leaves too few views to fill it");
        order.push_back(view);
    }
}

// Exchanges of views between units that lower the worst couplings.
class Exchange {
public:
    Exchange(const LocalityGraph& graph, Views previous, size_t open, int64_t batch,
             std::vector<int32_t>& order)
        : graph_(graph), previous_(previous), open_(open), batch_(batch), order_(order),
          units_((int64_t(order.size()) + batch - 1) / batch), pairs_(size_t(units_)) {
        for (int64_t k = 0; k < units_; k++) pairs_[k] = coupling(graph_, unit(k - 1), unit(k));
    }

    // Tries to mend the worst pairs, `trials` partners each; false if that has gained next to nothing.
    bool round(size_t trials, Random& random) {
        std::vector<int64_t> worst;
        for (int64_t k = 0; k < units_; k++)
            if (pairs_[k] > 0) worst.push_back(k);
        const size_t most = std::min(worst.size(), std::max(pairs_.size() / 8, size_t(64)));
        auto more = [&](int64_t a, int64_t b) {
            return pairs_[a] != pairs_[b] ? pairs_[a] > pairs_[b] : a < b;
        };
        std::partial_sort(worst.begin(), worst.begin() + int64_t(most), worst.end(), more);
        worst.resize(most);
        double squares = 0, gain = 0;
        for (double pair : pairs_) squares += pair * pair;
        for (int64_t k : worst) {
            gain += mend(k, k - 1, trials, random);
            if (k > 0) gain += mend(k - 1, k, trials, random);
        }
        return gain > kWorthwhile * squares;
    }

private:
    Views unit(int64_t k) const {  // -1: the one before
        if (k < 0) return previous_;
        const int64_t first = k * batch_;
        return {order_.data() + first, std::min(batch_, int64_t(order_.size()) - first)};
    }

    // Exchanges the view of unit `a` that is most coupled to unit `to` with the best of some others;
    // by how much the sum of squares falls.
    double mend(int64_t a, int64_t to, size_t trials, Random& random) {
        size_t i = order_.size();
        double strongest = 0;
        for (int64_t at = a * batch_; at < std::min((a + 1) * batch_, int64_t(order_.size())); at++) {
            if (size_t(at) < open_) continue;
            const double score = coupling(graph_, order_[at], unit(to));
            if (score > strongest) strongest = score, i = size_t(at);
        }
        if (i == order_.size()) return 0;
        const size_t partners = order_.size() - open_;
        const bool all = partners <= trials;
        const size_t first = random.below(partners);
        size_t best = order_.size();
        Change least{};
        for (size_t t = 0; t < std::min(trials, partners); t++) {
            const size_t j = open_ + (all ? (first + t) % partners : random.below(partners));
            const Change change = trial(i, j);
            if (change.gain > (best == order_.size() ? kNothing : least.gain)) best = j, least = change;
        }
        if (best == order_.size()) return 0;
        std::swap(order_[i], order_[best]);
        const int64_t b = int64_t(best) / batch_;
        const int64_t pairs[4] = {a, a + 1, b, b + 1};
        for (int n = 0; n < 4; n++)
            if (pairs[n] < units_) pairs_[pairs[n]] = std::max(0.0, least.pairs[n]);
        return least.gain;
    }

    struct Change {
        double gain = 0;  // fall of the sum of squares; 0 if the worst of the pairs would rise
        std::array<double, 4> pairs{};
    };

    Change trial(size_t i, size_t j) const {
        const int64_t a = int64_t(i) / batch_, b = int64_t(j) / batch_;
        const int32_t x = order_[i], y = order_[j];
        if (std::abs(a - b) < 2 || (a == 0 && is_open(y)) || (b == 0 && is_open(x))) return {};
        Change change;
        double before_most = 0, after_most = 0, fall = 0;
        const int64_t pairs[4] = {a, a + 1, b, b + 1}, others[4] = {a - 1, a + 1, b - 1, b + 1};
        for (int n = 0; n < 4; n++) {
            if (pairs[n] >= units_) continue;
            const int32_t out = n < 2 ? x : y, in = n < 2 ? y : x;
            const Views other = unit(others[n]);
            const double before = pairs_[pairs[n]];
            const double after = before - coupling(graph_, out, other) + coupling(graph_, in, other);
            change.pairs[n] = after;
            before_most = std::max(before_most, before), after_most = std::max(after_most, after);
            fall += before * before - after * after;
        }
        change.gain = after_most <= before_most ? fall : 0;
        return change;
    }

    bool is_open(int32_t view) const {
        return std::find(order_.begin(), order_.begin() + int64_t(open_), view) !=
               order_.begin() + int64_t(open_);
    }

    const LocalityGraph& graph_;
    Views previous_;
    size_t open_;
    int64_t batch_;
    std::vector<int32_t>& order_;
    int64_t units_;
    std::vector<double> pairs_;  // coupling of unit k - 1 with unit k
};

void check_views(const LocalityGraph& graph, Array1<const int32_t> views) {
    for (size_t i = 0; i < views.shape(0); i++)
        if (views.data()[i] < 0 || views.data()[i] >= graph.views())
            throw nb::value_error("a view is out of range");
}

using Numbers = nb::ndarray<nb::numpy, int32_t, nb::ndim<1>>;

// The views of one epoch, which follow those of `open` in its unit, after the unit `previous`.
Numbers epoch_order(const LocalityGraph& graph, Array1<const int32_t> groups, int32_t group_count,
                    int32_t batch, bool compact, Array1<const int32_t> previous,
                    Array1<const int32_t> open, uint64_t seed, uint64_t epoch, int32_t candidates,
                    int32_t trials, int32_t rounds) {
    check_views(graph, previous);
    check_views(graph, open);
    bool sound = int64_t(groups.shape(0)) == graph.views() && group_count >= 1 && batch >= 1 &&
                 batch <= graph.views() && int64_t(open.shape(0)) < batch && candidates >= 1;
    for (int64_t v = 0; sound && v < graph.views(); v++)
        sound = groups.data()[v] >= 0 && groups.data()[v] < group_count;
    if (!sound) throw nb::value_error("epoch_order: groups or units do not fit the graph");
    Random random(seed, epoch);
    const Draw draw{groups.data(), group_count, batch, candidates, compact};
    const Views before{previous.data(), int64_t(previous.shape(0))};
    std::vector<int32_t> order(open.data(), open.data() + open.shape(0));
    order.reserve(order.size() + size_t(graph.views()));  // units point into it
    draw_epoch(graph, draw, before, random, order);
    Exchange exchange(graph, before, open.shape(0), batch, order);
    for (int32_t r = 0; r < rounds && exchange.round(size_t(trials), random); r++) {}
    return to_numpy(std::vector<int32_t>(order.begin() + int64_t(open.shape(0)), order.end()));
}

// For each unit of an order but the first: its coupling with the unit before, and the share of its
// items that the unit before is expected to touch. |A and B| = w (|A| + |B|) / (1 + w).
nb::tuple neighbour_couplings(const LocalityGraph& graph, Array1<const int32_t> order, int32_t batch) {
    check_views(graph, order);
    if (batch < 1) throw nb::value_error("neighbour_couplings: a unit holds at least one view");
    const int64_t units = (int64_t(order.shape(0)) + batch - 1) / batch;
    std::vector<float> couplings, conflicts;
    for (int64_t k = 1; k < units; k++) {
        const Views a{order.data() + (k - 1) * batch, batch};
        const Views b{order.data() + k * batch, std::min(int64_t(batch), int64_t(order.shape(0)) - k * batch)};
        double touched = 0;
        for (int64_t j = 0; j < b.count; j++) {
            double share = 0;
            for (int64_t i = 0; i < a.count; i++) {
                const int32_t u = a.data[i], v = b.data[j];
                const double w = graph.weight(u, v), size = double(graph.size(v));
                const bool known = !graph.unknown(u) && !graph.unknown(v) && size > 0;
                const double ratio = known ? double(graph.size(u)) / size : 1.0;
                share += w * (1.0 + ratio) / (1.0 + w);
            }
            touched += std::min(share, 1.0);
        }
        couplings.push_back(float(coupling(graph, a, b)));
        conflicts.push_back(float(touched / double(b.count)));
    }
    return nb::make_tuple(to_numpy(std::move(couplings)), to_numpy(std::move(conflicts)));
}

}  // namespace

LocalityGraph::LocalityGraph(Array1<const int64_t> starts, Array1<const int32_t> neighbours,
                             Array1<const float> weights, Array1<const int32_t> sizes,
                             Array1<const bool> unknown, float unknown_weight)
    : starts_(starts), neighbours_(neighbours), weights_(weights), sizes_(sizes), unknown_(unknown),
      unknown_weight_(double(unknown_weight)) {
    const int64_t count = views(), edges = int64_t(neighbours.shape(0));
    bool sound = count >= 1 && int64_t(unknown.shape(0)) == count && start(0) == 0 &&
                 int64_t(sizes.shape(0)) == count && start(count) == edges &&
                 int64_t(weights.shape(0)) == edges;
    for (int64_t v = 0; sound && v < count; v++) sound = start(v) <= start(v + 1);
    for (int64_t e = 0; sound && e < edges; e++) sound = neighbour(e) >= 0 && neighbour(e) < count;
    if (!sound) throw nb::value_error("the arrays are no graph");
}

void register_order(nb::module_& m) {
    nb::class_<LocalityGraph>(m, "LocalityGraph")
        .def(nb::init<Array1<const int64_t>, Array1<const int32_t>, Array1<const float>,
                      Array1<const int32_t>, Array1<const bool>, float>(),
             nb::arg("starts").noconvert(), nb::arg("neighbours").noconvert(),
             nb::arg("weights").noconvert(), nb::arg("sizes").noconvert(),
             nb::arg("unknown").noconvert(), nb::arg("unknown_weight"));
    m.def("epoch_order", &epoch_order, nb::arg("graph"), nb::arg("groups").noconvert(),
          nb::arg("group_count"), nb::arg("batch"), nb::arg("compact"),
          nb::arg("previous").noconvert(), nb::arg("open").noconvert(), nb::arg("seed"),
          nb::arg("epoch"), nb::arg("candidates"), nb::arg("trials"), nb::arg("rounds"));
    m.def("neighbour_couplings", &neighbour_couplings, nb::arg("graph"),
          nb::arg("order").noconvert(), nb::arg("batch"));
}

}  // namespace grendel
