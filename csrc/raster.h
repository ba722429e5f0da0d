// What one rectangle of one view holds between its forward and its backward pass.
#pragma once

#include <vector>

#include "buffer.h"
#include "simd.h"
#include "view.h"

namespace grendel {

// A splat as the pixel loops read it: one cache line, exponents in base 2.
// log2(alpha) = log_opacity + xx dx^2 + xy dx dy + yy dy^2, at d = pixel - (x, y).
struct alignas(64) PixelSplat {
    float x, y, xx, xy, yy, log_opacity, kappa;  // kappa = 2^(2 yy)
    float color[3];
    float depth;
    float unused[5];
};

// One splat in one tile: which rows of the tile it may touch, and where its gradient is summed.
struct Pair {
    uint32_t splat;  // in depth order
    uint32_t slot;   // (splat, tile row); the highest bit marks the first tile of that row
    uint8_t first_row, last_row;
};
constexpr uint32_t kFirst = 1u << 31;

struct Window {
    int x0, y0, width, height;          // the rectangle in pixels
    int tile_x0, tile_y0, tiles_x, tiles_y;  // tiles of the image's grid that it touches
    int tiles() const { return tiles_x * tiles_y; }
};

struct RenderState {
    Window window;
    int splats = 0;
    size_t pairs_used = 0, slots_used = 0;
    Buffer<uint64_t> keys, keys_other;          // (depth bits, index) while sorting
    Buffer<uint32_t> order;                     // depth order -> index
    Buffer<PixelSplat> pixel_splats;
    Buffer<float> extents;                      // see bin.cpp
    Buffer<uint32_t> slot_begin, slot_count;    // by index
    Buffer<Pair> pairs;
    Buffer<uint32_t> tile_begin;                // tiles + 1
    Buffer<uint32_t> processed;                 // pairs that a tile went through
    Buffer<float> transmittance;                // 256 a tile; negative where a pixel is finished
    Buffer<float> slots;                        // 16 a slot
    struct Emitted { uint32_t tile; Pair pair; };
    // What one thread finds; on cache lines of its own.
    struct alignas(64) Stretch {
        std::vector<Emitted> emitted;
        std::vector<uint32_t> tile_counts;
        uint32_t slots = 0;
    };
    std::vector<Stretch> stretches;

    size_t bytes() const;
};

// Orders splats by (depth, key), finds the tiles that each touches, lists them tile by tile.
void bin_splats(RenderState& s, const float* splats, const int32_t* keys, int n, int image_height,
                const Constants& k, int threads);

// First and last pixel row that each splat may touch; nothing is clipped to the image. [n, 2]
void row_ranges(const float* splats, int n, const Constants& k, int32_t* out, int threads);

}  // namespace grendel
