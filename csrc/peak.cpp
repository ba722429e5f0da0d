// How fast this machine multiplies and adds: the yardstick of the benchmarks.
#include <chrono>
#include <vector>

#include "kernels.h"
#include "simd.h"

namespace grendel {
namespace {

// Twelve chains hide the latency of a fused multiply-add on every machine that we know.
__attribute__((noinline)) F16 chains(int64_t rounds, F16 b, F16 c) {
    F16 a0 = 1.00f, a1 = 1.01f, a2 = 1.02f, a3 = 1.03f, a4 = 1.04f, a5 = 1.05f;
    F16 a6 = 1.06f, a7 = 1.07f, a8 = 1.08f, a9 = 1.09f, a10 = 1.10f, a11 = 1.11f;
    for (int64_t i = 0; i < rounds; i++) {
        a0 = fma(a0, b, c), a1 = fma(a1, b, c), a2 = fma(a2, b, c), a3 = fma(a3, b, c);
        a4 = fma(a4, b, c), a5 = fma(a5, b, c), a6 = fma(a6, b, c), a7 = fma(a7, b, c);
        a8 = fma(a8, b, c), a9 = fma(a9, b, c), a10 = fma(a10, b, c), a11 = fma(a11, b, c);
    }
    return ((a0 + a1) + (a2 + a3)) + ((a4 + a5) + (a6 + a7)) + ((a8 + a9) + (a10 + a11));
}

// Fused multiply-adds of 16 lanes, a second, of all threads together.
double fma_rate(int64_t rounds, int threads) {
    std::vector<float> sink(size_t(threads) * 16);
    auto start = std::chrono::steady_clock::now();
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) chains(rounds, 0.9999f, 1e-4f).store(&sink[size_t(t) * 16]);
    std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    return double(rounds) * 12 * threads / seconds.count();
}

}  // namespace

void register_peak(nb::module_& m) {
    m.def("fma_rate", &fma_rate, nb::arg("rounds"), nb::arg("threads"));
}

}  // namespace grendel
