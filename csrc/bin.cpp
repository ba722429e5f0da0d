// Tile binning: one depth sort of the splats, then a stable counting scatter into tiles. The
// result depends neither on the thread count nor on the order in which splats arrive.
#include <algorithm>
#include <utility>

#include "raster.h"

namespace grendel {
namespace {

constexpr float kLog2E = 1.44269504088896f;
constexpr float kMargin = 0.01f;  // pixels added to every extent, against rounding

// Columns of an extent row: where the splat's ellipse {alpha >= 1/255} lies about its centre.
enum { kX, kY, kHalfX, kHalfY, kSlope, kRoot, kCurve, kTop, kExtentWidth = 8 };

// Stretch t of n items that are dealt out to `parts` in groups of 16.
int border(int n, int t, int parts) { return std::min(n, int(int64_t((n + 15) / 16) * t / parts) * 16); }

// Stable radix sort of s.keys by the upper 32 bits, in stretches; returns where the result is.
const uint64_t* sort_by_depth(RenderState& s, int n, int threads) {
    constexpr int kBits = 11, kDigits = 1 << kBits;
    int parts = n < 8192 ? 1 : threads;
    std::vector<uint32_t> histogram(size_t(parts) * kDigits);
    uint64_t *from = s.keys.data(), *to = s.keys_other.ensure(n);
    for (int shift = 32; shift < 64; shift += kBits) {
        auto digit = [&](int i) { return size_t(from[i] >> shift) & (kDigits - 1); };
#pragma omp parallel for num_threads(parts) schedule(static, 1)
        for (int t = 0; t < parts; t++) {
            uint32_t* own = &histogram[size_t(t) * kDigits];
            std::fill(own, own + kDigits, 0u);
            for (int i = border(n, t, parts); i < border(n, t + 1, parts); i++) own[digit(i)]++;
        }
        uint32_t sum = 0, largest = 0;
        for (size_t d = 0; d < kDigits; d++) {
            uint32_t before = sum;
            for (int t = 0; t < parts; t++) sum += std::exchange(histogram[size_t(t) * kDigits + d], sum);
            largest = std::max(largest, sum - before);
        }
        if (largest == uint32_t(n)) continue;  // one digit for all: nothing to do
#pragma omp parallel for num_threads(parts) schedule(static, 1)
        for (int t = 0; t < parts; t++) {
            uint32_t* own = &histogram[size_t(t) * kDigits];
            for (int i = border(n, t, parts); i < border(n, t + 1, parts); i++) to[own[digit(i)]++] = from[i];
        }
        std::swap(from, to);
    }
    return from;
}

// The order of the splats from their sorted keys; equal depths are ordered by splat key.
void take_order(const uint64_t* sorted, const int32_t* splat_keys, uint32_t* order, int n) {
    for (int i = 0; i < n; i++) order[i] = uint32_t(sorted[i]);
    for (int i = 1; i < n; i++) {
        if (sorted[i] >> 32 != sorted[i - 1] >> 32) continue;
        int begin = i - 1;
        while (i < n && sorted[i] >> 32 == sorted[begin] >> 32) i++;
        std::sort(order + begin, order + i, [&](uint32_t p, uint32_t q) {
            return uint32_t(splat_keys[p]) < uint32_t(splat_keys[q]);
        });
    }
}

// How far sixteen splats reach: half extents of the ellipse {alpha >= 1/255} or of the 3-sigma box
// (negative where there is none), and the ellipse's y(dx) = -slope dx +- sqrt(root - curve dx^2).
struct Reach { F16 half_x, half_y, root, curve; };

GRENDEL_INLINE Reach reach_of(F16 a, F16 b, F16 c, F16 opacity, const Constants& k) {
    F16 zero = 0.0f, inv_det = F16(1.0f) / max(fnma(b, b, a * c), 1e-30f);
    if (k.box == kThreeSigmaBox) {
        F16 mid = F16(0.5f) * (c + a) * inv_det;  // the covariance has the determinant inv_det
        F16 half = ceil(F16(3.0f) * sqrt(mid + sqrt(max(mid * mid - inv_det, 0.1f))));
        return {half, half, zero, zero};
    }
    F16 t = F16(2.0f) * log(max(opacity / F16(k.alpha_min), 1e-30f));
    M16 none = t <= zero;
    t = fma(max(t, zero), 1.0001f, 1e-4f);
    F16 inv_c = F16(1.0f) / c, half_x = sqrt(t * c * inv_det), half_y = sqrt(t * a * inv_det);
    F16 curve = max(fnma(b, b, a * c), 1e-30f) * inv_c * inv_c;
    return {select(none, -1e9f, half_x), select(none, -1e9f, half_y), t * inv_c, curve};
}

void prepare16(const float* splats, const uint32_t* order, int lanes, const Constants& k,
               PixelSplat* out, float* extents) {
    F16 s[16];
    for (int i = 0; i < 16; i++)
        s[i] = F16::load_first<kSplatWidth>(splats + int64_t(order[std::min(i, lanes - 1)]) * kSplatWidth);
    transpose16(s);
    F16 x = s[0], y = s[1], a = s[2], b = s[3], c = s[4], opacity = s[5], zero = 0.0f;
    F16 log_opacity = F16(kLog2E) * log(max(opacity, 1e-30f));
    F16 yy = F16(-0.5f * kLog2E) * c;
    F16 row[16] = {x, y, F16(-0.5f * kLog2E) * a, F16(-kLog2E) * b, yy, log_opacity, exp2(yy + yy),
                   s[6], s[7], s[8], s[9], zero, zero, zero, zero, zero};
    transpose16(row);
    for (int i = 0; i < lanes; i++) row[i].store(&out[i].x);

    Reach reach = reach_of(a, b, c, opacity, k);
    F16 e[16] = {x, y, reach.half_x, reach.half_y, b / c, reach.root, reach.curve,
                 zero - b * reach.half_y / a,
                 zero, zero, zero, zero, zero, zero, zero, zero};
    transpose16(e);
    for (int i = 0; i < lanes; i++) e[i].store_first<kExtentWidth>(extents + i * kExtentWidth);
}

struct Span { int first, last; };  // pixel rows of the image; empty if last < first

// Rows of the tiles that the 3-sigma box counts; pixel centres there are whole numbers.
Span box_rows(float y, float half) {
    float first = std::floor((y - 0.5f - half) / kTile), last = std::floor((y - 0.5f + half + 15.0f) / kTile);
    return {int(std::max(first, -1.0f)) * kTile, int(std::min(last, 1e6f)) * kTile - 1};
}

// Rows whose pixel centres lie between two heights.
Span centre_rows(float low, float high) {
    auto row = [](float v) { return int(std::min(std::max(v, -1e6f), 1e6f)); };
    return {row(std::ceil(low - 0.5f - kMargin)), row(std::floor(high - 0.5f + kMargin))};
}

// Rows in which the ellipse may touch pixel centres of the 16 columns from `left` on.
Span ellipse_rows(const float* e, int left) {
    float low = float(left) + 0.5f - e[kX] - kMargin, high = low + 15.0f + 2 * kMargin;
    float top = std::min(std::max(e[kTop], low), high), bottom = std::min(std::max(-e[kTop], low), high);
    if (top > e[kHalfX] + kMargin || top < -e[kHalfX] - kMargin) {
        if (low > e[kHalfX] || high < -e[kHalfX]) return {0, -1};
    }
    float y_max = -e[kSlope] * top + std::sqrt(std::max(0.0f, e[kRoot] - e[kCurve] * top * top));
    float y_min = -e[kSlope] * bottom - std::sqrt(std::max(0.0f, e[kRoot] - e[kCurve] * bottom * bottom));
    return centre_rows(e[kY] + y_min, e[kY] + y_max);
}

// Pairs of one splat, tile row by tile row.
void emit_splat(RenderState& s, RenderState::Stretch& own, uint32_t j, const float* e,
                const Constants& k, int image_height, std::vector<Span>& spans) {
    const Window& w = s.window;
    uint32_t index = s.order[j], begin = own.slots;
    s.slot_begin[index] = begin;
    s.slot_count[index] = 0;
    auto inside = [](float v, int low, int high) { return int(std::min(std::max(v, float(low)), float(high))); };
    bool ellipse = k.box == kOpacityBox;
    // Pixel centres lie at +0.5; the 3-sigma box counts tiles that it touches, so no centre needs to.
    int column0, column1;
    if (ellipse) {
        column0 = inside(std::floor((e[kX] - e[kHalfX] - kMargin) / kTile), w.tile_x0, w.tile_x0 + w.tiles_x);
        column1 = inside(std::floor((e[kX] + e[kHalfX] + kMargin) / kTile), w.tile_x0 - 1, w.tile_x0 + w.tiles_x - 1);
    } else {
        float x = e[kX] - 0.5f;
        column0 = inside(std::floor((x - e[kHalfX]) / kTile), w.tile_x0, w.tile_x0 + w.tiles_x);
        column1 = inside(std::floor((x + e[kHalfX] + 15.0f) / kTile), w.tile_x0, w.tile_x0 + w.tiles_x) - 1;
    }
    if (column1 < column0 || e[kHalfX] < 0.0f) return;
    spans.resize(size_t(column1 - column0 + 1));
    int row0 = image_height, row1 = -1, bottom = std::min(image_height, w.y0 + w.height) - 1;
    for (int tx = column0; tx <= column1; tx++) {
        Span& span = spans[size_t(tx - column0)];
        if (ellipse) {
            span = ellipse_rows(e, tx * kTile);
        } else {
            span = box_rows(e[kY], e[kHalfY]);
        }
        // The upper clip keeps the tile's first row: where a recurrence starts must not depend on
        // the rectangle.
        span.first = std::max(span.first, w.tile_y0 * kTile);
        span.last = std::min(span.last, bottom);
        if (span.first > span.last) continue;
        row0 = std::min(row0, span.first);
        row1 = std::max(row1, span.last);
    }
    if (row1 < row0) return;
    for (int ty = row0 / kTile; ty <= row1 / kTile; ty++) {
        bool first = true;
        for (int tx = column0; tx <= column1; tx++) {
            const Span& span = spans[size_t(tx - column0)];
            int r0 = std::max(span.first - ty * kTile, 0), r1 = std::min(span.last - ty * kTile, kTile - 1);
            if (r0 > r1) continue;
            uint32_t tile = uint32_t((ty - w.tile_y0) * w.tiles_x + tx - w.tile_x0);
            uint32_t slot = own.slots | (first ? kFirst : 0u);
            own.emitted.push_back({tile, {j, slot, uint8_t(r0), uint8_t(r1)}});
            own.tile_counts[tile]++;
            first = false;
        }
        if (!first) own.slots++;
    }
    s.slot_count[index] = own.slots - begin;
}

}  // namespace

size_t RenderState::bytes() const {
    size_t lists = 0;
    for (auto& stretch : stretches) lists += stretch.emitted.capacity() * sizeof(Emitted);
    return keys.bytes() + keys_other.bytes() + order.bytes() + pixel_splats.bytes() + extents.bytes()
         + slot_begin.bytes() + slot_count.bytes() + pairs.bytes() + tile_begin.bytes()
         + processed.bytes() + transmittance.bytes() + slots.bytes() + lists;
}

void bin_splats(RenderState& s, const float* splats, const int32_t* keys, int n, int image_height,
                const Constants& k, int threads) {
    s.splats = n;
    uint64_t* sort_keys = s.keys.ensure(n);
    for (int i = 0; i < n; i++) {
        uint32_t depth;
        std::memcpy(&depth, splats + int64_t(i) * kSplatWidth + 9, 4);
        sort_keys[i] = uint64_t(depth) << 32 | uint32_t(i);
    }
    take_order(sort_by_depth(s, n, threads), keys, s.order.ensure(n), n);

    int tiles = s.window.tiles();
    s.pixel_splats.ensure(n);
    s.extents.ensure(size_t(n) * kExtentWidth);
    s.slot_begin.ensure(n);
    s.slot_count.ensure(n);
    // Splats are dealt out in depth order, so that each tile's list is in depth order, too.
    s.stretches.resize(size_t(threads));
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        RenderState::Stretch& own = s.stretches[size_t(t)];
        std::vector<Span> spans;
        own.emitted.clear();
        own.tile_counts.assign(size_t(tiles), 0u);
        own.slots = 0;
        int to = border(n, t + 1, threads);
        for (int i = border(n, t, threads); i < to; i += 16) {
            int lanes = std::min(16, to - i);
            float* extents = &s.extents[size_t(i) * kExtentWidth];
            prepare16(splats, &s.order[size_t(i)], lanes, k, &s.pixel_splats[size_t(i)], extents);
            for (int j = 0; j < lanes; j++)
                emit_splat(s, own, uint32_t(i + j), extents + j * kExtentWidth, k, image_height, spans);
        }
    }

    uint32_t *begin = s.tile_begin.ensure(size_t(tiles) + 1), pairs = 0, slots = 0;
    for (int tile = 0; tile < tiles; tile++) {
        begin[tile] = pairs;
        for (auto& stretch : s.stretches) pairs += std::exchange(stretch.tile_counts[size_t(tile)], pairs);
    }
    begin[tiles] = pairs;
    for (auto& stretch : s.stretches) slots += std::exchange(stretch.slots, slots);
    s.pairs_used = pairs;
    s.slots_used = slots;
    Pair* out = s.pairs.ensure(pairs);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        RenderState::Stretch& own = s.stretches[size_t(t)];
        for (const auto& item : own.emitted) {
            Pair pair = item.pair;
            pair.slot += own.slots;
            out[own.tile_counts[item.tile]++] = pair;
        }
        for (int i = border(n, t, threads); i < border(n, t + 1, threads); i++)
            s.slot_begin[s.order[size_t(i)]] += own.slots;
    }
}

void row_ranges(const float* splats, int n, const Constants& k, int32_t* out, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int first = 0; first < n; first += 16) {
        int lanes = std::min(16, n - first);
        F16 s[16];
        for (int i = 0; i < 16; i++)
            s[i] = F16::load_first<kSplatWidth>(splats + int64_t(first + std::min(i, lanes - 1)) * kSplatWidth);
        transpose16(s);
        float y[16], half[16];
        s[1].store(y);
        reach_of(s[2], s[3], s[4], s[5], k).half_y.store(half);
        for (int i = 0; i < lanes; i++) {
            Span span = {0, -1};
            if (k.box == kThreeSigmaBox) span = box_rows(y[i], half[i]);
            else if (half[i] >= 0.0f) span = centre_rows(y[i] - half[i], y[i] + half[i]);
            out[2 * (first + i)] = span.first;
            out[2 * (first + i) + 1] = span.last;
        }
    }
}

}  // namespace grendel
