// L1 + D-SSIM and its gradient, fused (Wang et al. 2004; window and weights of 3DGS).
//
// SSIM of a channel needs four blurs, mu_x, mu_y, E[xx + yy] and E[xy], and its gradient three
// more. Each is separable. The image is walked down in steps of 16 rows and, inside a step, from
// left to right in blocks of 16 columns; no plane of intermediate values is ever written:
//
//   load           16 new rows of render and truth;
//   blur_images    blur down the rows and transpose: now a vector is 16 rows of one column;
//   differentiate  blur along the columns, by the same code, and form SSIM and its derivatives;
//   blur_slopes    blur these along the columns, transpose back, blur down the rows;
//   form_gradient  of 16 x 16 pixels.
//
// SSIM is formed 5 rows and columns behind the pixels, the gradient 5 rows (and, to stay aligned,
// 11 columns) behind SSIM. Every pixel has the same formula wherever it lies in a block, so
// neither bands nor strips nor threads change a bit.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include <nanobind/stl/pair.h>

#include "buffer.h"
#include "kernels.h"
#include "simd.h"

#define GRENDEL_LAMBDA __attribute__((always_inline))

namespace grendel {
namespace {

constexpr int kRadius = 5;
constexpr int kTail = 2 * kRadius;  // rows or columns of the window that came before
constexpr float kC1 = 0.01f * 0.01f, kC2 = 0.03f * 0.03f;

// exp(-k^2 / (2 * 1.5^2)), k = 0..5, so scaled that the 11 taps sum to 1.
constexpr float kTaps[kRadius + 1] = {0.26601172486179436f,  0.21300553771125370f,
                                      0.10936068950970003f,  0.03600077212843083f,
                                      0.007598758135239185f, 0.001028380084479110f};

template <class F, int... i>
GRENDEL_INLINE void unroll(F f, std::integer_sequence<int, i...>) {
    (f(std::integral_constant<int, i>{}), ...);
}

// n neighbouring outputs of the blur: read(i, lane) gives place i of the window, i < n + 10.
// The taps are symmetric: adding before multiplying halves the products, and on Zen 4 sums and
// products run side by side.
template <int n, class Read, class Write>
GRENDEL_INLINE void blur(Read read, Write write) {
    for (int lane = 0; lane < kLanes; lane += FN::lanes) {
        FN v[n + kTail];
        unroll([&](auto i) GRENDEL_LAMBDA { v[i] = read(int(i), lane); },
               std::make_integer_sequence<int, kTail>{});
        unroll(
            [&](auto o) GRENDEL_LAMBDA {
                v[o + kTail] = read(int(o) + kTail, lane);
                FN s = (v[o] + v[o + 10]) * FN(kTaps[5]);
                s = fma(v[o + 1] + v[o + 9], FN(kTaps[4]), s);
                s = fma(v[o + 2] + v[o + 8], FN(kTaps[3]), s);
                s = fma(v[o + 3] + v[o + 7], FN(kTaps[2]), s);
                s = fma(v[o + 4] + v[o + 6], FN(kTaps[1]), s);
                write(int(o), lane, FN(fma(v[o + 5], FN(kTaps[0]), s)));
            },
            std::make_integer_sequence<int, n>{});
    }
}

// 16 pixels as floats. A byte is divided by 255 with one step of correction, which rounds as the
// division does.
GRENDEL_INLINE F16 load_pixels(const float* p) { return F16::load(p); }
GRENDEL_INLINE F16 load_pixels(const uint8_t* p) {
    F16 u = F16::load_u8(p), q = u * F16(1.0f / 255.0f);
    return fma(fnma(q, 255.0f, u), 1.0f / 255.0f, q);
}

// 16 pixels of which the first n exist; the others are 0.
template <class T>
GRENDEL_INLINE F16 load_pixels(const T* p, int n) {
    if (n >= kLanes) return load_pixels(p);
    T padded[kLanes] = {};
    std::memcpy(padded, p, n * sizeof(T));
    return load_pixels(padded);
}

// Rows [first, last) of a view of `height` rows, given rows [top, top + given) of it.
template <class T>
struct Strip {
    const float* render;  // [3, given, width]
    const T* truth;       // [3, given, width]
    float* gradient;      // [3, last - first, width]
    double* sums;         // [3, last - first, 2]: |x - y| and SSIM of each row
    int width, height, top, given, first, last;
    float l1_slope, ssim_slope;  // d loss / d |x - y|, d loss / d SSIM, of one pixel
};

using Tile = float[kLanes][kLanes];
using Tail = float[kTail][kLanes];

GRENDEL_INLINE void transpose(const Tile& from, Tile& to) {
    F16 rows[kLanes];
    for (int i = 0; i < kLanes; i++) rows[i] = F16::load(from[i]);
    transpose16(rows);
    for (int i = 0; i < kLanes; i++) rows[i].store(to[i]);
}

// What 16 columns carry from one step to the next: the last rows of render, truth and slopes.
struct alignas(64) Column {
    Tail x, y, slopes[3];
};

// One band of rows of one channel.
template <class T>
class Band {
public:
    Band(const Strip<T>& strip, int channel, int first, int last, Buffer<Column>& scratch)
        : s_(strip), channel_(channel), first_(first), last_(last),
          start_(std::max(0, first - kRadius)), end_(std::min(strip.height, last + kRadius)),
          blocks_((strip.width + kLanes - 1) / kLanes), columns_(scratch.ensure(blocks_)) {}

    void run() {
        for (int block = 0; block < blocks_; block++) {
            Column& c = columns_[block];
            for (int i = 0; i < kTail; i++) load(block, start_ - kRadius + i, c.x[i], c.y[i]);
            std::memset(c.slopes, 0, sizeof c.slopes);
        }
        for (row_ = start_; row_ < last_ + kRadius; row_ += kLanes) step();
    }

private:
    // SSIM of rows [row, row + 16), gradient of rows [row - 5, row + 11).
    void step() {
        uint32_t exist = 0;
        for (int i = 0; i < kLanes; i++) exist |= uint32_t(row_ + i < end_) << i;
        exist_ = mask_from_bits(exist);
        std::memset(panels_[1], 0, sizeof panels_[1]);
        if (row_ >= end_) std::memset(slopes_, 0, sizeof slopes_);  // the gradient's last 5 rows
        std::memset(ssim_, 0, sizeof ssim_);
        std::memset(l1_, 0, sizeof l1_);
        for (int block = 0; block <= blocks_; block++) {
            if (row_ < end_) {
                blur_images(block);
                differentiate(block);
            }
            if (block > 0) {
                blur_slopes(block);
                form_gradient(block - 1);
            }
        }
        finish();
    }

    // 16 pixels of a row of the image; 0 outside.
    GRENDEL_INLINE void load(int block, int row, float* x, float* y) {
        const int given = row - s_.top, n = s_.width - kLanes * block;
        F16 a(0.0f), b(0.0f);
        if (given >= 0 && given < s_.given) {
            size_t from = (size_t(channel_) * s_.given + given) * s_.width + kLanes * block;
            a = load_pixels(s_.render + from, n);
            b = load_pixels(s_.truth + from, n);
        }
        a.store(x);
        b.store(y);
    }

    // Blurs down rows [row, row + 16), reading [row - 5, row + 21).
    GRENDEL_INLINE void blur_images(int block) {
        auto& panels = panels_[block & 1];
        if (block == blocks_) {
            std::memset(panels, 0, sizeof panels);
            return;
        }
        Tile &x = x_[block & 1], &y = y_[block & 1];
        for (int i = 0; i < kLanes; i++) load(block, row_ + kRadius + i, x[i], y[i]);
        const Column& old = columns_[block];
        auto get_x = [&](int i, int lane) GRENDEL_LAMBDA {
            return FN::load((i < kTail ? old.x[i] : x[i - kTail]) + lane);
        };
        auto get_y = [&](int i, int lane) GRENDEL_LAMBDA {
            return FN::load((i < kTail ? old.y[i] : y[i - kTail]) + lane);
        };
        auto blur_down = [&](Tile& panel, auto read) GRENDEL_LAMBDA {
            alignas(64) Tile tile;
            blur<kLanes>(read, [&](int o, int lane, FN v) GRENDEL_LAMBDA {
                v.store(tile[o] + lane);
            });
            transpose(tile, panel);
        };
        blur_down(panels[0], get_x);
        blur_down(panels[1], get_y);
        blur_down(panels[2], [&](int i, int lane) GRENDEL_LAMBDA {
            FN a = get_x(i, lane), b = get_y(i, lane);
            return fma(a, a, b * b);
        });
        blur_down(panels[3], [&](int i, int lane) GRENDEL_LAMBDA {
            return get_x(i, lane) * get_y(i, lane);
        });
    }

    // Columns [16 block - 5, 16 block + 11).
    GRENDEL_INLINE void differentiate(int block) {
        alignas(64) Tile blurred[4];
        for (int q = 0; q < 4; q++) {
            const Tile &old = panels_[~block & 1][q], &fresh = panels_[block & 1][q];
            constexpr int skip = kLanes - kTail;
            blur<kLanes>([&](int i, int lane) GRENDEL_LAMBDA {
                return FN::load((i < kTail ? old[i + skip] : fresh[i - kTail]) + lane);
            }, [&](int o, int lane, FN v) GRENDEL_LAMBDA { v.store(blurred[q][o] + lane); });
        }
        auto& slopes = slopes_[block & 1];
        F16 sum(0.0f);
        for (int o = 0; o < kLanes; o++) {
            const int column = kLanes * block - kRadius + o;
            if (column < 0 || column >= s_.width) {
                for (auto& slope : slopes) F16(0.0f).store(slope[o]);
                continue;
            }
            F16 mx = F16::load(blurred[0][o]), my = F16::load(blurred[1][o]);
            F16 squares = F16::load(blurred[2][o]), product = F16::load(blurred[3][o]);
            // SSIM = a1 a2 / (b1 b2); the factor 2 of its derivatives is left to the end.
            F16 mxy = mx * my, mm = fma(mx, mx, my * my);
            F16 a1 = fma(mxy, 2.0f, kC1), a2 = fma(product - mxy, 2.0f, kC2);
            F16 b1 = mm + F16(kC1), b2 = (squares - mm) + F16(kC2);
            F16 inverse = keep(exist_, reciprocal(b1 * b2));
            F16 by_product = a1 * inverse;
            F16 ssim = by_product * a2;
            F16 over = ssim * inverse;
            fnma(over * (b2 - b1), mx, (inverse * (a2 - a1)) * my).store(slopes[0][o]);
            (over * b1).store(slopes[1][o]);
            by_product.store(slopes[2][o]);
            sum = sum + ssim;
        }
        alignas(64) float sums[kLanes];
        sum.store(sums);
        for (int i = 0; i < kLanes; i++) ssim_[i] += double(sums[i]);
    }

    // Columns [16 block - 16, 16 block), rows [row - 5, row + 11).
    GRENDEL_INLINE void blur_slopes(int block) {
        for (int q = 0; q < 3; q++) {
            const Tile &old = slopes_[~block & 1][q], &fresh = slopes_[block & 1][q];
            alignas(64) Tile tile, rows;
            blur<kLanes>([&](int i, int lane) GRENDEL_LAMBDA {
                return FN::load((i < kLanes ? old[i] : fresh[i - kLanes]) + lane);
            }, [&](int o, int lane, FN v) GRENDEL_LAMBDA { v.store(tile[o] + lane); });
            transpose(tile, rows);
            Tail& tail = columns_[block - 1].slopes[q];
            blur<kLanes>([&](int i, int lane) GRENDEL_LAMBDA {
                return FN::load((i < kTail ? tail[i] : rows[i - kTail]) + lane);
            }, [&](int o, int lane, FN v) GRENDEL_LAMBDA { v.store(blurred_[q][o] + lane); });
            for (int i = 0; i < kTail; i++) F16::load(rows[i + kLanes - kTail]).store(tail[i]);
        }
    }

    GRENDEL_INLINE void form_gradient(int block) {
        Column& c = columns_[block];
        const Tile &x = x_[block & 1], &y = y_[block & 1];
        const int n = std::min(kLanes, s_.width - kLanes * block), top = row_ - kRadius;
        const int from = std::max(0, first_ - top), until = std::min(kLanes, last_ - top);
        float* to = s_.gradient + kLanes * block +
                    (int64_t(channel_) * (s_.last - s_.first) + top - s_.first) * s_.width;
        const F16 slope = s_.l1_slope, scale = 2 * s_.ssim_slope;
        auto pixels = [&](int i, const float* px, const float* py) GRENDEL_LAMBDA {
            F16 a = F16::load(px), b = F16::load(py), difference = a - b;
            (F16::load(l1_[i]) + abs(difference)).store(l1_[i]);
            F16 sign = min(max(difference * F16(0x1p120f), F16(0.0f) - slope), slope);
            F16 blurred = fma(F16::load(blurred_[2][i]), b, F16::load(blurred_[0][i]));
            F16 gradient = fma(fnma(F16::load(blurred_[1][i]), a, blurred), scale, sign);
            float* at = to + int64_t(i) * s_.width;
            if (n == kLanes) {
                gradient.store(at);
            } else {
                float lanes[kLanes];
                gradient.store(lanes);
                std::memcpy(at, lanes, n * sizeof(float));
            }
        };
        for (int i = from; i < std::min(until, kTail); i++) pixels(i, c.x[i], c.y[i]);
        for (int i = std::max(from, kTail); i < until; i++) pixels(i, x[i - kTail], y[i - kTail]);
        for (int i = 0; i < kTail; i++) {
            F16::load(x[i + kLanes - kTail]).store(c.x[i]);
            F16::load(y[i + kLanes - kTail]).store(c.y[i]);
        }
    }

    void finish() {
        double* sums = s_.sums + 2 * (size_t(channel_) * (s_.last - s_.first));
        for (int i = 0; i < kLanes; i++) {
            const int l1_row = row_ - kRadius + i, ssim_row = row_ + i;
            if (l1_row >= first_ && l1_row < last_) {
                double sum = 0;
                for (float part : l1_[i]) sum += double(part);
                sums[2 * (l1_row - s_.first)] = sum;
            }
            if (ssim_row >= first_ && ssim_row < last_)
                sums[2 * (ssim_row - s_.first) + 1] = ssim_[i];
        }
    }

    const Strip<T>& s_;
    const int channel_, first_, last_;
    const int start_, end_;  // rows whose SSIM the band needs
    const int blocks_;
    Column* const columns_;
    int row_ = 0;
    M16 exist_;
    // Two blocks of each: the even and the odd ones.
    alignas(64) Tile x_[2], y_[2];   // rows [row + 5, row + 21)
    alignas(64) Tile panels_[2][4];  // mu_x, mu_y, E[xx + yy], E[xy]: blurred down, transposed
    alignas(64) Tile slopes_[2][3];  // d SSIM by mu_x, -E[xx], E[xy], all halved; transposed
    alignas(64) Tile blurred_[3];    // the slopes blurred
    alignas(64) Tile l1_;
    double ssim_[kLanes];
};

template <class T>
void run_strip(const Strip<T>& strip, int threads) {
    // Work is cut in pieces of 16 rows of one channel; neighbours in a channel form a band.
    const int rows = strip.last - strip.first;
    const int pieces = (rows + kLanes - 1) / kLanes, all = 3 * pieces;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        static thread_local Buffer<Column> scratch;
        const int until = int(int64_t(all) * (t + 1) / threads);
        for (int at = int(int64_t(all) * t / threads); at < until;) {
            const int channel = at / pieces, next = std::min(until, (channel + 1) * pieces);
            const int first = strip.first + kLanes * (at - channel * pieces);
            const int last = std::min(strip.last, strip.first + kLanes * (next - channel * pieces));
            Band<T>(strip, channel, first, last, scratch).run();
            at = next;
        }
    }
}

template <class T>
void photometric(Array3<const float> render, Array3<const T> truth, Array3<float> gradient,
                 Array2<double> row_sums, int top, int first, int height, float ssim_lambda,
                 int threads) {
    const int given = int(render.shape(1)), width = int(render.shape(2));
    const int rows = int(gradient.shape(1)), last = first + rows;
    for (int axis = 0; axis < 3; axis++)
        if (render.shape(axis) != truth.shape(axis))
            throw nb::value_error("photometric: render and truth differ in shape");
    if (render.shape(0) != 3 || gradient.shape(0) != 3 || int(gradient.shape(2)) != width ||
        int(row_sums.shape(0)) != rows || row_sums.shape(1) != 2)
        throw nb::value_error("photometric: expected planes [3, rows, width] and sums [rows, 2]");
    if (first < 0 || last > height || top < 0 || top + given > height || threads < 1 ||
        top > std::max(0, first - 2 * kRadius) ||
        top + given < std::min(height, last + 2 * kRadius))
        throw nb::value_error("photometric: the given rows must reach 10 beyond the strip");
    if (rows == 0 || width == 0) return;
    const double pixels = 3.0 * height * width;
    std::vector<double> sums(size_t(6) * rows);
    Strip<T> strip{render.data(), truth.data(), gradient.data(), sums.data(), width, height, top,
                   given, first, last, float((1 - double(ssim_lambda)) / pixels),
                   float(-double(ssim_lambda) / pixels)};
    {
        nb::gil_scoped_release release;
        run_strip(strip, threads);
    }
    for (int i = 0; i < 2 * rows; i++)
        row_sums.data()[i] = (sums[i] + sums[2 * rows + i]) + sums[4 * rows + i];
}

// Sums over rows in ascending order: the sums of strips, one below the other, fold as the whole.
std::pair<double, double> fold_rows(Array2<const double> row_sums) {
    if (row_sums.shape(1) != 2) throw nb::value_error("fold_rows: expected [rows, 2]");
    double l1 = 0, ssim = 0;
    for (size_t i = 0; i < row_sums.shape(0); i++) {
        l1 += row_sums.data()[2 * i];
        ssim += row_sums.data()[2 * i + 1];
    }
    return {l1, ssim};
}

template <class T>
void define_photometric(nb::module_& m) {
    m.def("photometric", &photometric<T>, nb::arg("render").noconvert(),
          nb::arg("truth").noconvert(), nb::arg("gradient").noconvert(),
          nb::arg("row_sums").noconvert(), nb::arg("top"), nb::arg("first"), nb::arg("height"),
          nb::arg("ssim_lambda"), nb::arg("threads"));
}

}  // namespace

void register_loss(nb::module_& m) {
    define_photometric<uint8_t>(m);
    define_photometric<float>(m);
    m.def("fold_rows", &fold_rows, nb::arg("row_sums").noconvert());
}

}  // namespace grendel
