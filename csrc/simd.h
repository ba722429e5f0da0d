// Sixteen float lanes: one AVX-512 register, or two of AVX2, or four of NEON or SSE.
//
// Every kernel is written once against these types. Products are fused only where fma() says so
// (the build turns contraction off), so that a formula that two kernels share rounds alike in
// both, and a lane never depends on its neighbours.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
#define GRENDEL_AVX512 1
#include <immintrin.h>
#elif defined(__AVX2__)
#include <immintrin.h>
#endif

#define GRENDEL_INLINE inline __attribute__((always_inline))

namespace grendel {

constexpr int kLanes = 16;

#ifdef GRENDEL_AVX512

constexpr const char* kInstructionSet = "AVX-512";

struct M16 {
    __mmask16 v;
    GRENDEL_INLINE uint32_t bits() const { return v; }
    GRENDEL_INLINE bool any() const { return v != 0; }
};
GRENDEL_INLINE M16 operator&(M16 a, M16 b) { return {__mmask16(a.v & b.v)}; }
GRENDEL_INLINE M16 operator|(M16 a, M16 b) { return {__mmask16(a.v | b.v)}; }
GRENDEL_INLINE M16 operator~(M16 a) { return {__mmask16(~a.v)}; }
GRENDEL_INLINE M16 mask_from_bits(uint32_t bits) { return {__mmask16(bits)}; }

struct F16 {
    __m512 v;
    GRENDEL_INLINE F16() = default;
    GRENDEL_INLINE F16(__m512 x) : v(x) {}
    GRENDEL_INLINE F16(float x) : v(_mm512_set1_ps(x)) {}
    GRENDEL_INLINE static F16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
    GRENDEL_INLINE static F16 load_u8(const uint8_t* p) {
        return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p)))};
    }
    GRENDEL_INLINE void store(float* p) const { _mm512_storeu_ps(p, v); }
    // The first n lanes only; the others load as zero.
    template <int n> GRENDEL_INLINE static F16 load_first(const float* p) {
        return {_mm512_maskz_loadu_ps((1u << n) - 1, p)};
    }
    template <int n> GRENDEL_INLINE void store_first(float* p) const {
        _mm512_mask_storeu_ps(p, (1u << n) - 1, v);
    }
};
struct I16 {
    __m512i v;
    GRENDEL_INLINE I16() = default;
    GRENDEL_INLINE I16(__m512i x) : v(x) {}
    GRENDEL_INLINE I16(int32_t x) : v(_mm512_set1_epi32(x)) {}
    GRENDEL_INLINE void store(int32_t* p) const { _mm512_storeu_si512(p, v); }
};
GRENDEL_INLINE F16 operator+(F16 a, F16 b) { return {_mm512_add_ps(a.v, b.v)}; }
GRENDEL_INLINE F16 operator-(F16 a, F16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
GRENDEL_INLINE F16 operator*(F16 a, F16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
GRENDEL_INLINE F16 operator/(F16 a, F16 b) { return {_mm512_div_ps(a.v, b.v)}; }
GRENDEL_INLINE F16 fma(F16 a, F16 b, F16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
GRENDEL_INLINE F16 fnma(F16 a, F16 b, F16 c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
GRENDEL_INLINE F16 min(F16 a, F16 b) { return {_mm512_min_ps(a.v, b.v)}; }
GRENDEL_INLINE F16 max(F16 a, F16 b) { return {_mm512_max_ps(a.v, b.v)}; }
GRENDEL_INLINE F16 sqrt(F16 a) { return {_mm512_sqrt_ps(a.v)}; }
GRENDEL_INLINE F16 abs(F16 a) { return {_mm512_abs_ps(a.v)}; }
GRENDEL_INLINE F16 round(F16 a) { return {_mm512_roundscale_ps(a.v, 8)}; }
GRENDEL_INLINE F16 ceil(F16 a) { return {_mm512_roundscale_ps(a.v, 10)}; }
GRENDEL_INLINE M16 operator<(F16 a, F16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
GRENDEL_INLINE M16 operator<=(F16 a, F16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)}; }
GRENDEL_INLINE M16 operator>(F16 a, F16 b) { return b < a; }
GRENDEL_INLINE M16 operator>=(F16 a, F16 b) { return b <= a; }
GRENDEL_INLINE F16 select(M16 m, F16 a, F16 b) { return {_mm512_mask_blend_ps(m.v, b.v, a.v)}; }
GRENDEL_INLINE F16 keep(M16 m, F16 a) { return {_mm512_maskz_mov_ps(m.v, a.v)}; }
// -|a| where m, else a.
GRENDEL_INLINE F16 negate_abs(M16 m, F16 a) {
    return {_mm512_mask_or_ps(a.v, m.v, a.v, _mm512_set1_ps(-0.0f))};
}
// 1/a to about one unit in the last place; a must be normal.
GRENDEL_INLINE F16 reciprocal(F16 a) {
    F16 r{_mm512_rcp14_ps(a.v)};
    return fma(fnma(a, r, 1.0f), r, r);
}
// 1/sqrt(a) alike; a must be positive and normal.
GRENDEL_INLINE F16 reciprocal_sqrt(F16 a) {
    F16 r{_mm512_rsqrt14_ps(a.v)}, half = a * F16(0.5f) * r;
    return fma(fnma(half, r, 0.5f), r, r);
}
GRENDEL_INLINE I16 to_int(F16 a) { return {_mm512_cvtps_epi32(a.v)}; }
GRENDEL_INLINE F16 to_float(I16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
GRENDEL_INLINE I16 bits(F16 a) { return {_mm512_castps_si512(a.v)}; }
GRENDEL_INLINE F16 from_bits(I16 a) { return {_mm512_castsi512_ps(a.v)}; }
GRENDEL_INLINE I16 operator+(I16 a, I16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
GRENDEL_INLINE I16 operator-(I16 a, I16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
GRENDEL_INLINE I16 operator&(I16 a, I16 b) { return {_mm512_and_si512(a.v, b.v)}; }
GRENDEL_INLINE I16 operator|(I16 a, I16 b) { return {_mm512_or_si512(a.v, b.v)}; }
template <int n> GRENDEL_INLINE I16 shift_left(I16 a) { return {_mm512_slli_epi32(a.v, n)}; }
template <int n> GRENDEL_INLINE I16 shift_right(I16 a) { return {_mm512_srai_epi32(a.v, n)}; }

// One register, for loops that would need too many registers with all 16 lanes at once.
struct FN : F16 {
    static constexpr int lanes = kLanes;
    using F16::F16;
    GRENDEL_INLINE FN(F16 x) : F16(x) {}
    GRENDEL_INLINE static FN load(const float* p) { return F16::load(p); }
};

// Transpose 16 rows of 16 floats in place.
GRENDEL_INLINE void transpose16(F16* r) {
    __m512 t[16], u[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i].v, r[i + 1].v);
        t[i + 1] = _mm512_unpackhi_ps(r[i].v, r[i + 1].v);
    }
    for (int i = 0; i < 16; i += 4) {
        for (int j = 0; j < 2; j++) {
            __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + j + 2]);
            u[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            u[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(u[i], u[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(u[i], u[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = {_mm512_shuffle_f32x4(t[i], t[i + 8], 0x88)};
        r[i + 4] = {_mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88)};
        r[i + 8] = {_mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd)};
        r[i + 12] = {_mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd)};
    }
}

// Lane i of the result is the sum of the lanes of r[i], in one fixed order.
GRENDEL_INLINE F16 sum_each(const F16* r) {
    __m512 s[4];
    for (int i = 0; i < 4; i++) {
        const F16* q = r + 4 * i;
        __m512 a = _mm512_add_ps(_mm512_unpacklo_ps(q[0].v, q[1].v), _mm512_unpackhi_ps(q[0].v, q[1].v));
        __m512 b = _mm512_add_ps(_mm512_unpacklo_ps(q[2].v, q[3].v), _mm512_unpackhi_ps(q[2].v, q[3].v));
        __m512d c = _mm512_castps_pd(a), d = _mm512_castps_pd(b);
        s[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(c, d)),
                             _mm512_castpd_ps(_mm512_unpackhi_pd(c, d)));
    }
    for (int i = 0; i < 4; i += 2)
        s[i] = _mm512_add_ps(_mm512_shuffle_f32x4(s[i], s[i + 1], 0x88),
                             _mm512_shuffle_f32x4(s[i], s[i + 1], 0xdd));
    return {_mm512_add_ps(_mm512_shuffle_f32x4(s[0], s[2], 0x88),
                          _mm512_shuffle_f32x4(s[0], s[2], 0xdd))};
}

#else  // generic vectors of the compiler

#if defined(__AVX2__)
constexpr int kNativeBytes = 32;
constexpr const char* kInstructionSet = "AVX2";
#else
constexpr int kNativeBytes = 16;
#if defined(__ARM_NEON)
constexpr const char* kInstructionSet = "NEON";
#else
constexpr const char* kInstructionSet = "128-bit vectors";
#endif
#endif
constexpr int kParts = 64 / kNativeBytes;
constexpr int kPartLanes = kNativeBytes / 4;
typedef float NativeF __attribute__((vector_size(kNativeBytes)));
typedef int32_t NativeI __attribute__((vector_size(kNativeBytes)));

#define GRENDEL_PARTS(expression)                \
    for (int i = 0; i < kParts; i++) { expression; }

struct M16 {
    NativeI v[kParts];
    GRENDEL_INLINE bool any() const {
        NativeI o = v[0];
        for (int i = 1; i < kParts; i++) o |= v[i];
        int32_t r = 0;
        for (int j = 0; j < kPartLanes; j++) r |= o[j];
        return r != 0;
    }
    GRENDEL_INLINE uint32_t bits() const {
        uint32_t r = 0;
        for (int i = 0; i < kParts; i++)
            for (int j = 0; j < kPartLanes; j++) r |= uint32_t(v[i][j] & 1) << (i * kPartLanes + j);
        return r;
    }
};
GRENDEL_INLINE M16 operator&(M16 a, M16 b) { M16 r; GRENDEL_PARTS(r.v[i] = a.v[i] & b.v[i]) return r; }
GRENDEL_INLINE M16 operator|(M16 a, M16 b) { M16 r; GRENDEL_PARTS(r.v[i] = a.v[i] | b.v[i]) return r; }
GRENDEL_INLINE M16 operator~(M16 a) { M16 r; GRENDEL_PARTS(r.v[i] = ~a.v[i]) return r; }
GRENDEL_INLINE M16 mask_from_bits(uint32_t bits) {
    M16 r;
    for (int i = 0; i < kParts; i++)
        for (int j = 0; j < kPartLanes; j++) r.v[i][j] = -int32_t((bits >> (i * kPartLanes + j)) & 1);
    return r;
}

struct F16 {
    NativeF v[kParts];
    GRENDEL_INLINE F16() = default;
    GRENDEL_INLINE F16(float x) { GRENDEL_PARTS(v[i] = NativeF{} + x) }
    GRENDEL_INLINE static F16 load(const float* p) { F16 r; std::memcpy(&r, p, 64); return r; }
    GRENDEL_INLINE static F16 load_u8(const uint8_t* p) {
        typedef uint8_t Bytes __attribute__((vector_size(kPartLanes)));
        F16 r;
        for (int i = 0; i < kParts; i++) {
            Bytes bytes;
            std::memcpy(&bytes, p + i * kPartLanes, sizeof bytes);
            r.v[i] = __builtin_convertvector(__builtin_convertvector(bytes, NativeI), NativeF);
        }
        return r;
    }
    GRENDEL_INLINE void store(float* p) const { std::memcpy(p, v, 64); }
    template <int n> GRENDEL_INLINE static F16 load_first(const float* p) {
        F16 r = 0.0f;
        std::memcpy(&r, p, n * sizeof(float));
        return r;
    }
    template <int n> GRENDEL_INLINE void store_first(float* p) const { std::memcpy(p, v, n * sizeof(float)); }
};
struct I16 {
    NativeI v[kParts];
    GRENDEL_INLINE I16() = default;
    GRENDEL_INLINE I16(int32_t x) { GRENDEL_PARTS(v[i] = NativeI{} + x) }
    GRENDEL_INLINE void store(int32_t* p) const { std::memcpy(p, v, 64); }
};
#define GRENDEL_BINARY(T, name, expression) \
    GRENDEL_INLINE T name(T a, T b) { T r; GRENDEL_PARTS(r.v[i] = expression) return r; }
GRENDEL_BINARY(F16, operator+, a.v[i] + b.v[i])
GRENDEL_BINARY(F16, operator-, a.v[i] - b.v[i])
GRENDEL_BINARY(F16, operator*, a.v[i] * b.v[i])
GRENDEL_BINARY(F16, operator/, a.v[i] / b.v[i])
GRENDEL_BINARY(F16, min, a.v[i] < b.v[i] ? a.v[i] : b.v[i])
GRENDEL_BINARY(F16, max, a.v[i] > b.v[i] ? a.v[i] : b.v[i])
GRENDEL_BINARY(I16, operator+, a.v[i] + b.v[i])
GRENDEL_BINARY(I16, operator-, a.v[i] - b.v[i])
GRENDEL_BINARY(I16, operator&, a.v[i] & b.v[i])
GRENDEL_BINARY(I16, operator|, a.v[i] | b.v[i])
template <int n> GRENDEL_INLINE I16 shift_left(I16 a) { I16 r; GRENDEL_PARTS(r.v[i] = a.v[i] << n) return r; }
template <int n> GRENDEL_INLINE I16 shift_right(I16 a) { I16 r; GRENDEL_PARTS(r.v[i] = a.v[i] >> n) return r; }
GRENDEL_INLINE F16 fma(F16 a, F16 b, F16 c) {
    F16 r;
#if defined(__AVX2__) && defined(__FMA__)
    GRENDEL_PARTS(r.v[i] = (NativeF)_mm256_fmadd_ps(a.v[i], b.v[i], c.v[i]))
#else
    for (int i = 0; i < kParts; i++)
        for (int j = 0; j < kPartLanes; j++) r.v[i][j] = std::fmaf(a.v[i][j], b.v[i][j], c.v[i][j]);
#endif
    return r;
}
GRENDEL_INLINE F16 operator-(F16 a) { F16 r; GRENDEL_PARTS(r.v[i] = -a.v[i]) return r; }
GRENDEL_INLINE F16 fnma(F16 a, F16 b, F16 c) { return fma(-a, b, c); }
#define GRENDEL_UNARY(name, function)                                                     \
    GRENDEL_INLINE F16 name(F16 a) {                                                      \
        for (int i = 0; i < kParts; i++)                                                  \
            for (int j = 0; j < kPartLanes; j++) a.v[i][j] = function(a.v[i][j]);         \
        return a;                                                                         \
    }
GRENDEL_UNARY(sqrt, std::sqrt)
GRENDEL_UNARY(round, std::nearbyint)
GRENDEL_UNARY(ceil, std::ceil)
GRENDEL_INLINE M16 operator<(F16 a, F16 b) { M16 r; GRENDEL_PARTS(r.v[i] = a.v[i] < b.v[i]) return r; }
GRENDEL_INLINE M16 operator<=(F16 a, F16 b) { M16 r; GRENDEL_PARTS(r.v[i] = a.v[i] <= b.v[i]) return r; }
GRENDEL_INLINE M16 operator>(F16 a, F16 b) { return b < a; }
GRENDEL_INLINE M16 operator>=(F16 a, F16 b) { return b <= a; }
GRENDEL_INLINE F16 select(M16 m, F16 a, F16 b) { F16 r; GRENDEL_PARTS(r.v[i] = m.v[i] ? a.v[i] : b.v[i]) return r; }
GRENDEL_INLINE F16 keep(M16 m, F16 a) { F16 r; GRENDEL_PARTS(r.v[i] = (NativeF)((NativeI)a.v[i] & m.v[i])) return r; }
GRENDEL_INLINE F16 negate_abs(M16 m, F16 a) {
    F16 r;
    GRENDEL_PARTS(r.v[i] = (NativeF)((NativeI)a.v[i] | (m.v[i] & INT32_MIN)))
    return r;
}
GRENDEL_INLINE F16 abs(F16 a) {
    F16 r;
    GRENDEL_PARTS(r.v[i] = (NativeF)((NativeI)a.v[i] & INT32_MAX))
    return r;
}
GRENDEL_INLINE F16 reciprocal(F16 a) { return F16(1.0f) / a; }
GRENDEL_INLINE F16 reciprocal_sqrt(F16 a) { return F16(1.0f) / sqrt(a); }
GRENDEL_INLINE I16 to_int(F16 a) {
    I16 r;
    for (int i = 0; i < kParts; i++)
        for (int j = 0; j < kPartLanes; j++) r.v[i][j] = int32_t(std::nearbyint(a.v[i][j]));
    return r;
}
GRENDEL_INLINE F16 to_float(I16 a) { F16 r; GRENDEL_PARTS(r.v[i] = __builtin_convertvector(a.v[i], NativeF)) return r; }
GRENDEL_INLINE I16 bits(F16 a) { I16 r; GRENDEL_PARTS(r.v[i] = (NativeI)a.v[i]) return r; }
GRENDEL_INLINE F16 from_bits(I16 a) { F16 r; GRENDEL_PARTS(r.v[i] = (NativeF)a.v[i]) return r; }

#if defined(__AVX2__)
// Eight rows of the lower or upper half: transposed, they are a quarter of the result.
GRENDEL_INLINE void transpose8(const F16* r, int half, __m256* out) {
    __m256 t[8], u[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps((__m256)r[i].v[half], (__m256)r[i + 1].v[half]);
        t[i + 1] = _mm256_unpackhi_ps((__m256)r[i].v[half], (__m256)r[i + 1].v[half]);
    }
    for (int i = 0; i < 8; i += 4) {
        for (int j = 0; j < 2; j++) {
            u[i + 2 * j] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0x44);
            u[i + 2 * j + 1] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0xee);
        }
    }
    for (int i = 0; i < 4; i++) {
        out[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        out[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

GRENDEL_INLINE void transpose16(F16* r) {
    __m256 q[4][8];
    for (int i = 0; i < 4; i++) transpose8(r + 8 * (i & 1), i >> 1, q[i]);
    for (int i = 0; i < 8; i++) {
        for (int j = 0; j < 2; j++) {
            r[i].v[j] = (NativeF)q[j][i];
            r[i + 8].v[j] = (NativeF)q[j + 2][i];
        }
    }
}
#else
GRENDEL_INLINE void transpose16(F16* r) {
    float a[16][16], b[16][16];
    std::memcpy(a, r, sizeof a);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) b[i][j] = a[j][i];
    std::memcpy(r, b, sizeof b);
}
#endif

// One register, for loops that would need too many registers with all 16 lanes at once.
struct FN {
    static constexpr int lanes = kPartLanes;
    NativeF v;
    GRENDEL_INLINE FN() = default;
    GRENDEL_INLINE FN(NativeF x) : v(x) {}
    GRENDEL_INLINE FN(float x) : v(NativeF{} + x) {}
    GRENDEL_INLINE static FN load(const float* p) { FN r; std::memcpy(&r, p, sizeof r); return r; }
    GRENDEL_INLINE void store(float* p) const { std::memcpy(p, &v, sizeof v); }
};
GRENDEL_INLINE FN operator+(FN a, FN b) { return {a.v + b.v}; }
GRENDEL_INLINE FN operator*(FN a, FN b) { return {a.v * b.v}; }
GRENDEL_INLINE FN fma(FN a, FN b, FN c) {
#if defined(__AVX2__) && defined(__FMA__)
    return {(NativeF)_mm256_fmadd_ps(a.v, b.v, c.v)};
#else
    for (int j = 0; j < kPartLanes; j++) c.v[j] = std::fmaf(a.v[j], b.v[j], c.v[j]);
    return c;
#endif
}

GRENDEL_INLINE F16 sum_each(const F16* r) {
    float a[16];
    for (int i = 0; i < 16; i++) {
        float x[16], q[4];
        std::memcpy(x, r + i, sizeof x);
        for (int k = 0; k < 4; k++) q[k] = (x[4 * k] + x[4 * k + 2]) + (x[4 * k + 1] + x[4 * k + 3]);
        a[i] = (q[0] + q[1]) + (q[2] + q[3]);
    }
    return F16::load(a);
}

#undef GRENDEL_BINARY
#undef GRENDEL_UNARY
#undef GRENDEL_PARTS
#endif

// 2^x to 2 units in the last place; 0 below 2^-126, at most 2^127.
GRENDEL_INLINE F16 exp2(F16 x) {
    M16 tiny = x < F16(-126.0f);
    x = min(max(x, -126.0f), 127.0f);
    F16 n = round(x), f = x - n;
    F16 p = fma(f, 1.535336188319500e-4f, 1.339887440266574e-3f);
    p = fma(p, f, 9.618437357674640e-3f);
    p = fma(p, f, 5.550332471162809e-2f);
    p = fma(p, f, 2.402264791363012e-1f);
    p = fma(p, f, 6.931472028550421e-1f);
    p = fma(p, f, 1.0f);
    F16 r = from_bits(bits(p) + shift_left<23>(to_int(n)));
    return select(tiny, 0.0f, r);
}

GRENDEL_INLINE F16 exp(F16 x) { return exp2(x * F16(1.44269504088896f)); }

// Natural logarithm of a positive normal number, to 2 units in the last place.
GRENDEL_INLINE F16 log(F16 x) {
    I16 b = bits(x);
    I16 e = shift_right<23>(b) - I16(126);
    F16 m = from_bits((b & I16(0x007fffff)) | I16(0x3f000000));  // [0.5, 1)
    M16 low = m < F16(0.707106781186547524f);
    F16 n = to_float(e) - keep(low, 1.0f);
    F16 f = select(low, m + m, m) - F16(1.0f);
    F16 z = f * f;
    F16 p = fma(f, 7.0376836292e-2f, -1.1514610310e-1f);
    p = fma(p, f, 1.1676998740e-1f);
    p = fma(p, f, -1.2420140846e-1f);
    p = fma(p, f, 1.4249322787e-1f);
    p = fma(p, f, -1.6668057665e-1f);
    p = fma(p, f, 2.0000714765e-1f);
    p = fma(p, f, -2.4999993993e-1f);
    p = fma(p, f, 3.3333331174e-1f);
    F16 y = p * f * z;
    y = fma(n, -2.12194440e-4f, y);
    y = fma(z, -0.5f, y);
    return fma(n, 0.693359375f, f + y);
}

GRENDEL_INLINE F16 sigmoid(F16 x) {
    F16 e = exp(F16(0.0f) - abs(x));
    F16 s = F16(1.0f) / (F16(1.0f) + e);
    return select(x < F16(0.0f), e * s, s);
}

}  // namespace grendel
